"""The verbs of states, one at a time, for exploring in cells. Each blocks until it is done."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kvlab.cost.decide import Decision, Edge, Piece, decide
from kvlab.engine.protocol import Branch
from kvlab.errors import Cancelled, ContextTooLong, InvalidInput, MergeRefused, StateGone, TransferFailed
from kvlab.runtime import tasks
from kvlab.runtime.core import Core
from kvlab.runtime.handles import Generation, KVState, closed_lab, require_states
from kvlab.runtime.operations import Operations, Pending, Request
from kvlab.runtime.orders import Order
from kvlab.runtime.replicas import drop_replicas
from kvlab.runtime.turns import Timeline, describe_alternative, turn_of
from kvlab.state.compatibility import require_compatible
from kvlab.state.identity import Sampling, recipe_of
from kvlab.state.lifecycle import Phase
from kvlab.state.merge import merge_prefix, shared_prefix
from kvlab.state.records import SegmentRecord, StateRecord
from kvlab.state.tokens import BYTES_PER_ID, n_ids
from kvlab.store.events import Kind

LAB = "lab"
"""The run id under which verbs report."""
SUMMARY = "Summarize these continuations in a few sentences, keeping what they agree and disagree on:"


class Verbs:
    """Carries out verbs on one core. Thread-safe: verbs may be called from several threads."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.operations = Operations(core)
        self._numbers = itertools.count(1)
        self._timeline = Timeline()
        self._lock = threading.Lock()

    # -- making

    def materialize(self, text: str, *, chat: bool = False, name: str = "", worker: str | None = None) -> KVState:
        """Prefill ``text``; what a resident state of the lab already has as a prefix is reused.

        With ``chat`` the text opens the user's turn of a conversation; ``resume(..., chat=True)`` goes on and closes it.
        """
        self._require_open("materialize")
        ids = self._root_ids(text, chat=chat)
        self._require_fits(n_ids(ids), 0)
        namespace = self.core.namespace
        with self.core.catalog.lock:
            n_known, known = self.core.catalog.longest_prefix(namespace, ids)
            # A handle keeps what was found from going away meanwhile.
            base = KVState(self, known) if known is not None else None
        if known is not None and n_known == n_ids(ids):
            return KVState(self, self._share(known, "materialize", name))
        branch = Branch(ids[n_known * BYTES_PER_ID :], Sampling(0))
        return self._turn("materialize", base, name, branch, namespace, worker, conversation=chat).state

    def resume(
        self,
        state: KVState,
        text: str,
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        chat: bool,
        worker: str | None,
    ) -> Generation:
        """See :meth:`KVState.resume`."""
        self._require_open(state.id)
        record = state.record
        if max_new_tokens < 1 or temperature < 0:
            raise InvalidInput(
                f"resume: max_new_tokens={max_new_tokens} and temperature={temperature} cannot be meant",
                hint="max_new_tokens ≥ 1, temperature ≥ 0 (0 is greedy); lab.materialize only prefills",
            )
        ids = self._next_ids(record, text, chat=chat)
        self._require_fits(record.n_tokens + n_ids(ids), max_new_tokens)
        sampling = Sampling(max_new_tokens, float(temperature), seed, record.name)
        branch = Branch(ids, sampling, self.core.tokenizer.stop_ids)
        return self._turn(
            "resume", state, record.name, branch, record.namespace, worker, conversation=record.conversation or chat
        )

    def fork(self, state: KVState, n: int) -> tuple[KVState, ...]:
        """See :meth:`KVState.fork`."""
        self._require_open(state.id)
        if n < 1:
            raise InvalidInput(f"fork({n}): a state is forked into at least one", hint="state.fork(2)")
        self._revived(state.record)
        return tuple(
            KVState(self, self._share(state.record, "fork", f"{state.record.name}/{index}")) for index in range(n)
        )

    def truncate(self, state: KVState, n_tokens: int) -> KVState:
        """See :meth:`KVState.truncate`."""
        self._require_open(state.id)
        record = state.record
        if not 0 < n_tokens <= record.n_tokens:
            raise InvalidInput(
                f"truncate({n_tokens}): state {record.id} has {record.n_tokens} tokens",
                hint=f"1 ≤ n ≤ {record.n_tokens}",
            )
        self._revived(record)
        return KVState(self, self._truncated(record, n_tokens))

    def merge(self, states: Sequence[KVState], how: Literal["prefix", "summary"], max_new_tokens: int) -> KVState:
        """See :func:`merge`."""
        self._require_open("merge")
        records = [state.record for state in states]
        if how == "prefix":
            longest = merge_prefix(records)
            self._revived(longest)
            return KVState(self, self._share(longest, "merge", longest.name, tuple(r.id for r in records)))
        shared = shared_prefix(records)
        if shared == 0:
            raise MergeRefused(
                "the states share no prefix, so there is nothing to write a summary on",
                hint="pass their texts to an agent: lab.materialize(a.text + b.text)",
            )
        base = states[0].truncate(shared)
        texts = [self.core.tokenizer.decode(r.path_ids[shared * BYTES_PER_ID :] + r.unfed) for r in records]
        listed = "\n\n".join(f"{index}. {text.strip()}" for index, text in enumerate(texts, start=1))
        prompt = f"\n\n{SUMMARY}\n\n{listed}\n\nSummary:"
        written = base.resume(prompt, max_new_tokens=max_new_tokens)
        return KVState(self, self._share(written.state.record, "merge", states[0].record.name, tuple(r.id for r in records)))

    # -- placing

    def transfer(self, state: KVState, worker: str, *, keep: bool) -> KVState:
        """See :meth:`KVState.transfer`."""
        self._require_open(state.id)
        self._require_worker(worker)
        record, catalog = state.record, self.core.catalog
        entry = catalog.require_living(record.id)
        if entry.phase is not Phase.RESIDENT:
            raise StateGone(
                f"state {record.id} is {entry.phase}: a transfer moves what is there and never recomputes",
                hint="resume it, which brings it back by the cheapest road",
            )
        found = [(segment, *self._a_copy(segment)) for segment in record.segments]
        missing = [item for item in found if worker not in item[2].workers]
        if missing:
            catalog.move_to(record.id, Phase.IN_TRANSIT)
            try:
                where = self.core.address_of(worker)
                touch = self.core.client.submit(
                    tasks.touch, *[copy.future for _, _, copy in missing], pure=False, workers=where, allow_other_workers=True
                )
                self._wait([touch])
            finally:
                catalog.move_to(record.id, Phase.RESIDENT)
            landed = self._worker_at(touch)
            if landed != worker:
                raise TransferFailed(
                    f"state {record.id} went to {landed}, because {worker} was lost on the way", hint="try again"
                )
            for _, _, copy in missing:
                copy.workers.add(worker)
        if not keep:
            self._leave_others(found, worker, record)
        return state

    def _a_copy(self, segment: SegmentRecord) -> tuple[int, Any]:
        copies = self.core.catalog.copies(segment.recipe)
        if not copies:
            raise StateGone(f"segment {segment.recipe[:12]} has no copy", hint="resume the state: it is recomputed")
        return max(copies.items())

    def _leave_others(self, found: list[tuple[SegmentRecord, int, Any]], worker: str, record: StateRecord) -> None:
        """Copy, then delete: replicas elsewhere go, but for segments that other states have in their paths."""
        for segment, _, copy in found:
            shared = any(
                segment in entry.record.segments and entry.record.id != record.id and entry.phase is Phase.RESIDENT
                for entry in self.core.catalog.states()
            )
            others = copy.workers - {worker}
            if others and not shared:
                addresses = [address for name in others for address in self.core.address_of(name)]
                drop_replicas(self.core.client, copy.key, addresses)
                copy.workers.difference_update(others)

    def evict(self, state: KVState, *, forget: bool) -> int:
        """See :meth:`KVState.evict`."""
        self._require_open(state.id)
        return self.core.catalog.evict(state.id, forget=forget)

    def workers_of(self, record: StateRecord) -> tuple[str, ...]:
        """Workers that have every segment of the path."""
        held = [self.core.catalog.resident(name) for name in self.core.workers]
        names = zip(self.core.workers, held, strict=True)
        return tuple(name for name, there in names if record.segments and all(s.recipe in there for s in record.segments))

    # -- disk

    def save(self, state: KVState, folder: str | Path) -> Path:
        """See :meth:`KVState.save`."""
        from kvlab.runtime.saving import metadata_of

        self._require_open(state.id)
        path = Path(folder).resolve()
        if path.exists():
            raise InvalidInput(f"{path} exists", hint="choose a new folder, or remove it")
        past = self._futures(state.record)
        future = self.core.client.submit(tasks.save, str(path), metadata_of(state.record), *past, pure=False)
        self._wait([future])
        if not path.exists():
            raise InvalidInput(f"the worker wrote {path} on another machine", hint="choose a folder that all machines share")
        return path

    def load(self, folder: str | Path, name: str) -> KVState:
        """Bring a saved state into this lab's memory. Refuses one of another model before any byte is read."""
        from kvlab.runtime.saving import read_metadata

        path = Path(folder).resolve()
        saved = read_metadata(path)
        require_compatible(str(path), saved.model, saved.config, self.core.model, self.core.config)
        root, worker = self.core.root(self.core.namespace), self._pick_worker(None)
        segments: list[SegmentRecord] = []
        parent: str | None = None
        for index, piece in enumerate(saved.segments):
            recipe = recipe_of(root, parent, piece.token_ids, None, "load")
            if not self.core.catalog.copies(recipe):
                generation, key = self.core.catalog.next_key(recipe)
                self.core.catalog.budget.reserve(key, piece.nbytes, f"loading {path.name}")
                order = self._order("load", "materialize", (name,), (recipe,), (), worker)
                try:
                    future = self.core.client.submit(
                        tasks.restore, order, str(path), index, key=key, pure=False, **self._where(worker)
                    )
                    header = self._wait([self.core.client.submit(tasks.meta, future, pure=False)])[0]
                except BaseException:
                    self.core.catalog.budget.release(key)
                    raise
                self.core.catalog.add_copy(recipe, generation, future).workers.add(str(header["worker"]))
            segments.append(SegmentRecord(recipe, parent, piece.start, piece.token_ids, piece.n_prompt, piece.nbytes))
            parent = recipe
        record = self.operations.register(
            None,
            segments,
            operator="load",
            name=name or saved.name,
            run=LAB,
            namespace=self.core.namespace,
            unfed=saved.unfed,
            conversation=saved.conversation,
            note=f"loaded from {path.name}",
        )
        return KVState(self, record)

    # -- looking

    def next_logits(self, state: KVState) -> Any:
        """See :meth:`KVState.next_logits`."""
        self._require_open(state.id)
        record = state.record
        self._revived(record)
        if record.unfed:
            return self._logits(record, record.unfed)
        if record.n_tokens == 1:
            return self._logits(None, record.path_ids)
        shorter = KVState(self, self._truncated(record, record.n_tokens - 1))
        return self._logits(shorter.record, record.path_ids[-BYTES_PER_ID:])

    def _logits(self, record: StateRecord | None, ids: bytes) -> Any:
        worker = self._pick_worker(record)
        past = self._futures(record, worker) if record is not None else []
        order = self._order("logits", "logits", ("",), ("logits",), (Branch(ids, Sampling(0)),), worker)
        future = self.core.client.submit(tasks.next_logits, order, *past, pure=False, **self._where(worker))
        return np.array(self._wait([future])[0], dtype=np.float32)

    # -- carrying out

    def _turn(
        self,
        op: Literal["materialize", "resume"],
        base: KVState | None,
        name: str,
        branch: Branch,
        namespace: str,
        worker: str | None,
        *,
        conversation: bool,
    ) -> Generation:
        """Decide, submit, wait, register: one branch on the state ``base``, which the caller keeps alive."""
        core, parent = self.core, base.record if base is not None else None
        started_ns = time.time_ns()
        if parent is not None:
            self._revived(parent)
        action = f"{LAB}/{op}-{next(self._numbers)}"
        decision = self._decide(action, op, parent, branch, worker)
        chosen = decision.chosen
        request = Request(
            action, LAB, namespace, parent, (name,), (branch,), chosen.worker, core.threads_for(chosen.worker),
            recompute=chosen.how == "recompute",
        )  # fmt: skip
        core.load.begin(chosen.worker, action, chosen.seconds)
        pending: Pending | None = None
        try:
            pending = self.operations.submit(request)
            headers = self._wait(pending.answers, (action,))
        except BaseException:
            if pending is not None:
                self.operations.abandon(pending)
            raise
        finally:
            core.load.end(chosen.worker, action)
        answer = self.operations.collect(pending, headers)[0]
        if parent is not None:
            core.catalog.settle(parent.id)
        record = self.operations.register(
            parent,
            [answer.segment],
            operator=op,
            name=name,
            run=LAB,
            namespace=namespace,
            unfed=answer.unfed,
            conversation=conversation,
        )
        state = KVState(self, record)
        self.operations.done_with(pending)
        with self._lock:
            turn, actual = turn_of(
                node=action,
                texts_ready_ns=started_ns,
                states_ready_ns=started_ns,
                own=frozenset(),
                header=answer.header,
                now_ns=time.time_ns(),
                parent=parent,
                text=core.tokenizer.decode(answer.header["generated"]),
                timeline=self._timeline,
                before=pending.before,
                remade=list(headers[1:]),
            )
        if parent is not None:
            seconds = sum(actual["terms"].values())
            core.hub.emit(Kind.DECISION_ACTUAL, LAB, edge=decision.edge.id, seconds=seconds, detail=actual)
        return Generation(
            text=turn["text"],
            token_ids=tuple(turn["token_ids"]),
            state=state,
            finish=turn["finish"],
            ttft_seconds=turn["ttft_seconds"],
            how=actual["how"],
            n_prefilled=turn["n_prefilled"],
            n_reused=turn["n_reused"],
        )

    def _decide(
        self, action: str, op: str, parent: StateRecord | None, branch: Branch, worker: str | None
    ) -> Decision:
        if worker is not None:
            self._require_worker(worker)
        path = tuple(Piece(s.recipe, s.n_tokens, s.nbytes) for s in parent.segments) if parent is not None else ()
        source = parent.id if parent is not None else ""
        edge = Edge(f"{source}→{action}", source, action, path, n_ids(branch.ids))
        decision = decide(edge, self.core.view(frozenset({worker}) if worker else None))
        self.core.hub.emit(Kind.ACTION_PLANNED, LAB, action=action, worker=decision.chosen.worker, detail={"op": op})
        if parent is not None:
            self.core.hub.emit(
                Kind.DECISION, LAB, edge=edge.id, n_tokens=edge.n_tokens,
                detail={
                    "source": source, "target": action, "n_tokens": edge.n_tokens,
                    "alternatives": [describe_alternative(a) for a in decision.alternatives],
                    "chosen": decision.chosen.how, "worker": decision.chosen.worker, "reason": decision.reason,
                },
            )  # fmt: skip
        return decision

    def _wait(self, futures: list[Any], actions: tuple[str, ...] = ()) -> list[Any]:
        """Results of ``futures``. Ctrl-C stops the work on the workers too."""
        from kvlab.runtime.conductor import error_of

        try:
            self._block(futures)
        except KeyboardInterrupt:
            if actions:
                self.core.client.run(tasks.cancel, list(actions), wait=False)
            raise Cancelled("stopped by Ctrl-C", hint="the states made before are still there") from None
        for future in futures:
            if future.status != "finished":
                raise error_of(future) from None
        return list(self.core.client.gather(futures))

    def _block(self, futures: list[Any]) -> None:
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
        # A bounded wait in a loop lets the main thread see Ctrl-C.
        while not done.wait(0.2):
            if any(future.status in {"error", "cancelled", "lost"} for future in futures):
                return

    def _futures(self, record: StateRecord, worker: str | None = None) -> list[Any]:
        """Futures of a state's segments; those without a copy are recomputed first."""
        self._revived(record)
        where = worker or self._pick_worker(record)
        request = Request(
            f"{LAB}/use-{next(self._numbers)}", LAB, record.namespace, record, (record.name,), (), where,
            self.core.threads_for(where),
        )  # fmt: skip
        futures, pending = self.operations.path_futures(request)
        try:
            headers = self._wait(pending.answers)
        except BaseException:
            self.operations.abandon(pending)
            raise
        self.operations.collect(pending, headers)
        self.core.catalog.settle(record.id)
        # The caller holds a handle of the state, which keeps its segments.
        self.operations.done_with(pending)
        return futures

    def _truncated(self, record: StateRecord, n_tokens: int) -> StateRecord:
        kept = [segment for segment in record.segments if segment.end <= n_tokens]
        boundary = kept[-1].end if kept else 0
        if boundary < n_tokens:
            cut = record.segments[len(kept)]
            kept.append(self._cut(record, cut, kept[-1].recipe if kept else None, n_tokens - boundary))
        return self.operations.register(
            None,
            kept,
            operator="truncate",
            name=record.name,
            run=LAB,
            namespace=record.namespace,
            parents=(record.id,),
            conversation=record.conversation,
            note=f"first {n_tokens} tokens",
        )

    def _cut(self, record: StateRecord, segment: SegmentRecord, parent: str | None, n_tokens: int) -> SegmentRecord:
        core = self.core
        ids = segment.token_ids[: n_tokens * BYTES_PER_ID]
        recipe = recipe_of(core.root(record.namespace), parent, ids, None, "cut")
        nbytes = n_tokens * core.config.bytes_per_token
        made = SegmentRecord(recipe, parent, segment.start, ids, min(n_tokens, segment.n_prompt), nbytes)
        if core.catalog.copies(recipe):
            return made
        worker = self._pick_worker(record)
        past = self._futures(record, worker)
        generation, key = core.catalog.next_key(recipe)
        core.catalog.budget.reserve(key, nbytes, f"truncating {record.id}")
        order = self._order("truncate", "truncate", (record.name,), (recipe,), (), worker)
        index = record.segments.index(segment)
        future = core.client.submit(tasks.cut, order, n_tokens, past[index], key=key, pure=False, **self._where(worker))
        copy = core.catalog.add_copy(recipe, generation, future)
        try:
            header = self._wait([core.client.submit(tasks.meta, future, pure=False)])[0]
        except BaseException:
            core.catalog.discard_copy(recipe, generation)
            raise
        copy.workers.add(str(header["worker"]))
        return made

    def _share(
        self, record: StateRecord, operator: Literal["fork", "merge", "materialize"], name: str, parents: tuple[str, ...] = ()
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

    # -- small questions

    def _revived(self, record: StateRecord) -> None:
        self.core.catalog.require_living(record.id)
        self.core.catalog.revive(record)

    def _order(
        self, op: str, work: Any, agents: tuple[str, ...], recipes: tuple[str, ...], branches: tuple[Branch, ...], worker: str
    ) -> Order:
        action = f"{LAB}/{op}-{next(self._numbers)}"
        threads = self.core.threads_for(worker)
        return Order(action, LAB, work, self.core.spec, agents, recipes, branches, threads, self.core.chunk)

    def _where(self, worker: str) -> dict[str, Any]:
        return {"workers": self.core.address_of(worker), "allow_other_workers": True}

    def _pick_worker(self, record: StateRecord | None) -> str:
        there = self.workers_of(record) if record is not None else ()
        living = [worker.name for worker in self.core.living_workers()]
        return next((name for name in there if name in living), living[0])

    def _require_worker(self, worker: str) -> None:
        names = [seen.name for seen in self.core.living_workers()]
        if worker not in names:
            raise InvalidInput(f"there is no worker {worker!r}", hint=f"workers: {', '.join(names)}")

    def _require_open(self, state: str) -> None:
        if self.core.closed:
            raise closed_lab(state)

    def _require_fits(self, n_tokens: int, max_new_tokens: int) -> None:
        have = self.core.config.max_positions
        if n_tokens + max(0, max_new_tokens - 1) > have:
            raise ContextTooLong(
                f"{n_tokens} tokens and up to {max_new_tokens} new ones do not fit the model's {have} positions",
                hint="shorten the text, or generate less",
                need=n_tokens + max_new_tokens,
                have=have,
            )

    def _root_ids(self, text: str, *, chat: bool) -> bytes:
        tokenizer = self.core.tokenizer
        _require_text(text)
        if chat:
            return tokenizer.open_conversation(None) + tokenizer.text_ids(text)
        return tokenizer.root_ids() + tokenizer.text_ids(text)

    def _next_ids(self, record: StateRecord, text: str, *, chat: bool) -> bytes:
        tokenizer = self.core.tokenizer
        _require_text(text)
        if not chat:
            return record.unfed + tokenizer.text_ids(text)
        if not record.conversation:
            raise InvalidInput(
                f"state {record.id} is raw text, not a conversation, so it has no next turn",
                hint="resume without chat=True, or materialize with chat=True",
            )
        ids = record.unfed
        if record.unfed:
            closing = tokenizer.close_answer()
            ids += closing[BYTES_PER_ID:] if record.unfed == closing[:BYTES_PER_ID] else closing
            ids += tokenizer.open_next_user()
        else:
            ids += tokenizer.separator
        return ids + tokenizer.text_ids(text) + tokenizer.close_user()

    def _worker_at(self, future: Any) -> str | None:
        addresses = next(iter(self.core.client.who_has([future]).values()), ())
        return next((seen.name for seen in self.core.workers.values() if seen.address in addresses), None)


def merge(
    states: Sequence[KVState], how: Literal["prefix", "summary"] = "prefix", *, max_new_tokens: int = 64
) -> KVState:
    """One state of several branches.

    ``"prefix"``: the longest, if it extends all others (exact, moves and computes nothing). ``"summary"``: the model
    writes a summary of the branches on the state of what they share.

    Raises
    ------
    MergeRefused
        Where the branches part, and what to do instead.
    """
    found = require_states(states)
    if how not in ("prefix", "summary"):
        raise MergeRefused(
            f"how={how!r} is not a way to merge exactly",
            hint='"prefix" or "summary"; K/V of different continuations cannot be joined without error',
        )
    return found[0]._verbs.merge(found, how, max_new_tokens)  # noqa: SLF001 - the handles' own module family


def _require_text(text: Any) -> None:
    if not isinstance(text, str) or not text:
        what = "empty" if text == "" else f"a {type(text).__name__}"
        raise InvalidInput(f"the text is {what}", hint="pass a non-empty string")


