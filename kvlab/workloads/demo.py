"""The demonstration: the review workflow as textflow, then as stateflow, measured and compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlab.errors import InvalidInput, NoRoom
from kvlab.progress import Progress
from kvlab.store.runs import require_runs_root
from kvlab.workflow import Workflow
from kvlab.workloads import build
from kvlab.workloads.review import review

if TYPE_CHECKING:
    from kvlab.runtime.lab import Lab
    from kvlab.runtime.run import Run


def read_context(path: Path | None) -> str | None:
    """The text of a file; None without one.

    Raises
    ------
    InvalidInput
        If it is empty or not text.
    """
    if path is None:
        return None
    text = _text_of(path)
    if not text.strip():
        raise InvalidInput(f"{path} is empty", hint="--context wants a file with text in it")
    return text


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}", hint="save it as UTF-8"
        ) from error


def run_demo(
    model: str, workers: int, context: Path | None, progress: Progress, *, out: Path | None = None
) -> list[Run]:
    """Run the review workflow both ways, print the comparison, and write a report.

    Textflow runs on one worker and, where there are more, on all of them: each agent is compared with the better one.
    Returns the runs, stateflow first.
    """
    from rich.console import Console

    from kvlab.display.report import require_target
    from kvlab.display.tables import comparison_table
    from kvlab.runtime.lab import Lab

    workflow = review(read_context(context))
    require_runs_root()
    if out is not None:
        require_target(out)
    console = Console()
    with Lab(model=model, workers=workers, progress=progress) as lab:
        console.print(str(lab.compile(workflow)), markup=False, highlight=False)
        texts = [
            lab.run(workflow, flow="text", workers=n, name=f"review-text-{n}").wait() for n in sorted({1, workers})
        ]
        state = lab.run(workflow, name="review-state").wait()
        console.print(comparison_table(state, *texts))
        _print_answers(console, state)
        report = state.report(out or state.path / "report.html", against=texts)
    console.print()
    for run in (state, *texts):
        console.print(f"run     {run.path}", highlight=False, soft_wrap=True)
    console.print(f"report  {report}", highlight=False, soft_wrap=True)
    return [state, *texts]


def run_named(
    name: str,
    model: str,
    workers: int,
    context: Path | None,
    progress: Progress,
    *,
    flow: str = "state",
    parameters: Mapping[str, int | str] | None = None,
    room: Mapping[str, str | None] | None = None,
) -> Run:
    """Run a workload by name, or the workflow that a Python or YAML file defines, and print what it came to.

    ``room`` is what the lab may hold, and who leaves: its keywords ``kv_budget``, ``spill_bytes`` and ``eviction``.
    """
    from rich.console import Console

    from kvlab.display.tables import comparison_table
    from kvlab.runtime.lab import Lab

    workflow = workflow_named(name, context, parameters or {})
    require_runs_root()
    console = Console()
    limits: Any = room or {}
    with Lab(model=model, workers=workers, progress=progress, **limits) as lab:
        for other in _models_of(workflow):
            lab.add_model(other)
        run = _start(lab, workflow, flow)
        try:
            run.wait()
        except NoRoom:
            # The record could not be written to its end; what was answered is in memory, and would go with the process.
            _print_answers(console, run)
            raise
        console.print(comparison_table(run))
        _print_answers(console, run)
    console.print(f"\nrun     {run.path}", highlight=False, soft_wrap=True)
    return run


def _models_of(workflow: Workflow) -> set[str]:
    drawn = [definition.generation for definition in workflow.agents.values()]
    return {generation.model for generation in drawn if generation is not None and generation.model is not None}


def _start(lab: Lab, workflow: Workflow, flow: str) -> Run:
    chosen: Any = flow
    return lab.run(workflow, flow=chosen)


def workflow_named(name: str, context: Path | None, parameters: Mapping[str, int | str]) -> Workflow:
    """The workload called ``name``, or what the file ``name`` (``.py``, ``.yaml``) defines.

    Raises
    ------
    InvalidInput
        For a file that is not there or defines no workflow, and for texts or parameters given to one.
    """
    if Path(name).suffix not in (".py", ".yaml", ".yml"):
        return build(name, read_context(context), **parameters)
    if context is not None or parameters:
        given = "--context" if context is not None else "--set"
        raise InvalidInput(
            f"{name} defines its own workflow: {given} is for workloads by name", hint="leave one of them out"
        )
    path = Path(name)
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}", hint="a workload's name, or a .py or .yaml file with a workflow")
    return _from_python(path) if path.suffix == ".py" else Workflow.from_yaml(_text_of(path))


def _from_python(path: Path) -> Workflow:
    """The one workflow among a file's variables."""
    import runpy

    found = [value for value in runpy.run_path(str(path)).values() if isinstance(value, Workflow)]
    if len({id(workflow) for workflow in found}) != 1:
        raise InvalidInput(
            f"{path} defines {len(found)} workflows", hint="leave exactly one kvlab.Workflow in a variable"
        )
    return found[0]


def _print_answers(console: Any, run: Run) -> None:
    for node in run.graph.nodes:
        if node.sampling.max_new_tokens and run.state_of(node.id) == "done":
            console.print(f"\n{node.id}", style="bold", markup=False, highlight=False)
            console.print(run[node.id].text, markup=False, highlight=False)
