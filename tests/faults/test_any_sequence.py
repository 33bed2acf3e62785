"""Any sequence of verbs, with evictions and killed workers in it, leaves the world as a few lines of Python say it must be.

The model (:class:`World`) knows texts, paths of segments, who continues whom and who holds what. It never asks the lab
for what it predicts: what the lab says is compared after every verb, and what workers really hold after every sequence.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import kvlab
from kvlab.errors import (
    ClusterError,
    IllegalTransition,
    InvalidInput,
    KVLabError,
    MergeRefused,
    NoRoom,
    StateGone,
    TransferFailed,
)
from kvlab.state.tokens import unpack_ids

WORDS = (" keys", " and values", " of a prefix", " are the same", " for every question", ".")
WORKERS = ("worker-0", "worker-1")
LEASE_SECONDS = 900
"""Longer than any sequence."""
BUDGET_TOKENS = 60
"""So few that most sequences must evict, and that one which pins much finds no room."""
CLEAN = "nothing but what is held lies on the workers"

# -- what may be asked for: every verb with small numbers, which the world turns into one of its states

one_state = st.integers(0, 7)
text = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("".join)
place = st.sampled_from((None, None, *WORKERS))
road = st.sampled_from((None, None, None, None, "recompute", "transfer", "hybrid", "map", "in place", "restore"))
materialize = st.tuples(st.just("materialize"), text, place)
VERBS: dict[str, tuple[int, st.SearchStrategy[tuple[Any, ...]]]] = {
    "materialize": (4, materialize),
    "resume": (6, st.tuples(st.just("resume"), one_state, text, st.integers(1, 5), place, road)),
    "fork": (2, st.tuples(st.just("fork"), one_state, st.integers(1, 3))),
    "truncate": (2, st.tuples(st.just("truncate"), one_state, st.integers(1, 40))),
    "merge": (2, st.tuples(st.just("merge"), one_state, one_state)),
    "transfer": (3, st.tuples(st.just("transfer"), one_state, st.sampled_from(WORKERS), st.booleans())),
    "evict": (2, st.tuples(st.just("evict"), one_state, st.sampled_from((False, False, False, True)))),
    "pin": (2, st.tuples(st.just("pin"), one_state)),
    "unpin": (1, st.tuples(st.just("unpin"), one_state)),
    "lease": (2, st.tuples(st.just("lease"), one_state)),
    "release": (1, st.tuples(st.just("release"), one_state)),
    "spill": (3, st.tuples(st.just("spill"), one_state)),
    "save and load": (2, st.tuples(st.just("save and load"), one_state, place)),
    "look": (2, st.tuples(st.just("look"), one_state)),
    "drop": (1, st.tuples(st.just("drop"), one_state)),
    "clear": (1, st.just(("clear",))),
}
"""How often each is asked for, and with what."""
verb = st.sampled_from([name for name, (weight, _) in VERBS.items() for _ in range(weight)]).flatmap(
    lambda name: VERBS[name][1]
)
sequences = st.tuples(materialize, st.lists(verb, min_size=2, max_size=6)).map(lambda drawn: [drawn[0], *drawn[1]])
one_of_each = st.tuples(*(asked for _, asked in VERBS.values()))
KILL_EVERY = 40
"""One sequence in so many has a killed worker in it."""


@dataclass
class Expected:
    """What must be true of one state. ``path`` names its segments by what they are made of, from the root."""

    handle: Any
    ids: tuple[int, ...]
    unfed: tuple[int, ...]
    path: tuple[Any, ...]
    operator: str
    parents: tuple[str, ...]
    name: str
    wanted: bool = True
    forgotten: bool = False
    pinned: bool = False
    leases: list[Any] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """Whether it may not leave memory."""
        return self.pinned or bool(self.leases)


@dataclass
class World:
    """The states that a sequence of verbs must have made, beside the lab that made them."""

    lab: Any
    cold: Any
    folders: Iterator[Path]
    states: list[Expected] = field(default_factory=list)
    names: dict[Any, str] = field(default_factory=dict)
    killers: list[threading.Timer] = field(default_factory=list)
    victims: dict[str, str] = field(default_factory=dict)
    asked: tuple[Any, ...] = ()
    n_evicted: int = 0
    n_spilled: int = 0
    spilled: set[str] = field(default_factory=set)

    # -- steps

    def step(self, verb: str, *arguments: Any) -> str:
        """Do a verb on the lab and on the model, and compare. Returns how it ended."""
        if verb == "kill":
            self._kill(*arguments)
            return "done"
        if verb not in ("materialize", "clear"):
            if not self.states:
                return "nothing there"
            arguments = (self.states[arguments[0] % len(self.states)], *arguments[1:])
        # A worker that is known to be away cannot be meant; one that is not known to be may be.
        away = {name for name, seen in self.lab.workers.items() if not seen.address}
        if verb != "transfer":
            arguments = tuple(None if isinstance(value, str) and value in away else value for value in arguments)
        shaken = self._shaken()
        self.asked = ()
        used = self.lab.core.catalog.budget.used_bytes
        try:
            getattr(self, f"_{verb.replace(' ', '_')}")(*arguments)
            ended = "done"
        except (TransferFailed, ClusterError):
            if not (shaken or self._shaken()):
                raise
            ended = "lost"
        except NoRoom as error:
            if verb == "spill":  # its workers died before they had written it
                assert shaken or self._shaken()
            else:
                self._require_no_room(error, arguments)
            ended = "no room"
        except InvalidInput as error:
            if "there is no worker" not in error.message or not (shaken or self._shaken()):
                raise
            ended = "no such worker"
        self._take_in_evictions(verb, used, arguments)
        self._compare()
        return ended

    def _materialize(self, text: str, worker: str | None) -> None:
        tokenizer = self.lab.core.tokenizer
        ids = unpack_ids(tokenizer.root_ids() + tokenizer.text_ids(text))
        known = [one.path for one in self.states if one.wanted and one.ids == ids[: len(one.ids)]]
        made = self.lab.materialize(text, worker=worker)
        longest = max((self._length(path) for path in known), default=0)
        bases = [path for path in known if self._length(path) == longest] or [()]
        new = ids[longest:]
        paths = [(*base, ("turn", base, new, 0, "")) if new else base for base in bases]
        # Which of several states with the same tokens is shared is the lab's choice.
        path = next(path for path in paths if self._names_of(path) == self._recipes(made)[: len(self._names_of(path))])
        parents = tuple(one.handle.id for one in self.states if one.wanted and one.ids == ids[:longest])
        self._add(Expected(made, ids, (), path, "materialize", made.lineage.parents, ""))
        assert set(made.lineage.parents) <= set(parents)
        assert len(made.lineage.parents) == (longest > 0)

    def _resume(self, one: Expected, text: str, n: int, worker: str | None, how: str | None) -> None:
        fed = (*one.unfed, *unpack_ids(self.lab.core.tokenizer.text_ids(text)))
        self.asked = (*one.path, ("turn", one.path, fed, n, one.name))
        try:
            answer = one.handle.resume(text, max_new_tokens=n, worker=worker, how=how)
        except StateGone:
            assert one.forgotten
            return
        except InvalidInput as error:
            if how is None or "is not open" not in error.message:
                raise
            return  # what was refused changed nothing
        assert not one.forgotten
        one.wanted = True
        said = answer.token_ids
        assert said == self.cold.greedy((*one.ids, *fed), n, self.lab.core.tokenizer.stop_ids)
        ids = (*one.ids, *fed, *said[:-1])
        self._add(Expected(answer.state, ids, said[-1:], self.asked, "resume", (one.handle.id,), one.name))
        assert answer.n_prefilled + answer.n_reused == len(one.ids) + len(fed)

    def _fork(self, one: Expected, n: int) -> None:
        for index, fork in enumerate(self._unless_forgotten(one, lambda: one.handle.fork(n)) or ()):
            one.wanted = True
            name = f"{one.name}/{index}"
            self._add(Expected(fork, one.ids, one.unfed, one.path, "fork", (one.handle.id,), name))

    def _truncate(self, one: Expected, n: int) -> None:
        n = 1 + n % len(one.ids)
        shorter = self._unless_forgotten(one, lambda: one.handle.truncate(n))
        if shorter is None:
            return
        one.wanted = True
        path: list[Any] = []
        start = 0
        for piece in one.path:
            end = start + self._length((piece,))
            if end <= n:
                path.append(piece)
            elif start < n:
                path.append(("cut", tuple(path), one.ids[start:n], 0, ""))
            start = end
        self._add(Expected(shorter, one.ids[:n], (), tuple(path), "truncate", (one.handle.id,), one.name))

    def _merge(self, one: Expected, other: int) -> None:
        two = self.states[other % len(self.states)]
        texts = [(*each.ids, *each.unfed) for each in (one, two)]
        longest = max((one, two), key=lambda each: (len(each.ids), len(each.unfed)))
        whole = (*longest.ids, *longest.unfed)
        if any(whole[: len(told)] != told for told in texts):
            with pytest.raises(MergeRefused, match="part at token"):
                kvlab.merge([one.handle, two.handle])
            return
        merged = self._unless_forgotten(longest, lambda: kvlab.merge([one.handle, two.handle]))
        if merged is not None:
            longest.wanted = True
            parents = (one.handle.id, two.handle.id)
            self._add(Expected(merged, longest.ids, longest.unfed, longest.path, "merge", parents, longest.name))

    def _transfer(self, one: Expected, worker: str, keep: bool) -> None:
        catalog = self.lab.core.catalog
        there = one.handle.phase == "resident" and all(catalog.copies(name) for name in self._recipes(one.handle))
        try:
            one.handle.transfer(worker, keep=keep)
        except StateGone:
            assert not there or self._shaken()
            return
        assert there
        assert one.wanted
        assert worker in one.handle.workers or self._shaken()

    def _evict(self, one: Expected, forget: bool) -> None:
        if one.kept:
            with pytest.raises(InvalidInput, match="pinned" if one.pinned else "leased"):
                one.handle.evict(forget=forget)
            return
        one.handle.evict(forget=forget)
        one.wanted, one.forgotten = False, one.forgotten or forget

    def _pin(self, one: Expected) -> None:
        if self._in_memory(one, one.handle.pin):
            one.pinned = True

    def _lease(self, one: Expected) -> None:
        if (lease := self._in_memory(one, lambda: one.handle.lease(LEASE_SECONDS))) is not None:
            assert LEASE_SECONDS - 60 < lease.seconds_left <= LEASE_SECONDS
            one.leases.append(lease)

    def _release(self, one: Expected) -> None:
        for lease in one.leases:
            lease.release()
            assert lease.seconds_left == 0
        one.leases.clear()

    def _in_memory(self, one: Expected, act: Callable[[], Any]) -> Any:
        """What is not in memory cannot be kept there. Its phase is compared after every step."""
        if one.handle.phase in ("resident", "in transit"):
            return act()
        with pytest.raises(IllegalTransition, match="only what is in memory"):
            act()
        return None

    def _spill(self, one: Expected) -> None:
        catalog = self.lab.core.catalog
        others = {name for other in self.states if other is not one for name in self._recipes(other.handle)}
        phase, own = one.handle.phase, [name for name in self._recipes(one.handle) if name not in others]
        if catalog.disk is None or one.kept:
            with pytest.raises(InvalidInput, match="spills nothing" if catalog.disk is None else "pinned|leased"):
                one.handle.spill()
        elif phase != "resident":
            with pytest.raises(IllegalTransition):
                one.handle.spill()
        else:
            held = {name: catalog.copies(name) for name in own}
            nbytes = sum(catalog.budget.held(copy.key) for copies in held.values() for copy in copies.values())
            assert one.handle.spill() == nbytes or self._shaken()
            for name in own:
                assert not catalog.copies(name)
                assert catalog.file_of(name) or not held[name]
            assert one.handle.phase == ("spilled" if any(held.values()) else "resident")

    def _unpin(self, one: Expected) -> None:
        one.handle.unpin()
        one.pinned = False

    def _save_and_load(self, one: Expected, worker: str | None) -> None:
        folder = self._unless_forgotten(one, lambda: one.handle.save(next(self.folders)))
        if folder is None:
            return
        one.wanted = True
        loaded = self.lab.load(folder, worker=worker)
        path: tuple[Any, ...] = ()
        start = 0
        for piece in one.path:
            end = start + self._length((piece,))
            path = (*path, ("load", path, one.ids[start:end], 0, ""))
            start = end
        self._add(Expected(loaded, one.ids, one.unfed, path, "load", (), one.name))

    def _look(self, one: Expected) -> None:
        seen = self._unless_forgotten(one, one.handle.next_logits)
        if seen is not None:
            one.wanted = True
            assert np.abs(seen - self.cold.next_logits((*one.ids, *one.unfed))).max() < 1e-4

    def _drop(self, one: Expected) -> None:
        if not one.kept:  # else nobody could ever let it go again
            self.states.remove(one)
            one.handle = None

    def _clear(self) -> None:
        self.lab.clear()
        for one in self.states:
            one.wanted = one.wanted and one.kept

    def _kill(self, worker: str, milliseconds: int) -> None:
        """In so many milliseconds, whatever is going on then. All workers are up before, so one is left."""
        wait_for(lambda: not self._shaken())
        self.victims[worker] = self.lab.workers[worker].address
        pid = self.lab._cluster.pids[worker]
        self.killers.append(threading.Timer(milliseconds / 1000, os.kill, (pid, signal.SIGKILL)))
        self.killers[-1].start()

    # -- what is expected

    def _shaken(self) -> bool:
        """Whether a worker was, or is about to be, killed and is not back."""
        seen = self.lab.workers
        unnoticed = any(seen[worker].address == address for worker, address in self.victims.items())
        return unnoticed or not all(one.address for one in seen.values())

    def _unless_forgotten(self, one: Expected, act: Callable[[], Any]) -> Any:
        try:
            done = act()
        except StateGone:
            assert one.forgotten
            return None
        assert not one.forgotten
        return done

    def _add(self, one: Expected) -> None:
        self.states.append(one)
        record = one.handle.record
        assert unpack_ids(record.path_ids) == one.ids
        assert unpack_ids(record.unfed) == one.unfed
        assert (record.lineage.operator, record.lineage.parents) == (one.operator, one.parents)
        assert record.lineage.exact
        assert record.nbytes == len(one.ids) * self.lab.core.config.bytes_per_token
        assert len(record.segments) == len(one.path)
        # Equal names are equal things: the lab calls two segments alike if and only if the model does.
        for index, segment in enumerate(record.segments):
            assert self.names.setdefault(one.path[: index + 1], segment.recipe) == segment.recipe
        assert len(set(self.names.values())) == len(self.names)

    def _names_of(self, path: tuple[Any, ...]) -> list[str]:
        known = [self.names.get(path[: index + 1]) for index in range(len(path))]
        return [name for name in known if name is not None]

    def _recipes(self, handle: Any) -> list[str]:
        return [segment.recipe for segment in handle.record.segments]

    def _length(self, path: tuple[Any, ...]) -> int:
        """Tokens of a path; a turn's own and those it generated and fed."""
        return sum(len(self._ids_of(piece)) for piece in path)

    def _ids_of(self, piece: Any) -> tuple[int, ...]:
        kind, past, ids, n, _ = piece
        if kind != "turn" or n == 0:
            return tuple(ids)
        before = tuple(itertools.chain.from_iterable(self._ids_of(one) for one in past))
        said = self.cold.greedy((*before, *ids), n, self.lab.core.tokenizer.stop_ids)
        return (*ids, *said[:-1])

    # -- what is compared

    def _require_no_room(self, error: NoRoom, arguments: tuple[Any, ...]) -> None:
        """It is right only where what may not go, and what is asked for, are more than the budget."""
        catalog = self.lab.core.catalog
        kept = {name for one in self.states if one.kept for name in self._recipes(one.handle)}
        kept |= {name for one in arguments if isinstance(one, Expected) for name in self._recipes(one.handle)}
        # What is asked for may lie there once already: it stays while it is made.
        kept |= {name for name in (self.names.get(self.asked),) if name is not None}
        held = sum(catalog.budget.held(copy.key) for name in kept for copy in catalog.copies(name).values())
        again = sum(one.handle.nbytes for one in arguments if isinstance(one, Expected))
        asked = (
            sum(len(piece[2]) + max(0, piece[3] - 1) for piece in self.asked[-1:])
            * self.lab.core.config.bytes_per_token
        )
        need = max(error.data["need_bytes"], asked)
        assert held + need + again > catalog.budget.limit_bytes, str(error)

    def _take_in_evictions(self, verb: str, used: int, arguments: tuple[Any, ...]) -> None:
        """What the lab evicted by itself, it evicted for want of room, and nothing that it had to keep."""
        for one in self.states:
            phase = one.handle.phase
            if phase == "spilled":
                assert not one.kept
                self.n_spilled += verb != "spill" and one.handle.id not in self.spilled
            if one.wanted and phase == "evicted":
                assert not one.kept
                assert verb in ("materialize", "resume", "truncate", "transfer", "save and load", "look"), verb
                assert one not in arguments or verb == "save and load"
                one.wanted = False
                self.n_evicted += 1
            elif not one.wanted and phase != "evicted":
                # Made when it is used; or an attempt failed that had made it. One that came to nothing plans nothing.
                assert phase != "planned" or verb != "resume"
                one.wanted = True
        self.spilled = {one.handle.id for one in self.states if one.handle.phase == "spilled"}

    def _compare(self) -> None:
        catalog, per_token = self.lab.core.catalog, self.lab.core.config.bytes_per_token
        table = self.lab.states.to_pylist()
        if len(table) != len(self.states):
            gc.collect()
            table = self.lab.states.to_pylist()
        assert [row["state"] for row in table] == sorted((s.handle.id for s in self.states), key=lambda s: int(s[1:]))
        for one in self.states:
            row = next(row for row in table if row["state"] == one.handle.id)
            assert (row["phase"] != "evicted", row["pinned"]) == (one.wanted, one.pinned)
            assert (row["n_tokens"], row["path_bytes"]) == (len(one.ids), len(one.ids) * per_token)
            assert catalog.entry(one.handle.id).handles == 1
        expected: dict[str, set[str]] = {}
        with catalog.lock:
            owned = {name: set(entry.owners) for name, entry in catalog._segments.items()}
        for one in self.states:
            names = self._recipes(one.handle)
            if not one.wanted:
                # What the lab evicts by itself keeps what comes before the segment that went.
                names = list(itertools.takewhile(lambda name: one.handle.id in owned.get(name, ()), names))  # noqa: B023
            for name in names:
                expected.setdefault(name, set()).add(one.handle.id)
        assert owned == expected
        assert catalog.on_disk() <= owned.keys()
        assert catalog.budget.used_bytes <= catalog.budget.limit_bytes

    def close(self) -> None:
        """The end of a sequence: workers hold what is held, and then nothing."""
        for killer in self.killers:
            killer.join()
        for worker, address in self.victims.items():
            wait_for(lambda: self.lab.workers[worker].address != address)  # noqa: B023
        assert poll(self._as_told), f"{CLEAN}: {self._told()} are counted, {self._lying()} lie there"
        while self.states:
            one = self.states.pop()
            one.handle.unpin()
            self._release(one)
            del one
        self.lab.core.catalog.reap()
        if self.lab.core.catalog.states():  # an error's traceback may hold one
            gc.collect()
            self.lab.core.catalog.reap()
        assert poll(lambda: self.lab.core.catalog.budget.used_bytes == 0)  # workers say so a moment later
        assert self.lab.core.catalog._segments == {}
        if self.lab.core.catalog.disk is not None:
            assert self.lab.core.catalog.disk.used_bytes == 0
            assert list(self.lab.core.catalog.disk._folder.iterdir()) == []
        assert poll(lambda: not self._lying()), f"{CLEAN}: {self._lying()} lie there"

    def _as_told(self) -> bool:
        told, lying = self._told(), self._lying()
        if told != lying:
            return False
        budget = self.lab.core.catalog.budget
        with self.lab.core.catalog.lock:
            copies = [copy for entry in self.lab.core.catalog._segments.values() for copy in entry.copies.values()]
            if not all(copy.workers for copy in copies):
                return False  # it is being made again
            sizes = {key: nbytes for (key, _), nbytes in lying.items()}
            if any(copy.key not in sizes for copy in copies):
                return False  # it was made between the two looks
            once = self.lab.core.same_host == "map"
            counted = sum(sizes[copy.key] * (1 if once else len(copy.workers)) for copy in copies)
            return counted == budget.used_bytes

    def _told(self) -> dict[tuple[str, str], int]:
        """(key, worker) → bytes, as the catalog says."""
        with self.lab.core.catalog.lock:
            entries = list(self.lab.core.catalog._segments.values())
        sizes = {s.recipe: s.nbytes for one in self.states for s in one.handle.record.segments}
        return {
            (copy.key, worker): sizes[entry.recipe]
            for entry in entries
            for copy in entry.copies.values()
            for worker in copy.workers
        }

    def _lying(self) -> dict[tuple[str, str], int]:
        """(key, worker) → bytes, as the workers say."""

        def segments_here(dask_worker: Any) -> dict[tuple[str, str], int]:
            from kvlab.runtime.keys import recipe_in

            return {(key, dask_worker.name): value.nbytes for key, value in dask_worker.data.items() if recipe_in(key)}

        found: dict[tuple[str, str], int] = {}
        for told in self.lab.core.client.run(segments_here, on_error="ignore").values():
            found |= told
        return found


def poll(ready: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := ready()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def wait_for(ready: Callable[[], Any]) -> None:
    assert poll(ready, 60), "it did not happen"


def try_sequences(lab: Any, cold: Any, folder: Path, n_sequences: int, number: int) -> Counter[str]:
    """So many sequences in one lab. Returns what was done and how it ended, counted."""
    ended: Counter[str] = Counter()
    folders = (folder / f"saved-{index}" for index in itertools.count())

    failed: list[BaseException] = []
    numbers = itertools.count()

    # The lab outlives its sequences: one that breaks it would make every other one after it fail, so the first that
    # fails is shown as it is, and neither made smaller nor tried again.
    @seed(number)
    @settings(
        max_examples=n_sequences,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(sequences, one_of_each)
    def any_sequence(steps: list[tuple[Any, ...]], each: tuple[tuple[Any, ...], ...]) -> None:
        if failed:
            raise failed[0]
        index = next(numbers)
        # What is drawn is much alike for long stretches: each verb has its turn.
        steps = [*steps, each[index % len(each)]]
        if index % KILL_EVERY == KILL_EVERY // 2:
            drawn = random.Random(f"{number}/{index}")
            at = drawn.randrange(1, len(steps))
            steps = [*steps[:at], ("kill", drawn.choice(WORKERS), drawn.randrange(60)), *steps[at:]]
        world = World(lab, cold, folders)
        try:
            for at, (verb, *arguments) in enumerate(steps):  # noqa: B007 - told where one fails
                ended[f"{verb}: {world.step(verb, *arguments)}"] += 1
            world.close()
            ended["evicted for want of room"] += world.n_evicted
            ended["spilled for want of room"] += world.n_spilled
        except BaseException as error:
            error.add_note(f"in step {at} of {steps}")
            failed.append(error)
            raise

    any_sequence()
    return ended


def require_telling(ended: Counter[str], n_kills: int, verbs: Sequence[str]) -> None:
    """Fails where the sequences did not do what they are there for."""
    for verb in verbs:
        assert ended[f"{verb}: done"], ended
    assert ended["evicted for want of room"] + ended["spilled for want of room"] >= 5, ended
    assert ended["kill: done"] >= n_kills, ended


SEQUENCES = [
    pytest.param("map", 1, 100, id="map"),
    pytest.param("frames", 2, 100, id="frames"),
    *(pytest.param(("map", "frames")[n % 2], n, 180, marks=pytest.mark.slow, id=f"more-{n}") for n in range(3, 13)),
]
"""How states travel, the seed, and how many: 200 always, 2,000 with the slow ones."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("same_host", "number", "n_sequences"), SEQUENCES)
def test_any_sequence_of_verbs(
    same_host: str, number: int, n_sequences: int, make_lab: Any, cold: Any, tmp_path: Path
) -> None:
    """Labs that map also spill to disk; those that send frames have nothing but memory."""
    budget = BUDGET_TOKENS * cold.engine.config.bytes_per_token
    spill_bytes = "4 MiB" if same_host == "map" else 0
    with make_lab(
        same_host=same_host, kv_budget=budget, spill_bytes=spill_bytes, namespace=f"sequences-{number}"
    ) as lab:
        ended = try_sequences(lab, cold, tmp_path, n_sequences, number)
        require_telling(ended, n_sequences // KILL_EVERY, list(VERBS))


def test_nothing_can_be_done_in_a_closed_lab(make_lab: Any, tmp_path: Path) -> None:
    with make_lab(workers=1, processes=False, kv_budget="1 MiB", namespace="closed") as lab:
        state = lab.materialize(WORDS[1])
        state.save(tmp_path / "kept")
    verbs: list[Callable[[], Any]] = [
        lambda: lab.materialize("x"),
        lambda: lab.load(tmp_path / "kept"),
        lambda: state.resume("x"),
        lambda: state.fork(2),
        lambda: state.truncate(1),
        lambda: kvlab.merge([state, state]),
        lambda: state.transfer("worker-0"),
        state.evict,
        state.pin,
        state.unpin,
        lambda: state.save(tmp_path / "other"),
        state.next_logits,
        lab.clear,
        lambda: lab.run(kvlab.Workflow("x")),
    ]
    for act in verbs:
        with pytest.raises(StateGone, match="closed"):
            act()
    with contextlib.suppress(KVLabError):
        lab.close()
