"""What a user writes: workflows of agents and contexts. Nothing here computes."""

from kvlab.workflow.handles import Agent, Context, Tool
from kvlab.workflow.workflow import Workflow

__all__ = ["Agent", "Context", "Tool", "Workflow"]
