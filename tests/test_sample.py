"""The sample text: the same every time, plain, and of the promised length."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kvlab.config import CI_VARIABLE, is_set
from kvlab.engine import embedded
from kvlab.errors import InvalidInput
from kvlab.sample import ENOUGH_CHARACTERS, MOST_CHARACTERS, sample_text


def test_it_is_whole_chapters_in_plain_ascii() -> None:
    text = sample_text()
    assert text.isascii()
    assert ENOUGH_CHARACTERS <= len(text) <= MOST_CHARACTERS + 20
    assert text.startswith("Objects, values and types\n*****")
    assert "\n\nExceptions\n**********\n" in text
    assert text == text.strip()


def test_it_is_the_same_in_every_process() -> None:
    program = "import kvlab, sys; sys.stdout.write(kvlab.sample_text())"
    for seed in ("0", "1"):
        environment = {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout == sample_text()


@pytest.mark.parametrize("n_chars", [1, 25, 26, 5_000, 60_000])
def test_a_length_is_kept_and_ends_with_a_line(n_chars: int) -> None:
    text = sample_text(n_chars)
    assert 0 < len(text) <= n_chars
    longer = sample_text(200_000)
    assert longer.startswith(text)
    if n_chars >= 25:
        assert longer[len(text)] == "\n"
        assert n_chars - len(text) < 200


@pytest.mark.parametrize("n_chars", [0, -5, 10**9])
def test_a_length_that_cannot_be_is_refused(n_chars: int) -> None:
    with pytest.raises(InvalidInput):
        sample_text(n_chars)


@pytest.mark.model
def test_its_length_in_tokens_of_smollm2() -> None:
    from tokenizers import Tokenizer

    if not embedded.is_ready():
        (pytest.fail if is_set(CI_VARIABLE) else pytest.skip)("needs the embedded model: kvlab model fetch")
    tokenizer = Tokenizer.from_file(str(embedded.model_folder() / "tokenizer.json"))
    assert 1_900 <= len(tokenizer.encode(sample_text()).ids) <= 2_300
