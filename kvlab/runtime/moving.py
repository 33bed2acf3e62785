"""Moving a state: mapped on one host, else its bytes; copied first, and only then given up where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvlab.errors import ChecksumMismatch, StateGone, TransferFailed
from kvlab.runtime import tasks
from kvlab.runtime.replicas import drop_replicas
from kvlab.runtime.workbench import Workbench
from kvlab.state.lifecycle import Phase
from kvlab.state.records import SegmentRecord, StateRecord

if TYPE_CHECKING:
    from kvlab.runtime.handles import KVState


def transfer(bench: Workbench, state: KVState, worker: str, *, keep: bool) -> KVState:
    """See :meth:`KVState.transfer`."""
    bench.require_open(state.id)
    bench.require_worker(worker)
    with bench.acting("transfer", state.record, worker):
        _move(bench, state.record, worker, keep=keep)
    return state


def _move(bench: Workbench, record: StateRecord, worker: str, *, keep: bool) -> None:
    catalog = bench.core.catalog
    entry = catalog.require_living(record.id)
    if entry.phase is not Phase.RESIDENT:
        raise StateGone(
            f"state {record.id} is {entry.phase}: a transfer moves what is there and never recomputes",
            hint="resume it, which brings it back by the cheapest road",
        )
    found = [(segment, *_a_copy(bench, segment, worker)) for segment in record.segments]
    missing = [item for item in found if worker not in item[2].workers]
    if found:  # also what is said to be there is read once: the copies elsewhere may be given up after this
        catalog.move_to(
            record.id, Phase.IN_TRANSIT
        )  # from here on nothing evicts it, to make room for its own copy too
        try:
            for segment, _, copy in missing:
                bench.operations.reserve_replica(copy, segment, worker, keeps=not keep)
            where = bench.core.address_of(worker)
            touch = bench.core.client.submit(
                tasks.touch,
                *[copy.future for _, _, copy in found],
                pure=False,
                workers=where,
                allow_other_workers=True,
            )
            bench.wait([touch], label=f"Moving {record.id} to {worker}")
            _require_there(bench, record, touch, worker)
        except BaseException as trouble:
            for _, _, copy in missing:
                catalog.budget.release(f"{copy.key}@{worker}")
            if isinstance(trouble, TransferFailed):  # what stands for it there must not be taken for it
                for _, _, copy in missing:
                    drop_replicas(bench.core.client, copy.key, bench.core.address_of(worker))
            if isinstance(trouble, ChecksumMismatch):
                bench.operations.distrust(record.segments, trouble)
            raise
        finally:
            catalog.move_to(record.id, Phase.RESIDENT)
        for segment, generation, _ in missing:
            catalog.placed(segment.recipe, generation, worker)
    if not keep:
        _leave_others(bench, found, worker, record)


def _a_copy(bench: Workbench, segment: SegmentRecord, worker: str) -> tuple[int, Any]:
    """The newest copy on ``worker``, else the newest anywhere, with its generation."""
    copies = bench.operations.living_copies(segment.recipe)
    if not copies:
        raise StateGone(f"segment {segment.recipe[:12]} has no copy", hint="resume the state: it is recomputed")
    here = {generation: copy for generation, copy in copies.items() if worker in copy.workers}
    return max((here or copies).items())


def _leave_others(
    bench: Workbench, found: list[tuple[SegmentRecord, int, Any]], worker: str, record: StateRecord
) -> None:
    """Copy, then delete: replicas elsewhere go, but for segments that other states have in their paths."""
    for segment, generation, copy in found:
        shared = any(
            segment in entry.record.segments and entry.record.id != record.id and entry.phase is Phase.RESIDENT
            for entry in bench.core.catalog.states()
        )
        if shared:
            continue
        for other in bench.core.catalog.copies(segment.recipe).keys() - {generation}:
            bench.core.catalog.discard_copy(segment.recipe, other)
        others = copy.workers - {worker}
        if others:
            addresses = [address for name in others for address in bench.core.address_of(name)]
            drop_replicas(bench.core.client, copy.key, addresses)
            copy.workers.difference_update(others)
            # What was reserved first now stands for the copy that is left, and the other for those that leave.
            second = f"{copy.key}@{worker}"
            bench.core.catalog.budget.exchange_devices(copy.key, second)
            bench.core.catalog.leaving.add(second, copy.key, others)
            for name in others:
                bench.core.catalog.budget.inherited(copy.key, name, worker)
                bench.core.catalog.leaving.add(f"{copy.key}@{name}", copy.key, {name})


def _require_there(bench: Workbench, record: StateRecord, touch: Any, worker: str) -> None:
    addresses = next(iter(bench.core.client.who_has([touch]).values()), ())
    landed = next((seen.name for seen in bench.core.workers.values() if seen.address in addresses), None)
    if landed != worker:
        raise TransferFailed(
            f"state {record.id} went to {landed or 'nobody'}, because {worker} was lost on the way", hint="try again"
        )
