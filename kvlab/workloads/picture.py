"""The graph of a workflow as a picture, before anything runs."""

from __future__ import annotations

from pathlib import Path

from kvlab.errors import InvalidInput
from kvlab.workflow import Workflow


def write_picture(workflow: Workflow, target: Path, model: str) -> Path:
    """Write G_s of ``workflow`` to ``target``, an .svg file. Reads the tokenizer of ``model`` and no weights.

    Raises
    ------
    InvalidInput
        For a target that is no .svg in a folder that is there.
    GraphError
        For a workflow that cannot be compiled for that model.
    """
    from kvlab.compiler.compile import compile_workflow
    from kvlab.display.graph_picture import graph_svg
    from kvlab.engine.chat import ChatTokenizer
    from kvlab.engine.models import resolve

    if target.suffix != ".svg":
        raise InvalidInput(f"a picture cannot be written to {target}", hint="give it a name that ends in .svg")
    if not target.parent.is_dir():
        raise InvalidInput(f"there is no folder {target.parent}", hint="make it first")
    tokenizer = ChatTokenizer.load(resolve(model), model)
    graph = compile_workflow(workflow, tokenizer, max_positions=tokenizer.max_positions, model=model)
    target.write_text(graph_svg(graph) + "\n", encoding="utf-8")
    return target
