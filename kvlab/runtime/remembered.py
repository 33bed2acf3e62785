"""Labs are remembered: the same arguments give the running one; a cell that is run again with others closes its old one."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from kvlab.errors import InvalidInput
from kvlab.workflow.keywords import refuse_unknown_keywords


class Remembered(type):
    """Metaclass of :class:`kvlab.runtime.lab.Lab`: looks before it makes."""

    _running: dict[Any, Any] = {}  # noqa: RUF012 - one registry a process
    _made_by_cell: dict[str, Any] = {}  # noqa: RUF012

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        """The running lab of these arguments, or a new one."""
        key = cls._key(args, keywords)
        running = Remembered._running.get(key)
        if running is not None and not running.closed:
            return running
        cell = _cell()
        before = Remembered._made_by_cell.get(cell) if cell else None
        if before is not None and not before.closed:
            before.close()
        lab = super().__call__(*args, **keywords)
        Remembered._running[key] = lab
        if cell:
            Remembered._made_by_cell[cell] = lab
        return lab

    def _key(cls, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        signature = inspect.signature(cls.__init__)
        names = list(signature.parameters)[1:]
        refuse_unknown_keywords("Lab", [name for name in keywords if name not in names], names)
        if len(args) > 1:
            raise InvalidInput("Lab takes one positional argument, a scheduler's address", hint="name the others")
        bound = signature.bind(None, *args, **keywords)
        bound.apply_defaults()
        return tuple((name, value) for name, value in bound.arguments.items() if name not in ("self", "progress"))

    @staticmethod
    def forget(lab: Any) -> None:
        """A lab is closed."""
        for registry in (Remembered._running, Remembered._made_by_cell):
            for key in [key for key, value in registry.items() if value is lab]:
                del registry[key]


def _cell() -> str | None:
    """The notebook cell that runs now, as the front end names it; None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "get_parent"):
        return None
    metadata = shell.get_parent().get("metadata", {})
    cell = metadata.get("cellId")
    return str(cell) if cell else None
