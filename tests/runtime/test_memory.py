"""What a lab will take is said, and refused, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvlab.engine.models import ModelCard
from kvlab.errors import InvalidInput, NoRoom
from kvlab.runtime import memory
from kvlab.runtime.memory import check_room, parse_budget

GIB = 1 << 30
CARD = ModelCard("tiny", Path("/models/tiny"), "llama", GIB // 4, "float32", 2, 2, 16, 64)


@pytest.fixture(autouse=True)
def ten_gib_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 10 * GIB)


@pytest.mark.parametrize(
    ("text", "nbytes"), [(None, None), (4096, 4096), ("4096", 4096), ("2 GiB", 2 * GIB), ("1kB", 1000), (1.5e3, 1500)]
)
def test_sizes(text: Any, nbytes: int | None) -> None:
    assert parse_budget(text) == nbytes


@pytest.mark.parametrize("text", ["much", "2 lightyears", [], "inf", float("inf"), float("nan"), 0, "0 GiB", -1, True])
def test_other_things_are_refused_with_an_example(text: Any) -> None:
    with pytest.raises(InvalidInput, match="kv_budget=") as caught:
        parse_budget(text)
    assert "GiB" in caught.value.hint


def test_room_is_weights_and_a_quarter_of_the_rest() -> None:
    said: list[str] = []
    assert check_room(CARD, 2, None, "auto", said.append) == 2 * GIB
    (line,) = said
    assert "2.00 GiB for 2 copies" in line
    assert "a KV budget of 2.00 GiB" in line
    assert f"{2 * GIB // CARD.kv_bytes_per_token():,} tokens" in line
    assert check_room(CARD, 2, None, "bfloat16", said.append) == 9 * GIB // 4
    assert check_room(CARD, 0, None, "auto", said.append) == 10 * GIB // 4


def test_a_budget_that_is_given_is_kept_to_the_byte() -> None:
    assert check_room(CARD, 2, 8 * GIB, "auto", lambda _: None) == 8 * GIB
    with pytest.raises(NoRoom) as caught:
        check_room(CARD, 2, 8 * GIB + 1, "auto", lambda _: None)
    assert caught.value.data == {"need_bytes": 10 * GIB + 1, "free_bytes": 10 * GIB}
    assert "tiny needs 2.00 GiB for 2 copies" in caught.value.message
    assert "fewer workers" in caught.value.hint


@pytest.mark.parametrize("copies", [10, 11])
def test_weights_that_leave_no_room_for_any_state_are_refused(copies: int) -> None:
    with pytest.raises(NoRoom, match="10.00 GiB are free"):
        check_room(CARD, copies, None, "auto", lambda _: None)


def test_what_is_free_is_a_positive_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert 0 < memory.free_bytes() < 1 << 50
