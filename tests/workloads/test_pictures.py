"""Every workload has its picture: drawn on demand, and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvlab.cli import EXIT_ERROR, main
from kvlab.compiler import compile_workflow
from kvlab.engine.chat import ChatTokenizer
from kvlab.workflow import Workflow
from kvlab.workloads import NAMES, build

ROOT = Path(__file__).parents[2]


def drawn(path: Path) -> set[str]:
    """Names of the operators in a picture; forks are marks of their own."""
    return {name for name in re.findall(r'data-kv-node="([^"]+)"', path.read_text("utf-8")) if "/fork" not in name}


def test_a_workload_is_drawn_with_its_document_and_parameters(
    tmp_path: Path, tiny_model_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paper, target = tmp_path / "paper.txt", tmp_path / "loop.svg"
    paper.write_text("The planner names three weaknesses. " * 4, encoding="utf-8")
    options = ["--context", str(paper), "--set", "rounds=1"]
    drawing = [*options, "--model", tiny_model_dir, "--picture"]
    assert main(["workloads", "reflection", *drawing, str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert drawn(target) >= {"draft", "critique-1", "revision-1", "headline"}
    assert "may be skipped" in target.read_text("utf-8")
    assert main(["workloads", "reflection", *options]) == 0
    again = Workflow.from_yaml(capsys.readouterr().out)
    assert dict(again.agents) == dict(build("reflection", paper.read_text("utf-8"), rounds=1).agents)
    wrong: tuple[tuple[list[str], str], ...] = (
        (["reflection", *drawing, str(tmp_path / "loop.png")], ".svg"),
        (["reflection", *drawing, str(tmp_path / "no" / "loop.svg")], "no folder"),
        (["reflection", "--set", "colour=3"], "no parameter 'colour'"),
        (["--set", "rounds=1"], "for one workload"),
    )
    for arguments, said in wrong:
        assert main(["workloads", *arguments]) == EXIT_ERROR
        assert said in capsys.readouterr().err


@pytest.mark.model
def test_the_documentation_shows_every_workload_as_it_is(smollm2: Path) -> None:
    tokenizer = ChatTokenizer.load(smollm2)
    page = (ROOT / "docs" / "workloads.md").read_text("utf-8")
    for name in NAMES:
        picture = f"images/workload-{name}.svg"
        assert f"({picture})" in page
        graph = compile_workflow(build(name), tokenizer, max_positions=tokenizer.max_positions)
        shown = drawn(ROOT / "docs" / picture)
        assert shown == {node.id for node in graph.nodes}, f"kvlab workloads {name} --picture docs/{picture}"
