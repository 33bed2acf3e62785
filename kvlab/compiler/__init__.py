"""From a workflow to G_s: prefix discovery, siblings, validation. Pure."""

from kvlab.compiler.compile import compile_workflow
from kvlab.compiler.graph import Graph, Node
from kvlab.compiler.prompts import PromptTokenizer
from kvlab.compiler.resolve import resolve, state_ids

__all__ = ["Graph", "Node", "PromptTokenizer", "compile_workflow", "resolve", "state_ids"]
