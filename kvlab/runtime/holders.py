"""Who holds a state: variables of the notebook, its output history, runs. And the table of all states."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from kvlab.runtime.core import Core

SCHEMA = pa.schema(
    [
        pa.field("state", pa.string()),
        pa.field("name", pa.string()),
        pa.field("phase", pa.string()),
        pa.field("n_tokens", pa.int64()),
        pa.field("own_bytes", pa.int64(), metadata={"unit": "bytes in segments no older state has"}),
        pa.field("path_bytes", pa.int64(), metadata={"unit": "bytes of the whole path"}),
        pa.field("workers", pa.list_(pa.string())),
        pa.field("operator", pa.string()),
        pa.field("parents", pa.list_(pa.string())),
        pa.field("exact", pa.bool_()),
        pa.field("pinned", pa.bool_()),
        pa.field("held_by", pa.list_(pa.string())),
    ]
)


def states_table(core: Core) -> pa.Table:
    """One row a state, oldest first. ``held_by`` names variables, ``Out[n]`` cells and runs of the notebook."""
    own = core.catalog.own_bytes()
    held = _held_by()
    resident = {name: core.catalog.resident(name) for name in core.workers}
    rows = []
    for entry in core.catalog.states():
        record = entry.record
        path = [segment.recipe for segment in record.segments]
        rows.append(
            {
                "state": record.id,
                "name": record.name,
                "phase": str(entry.phase),
                "n_tokens": record.n_tokens,
                "own_bytes": own.get(record.id, 0),
                "path_bytes": record.nbytes,
                "workers": [name for name, there in resident.items() if path and all(r in there for r in path)],
                "operator": record.lineage.operator,
                "parents": list(record.lineage.parents),
                "exact": record.lineage.exact,
                "pinned": entry.pinned,
                "held_by": held.get((id(core), record.id), []),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def forget_outputs() -> None:
    """Drop states and what contains them from IPython's output history, so that it no longer keeps them alive."""
    shell = _shell()
    if shell is None:
        return
    history = shell.user_ns.get("Out", {})
    for number in [number for number, value in history.items() if list(_states_in(value))]:
        del history[number]
    # IPython keeps what it has shown under names of its own in both of these.
    for names in (shell.user_ns, shell.user_ns_hidden):
        for name in ("_", "__", "___", *[name for name in names if name[:1] == "_" and name[1:].isdigit()]):
            if list(_states_in(names.get(name))):
                names[name] = None
    shell.displayhook._, shell.displayhook.__, shell.displayhook.___ = "", "", ""


def _held_by() -> dict[tuple[int, str], list[str]]:
    shell = _shell()
    if shell is None:
        return {}
    found: dict[tuple[int, str], list[str]] = {}

    def note(value: Any, place: str) -> None:
        for state in _states_in(value):
            found.setdefault((id(state._verbs.core), state.id), []).append(place)  # noqa: SLF001

    for number, value in shell.user_ns.get("Out", {}).items():
        note(value, f"Out[{number}]")
    for name, value in list(shell.user_ns.items()):
        if not name.startswith("_") and name not in ("Out", "In"):
            note(value, name)
    return found


def _states_in(value: Any, depth: int = 2) -> Any:
    """States that ``value`` is or holds: generations, runs, lists, tuples and dicts are looked into."""
    from kvlab.runtime.handles import Generation, KVState
    from kvlab.runtime.run import Run

    if isinstance(value, KVState):
        yield value
    elif isinstance(value, Generation):
        yield value.state
    elif isinstance(value, Run):
        yield from value.states.values()
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _states_in(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _states_in(item, depth - 1)


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
