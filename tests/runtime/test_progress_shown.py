"""What takes longer than a second says how far it is."""

from __future__ import annotations

import io
from typing import Any

from kvlab.progress import Progress
from kvlab.runtime import workbench

TEXT = "Keys and values of a prefix are the same for every question that follows it. "


def test_a_long_verb_tells_how_many_tokens_are_done(make_lab: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(workbench, "UNSHOWN_SECONDS", 0.0)
    shown = io.StringIO()
    with make_lab(
        processes=False, workers=1, prefill_chunk=8, kv_budget="1 GiB", progress=Progress("lines", shown)
    ) as lab:
        lab.materialize(TEXT, name="mine").resume("on", max_new_tokens=4)
        run = lab.run(_workflow()).wait()
    lines = shown.getvalue().splitlines()
    assert run.status == "done"
    assert any(line.startswith("Materialize mine") for line in lines)
    assert any(line.startswith("Resume mine") for line in lines)
    assert any("weight" in line and "GiB" in line for line in lines)
    assert any(line.startswith("one as stateflow") for line in lines)


def _workflow() -> Any:
    import kvlab

    wf = kvlab.Workflow("one")
    wf.agent("only", TEXT, max_new_tokens=4)
    return wf
