from __future__ import annotations

import pytest

from kvlab.compiler import resolve
from kvlab.compiler.graph import EndOfTurn, Known, OutputOf, RawOutputOf
from kvlab.errors import GraphError
from kvlab.state.tokens import pack_ids

END, NEWLINE = 258, 10


@pytest.mark.parametrize(
    ("generated", "text", "raw", "closing"),
    [
        ([65, END], [65], [65], [END, NEWLINE]),
        ([65, 66], [65, 66], [65], [66, END, NEWLINE]),
        ([END], [], [], [END, NEWLINE]),
        ([65], [65], [], [65, END, NEWLINE]),
        ([257, 65, 256], [65], [257, 65], [256, END, NEWLINE]),
    ],
)
def test_what_each_piece_of_an_answer_stands_for(tokenizer, generated, text, raw, closing):
    outputs = {"a": pack_ids(generated)}
    assert resolve([OutputOf("a")], outputs, tokenizer) == pack_ids(text)
    assert resolve([RawOutputOf("a")], outputs, tokenizer) == pack_ids(raw)
    assert resolve([EndOfTurn("a")], outputs, tokenizer) == pack_ids(closing)


def test_pieces_are_joined_in_order(tokenizer):
    pieces = [Known(pack_ids([1, 2])), OutputOf("a"), Known(pack_ids([3]))]
    assert resolve(pieces, {"a": pack_ids([9, END])}, tokenizer) == pack_ids([1, 2, 9, 3])
    assert resolve([], {}, tokenizer) == b""


@pytest.mark.parametrize("piece", [OutputOf("a"), RawOutputOf("a"), EndOfTurn("a")])
def test_an_output_that_is_not_there_is_named(tokenizer, piece):
    with pytest.raises(GraphError, match="the output of 'a' is needed"):
        resolve([piece], {"b": b""}, tokenizer)
