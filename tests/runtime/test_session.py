"""A lab's verbs are recorded from its first to its last, and whoever follows hears each as it happens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import kvlab
from kvlab.display.sentences import sentence
from kvlab.errors import StateGone
from kvlab.store.events import Event, Kind
from kvlab.store.fold import fold
from kvlab.store.rows import events_of

TEXT = "A text that several continuations share. " * 6


def told(session: Any) -> list[Event]:
    return [event for _, event in events_of(session.events)]


def test_every_verb_is_heard(make_lab: Any, tmp_path: Path) -> None:
    with make_lab(kv_budget="1 GiB", same_host="frames") as lab:
        session = lab._session
        heard: list[Event] = []
        before, undo = session.follow(heard.extend)
        assert [event.kind for _, event in events_of(before)][:1] == [Kind.RUN_STARTED]

        doc = lab.materialize(TEXT, name="doc", worker="worker-0")
        left, right = doc.fork(2)
        answer = left.resume("On", max_new_tokens=3, worker="worker-0")
        answer.state.transfer("worker-1")
        short = right.truncate(8)
        merged = kvlab.merge([doc, left])
        merged.pin().unpin()
        short.save(tmp_path / "kept")
        lab.load(tmp_path / "kept", name="back")
        short.evict()
        session.world  # noqa: B018 - waits until all of it was delivered
        undo()

        said = "\n".join(sentence(event) for event in heard)
        for verb in ("materialize", "fork", "resume", "truncate", "merge", "load"):
            assert f"{verb} made" in said, verb
        for op in ("transfer", "save"):
            ends = [event.kind for event in heard if event.detail.get("op") == op]
            assert ends[:1] == [Kind.ACTION_STARTED]
            assert ends[-1:] == [Kind.ACTION_FINISHED]
        assert f"{merged.id} is pinned" in said
        assert f"{merged.id} is not pinned any more" in said
        assert f"{short.id} is evicted" in said

        world = session.world
        states = {row["state"]: row for row in world.rows["states"]}
        assert states[short.id]["phase"] == "evicted"
        edge = world.find("edges", f"{left.id}→{answer.state.id}")
        # The decision speaks of the state that it made.
        assert (edge["source"], edge["target"]) == (left.id, answer.state.id)
        assert edge["actual_how"] == answer.how
        assert world.find("turns", "doc/0")["text"] == answer.text
        kept = fold(told(session))
        for name in world.rows:
            assert kept.table(name).equals(world.table(name)), name  # what is on disk is what was heard
    # The lab is closed and its folder gone: who holds the record still reads it.
    assert session.over
    assert not session.path.exists()
    assert told(session)[-1].kind is Kind.RUN_FINISHED
    assert session.status == "closed"


def test_unnamed_states_have_names_in_what_is_told(make_lab: Any) -> None:
    with make_lab(kv_budget="1 GiB") as lab:
        state = lab.materialize(TEXT)
        lab.materialize(TEXT + "More.")
        session = lab._session
        said = [sentence(event) for event in told(session)]
        assert any(line.startswith(f"materialize of {state.id} started on worker-") for line in said)
        assert not any(" of  " in line or "None" in line for line in said), said


def test_a_verb_that_fails_is_told(make_lab: Any) -> None:
    with make_lab(kv_budget="1 GiB", same_host="frames") as lab:
        state = lab.materialize(TEXT, worker="worker-0")
        state.evict()
        session = lab._session
        with pytest.raises(StateGone):
            state.transfer("worker-1")
        deadline = time.monotonic() + 5
        while session.world.rows["operators"][-1]["status"] != "failed" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert session.world.rows["operators"][-1]["status"] == "failed"
