"""The verbs of states, one at a time, for exploring in cells. Each blocks until it is done.

One file a little over the usual length, because it is one verb after the other over the same few steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from kvlab.cost.decide import CHEAPEST, Decision, Policy
from kvlab.cost.policies import Forced, forced
from kvlab.cost.seen import seen
from kvlab.cost.world import Edge
from kvlab.engine.protocol import Branch
from kvlab.errors import (
    ChecksumMismatch,
    ContextTooLong,
    InvalidInput,
    KVLabError,
    MergeRefused,
    TransferFailed,
)
from kvlab.runtime.core import Core
from kvlab.runtime.cutting import logits_after, truncated
from kvlab.runtime.disk import load, save, spill
from kvlab.runtime.handles import Generation, KVState, Lease, require_states
from kvlab.runtime.moving import transfer
from kvlab.runtime.operations import Pending
from kvlab.runtime.planning import Planner, path_of
from kvlab.runtime.requests import Request
from kvlab.runtime.turns import Timeline, because, describe_alternative, turn_of
from kvlab.runtime.units import edge_id
from kvlab.runtime.workbench import LAB, Workbench
from kvlab.state.identity import Sampling
from kvlab.state.merge import merge_prefix, shared_prefix
from kvlab.state.records import StateRecord
from kvlab.state.tokens import BYTES_PER_ID, n_ids
from kvlab.store.events import Kind
from kvlab.workflow.checks import checked_integer, checked_label, is_encodable

MOST_FORKS = 100_000
"""Of one state in one call: handles and records are not free, only K/V is."""

SUMMARY = "Summarize these continuations in a few sentences, keeping what they agree and disagree on:"


class Verbs:
    """Carries out verbs on one core. Thread-safe: verbs may be called from several threads.

    ``models`` has the verbs of every model of the lab, by its name; all of them share it.
    """

    def __init__(self, core: Core, models: dict[str, Verbs] | None = None) -> None:
        self.core = core
        self.models = models if models is not None else {}
        self.models[core.model.name] = self
        self.planner = Planner(core)
        self._bench = Workbench(core)
        self._timeline = Timeline()
        self._lock = threading.Lock()

    # -- making

    def materialize(self, text: str, *, chat: bool = False, name: str = "", worker: str | None = None) -> KVState:
        """Prefill ``text``; what a resident state of the lab already has as a prefix is reused.

        With ``chat`` the text opens the user's turn of a conversation; ``resume(..., chat=True)`` goes on and closes it.
        """
        self._bench.require_open()
        checked_label("name", name)
        if worker is not None:
            self._bench.require_worker(worker)
        ids = self._root_ids(text, chat=chat)
        self._require_fits(n_ids(ids), 0)
        namespace = self.core.namespace
        with self.core.catalog.lock:
            n_known, known = self.core.catalog.longest_prefix(namespace, ids)
            # A handle keeps what was found from going away meanwhile.
            base = KVState(self, known) if known is not None else None
        if known is not None and n_known == n_ids(ids):
            return KVState(self, self._bench.share(known, "materialize", name))
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
        how: str | None,
    ) -> Generation:
        """See :meth:`KVState.resume`."""
        policy = forced(how) if how is not None else CHEAPEST
        self._bench.require_open(state.id)
        record = state.record
        whole = type(max_new_tokens) is int and type(seed) is int and max_new_tokens >= 1
        if not whole or type(temperature) not in (int, float) or not 0 <= temperature < float("inf"):
            raise InvalidInput(
                f"resume: max_new_tokens={max_new_tokens}, temperature={temperature} and seed={seed} cannot be meant",
                hint="whole numbers, max_new_tokens ≥ 1; temperature ≥ 0 (0 is greedy); lab.materialize only prefills",
            )
        ids = self._next_ids(record, text, chat=chat)
        self._require_fits(record.n_tokens + n_ids(ids), max_new_tokens)
        sampling = Sampling(max_new_tokens, float(temperature), seed, record.name)
        branch = Branch(ids, sampling, self.core.tokenizer.stop_ids)
        return self._turn(
            "resume",
            state,
            record.name,
            branch,
            record.namespace,
            worker,
            conversation=record.conversation or chat,
            policy=policy,
        )

    def fork(self, state: KVState, n: int) -> tuple[KVState, ...]:
        """See :meth:`KVState.fork`."""
        self._bench.require_open(state.id)
        checked_integer("fork(n)", n, 1, MOST_FORKS)
        self._bench.revive(state.record)
        return tuple(
            KVState(self, self._bench.share(state.record, "fork", f"{state.record.name}/{index}")) for index in range(n)
        )

    def truncate(self, state: KVState, n_tokens: int) -> KVState:
        """See :meth:`KVState.truncate`."""
        self._bench.require_open(state.id)
        record = state.record
        if type(n_tokens) is not int or not 0 < n_tokens <= record.n_tokens:
            raise InvalidInput(
                f"truncate({n_tokens}): state {record.id} has {record.n_tokens} tokens",
                hint=f"1 ≤ n ≤ {record.n_tokens}",
            )
        self._bench.revive(record)
        return KVState(self, truncated(self._bench, record, n_tokens))

    def merge(self, states: Sequence[KVState], how: Literal["prefix", "summary"], max_new_tokens: int) -> KVState:
        """See :func:`merge`."""
        self._bench.require_open()
        records = [state.record for state in states]
        if how == "prefix":
            longest = merge_prefix(records)
            self._bench.revive(longest)
            return KVState(self, self._bench.share(longest, "merge", longest.name, tuple(r.id for r in records)))
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
        return KVState(
            self, self._bench.share(written.state.record, "merge", states[0].record.name, tuple(r.id for r in records))
        )

    # -- placing

    def transfer(self, state: KVState, worker: str, *, keep: bool) -> KVState:
        """See :meth:`KVState.transfer`."""
        return transfer(self._bench, state, worker, keep=keep)

    def pin(self, state: KVState, *, pinned: bool) -> KVState:
        """See :meth:`KVState.pin` and :meth:`KVState.unpin`."""
        self._bench.require_open(state.id)
        self.core.catalog.keeping.pin(state.id, pinned=pinned)
        self._bench.remark(f"{state.id} is {'pinned' if pinned else 'not pinned any more'}", state.id)
        return state

    def workers_of(self, record: StateRecord) -> tuple[str, ...]:
        """Workers that have every segment of the path."""
        return self._bench.workers_of(record)

    def evict(self, state: KVState, *, forget: bool) -> int:
        """See :meth:`KVState.evict`."""
        self._bench.require_open(state.id)
        self.core.catalog.reap()  # what nobody can refer to any more shares nothing
        freed = self.core.catalog.evict(state.id, forget=forget)
        self.core.catalog.leaving.wait()
        return freed

    def spill(self, state: KVState) -> int:
        """See :meth:`KVState.spill`."""
        self._bench.require_open(state.id)
        return spill(self._bench, state.record)

    def lease(self, state: KVState, seconds: float) -> Lease:
        """See :meth:`KVState.lease`."""
        self._bench.require_open(state.id)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise InvalidInput(f"lease({seconds!r}): no time to keep a state for", hint="state.lease(30)  # seconds")
        number, _ = self.core.catalog.keeping.lease(state.id, seconds)
        self._bench.remark(f"{state.id} is leased for {seconds:g} s", state.id)
        return Lease(state, number)

    def lease_seconds(self, state: KVState, number: int) -> float:
        """See :attr:`Lease.seconds_left`."""
        return self.core.catalog.keeping.seconds_left(state.id, number)

    def end_lease(self, state: KVState, number: int) -> None:
        """See :meth:`Lease.release`."""
        self.core.catalog.keeping.end(state.id, number)

    # -- disk

    def save(self, state: KVState, folder: str | Path) -> Path:
        """See :meth:`KVState.save`."""
        return save(self._bench, state, folder)

    def load(self, folder: str | Path, name: str, worker: str | None) -> KVState:
        """See :meth:`kvlab.Lab.load`."""
        if worker is not None:
            self._bench.require_worker(worker)
        return KVState(self, load(self._bench, folder, name, worker))

    # -- looking

    def next_logits(self, state: KVState) -> Any:
        """See :meth:`KVState.next_logits`."""
        self._bench.require_open(state.id)
        record = state.record
        self._bench.revive(record)
        if record.unfed:
            return logits_after(self._bench, record, record.unfed)
        if record.n_tokens == 1:
            return logits_after(self._bench, None, record.path_ids)
        shorter = KVState(self, truncated(self._bench, record, record.n_tokens - 1))
        return logits_after(self._bench, shorter.record, record.path_ids[-BYTES_PER_ID:])

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
        policy: Policy = CHEAPEST,
    ) -> Generation:
        """Decide, submit, wait, register: one branch on the state ``base``, which the caller keeps alive."""
        core, parent = self.core, base.record if base is not None else None
        started_ns = time.time_ns()
        if parent is not None:
            core.catalog.require_living(parent.id)
        # The state has its id before it is there: what is said of its making then speaks of it.
        action, new = self._bench.new_action(op), core.catalog.new_state_id()
        decision = self._decide(action, op, parent, branch, worker, policy, new, name)
        chosen = decision.chosen
        threads = core.threads_for(chosen.worker)
        who = name or new
        request = Request(action, LAB, namespace, parent, (who,), (branch,), chosen.worker, threads, chosen)
        try:
            pending, headers, trouble = self._carried_out(request, branch, f"{op} {name}".strip().capitalize())
        finally:
            self.planner.release(action)
        answer = self._bench.operations.collect(pending, headers)[0]
        if parent is not None:
            core.catalog.settle(parent.id)
        record = self._bench.operations.register(
            parent,
            [answer.segment],
            operator=op,
            name=name,
            run=LAB,
            namespace=namespace,
            unfed=answer.unfed,
            conversation=conversation,
            state=new,
        )
        state = KVState(self, record)
        self._bench.operations.done_with(pending)
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
                made=pending.made,
            )
        core.hub.emit(
            Kind.TURN_FINISHED, LAB, agent=who, state=new, worker=turn["worker"], n_tokens=turn["n_prefilled"],
            seconds=turn["ttft_seconds"], detail=turn,
        )  # fmt: skip
        if parent is not None:
            self.planner.learn(decision, actual)
            seconds = sum(actual["terms"].values())
            told = {**actual, "because": because(chosen.how, chosen.worker, actual, trouble)}
            core.hub.emit(Kind.DECISION_ACTUAL, LAB, edge=decision.edge.id, seconds=seconds, detail=told)
        return Generation(
            text=turn["text"],
            token_ids=tuple(turn["token_ids"]),
            state=state,
            finish=turn["finish"],
            ttft_seconds=turn["ttft_seconds"],
            how=actual["how"],
            n_prefilled=turn["n_prefilled"],
            n_reused=turn["n_reused"],
            decision=decision,
        )

    def _carried_out(
        self, request: Request, branch: Branch, label: str
    ) -> tuple[Pending, list[dict[str, Any]], str | None]:
        """Submit and wait; a state that does not arrive whole is made again, at last without trusting any of it.

        Returns what was answered, and why it was not done as planned, if it was not.
        """
        try:
            return *self._once(request, branch, label), None
        except (TransferFailed, ChecksumMismatch) as found:
            trouble: KVLabError = found
        for trusted in (trouble, None):
            self._bench.operations.distrust(request.path, trusted)
            text = f"{trouble.message}; it is made again"
            self.core.hub.emit(Kind.NOTE, LAB, detail={"text": text, "level": "warning"})
            try:
                return *self._once(request, branch, label), trouble.message
            except (TransferFailed, ChecksumMismatch) as found:
                trouble = found
        raise trouble

    def _once(self, request: Request, branch: Branch, label: str) -> tuple[Pending, list[dict[str, Any]]]:
        operations, total = self._bench.operations, n_ids(branch.ids) + branch.sampling.max_new_tokens
        pending = operations.submit(request)
        try:
            return pending, self._bench.wait(pending.answers, (request.action,), label=label, total=total)
        except BaseException:
            operations.abandon(pending)
            raise

    def _decide(
        self,
        action: str,
        op: str,
        parent: StateRecord | None,
        branch: Branch,
        worker: str | None,
        policy: Policy,
        new: str,
        name: str,
    ) -> Decision:
        self.core.wait_for_worker()
        if worker is not None:
            self._bench.require_worker(worker)
        source = parent.id if parent is not None else ""
        steps = branch.sampling.max_new_tokens
        edge = Edge(edge_id(source, new), source, new, path_of(parent), n_ids(branch.ids), 1, steps)
        only = frozenset({worker}) if worker else None
        decision = self.planner.plan(edge, action, only=only, policy=policy)
        if isinstance(policy, Forced) and decision.chosen.how != policy.how:
            self.planner.release(action)
            roads = dict.fromkeys(f"{a.how} on {a.worker}" for a in decision.alternatives if a.excluded is None)
            mapped = self.core.same_host == "map" and policy.how in ("transfer", "hybrid")
            why = '; on one host states are mapped: Lab(same_host="frames") sends them' if mapped else ""
            raise InvalidInput(f"{policy.how} is not open for state {source}", hint=f"open: {', '.join(roads)}{why}")
        detail = {"op": op, "subject": new}
        self.core.hub.emit(
            Kind.ACTION_PLANNED, LAB, action=action, agent=name or new, worker=decision.chosen.worker, detail=detail
        )
        if parent is not None:
            self.core.hub.emit(
                Kind.DECISION, LAB, edge=edge.id, agent=name, action=action, n_tokens=edge.n_tokens,
                detail={
                    "source": source, "target": new, "n_tokens": edge.n_tokens,
                    "alternatives": [describe_alternative(a) for a in decision.alternatives],
                    "chosen": decision.chosen.how, "worker": decision.chosen.worker, "reason": decision.reason,
                    "policy": decision.policy, "seen": seen(decision),
                },
            )  # fmt: skip
        return decision

    # -- small questions

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
    if not isinstance(text, str) or not text or not is_encodable(text):
        what = "empty" if text == "" else "not UTF-8" if isinstance(text, str) else f"a {type(text).__name__}"
        raise InvalidInput(f"the text is {what}", hint="pass a non-empty string")
