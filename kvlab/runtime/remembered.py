"""Labs are remembered: the same arguments give the running one; a cell run again with others closes what it made."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Hashable
from typing import Any

from kvlab.errors import InvalidInput
from kvlab.workflow.keywords import refuse_unknown_keywords


class Remembered(type):
    """Metaclass of :class:`kvlab.runtime.lab.Lab`: looks before it makes."""

    _running: dict[Any, Any] = {}  # noqa: RUF012 - one registry a process
    _one_at_a_time = threading.RLock()
    """Held while one is made: who asks for the same meanwhile gets that one."""
    _made_by_cell: dict[str, dict[Any, str]] = {}  # noqa: RUF012 - cell: {lab: the execution that asked for it last}

    def check(cls, arguments: dict[str, Any]) -> None:
        """For the class to override: raise for arguments that cannot be meant, before anything is closed for them."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        """The running lab of these arguments, or a new one."""
        with Remembered._one_at_a_time:
            return cls._remembered_or_made(args, keywords)

    def _remembered_or_made(cls, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        key = cls._key(args, keywords)
        running = Remembered._running.get(key)
        cell, execution = _cell()
        made_here = Remembered._made_by_cell.setdefault(cell, {}) if cell else {}
        if running is not None and not running.closed:
            if running in made_here:
                made_here[running] = execution
            return running
        cls.check({**dict(key), "progress": keywords.get("progress")})  # before anything is closed for it
        for before in [lab for lab, then in made_here.items() if then != execution]:
            before.close()
        lab = super().__call__(*args, **keywords)
        Remembered._running[key] = lab
        if cell:
            made_here[lab] = execution
        return lab

    def _key(cls, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        names = list(signature.parameters)[1:]
        refuse_unknown_keywords("Lab", [name for name in keywords if name not in names], names)
        if len(args) > 1:
            raise InvalidInput("Lab takes one positional argument, a scheduler's address", hint="name the others")
        bound = signature.bind(None, *args, **keywords)
        bound.apply_defaults()
        found = [(name, value) for name, value in bound.arguments.items() if name not in ("self", "progress")]
        for name, value in found:
            if not isinstance(value, Hashable):
                raise InvalidInput(f"{name}={value!r} is a {type(value).__name__}", hint="a text, a number or None")
        return tuple(found)

    @staticmethod
    def forget(lab: Any) -> None:
        """A lab is closed."""
        for key in [key for key, value in Remembered._running.items() if value is lab]:
            del Remembered._running[key]
        for made in Remembered._made_by_cell.values():
            made.pop(lab, None)


def _cell() -> tuple[str | None, str]:
    """(the notebook cell that runs now, as the front end names it, or None outside a notebook; this run of it)."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "get_parent"):
        return None, ""
    parent = shell.get_parent()
    cell = parent.get("metadata", {}).get("cellId")
    return (str(cell) if cell else None), str(parent.get("header", {}).get("msg_id", ""))
