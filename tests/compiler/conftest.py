from __future__ import annotations

import pytest

from kvlab.state.tokens import n_ids, pack_ids, unpack_ids

BEGIN, START, END = 256, 257, 258


class ByteTokenizer:
    """One id a byte, three control ids, and the kind of turns SmolLM2's template writes."""

    vocabulary = 259
    max_positions = 4096
    separator = pack_ids(b"\n\n")
    stop_ids = frozenset({END})
    control_ids = frozenset({BEGIN, START, END})

    def __init__(self) -> None:
        self.tokenized: list[str] = []

    def text_ids(self, text: str) -> bytes:
        self.tokenized.append(text)
        return pack_ids(text.encode())

    def root_ids(self) -> bytes:
        return pack_ids([BEGIN])

    def open_conversation(self, role: str | None) -> bytes:
        system = [START, *b"system\n", *role.encode(), END, *b"\n"] if role is not None else []
        return pack_ids([BEGIN, *system, START, *b"user\n"])

    def close_user(self) -> bytes:
        return pack_ids([END, *b"\n", START, *b"assistant\n"])

    def close_answer(self) -> bytes:
        return pack_ids([END, *b"\n"])

    def open_next_user(self) -> bytes:
        return pack_ids([START, *b"user\n"])

    def decode(self, ids: bytes) -> str:
        return bytes(unpack_ids(self.without_control(ids))).decode(errors="replace")

    def without_control(self, ids: bytes) -> bytes:
        return pack_ids(id_ for id_ in unpack_ids(ids) if id_ not in self.control_ids)


@pytest.fixture(scope="session")
def tokenizer() -> ByteTokenizer:
    return ByteTokenizer()


@pytest.fixture
def fresh_tokenizer() -> ByteTokenizer:
    """One that has tokenized nothing yet, for tests that look at ``tokenized``."""
    return ByteTokenizer()


@pytest.fixture(scope="session")
def shown():
    """Pieces' ids as text, control ids in angle brackets: what a person would read."""

    def show(ids: bytes) -> str:
        names = {BEGIN: "<s>", START: "<start>", END: "<end>"}
        text, run = "", bytearray()
        for id_ in unpack_ids(ids):
            if id_ in names:
                text += run.decode() + names[id_]
                run.clear()
            else:
                run.append(id_)
        assert n_ids(ids) >= len(run)
        return text + run.decode()

    return show
