"""What a workflow is made of, checked and immutable: the compiler's input. Everything refers by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MergeHow = Literal["prefix", "summary"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class ContextPart:
    """The text of a context, by the context's name."""

    context: str


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """What an agent generated, by the agent's name."""

    agent: str


Part = TextPart | ContextPart | AnswerPart


@dataclass(frozen=True, slots=True)
class ContextDefinition:
    """A named text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Generation:
    """How an agent's answer is drawn, by which model (None: the lab's), and in which namespace (None: the run's own)."""

    max_new_tokens: int = 64
    temperature: float = 0.0
    seed: int = 0
    model: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class StopCondition:
    """Holds if what ``agent`` answered contains ``text``, letter by letter."""

    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """One turn: a user turn of ``parts``, joined by blank lines, and the answer to it.

    Attributes
    ----------
    continues
        Name of the agent whose conversation this turn is appended to; None starts a conversation.
    role
        Text of the system turn; None lets the chat template decide. Only where a conversation starts.
    unless
        The turn is skipped if an agent's answer contains a text. Only with ``continues``.
    """

    name: str
    parts: tuple[Part, ...]
    continues: str | None
    role: str | None
    generation: Generation
    unless: StopCondition | None = None


@dataclass(frozen=True, slots=True)
class MergeDefinition:
    """Branches that become one conversation.

    Attributes
    ----------
    branches
        Names of the agents merged, at least two.
    how
        ``"prefix"``: the longest branch, if it extends all others (exact, generates nothing).
        ``"summary"``: the model answers ``instruction`` with the branches' answers before it, on what they share.
    generation
        None for ``"prefix"``.
    """

    name: str
    branches: tuple[str, ...]
    how: MergeHow
    instruction: str
    generation: Generation | None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A function that is called between two turns, with the texts of ``parts``; what it returns is its text.

    Attributes
    ----------
    call
        A name of :data:`kvlab.workflow.tools.TOOLS`, or a function.
    pause_seconds
        Waited before the call.
    hold_seconds
        How long the states that wait for it are kept in memory at most, whatever else wants room.
    max_tokens
        Of its text.
    """

    name: str
    parts: tuple[Part, ...]
    call: str | Callable[..., str]
    pause_seconds: float
    hold_seconds: float
    max_tokens: int

    @property
    def generation(self) -> None:
        """No model runs for it."""
        return


Definition = AgentDefinition | MergeDefinition | ToolDefinition
