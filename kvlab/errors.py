"""Every error kvlab raises on purpose: what happened, with which values, and what to try."""

from __future__ import annotations

from typing import Any


class KVLabError(Exception):
    """Base of all errors a person can act on.

    Parameters
    ----------
    message
        What happened, with the values involved.
    hint
        What to try. Shown on its own line.
    data
        The values themselves, for programs. Kept in ``error.data``; everything must pickle,
        because Dask carries errors from workers to the notebook.
    """

    def __init__(self, message: str, *, hint: str = "", **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data = data

    def __str__(self) -> str:
        return f"{self.message}\n  Try: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.data)


def _rebuild(cls: type[KVLabError], message: str, hint: str, data: dict[str, Any]) -> KVLabError:
    return cls(message, hint=hint, **data)


class InvalidInput(KVLabError):
    """An argument, prompt or keyword that cannot be meant."""


class ContextTooLong(InvalidInput):
    """More tokens than the model has positions for."""


class MissingExtra(KVLabError):
    """A part that needs packages of an extra, such as ``kvlab[lab]``."""


class ModelNotFound(KVLabError):
    """No model by that name or path can be loaded here."""


class ModelRefused(KVLabError):
    """The model has something the engine does not reproduce exactly; the name of it is in the message."""


class ChecksumMismatch(KVLabError):
    """Bytes are not the bytes that were written."""


class NoRoom(KVLabError):
    """Not enough disk or memory; says need, have, and who holds it."""


class GraphError(KVLabError):
    """A workflow that cannot be compiled; names the agent or context at fault."""


class IllegalTransition(KVLabError):
    """A lifecycle change that no state may make."""


class StateMismatch(KVLabError):
    """A state of another model, configuration or namespace; ``data['fields']`` names what differs."""


class StateGone(KVLabError):
    """The state's bytes are gone and so is what could make them again."""


class MergeRefused(KVLabError):
    """Branches that cannot be merged exactly."""


class TransferFailed(KVLabError):
    """A segment did not arrive whole."""


class ClusterError(KVLabError):
    """The scheduler or its workers are missing, silent, or set up in a way kvlab cannot use."""


class NoWorker(ClusterError):
    """No worker is up at the moment; those of a lab's own are started again."""


class RunUnreadable(KVLabError):
    """A run folder that is not one, is damaged before its first batch, or was written by a newer kvlab."""


class Cancelled(KVLabError):
    """A person or the conductor stopped this work; what was finished before is kept."""
