"""Carrying out one action on the cluster: from a request to Dask tasks, and from their answers to records.

Both the conductor of a run and the verbs of a notebook cell go through here.

One file a little over the usual length, because submitting and receiving share one account of a path's copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from kvlab.engine.protocol import Branch
from kvlab.engine.tail_width import working_tokens
from kvlab.errors import KVLabError
from kvlab.runtime import tasks
from kvlab.runtime.budget import Wanted
from kvlab.runtime.core import Core
from kvlab.runtime.entries import Copy
from kvlab.runtime.halves import behind, joined
from kvlab.runtime.keys import BACK, TAILS
from kvlab.runtime.orders import MODEL_WORK, Order, Work
from kvlab.runtime.remote_errors import FAILED
from kvlab.runtime.requests import Request
from kvlab.runtime.steps import Step, living_copies, replica, steps
from kvlab.runtime.turns import Making
from kvlab.state.identity import Sampling, identity_of, recipe_of
from kvlab.state.records import Lineage, Operator, SegmentRecord, StateRecord
from kvlab.state.tokens import BYTES_PER_ID, n_ids, pack_ids, unpack_ids
from kvlab.store.events import Kind

PREVIEW_IDS = 48
"""Tokens whose text is shown as a state's preview."""


@dataclass(slots=True)
class Pending:
    """A request under way.

    ``steps`` are how its path comes to its worker, ``rooms`` what is set aside for that which is not submitted yet.
    ``answers`` are futures of headers: one a branch, then one for every segment of the path that is made again.
    ``restored`` are those that are read from disk. ``before`` says which segments of the path lay on the worker when it
    was submitted, ``made`` which making of each it was and who had it; ``halves`` are futures that only have to live until
    the answers are there.
    """

    request: Request
    recipes: list[str]
    generations: list[int]
    keys: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    rooms: set[str] = field(default_factory=set)
    answers: list[Any] = field(default_factory=list)
    remade: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    past: list[tuple[str, int]] = field(default_factory=list)
    before: dict[str, bool] = field(default_factory=dict)
    made: dict[str, Making] = field(default_factory=dict)
    halves: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Answered:
    """A branch that is done: its segment, what its worker said of it, and the token that was drawn last, which is not fed."""

    segment: SegmentRecord
    header: dict[str, Any]
    unfed: bytes


class Operations:
    """Submits work to Dask and takes its results into the catalog."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def submit(self, request: Request) -> Pending:
        """:meth:`prepare` and :meth:`start`."""
        pending = self.prepare(request)
        self.start(pending)
        return pending

    def prepare(self, request: Request) -> Pending:
        """Set aside all the room that a request takes, for what it makes and for what its path lacks. Starts nothing.

        From then on its path stays, and its state, if it was evicted, is planned.

        Raises
        ------
        NoRoom
            When the KV budget has not all of it: then nothing is claimed and nothing set aside.
        StateGone
            If its state was evicted together with its lineage.
        """
        core, catalog = self.core, self.core.catalog
        root = core.root(request.namespace)
        parent_recipe = request.path[-1].recipe if request.path else None
        recipes = [recipe_of(root, parent_recipe, b.ids, b.sampling) for b in request.branches]
        if request.parent is not None:
            catalog.require_living(request.parent.id)
        named = [catalog.next_key(recipe) for recipe in recipes]
        pending = Pending(request, recipes, [generation for generation, _ in named], [key for _, key in named])
        used = [*(segment.recipe for segment in request.path), *recipes]
        # One at a time: what somebody claims who has not begun is nobody's work, and nobody would wait for it.
        with catalog.preparing:
            catalog.claim(request.action, used)
            try:
                pending.steps = list(steps(core, request))
                wanted = [*self._own_room(pending), *(room for step in pending.steps for room in step.rooms)]
                catalog.budget.reserve_all(wanted, _told(request, pending.steps), evict=request.evict)
            except BaseException:
                self._unclaim(pending)
                raise
            pending.rooms = {room.name for room in wanted}
            catalog.begin(request.action, used)
        try:
            if request.parent is not None:
                catalog.revive(request.parent)
        except BaseException:  # forgotten for good while this waited for its turn
            self.abandon(pending)
            raise
        return pending

    def _own_room(self, pending: Pending) -> list[Wanted]:
        """Room for what a request makes; siblings also work in tails of their own until they are done."""
        branches, worker, per_token = pending.request.branches, pending.request.worker, self.core.config.bytes_per_token
        prompts = [n_ids(branch.ids) for branch in branches]
        limits = [n + max(0, b.sampling.max_new_tokens - 1) for n, b in zip(prompts, branches, strict=True)]
        rooms = [Wanted(key, n * per_token, worker) for key, n in zip(pending.keys, limits, strict=True)]
        if len(branches) > 1:
            rooms.append(Wanted(f"{pending.keys[0]}{TAILS}", working_tokens(prompts, limits) * per_token, worker))
        return rooms

    def start(self, pending: Pending) -> list[Any]:
        """Submit what was prepared. Returns the futures of its path; where that fails, everything is given back."""
        try:
            past = self._path(pending)
            if pending.recipes:
                self._submit(pending, past)
        except BaseException:
            self.abandon(pending)
            raise
        return past

    def _submit(self, pending: Pending, past: Sequence[Any]) -> None:
        """Submit the branches of a request on ``past``, and ask for their headers."""
        core, request, recipes, keys = self.core, pending.request, pending.recipes, pending.keys
        order = self._order(
            request, "siblings" if len(recipes) > 1 else self._work(request), tuple(recipes), request.branches
        )
        where = self._where(request.worker)
        if len(recipes) == 1:
            future = core.client.submit(
                tasks.run_one, order, *past, key=keys[0], pure=False, resources=MODEL_WORK, **where
            )
            futures = [future]
        else:
            bundle = core.client.submit(
                tasks.run_siblings, order, *past, key=f"bundle-{keys[0]}", pure=False, resources=MODEL_WORK, **where
            )
            futures = [
                core.client.submit(tasks.pick, bundle, index, key=key, pure=False, **where)
                for index, key in enumerate(keys)
            ]
        for recipe, generation, future in zip(recipes, pending.generations, futures, strict=True):
            core.catalog.add_copy(recipe, generation, future)
        pending.rooms.difference_update([*keys, f"{keys[0]}{TAILS}"])
        answers = [self._meta(future, key, where) for future, key in zip(futures, keys, strict=True)]
        pending.answers = [*answers, *pending.answers]

    def path_futures(self, request: Request) -> tuple[list[Any], Pending]:
        """Futures of the path of a request without branches; what is gone is submitted, and answered in ``Pending``."""
        pending = self.prepare(request)
        return self.start(pending), pending

    def done_with(self, pending: Pending) -> None:
        """The states that a request made are registered, or its futures are no longer needed."""
        self._unclaim(pending)

    def _unclaim(self, pending: Pending) -> None:
        path = [segment.recipe for segment in pending.request.path]
        self.core.catalog.unclaim(pending.request.action, [*path, *pending.recipes])

    def _work(self, request: Request) -> Work:
        return "resume" if request.branches[0].sampling.max_new_tokens else "materialize"

    def _order(self, request: Request, work: Work, recipes: tuple[str, ...], branches: tuple[Branch, ...]) -> Order:
        return Order(
            request.action,
            request.run,
            work,
            self.core.model,
            request.agents,
            recipes,
            branches,
            request.threads,
            self.core.chunk,
            self.core.beside,
        )

    def _where(self, worker: str) -> dict[str, Any]:
        # Loose: a strict restriction waits for ever when its worker dies.
        address = self.core.address_of(worker)
        return {"workers": address, "allow_other_workers": True} if address else {}

    def _meta(self, future: Any, key: str, where: dict[str, Any]) -> Any:
        return self.core.client.submit(tasks.meta, future, key=f"meta-{key}", pure=False, **where)

    def living_copies(self, recipe: str) -> dict[int, Copy]:
        """See :func:`kvlab.runtime.steps.living_copies`."""
        return living_copies(self.core, recipe)

    def _path(self, pending: Pending) -> list[Any]:
        """Futures of the path's segments; what is to be made again is submitted."""
        found: list[Any] = []
        for step in pending.steps:
            recipe = step.segment.recipe
            if step.how == "use" and step.copy is not None:
                future = step.copy.future
                pending.made[recipe] = Making(step.copy.made_ns, tuple(sorted(step.copy.workers)))
            elif step.how == "read":
                future = self._read(pending, step)
            elif step.how == "join" and step.copy is not None:
                future = self._joined(pending, step, step.copy, found)
            else:
                future = self._prefilled(pending, step.key, step.segment, step.segment.token_ids, found)
            if step.how != "use":
                self.core.catalog.add_copy(recipe, step.generation, future)
            pending.rooms.difference_update(room.name for room in step.rooms)
            pending.before[recipe] = step.here
            pending.past.append((recipe, step.generation))
            if step.how in ("prefill", "join"):
                pending.remade.append(recipe)
                pending.answers.append(self._meta(future, step.key, self._where(pending.request.worker)))
            found.append(future)
        return found

    def _read(self, pending: Pending, step: Step) -> Any:
        """A segment from its file."""
        segment = step.segment
        future = self.core.client.submit(
            tasks.unspill,
            segment.recipe,
            step.file,
            segment.token_ids,
            segment.n_prompt,
            key=step.key,
            pure=False,
            **self._where(pending.request.worker),
        )
        pending.restored.append(segment.recipe)
        return future

    def _joined(self, pending: Pending, step: Step, copy: Copy, path: Sequence[Any]) -> Any:
        """A segment whose front is prefilled on ``path`` while its back arrives from a copy."""
        core, worker, key, segment = self.core, pending.request.worker, step.key, step.segment
        sources = [name for name in copy.workers if core.address_of(name)]
        ids = segment.token_ids[: step.n_front * BYTES_PER_ID]
        front = self._prefilled(pending, f"front-{key}", segment, ids, path)
        back = core.client.submit(
            behind,
            step.n_front,
            copy.future,
            key=f"{BACK}{key}",
            pure=False,
            **self._where(min(sources, default=worker)),
        )
        where = self._where(worker)
        # The join is sent to the worker only when all its inputs exist; this makes the back travel before that.
        arrival = core.client.submit(tasks.touch, back, key=f"arrival-{key}", pure=False, **where)
        pending.halves += [front, back, arrival]
        return core.client.submit(joined, segment.recipe, front, back, key=key, pure=False, **where)

    def _prefilled(self, pending: Pending, key: str, segment: SegmentRecord, ids: bytes, path: Sequence[Any]) -> Any:
        request = pending.request
        order = self._order(request, "recompute", (segment.recipe,), (Branch(ids, Sampling(0)),))
        where = self._where(request.worker)
        return self.core.client.submit(tasks.run_one, order, *path, key=key, pure=False, resources=MODEL_WORK, **where)

    def reserve_replica(
        self, copy: Copy, segment: SegmentRecord, worker: str, *, evict: bool = True, keeps: bool = False
    ) -> None:
        """Set aside the room of :func:`kvlab.runtime.steps.replica`."""
        what = f"a copy of segment {segment.recipe[:12]} on {worker}"
        self.core.catalog.budget.reserve_all(replica(self.core, copy, segment, worker, keeps=keeps), what, evict=evict)

    def collect(self, pending: Pending, headers: Sequence[dict[str, Any]]) -> list[Answered]:
        """Take the headers of a finished request into the catalog: sizes, places, records.

        The segments stay claimed until :meth:`done_with`. Returns one answer a branch. What was reserved becomes what
        it really took.
        """
        core, request = self.core, pending.request
        catalog = core.catalog
        start = request.parent.n_tokens if request.parent is not None else 0
        parent_recipe = request.path[-1].recipe if request.path else None
        answers: list[Answered] = []
        for key in pending.keys[:1]:
            catalog.budget.release(f"{key}{TAILS}")
        branch_headers = headers[: len(pending.recipes)]
        for recipe, generation, header in zip(pending.recipes, pending.generations, branch_headers, strict=True):
            worker = str(header["worker"])
            if str(header["timing"]["worker"]) != request.worker:
                # It ran elsewhere than planned: nothing is known to have been there before.
                pending.before = dict.fromkeys(pending.before, False)
            segment = SegmentRecord(
                recipe, parent_recipe, start, header["kv_ids"], header["n_prompt"], header["nbytes"]
            )
            catalog.placed(recipe, generation, worker, segment.nbytes, made_ns=header["timing"]["finished_ns"])
            made = {one["recipe"]: one["made_ns"] for one in header["timing"]["past"]}
            for past_recipe, past_generation in pending.past:
                at = str(header["timing"]["worker"])
                catalog.placed(past_recipe, past_generation, at, made_ns=made.get(past_recipe, 0))
            core.hub.emit(
                Kind.SEGMENT_CREATED,
                request.run,
                segment=recipe,
                worker=worker,
                n_tokens=segment.n_tokens,
                nbytes=segment.nbytes,
                detail={
                    "parent": parent_recipe,
                    "start": start,
                    "n_prompt": segment.n_prompt,
                    "checksum": header["checksum"],
                },
            )
            answers.append(Answered(segment, dict(header), header["generated"][-BYTES_PER_ID:]))
        remade = zip(pending.remade, headers[len(pending.recipes) :], strict=True)
        for recipe, header in remade:
            generation = dict(pending.past)[recipe]
            made_ns = header["timing"]["finished_ns"]
            catalog.placed(recipe, generation, str(header["worker"]), header["nbytes"], made_ns=made_ns)
            catalog.replaced(recipe, generation, str(header["worker"]))
        pending.halves.clear()
        catalog.reap()
        return answers

    def distrust(self, path: Sequence[SegmentRecord], trouble: Exception | None) -> None:
        """Give up what ``trouble`` came from: the file that it names, else every copy of a path and every file.

        What did not arrive may lie damaged where it was sent. It is made again.
        """
        if file_in(trouble):
            self.core.catalog.lose_file(trouble.data["recipe"])
            return
        for segment in path:
            self.core.catalog.lose_file(segment.recipe)
            for generation in self.core.catalog.copies(segment.recipe):
                self.core.catalog.discard_copy(segment.recipe, generation)

    def abandon(self, pending: Pending) -> None:
        """Forget a request that failed or was cancelled: its copies and its reservations, and that its state was to come."""
        for recipe, generation in zip(pending.recipes, pending.generations, strict=True):
            self.core.catalog.discard_copy(recipe, generation)
        made_again = dict(pending.past)
        for recipe in pending.remade:
            self.core.catalog.discard_copy(recipe, made_again[recipe])
        for recipe in pending.restored:  # what was read whole may stay
            copy = self.core.catalog.copies(recipe).get(made_again[recipe])
            if copy is not None and copy.future.status in FAILED:
                self.core.catalog.discard_copy(recipe, made_again[recipe])
        worker = pending.request.worker
        for recipe, generation in pending.past:
            copy = self.core.catalog.copies(recipe).get(generation)
            if copy is not None and worker not in copy.workers:
                self.core.catalog.budget.release(f"{copy.key}@{worker}")
        for name in pending.rooms:
            self.core.catalog.budget.release(name)
        pending.rooms.clear()
        self._unclaim(pending)
        if pending.request.parent is not None:
            self.core.catalog.give_up(pending.request.parent.id)

    def register(
        self,
        parent: StateRecord | None,
        segments: Sequence[SegmentRecord],
        *,
        operator: Operator,
        name: str,
        run: str,
        namespace: str,
        parents: tuple[str, ...] = (),
        unfed: bytes = b"",
        conversation: bool = False,
        note: str = "",
        state: str | None = None,
    ) -> StateRecord:
        """Make the record of a new state of ``parent``'s path plus ``segments``, and announce it.

        ``state`` is its id where that was given out before, as :meth:`Catalog.new_state_id` does.
        """
        core = self.core
        path = (parent.segments if parent is not None else ()) + tuple(segments)
        exact = parent.lineage.exact if parent is not None else True
        path_ids = b"".join(segment.token_ids for segment in path)
        record = StateRecord(
            id=state or core.catalog.new_state_id(),
            name=name,
            model=core.model,
            config=core.config,
            namespace=namespace,
            segments=path,
            lineage=Lineage(operator, parents or ((parent.id,) if parent is not None else ()), exact, note),
            identity=identity_of(core.root(namespace), path_ids),
            unfed=unfed,
            conversation=conversation,
        )
        core.catalog.add(record, run)
        tail = pack_ids(unpack_ids(path_ids + unfed)[-PREVIEW_IDS:])
        core.hub.emit(
            Kind.STATE_CREATED,
            run,
            state=record.id,
            agent=name,
            n_tokens=record.n_tokens,
            nbytes=sum(segment.nbytes for segment in segments),
            detail={
                "name": name,
                "operator": operator,
                "parents": list(record.lineage.parents),
                "segments": [segment.recipe for segment in path],
                "exact": exact,
                "note": note,
                "preview": core.tokenizer.decode(tail),
            },
        )
        core.hub.emit(Kind.STATE_PHASE, run, state=record.id, detail={"now": "materialized", "then": "resident"})
        core.catalog.note_spilled(record.id)
        return record


def file_in(trouble: Exception | None) -> TypeGuard[KVLabError]:
    """Whether a state could not be used because of a damaged file of the disk tier, and of nothing else."""
    return isinstance(trouble, KVLabError) and "spilled" in trouble.data


def _told(request: Request, path: Sequence[Step]) -> str:
    """What needs the room of a request, for people."""
    n_back = sum(step.how != "use" for step in path)
    again = f", which brings back {n_back} segment{'s' if n_back > 1 else ''}," if n_back else ""
    return f"action {request.action}{again}"
