"""What all verbs share: the core, waiting for work, a state's segments as futures, new states over old segments."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from kvlab.engine.protocol import Branch
from kvlab.errors import Cancelled, InvalidInput, StateGone
from kvlab.runtime import tasks
from kvlab.runtime.core import Core
from kvlab.runtime.operations import Operations
from kvlab.runtime.orders import MODEL_WORK, Order, Work
from kvlab.runtime.remote_errors import FAILED, error_of
from kvlab.runtime.requests import Request
from kvlab.runtime.stopping import ask_to_stop
from kvlab.state.records import StateRecord
from kvlab.store.events import Event, Kind

UNSHOWN_SECONDS = 1.0
"""What is done sooner needs no progress."""

LAB = "lab"
"""The run id under which verbs report."""


class Workbench:
    """The means of the verbs of one lab. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.operations = Operations(core)
        self._numbers = itertools.count(1)
        # Workers of a foreign scheduler may serve several labs: ids are never the same in two.
        self._mark = secrets.token_hex(3)

    def new_action(self, op: str) -> str:
        """An id for one action of a verb."""
        return f"{LAB}/{op}-{next(self._numbers)}-{self._mark}"

    @contextmanager
    def acting(self, op: str, record: StateRecord, worker: str) -> Iterator[None]:
        """Tell the lab's record that ``op`` is done to a state on ``worker``, for as long as the block takes."""
        told: dict[str, Any] = {"action": self.new_action(op), "agent": record.name or record.id, "worker": worker}
        emit, began = self.core.hub.emit, time.monotonic()
        emit(Kind.ACTION_STARTED, LAB, state=record.id, detail={"op": op, "subject": record.id}, **told)
        try:
            yield
        except BaseException as error:
            emit(Kind.ACTION_FAILED, LAB, state=record.id, detail={"op": op, "error": str(error)}, **told)
            raise
        seconds = time.monotonic() - began
        emit(Kind.ACTION_FINISHED, LAB, state=record.id, seconds=seconds, detail={"op": op}, **told)

    def remark(self, text: str, state: str) -> None:
        """Tell the lab's record something about a state."""
        self.core.hub.emit(Kind.NOTE, LAB, state=state, detail={"text": text, "level": "info"})

    def wait(
        self,
        futures: list[Any],
        actions: tuple[str, ...] = (),
        *,
        label: str = "Waiting for workers",
        total: int | None = None,
    ) -> list[Any]:
        """Results of ``futures``. Ctrl-C stops the work on the workers too.

        What takes longer than a second is shown as ``label``, with the tokens that ``actions`` have done of ``total``.
        """
        try:
            self._block(futures, actions, label, total)
        except KeyboardInterrupt:
            ask_to_stop(self.core.client, actions)
            raise Cancelled("stopped by Ctrl-C", hint="the states made before are still there") from None
        for future in futures:
            if future.status != "finished":
                raise error_of(future) from None
        return list(self.core.client.gather(futures))

    def _block(self, futures: list[Any], actions: tuple[str, ...], label: str, total: int | None) -> None:
        if not futures:
            return
        done = threading.Event()
        waiting = len(futures)
        lock = threading.Lock()

        def one_done(_: Any) -> None:
            nonlocal waiting
            with lock:
                waiting -= 1
                if waiting == 0:
                    done.set()

        for future in futures:
            future.add_done_callback(one_done)

        def over(seconds: float) -> bool:
            # Bounded waits in a loop let the main thread see Ctrl-C.
            return done.wait(seconds) or any(future.status in FAILED for future in futures)

        if over(UNSHOWN_SECONDS):
            return
        with self.core.progress.task(label, total, "tokens") as task, self._telling(actions, task.reach):
            while not over(0.2):
                self.core.require_hope()

    @contextmanager
    def _telling(self, actions: tuple[str, ...], reach: Callable[[float], None]) -> Iterator[None]:
        """Tell ``reach`` how many tokens ``actions`` have prefilled and drawn, as events come in."""
        prefilled: dict[str | None, int] = {}
        drawn = 0

        def look(_: str, event: Event) -> None:
            nonlocal drawn
            if event.action not in actions:
                return
            if event.kind is Kind.PREFILL_CHUNK:
                prefilled[event.agent] = event.n_tokens or 0
            elif event.kind is Kind.TOKENS:
                drawn += event.n_tokens or 0
            reach(sum(prefilled.values()) + drawn)

        stop = self.core.hub.listen(look)
        try:
            yield
        finally:
            stop()

    @contextmanager
    def using(self, record: StateRecord, worker: str | None = None) -> Iterator[list[Any]]:
        """Futures of a state's segments; those without a copy are recomputed first. None is evicted inside the block."""
        self.core.catalog.require_living(record.id)
        where = worker or self.pick_worker(record)
        request = Request(
            self.new_action("use"), LAB, record.namespace, record, (record.name,), (), where,
            self.core.threads_for(where),
        )  # fmt: skip
        futures, pending = self.operations.path_futures(request)
        try:
            headers = self.wait(pending.answers, (request.action,), label=f"Making {record.id} again")
        except BaseException:
            self.operations.abandon(pending)
            raise
        self.operations.collect(pending, headers)
        self.core.catalog.settle(record.id)
        try:
            yield futures
        finally:
            self.operations.done_with(pending)

    @contextmanager
    def claiming(self, op: str) -> Iterator[Callable[[str], None]]:
        """``claim(recipe)`` inside the block keeps a segment until the block ends; registered states keep it then."""
        action, claimed = self.new_action(op), list[str]()

        def claim(recipe: str) -> None:
            self.core.catalog.begin(action, [recipe])
            claimed.append(recipe)

        try:
            yield claim
        finally:
            self.core.catalog.unclaim(action, claimed)

    def make_segment(self, task: Callable[..., Any], order: Order, *arguments: Any, worker: str, nbytes: int) -> None:
        """Run ``task(order, *arguments)`` and take the segment it makes into the catalog. The caller claims its recipe."""
        catalog, recipe = self.core.catalog, order.recipes[0]
        generation, key = catalog.next_key(recipe)
        catalog.budget.reserve(key, nbytes, f"action {order.action}", device=worker)
        future = self.core.client.submit(
            task, order, *arguments, key=key, pure=False, resources=MODEL_WORK, **self.where(worker)
        )
        catalog.add_copy(recipe, generation, future)
        try:
            header = self.wait([self.core.client.submit(tasks.meta, future, pure=False)], (order.action,))[0]
        except BaseException:
            catalog.discard_copy(recipe, generation)
            raise
        catalog.placed(recipe, generation, str(header["worker"]), nbytes, made_ns=header["timing"]["finished_ns"])

    def share(
        self,
        record: StateRecord,
        operator: Literal["fork", "merge", "materialize"],
        name: str,
        parents: tuple[str, ...] = (),
    ) -> StateRecord:
        """A new state over the very same segments."""
        return self.operations.register(
            record,
            (),
            operator=operator,
            name=name,
            run=LAB,
            namespace=record.namespace,
            parents=parents or (record.id,),
            unfed=record.unfed,
            conversation=record.conversation,
        )

    def revive(self, record: StateRecord) -> None:
        """Make sure that a state can be used: an evicted one is planned again, one without lineage raises."""
        self.core.catalog.require_living(record.id)
        self.core.catalog.revive(record)

    def order(
        self,
        op: str,
        work: Work,
        agents: tuple[str, ...],
        recipes: tuple[str, ...],
        branches: tuple[Branch, ...],
        worker: str,
    ) -> Order:
        """An order for one piece of a verb's work."""
        action = self.new_action(op)
        threads = self.core.threads_for(worker)
        core = self.core
        return Order(action, LAB, work, core.model, agents, recipes, branches, threads, core.chunk, core.beside)

    def where(self, worker: str) -> dict[str, Any]:
        """Dask's keywords for a loose placement."""
        return {"workers": self.core.address_of(worker), "allow_other_workers": True}

    def pick_worker(self, record: StateRecord | None) -> str:
        """A living worker, one that has the state if there is one."""
        self.core.wait_for_worker()
        there = self.workers_of(record) if record is not None else ()
        living = [worker.name for worker in self.core.living_workers()]
        return next((name for name in there if name in living), living[0])

    def workers_of(self, record: StateRecord) -> tuple[str, ...]:
        """Workers that have every segment of the path."""
        held = [self.core.catalog.resident(name) for name in self.core.workers]
        names = zip(self.core.workers, held, strict=True)
        return tuple(
            name for name, there in names if record.segments and all(s.recipe in there for s in record.segments)
        )

    def require_worker(self, worker: str) -> None:
        """Return if ``worker`` is up; else say which are."""
        names = [seen.name for seen in self.core.living_workers()]
        if worker not in names:
            raise InvalidInput(f"there is no worker {worker!r}", hint=f"workers: {', '.join(names)}")

    def require_open(self, state: str | None = None) -> None:
        """Return if the lab, that of ``state`` where one is named, is open."""
        if self.core.closed:
            which = f"the lab of state {state}" if state is not None else "this lab"
            raise StateGone(f"{which} is closed", hint="open a lab and make the state again", state=state)
        self.core.require_scheduler()
