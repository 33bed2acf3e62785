"""A tool's call: a function on a thread of its own, while the states that wait for it are idle, and held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kvlab.compiler.graph import Call
from kvlab.errors import Cancelled, IllegalTransition, InvalidInput, KVLabError, StateGone
from kvlab.state.tokens import n_ids
from kvlab.store.events import Kind
from kvlab.workflow.tools import function_of

if TYPE_CHECKING:
    from kvlab.runtime.catalog import Catalog
    from kvlab.runtime.core import Core
    from kvlab.state.records import StateRecord

LANE = "tools"
"""Where the record shows calls: they are on no worker."""


class ToolCall:
    """One call, begun at once and told to the record of ``run``. ``over`` is called once, on the call's thread.

    A pause ends when the call is ended; a function that runs is not interrupted, and what it returns then is ignored.

    Parameters
    ----------
    idle
        States that wait for it.
    """

    def __init__(
        self,
        core: Core,
        run: str,
        action: str,
        name: str,
        call: Call,
        texts: Sequence[str],
        idle: Sequence[StateRecord],
        over: Callable[[], None],
    ) -> None:
        self._core, self._run, self._name, self._call, self._over = core, run, name, call, over
        self._told: dict[str, Any] = {"action": action, "agent": name, "worker": LANE}
        self._text: str | None = None
        self._error: Exception | None = None
        self._seconds = 0.0
        self._ended = threading.Event()
        core.hub.emit(Kind.ACTION_PLANNED, run, **self._told, detail={"op": "tool", "subject": name})
        self._leases = dict(_leased(core.catalog, idle, call.hold_seconds))
        held = [state.id for state in idle]
        core.hub.emit(Kind.ACTION_STARTED, run, **self._told, detail={"op": "tool", "holds": held})
        threading.Thread(target=self._work, args=(texts,), name=f"kvlab-tool-{name}", daemon=True).start()

    def end(self) -> None:
        """Wait no longer, and let the states go. A second time does nothing."""
        self._ended.set()
        for state, number in self._leases.items():
            self._core.catalog.keeping.end(state, number)

    def result(self) -> tuple[str, bytes]:
        """What came of it, once it is over: the text, and its packed ids. Tells the record.

        Raises
        ------
        KVLabError
            If the function raised; from what it raised.
        InvalidInput
            If it returned no text, or a longer one than was said.
        """
        error = self._error
        if isinstance(error, KVLabError):
            raise error
        if error is not None:
            said = f"{type(error).__name__}: {error}"
            raise KVLabError(
                f"tool {self._name} failed: {said}", hint="it is your function; see the traceback"
            ) from error
        text = self._text
        if not isinstance(text, str):
            raise InvalidInput(f"tool {self._name} returned {type(text).__name__}, not a text", hint="return a str")
        ids = self._core.tokenizer.text_ids(text)
        n_tokens, most = n_ids(ids), self._call.max_tokens
        if n_tokens > most:
            raise InvalidInput(
                f"tool {self._name} returned {n_tokens} tokens, at most {most}",
                hint=f"wf.tool(…, max_tokens={n_tokens}), or a shorter text",
            )
        self._core.hub.emit(
            Kind.ACTION_FINISHED,
            self._run,
            **self._told,
            n_tokens=n_tokens,
            seconds=self._seconds,
            detail={"op": "tool", "text": text},
        )
        return text, ids

    def _work(self, texts: Sequence[str]) -> None:
        began = time.perf_counter()
        try:
            if self._ended.wait(self._call.pause_seconds):
                raise Cancelled(f"tool {self._name} was not called: the run was cancelled", hint="run it again")  # noqa: TRY301
            self._text = function_of(self._call.call)(*texts)
        except Exception as error:  # noqa: BLE001 - the function is the user's: whatever it raises fails this tool by name
            self._error = error
        self._seconds = time.perf_counter() - began
        self._over()


def _leased(catalog: Catalog, states: Iterable[StateRecord], seconds: float) -> Iterator[tuple[str, int]]:
    """Lease states until the deadline: (state, number of its lease). What has left memory already comes back by its edge."""
    for state in states:
        with suppress(IllegalTransition, StateGone):
            yield state.id, catalog.keeping.lease(state.id, seconds)[0]
