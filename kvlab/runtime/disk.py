"""States on disk: written by the worker that has them, read back by one of the lab's."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kvlab.errors import InvalidInput, NoRoom
from kvlab.runtime import tasks
from kvlab.runtime.saving import metadata_of, read_metadata
from kvlab.runtime.workbench import LAB, Workbench
from kvlab.state.compatibility import require_compatible
from kvlab.state.identity import recipe_of
from kvlab.state.records import SegmentRecord, StateRecord
from kvlab.store.tensors import drafts_of
from kvlab.workflow.checks import checked_path

if TYPE_CHECKING:
    from kvlab.runtime.handles import KVState


def save(bench: Workbench, state: KVState, folder: str | Path) -> Path:
    """See :meth:`KVState.save`."""
    bench.require_open(state.id)
    path = checked_path("the folder", folder).resolve()
    if path.exists():
        raise InvalidInput(f"{path} exists", hint="choose a new folder, or remove it")
    with bench.acting("save", state.record, bench.pick_worker(state.record)), bench.using(state.record) as past:
        metadata = {**metadata_of(state.record), "saving": secrets.token_hex(8)}
        future = bench.core.client.submit(tasks.save, str(path), metadata, *past, pure=False)
        bench.wait([future], label=f"Saving {state.id}")
    if not path.exists():
        raise InvalidInput(
            f"the worker wrote {path} on another machine", hint="choose a folder that all machines share"
        )
    for draft in drafts_of(path):  # of a worker that was killed at it
        shutil.rmtree(draft, ignore_errors=True)
    return path


def spill(bench: Workbench, record: StateRecord) -> int:
    """See :meth:`KVState.spill`."""
    catalog = bench.core.catalog
    if catalog.disk is None:
        raise InvalidInput("this lab spills nothing to disk", hint='Lab(spill_bytes="4 GiB"), with workers of its own')
    catalog.reap()  # what nobody can refer to any more shares nothing
    catalog.keeping.require_spillable(record.id)
    own = catalog.own_segments(record.id)
    with bench.acting("spill", record, bench.pick_worker(record)):
        freed = catalog.evictor.spill(own)
    left = [recipe for recipe in own if catalog.copies(recipe)]
    if left:
        raise NoRoom(
            f"{len(left)} of {len(own)} segments of state {record.id} could not be written to disk and stay in memory, or "
            "are made again when they are used",
            hint="lab.inspect() says why; if the disk is full give Lab(spill_bytes=...) more, or evict the state",
            have=catalog.disk.free_bytes(),
        )
    return freed


def load(bench: Workbench, folder: str | Path, name: str, worker: str | None) -> StateRecord:
    """Bring a saved state into this lab's memory. Refuses one of another model before any byte is read."""
    path = checked_path("the folder", folder).resolve()
    saved = read_metadata(path)
    require_compatible(str(path), saved.model, saved.config, bench.core.model, bench.core.config)
    root, worker = bench.core.root(bench.core.namespace), worker or bench.pick_worker(None)
    segments: list[SegmentRecord] = []
    parent: str | None = None
    with bench.claiming("load") as claim:
        for index, piece in enumerate(saved.segments):
            recipe = recipe_of(root, parent, piece.token_ids, None, "load")
            claim(recipe)
            if not bench.operations.living_copies(recipe):
                order = bench.order("load", "materialize", (name,), (recipe,), (), worker)
                bench.make_segment(tasks.restore, order, str(path), index, worker=worker, nbytes=piece.nbytes)
            segments.append(SegmentRecord(recipe, parent, piece.start, piece.token_ids, piece.n_prompt, piece.nbytes))
            parent = recipe
        return bench.operations.register(
            None,
            segments,
            operator="load",
            name=name or saved.name,
            run=LAB,
            namespace=bench.core.namespace,
            unfed=saved.unfed,
            conversation=saved.conversation,
            note=f"loaded from {path.name}",
        )
