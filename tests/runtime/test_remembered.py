"""The same arguments give the running one; a cell that is run again with others closes what it made before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kvlab.errors import InvalidInput
from kvlab.runtime.remembered import Remembered


class Thing(metaclass=Remembered):
    """Remembered as a lab is, and as cheap as can be."""

    def __init__(self, address: str | None = None, *, size: int = 1, progress: Any = None) -> None:
        if size < 0:
            raise ValueError(size)
        self.closed = False

    def close(self) -> None:
        self.closed = True
        Remembered.forget(self)


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remembered, "_running", {})
    monkeypatch.setattr(Remembered, "_made_by_cell", {})


@pytest.fixture
def run_cell(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``run_cell(name)``: what follows runs in that cell, each call a run of its own."""
    parent: dict[str, Any] = {}
    shell = SimpleNamespace(get_parent=lambda: parent)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    runs = iter(range(1000))

    def run(name: str) -> None:
        parent.update(metadata={"cellId": name}, header={"msg_id": f"run-{next(runs)}"})

    return run


def test_the_same_arguments_give_the_running_one() -> None:
    first = Thing()
    assert Thing(None) is Thing(address=None, size=1) is first
    assert Thing(progress=print) is first
    other = Thing(size=2)
    assert other is not first
    assert not first.closed
    first.close()
    assert Thing() is not first
    assert Thing(size=2) is other


def test_one_that_could_not_be_made_is_not_remembered() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            Thing(size=-1)
    assert Remembered._running == {}


def test_an_unknown_keyword_names_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="sizes=") as caught:
        Thing(sizes=3)  # type: ignore[call-arg]
    assert "size=" in caught.value.hint
    with pytest.raises(InvalidInput, match="one positional"):
        Thing("tcp://here:1", 3)  # type: ignore[misc]
    with pytest.raises(InvalidInput, match=r"size=\[3\] is a list"):
        Thing(size=[3])  # type: ignore[arg-type]


def test_a_cell_run_again_with_others_closes_the_one_it_made(run_cell: Callable[[str], None]) -> None:
    run_cell("one")
    first = Thing()
    run_cell("two")
    elsewhere = Thing(size=5)
    assert Thing() is first
    run_cell("one")
    assert Thing() is first
    run_cell("one")
    second = Thing(size=2)
    assert first.closed
    assert not elsewhere.closed
    run_cell("two")
    Thing(size=6)
    assert elsewhere.closed
    assert not second.closed


def test_two_made_by_one_run_of_a_cell_live_side_by_side(run_cell: Callable[[str], None]) -> None:
    run_cell("one")
    first, second = Thing(), Thing(size=2)
    assert not first.closed
    run_cell("one")
    assert Thing() is first
    third = Thing(size=3)
    assert second.closed
    assert not first.closed
    assert not third.closed


def test_one_that_another_cell_only_asked_for_stays_when_that_cell_changes(run_cell: Callable[[str], None]) -> None:
    run_cell("one")
    first = Thing()
    run_cell("two")
    assert Thing() is first
    run_cell("two")
    Thing(size=2)
    assert not first.closed


def test_a_shell_that_names_no_cell_closes_nothing(
    run_cell: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(get_parent=dict)))
    first = Thing()
    Thing(size=2)
    assert not first.closed
