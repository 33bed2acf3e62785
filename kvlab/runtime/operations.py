"""Carrying out one action on the cluster: from a request to Dask tasks, and from their answers to records.

Both the conductor of a run and the verbs of a notebook cell go through here.

One file a little over the usual length, because submitting and receiving share one account of a path's copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from kvlab.cost.roads import Alternative
from kvlab.engine.protocol import Branch
from kvlab.errors import KVLabError
from kvlab.runtime import tasks
from kvlab.runtime.core import Core
from kvlab.runtime.entries import Copy
from kvlab.runtime.halves import behind, joined
from kvlab.runtime.keys import BACK
from kvlab.runtime.orders import MODEL_WORK, Order, Work
from kvlab.runtime.remote_errors import FAILED
from kvlab.runtime.turns import Making
from kvlab.state.identity import Sampling, identity_of, recipe_of
from kvlab.state.records import Lineage, Operator, SegmentRecord, StateRecord
from kvlab.state.tokens import BYTES_PER_ID, n_ids, pack_ids, unpack_ids
from kvlab.store.events import Kind

PREVIEW_IDS = 48
"""Tokens whose text is shown as a state's preview."""


@dataclass(frozen=True, slots=True)
class Request:
    """Branches to compute on the state of ``parent`` (None: from the root), on one worker.

    ``road`` says which segments of the path are made again there, and which one is divided; without one, only what has
    no copy is made. Without ``evict`` it finds room as it is, or none.
    """

    action: str
    run: str
    namespace: str
    parent: StateRecord | None
    agents: tuple[str, ...]
    branches: tuple[Branch, ...]
    worker: str
    threads: int
    road: Alternative | None = None
    evict: bool = True

    @property
    def path(self) -> tuple[SegmentRecord, ...]:
        """Segments it works on."""
        return self.parent.segments if self.parent is not None else ()


@dataclass(slots=True)
class Pending:
    """A request under way.

    ``answers`` are futures of headers: one a branch, then one for every segment of the path that is made again.
    ``restored`` are those that are read from disk. ``before`` says which segments of the path lay on the worker when it
    was submitted, ``made`` which making of each it was and who had it; ``halves`` are futures that only have to live until
    the answers are there.
    """

    request: Request
    recipes: list[str]
    generations: list[int]
    answers: list[Any]
    remade: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    past: list[tuple[str, int]] = field(default_factory=list)
    before: dict[str, bool] = field(default_factory=dict)
    made: dict[str, Making] = field(default_factory=dict)
    halves: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Answered:
    """A branch that is done: its record, its header, and how the state it used came to its worker."""

    segment: SegmentRecord
    header: dict[str, Any]
    unfed: bytes


class Operations:
    """Submits work to Dask and takes its results into the catalog."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def submit(self, request: Request) -> Pending:
        """Start a request. Reserves room first; nothing is started if there is none.

        Raises
        ------
        NoRoom
            When the KV budget has no room for what this will make.
        """
        core = self.core
        root = core.root(request.namespace)
        parent_recipe = request.path[-1].recipe if request.path else None
        recipes = [recipe_of(root, parent_recipe, b.ids, b.sampling) for b in request.branches]
        named = [core.catalog.next_key(recipe) for recipe in recipes]
        pending = Pending(request, recipes, [generation for generation, _ in named], [])
        keys = [key for _, key in named]
        core.catalog.claim(request.action, [*(segment.recipe for segment in request.path), *recipes])
        reserved: list[str] = []
        try:
            for key, branch in zip(keys, request.branches, strict=True):
                n_tokens = n_ids(branch.ids) + max(0, branch.sampling.max_new_tokens - 1)
                core.catalog.budget.reserve(
                    key,
                    n_tokens * core.config.bytes_per_token,
                    f"action {request.action}",
                    device=request.worker,
                    evict=request.evict,
                )
                reserved.append(key)
            past = self._path(request, pending)
        except BaseException:
            for key in reserved:
                core.catalog.budget.release(key)
            self.abandon(pending)
            raise
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
        answers = [self._meta(future, key, where) for future, key in zip(futures, keys, strict=True)]
        pending.answers = [*answers, *pending.answers]
        return pending

    def path_futures(self, request: Request) -> tuple[list[Any], Pending]:
        """Futures of the path of a request without branches; what is gone is submitted, and answered in ``Pending``."""
        pending = Pending(request, [], [], [])
        self.core.catalog.claim(request.action, [segment.recipe for segment in request.path])
        try:
            return self._path(request, pending), pending
        except BaseException:
            self._unclaim(pending)
            raise

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
        """Copies of a segment that are there or on their way. One whose making failed is given up: its key keeps the error."""
        copies = self.core.catalog.copies(recipe)
        for generation in [number for number, copy in copies.items() if copy.future.status in FAILED]:
            self.core.catalog.discard_copy(recipe, generation)
            del copies[generation]
        return copies

    def _path(self, request: Request, pending: Pending) -> list[Any]:
        """Futures of the path's segments for a worker; what is gone (or to be made again) is submitted as recomputes."""
        worker, road = request.worker, request.road
        again, read = (road.again, road.restored) if road is not None else ((), ())
        found: list[Any] = []
        for segment in request.path:
            copies = self.living_copies(segment.recipe)
            here = [item for item in copies.items() if worker in item[1].workers]
            divided = road is not None and road.split is not None and road.split.recipe == segment.recipe
            usable = here or list(copies.items())
            if not usable or segment.recipe in again or (segment.recipe in read and not here):
                generation, future = self._brought_back(request, pending, segment, found)
            elif divided and not here and road is not None and road.split is not None:
                generation, future = self._joined(request, pending, segment, found, road.split.front, usable[-1][1])
            else:
                generation, copy = usable[-1]
                future = copy.future
                pending.made[segment.recipe] = Making(copy.made_ns, tuple(sorted(copy.workers)))
                if not here:
                    self.reserve_replica(copy, segment, worker, evict=request.evict)
            pending.before[segment.recipe] = bool(here)
            pending.past.append((segment.recipe, generation))
            found.append(future)
        return found

    def _brought_back(
        self, request: Request, pending: Pending, segment: SegmentRecord, path: Sequence[Any]
    ) -> tuple[int, Any]:
        """A new generation of a segment: read from disk where it lies there and the road does not say otherwise."""
        again = request.road.again if request.road is not None else ()
        file = self.core.catalog.file_of(segment.recipe)
        if file is None or segment.recipe in again:
            return self._made_again(request, pending, segment, path)
        generation, key = self._reserved_again(request, segment)
        future = self.core.client.submit(
            tasks.unspill,
            segment.recipe,
            file,
            segment.token_ids,
            segment.n_prompt,
            key=key,
            pure=False,
            **self._where(request.worker),
        )
        self.core.catalog.add_copy(segment.recipe, generation, future)
        pending.restored.append(segment.recipe)
        return generation, future

    def _made_again(
        self, request: Request, pending: Pending, segment: SegmentRecord, path: Sequence[Any]
    ) -> tuple[int, Any]:
        """A new generation of a segment, prefilled on ``path``."""
        generation, key = self._reserved_again(request, segment)
        future = self._prefilled(request, key, segment.recipe, segment.token_ids, path)
        return generation, self._remade(request, pending, segment, generation, future)

    def _joined(
        self,
        request: Request,
        pending: Pending,
        segment: SegmentRecord,
        path: Sequence[Any],
        n_front: int,
        copy: Copy,
    ) -> tuple[int, Any]:
        """A new generation of a segment: its front prefilled on ``path`` while its back arrives from a copy."""
        core, worker = self.core, request.worker
        # Until they are joined both halves lie here, and the back once more where it was cut.
        halves = 2 * segment.nbytes - n_front * core.config.bytes_per_token
        generation, key = self._reserved_again(request, segment, halves)
        sources = [name for name in copy.workers if core.address_of(name)]
        ids = segment.token_ids[: n_front * BYTES_PER_ID]
        front = self._prefilled(request, f"front-{key}", segment.recipe, ids, path)
        back = core.client.submit(
            behind, n_front, copy.future, key=f"{BACK}{key}", pure=False, **self._where(min(sources, default=worker))
        )
        where = self._where(worker)
        # The join is sent to the worker only when all its inputs exist; this makes the back travel before that.
        arrival = core.client.submit(tasks.touch, back, key=f"arrival-{key}", pure=False, **where)
        future = core.client.submit(joined, segment.recipe, front, back, key=key, pure=False, **where)
        pending.halves += [front, back, arrival]
        return generation, self._remade(request, pending, segment, generation, future)

    def _reserved_again(self, request: Request, segment: SegmentRecord, meanwhile: int = 0) -> tuple[int, str]:
        """Generation and key of a new attempt, with room for it and for ``meanwhile`` bytes until it is there."""
        budget, what = self.core.catalog.budget, f"bringing back segment {segment.recipe[:12]}"
        generation, key = self.core.catalog.next_key(segment.recipe)
        budget.reserve(key, segment.nbytes, what, device=request.worker, evict=request.evict)
        try:
            if meanwhile:
                budget.reserve(f"{key}@halves", meanwhile, what, device=request.worker, evict=request.evict)
        except BaseException:
            budget.release(key)
            raise
        return generation, key

    def _prefilled(self, request: Request, key: str, recipe: str, ids: bytes, path: Sequence[Any]) -> Any:
        order = self._order(request, "recompute", (recipe,), (Branch(ids, Sampling(0)),))
        where = self._where(request.worker)
        return self.core.client.submit(tasks.run_one, order, *path, key=key, pure=False, resources=MODEL_WORK, **where)

    def _remade(self, request: Request, pending: Pending, segment: SegmentRecord, generation: int, future: Any) -> Any:
        key = self.core.catalog.add_copy(segment.recipe, generation, future).key
        pending.answers.append(self._meta(future, key, self._where(request.worker)))
        pending.remade.append(segment.recipe)
        return future

    def reserve_replica(
        self, copy: Copy, segment: SegmentRecord, worker: str, *, evict: bool = True, keeps: bool = False
    ) -> None:
        """Bytes that cross to ``worker`` lie there a second time; a mapped copy takes no memory of its own.

        With ``keeps`` the worker will be the one that holds it, so that a mapped copy counts on its device, too.
        """
        hosts = {self.core.workers[name].host for name in copy.workers if name in self.core.workers}
        crosses = self.core.same_host == "frames" or self.core.workers[worker].host not in hosts
        if crosses or keeps:
            self.core.catalog.budget.reserve(
                f"{copy.key}@{worker}",
                segment.nbytes,
                f"a copy of segment {segment.recipe[:12]} on {worker}",
                device=worker,
                on_host=None if crosses else 0,
                evict=evict,
            )

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
        """Forget a request that failed or was cancelled: its copies and its reservations."""
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
        self._unclaim(pending)

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
