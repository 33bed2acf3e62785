"""RAG with a shared context: several questions over the same documents, which stand first in every prompt."""

from __future__ import annotations

from kvlab.sample import sample_text
from kvlab.workflow import Workflow
from kvlab.workflow.checks import checked_integer

QUESTIONS = (
    "What is the problem?",
    "What is proposed?",
    "How was it measured?",
    "What are its limits?",
    "Who should care?",
    "What comes next?",
)
MOST = 32


def rag(context: str | None = None, *, questions: int = 4, max_new_tokens: int = 24) -> Workflow:
    """``questions`` agents (1 to 32) that all read the document first; each then asks back once.

    The documents are given; nothing is retrieved here.

    Raises
    ------
    InvalidInput
        For an empty document or a number out of range.
    """
    wf = Workflow("rag")
    documents = wf.context("documents", sample_text() if context is None else context)
    for number in range(checked_integer("questions=", questions, 1, MOST)):
        question = QUESTIONS[number % len(QUESTIONS)]
        answer = wf.agent(f"answer-{number + 1}", [documents, question], max_new_tokens=max_new_tokens)
        wf.agent(f"check-{number + 1}", "Is that in the documents?", continues=answer, max_new_tokens=max_new_tokens)
    return wf
