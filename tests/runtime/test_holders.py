"""Who keeps a state alive, as a notebook's person would ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

TEXT = "Keys and values of a prefix are the same for every question that follows it. "


@pytest.fixture
def shell(lab: Any) -> Iterator[Any]:
    """A real IPython shell whose namespace has the lab."""
    interactive = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    made = interactive.instance()
    made.user_ns["lab"] = lab
    yield made
    made.reset(new_session=False)
    interactive.clear_instance()


def held_by(lab: Any) -> list[list[str]]:
    return [row["held_by"] for row in lab.states.to_pylist()]


def test_variables_output_history_and_containers_are_named(shell: Any, lab: Any) -> None:
    lab.clear()
    shell.run_cell(f"s = lab.materialize({TEXT!r})", store_history=True)
    shell.run_cell(f"lab.materialize({TEXT!r} + 'Only shown.')", store_history=True)
    shell.run_cell("kept = {'forks': list(s.fork(2))}", store_history=True)
    rows = {row["state"]: row["held_by"] for row in lab.states.to_pylist()}
    found = sorted(name for names in rows.values() for name in names)
    assert found == ["Out[2]", "kept", "kept", "s"]
    assert "Out[2]" in lab._repr_html_()


def test_clear_forgets_the_output_history_but_not_variables(shell: Any, lab: Any) -> None:
    shell.run_cell(f"s = lab.materialize({TEXT!r})", store_history=True)
    shell.run_cell(f"lab.materialize({TEXT!r} + 'Only shown.')", store_history=True)
    shell.run_cell("freed = lab.clear()", store_history=True)
    import gc

    gc.collect()
    assert held_by(lab) == [["s"]]
    assert shell.user_ns["freed"] > 0
    shell.run_cell("g = s.resume('On', max_new_tokens=2)", store_history=True)
    assert shell.user_ns["s"].phase == "resident"
