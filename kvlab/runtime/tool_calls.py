"""A tool's call: a function on a thread of its own, while the state that waits for it is idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kvlab.compiler.graph import Call
from kvlab.errors import Cancelled, InvalidInput
from kvlab.workflow.tools import function_of

if TYPE_CHECKING:
    from kvlab.runtime.catalog import Catalog
    from kvlab.state.records import StateRecord

LANE = "tools"
"""Where the record shows calls: they are on no worker."""


class Hold:
    """States that nothing evicts until :meth:`end`, or until ``seconds`` have passed: their run goes on from them."""

    def __init__(self, catalog: Catalog, name: str, states: Iterable[StateRecord], seconds: float) -> None:
        self._catalog, self._name = catalog, name
        self._recipes = list(dict.fromkeys(segment.recipe for state in states for segment in state.segments))
        catalog.claim(name, self._recipes)
        self._deadline = threading.Timer(seconds, self.end)
        self._deadline.daemon = True
        self._deadline.start()

    def end(self) -> None:
        """Let them go. A second time does nothing."""
        self._deadline.cancel()
        self._catalog.unclaim(self._name, self._recipes)


class ToolCall:
    """One call, begun at once. ``over`` is called once, on the call's thread, when ``text`` or ``error`` is there.

    A pause ends when the call is stopped; a function that runs is not interrupted, and what it returns then is ignored.
    """

    def __init__(self, name: str, call: Call, texts: Sequence[str], over: Callable[[], None]) -> None:
        self.text: str | None = None
        self.error: Exception | None = None
        self.seconds = 0.0
        self._name, self._call, self._texts, self._over = name, call, texts, over
        self._stopped = threading.Event()
        threading.Thread(target=self._work, name=f"kvlab-tool-{name}", daemon=True).start()

    def stop(self) -> None:
        """Do not wait any longer."""
        self._stopped.set()

    def _work(self) -> None:
        began = time.perf_counter()
        try:
            if self._stopped.wait(self._call.pause_seconds):
                raise Cancelled(f"tool {self._name} was not called: the run was cancelled", hint="run it again")  # noqa: TRY301
            said = function_of(self._call.call)(*self._texts)
            if not isinstance(said, str):
                raise InvalidInput(  # noqa: TRY301
                    f"tool {self._name} returned {type(said).__name__}, not a text", hint="return a str"
                )
            self.text = said
        except Exception as error:  # noqa: BLE001 - the function is the user's: whatever it raises fails this tool by name
            self.error = error
        self.seconds = time.perf_counter() - began
        self._over()
