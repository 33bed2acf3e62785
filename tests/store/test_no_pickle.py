"""No pickle is ever loaded from a disk: no code of kvlab's could, and a crafted one in any place is refused by name."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kvlab
from kvlab.cli import main
from kvlab.errors import ChecksumMismatch, KVLabError, RunUnreadable
from kvlab.store.runs import new_run_folder, open_run
from kvlab.store.tensors import _digest, load_payloads, save_payloads

ROOTS = [Path(kvlab.__file__).parent, Path(kvlab.__file__).parents[1] / "widgets" / "kvlab_widgets"]
FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"torch.load", "numpy.load", "np.load", "pandas.read_pickle", "pd.read_pickle", "deserialize_bytes"}


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def harm(tmp_path: Path) -> bytes:
    return pickle.dumps(Harm(tmp_path / "was unpickled"))


@pytest.fixture(autouse=True)
def nothing_was_unpickled(tmp_path: Path) -> Any:
    yield
    assert not (tmp_path / "was unpickled").exists()


def test_the_harm_is_real(tmp_path: Path) -> None:
    mark = tmp_path / "real"
    pickle.loads(pickle.dumps(Harm(mark)))
    assert mark.exists()


def test_nothing_in_kvlab_can_unpickle_a_file() -> None:
    files = [file for root in ROOTS for file in root.rglob("*.py")]
    assert len(files) > 150
    found = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: set[str] = set()
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names} & FORBIDDEN_MODULES
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = {node.module.split(".")[0]} & FORBIDDEN_MODULES
                names |= {alias.name for alias in node.names} & {"pickle", "cloudpickle"}
            elif isinstance(node, ast.Call):
                names = {ast.unparse(node.func)} & FORBIDDEN_CALLS
            found += [f"{file}:{node.lineno}: {name}" for name in names]  # type: ignore[attr-defined]
    assert found == []


def payload() -> torch.Tensor:
    return torch.ones(1, 2, 1, 3, 4)


@pytest.mark.parametrize("file", ["payloads.json", "segment-00000.safetensors"])
def test_in_place_of_a_states_file(tmp_path: Path, harm: bytes, file: str) -> None:
    save_payloads(tmp_path / "s", [payload()], {})
    (tmp_path / "s" / file).write_bytes(harm)
    with pytest.raises((RunUnreadable, ChecksumMismatch), match=file):
        load_payloads(tmp_path / "s")


def test_in_place_of_a_segment_whose_page_says_so(tmp_path: Path, harm: bytes) -> None:
    """As torch would save it too, which is a zip with a pickle in it."""
    import xxhash

    torch.save({"kv": Harm(tmp_path / "was unpickled")}, tmp_path / "saved.pt")
    for written in (harm, (tmp_path / "saved.pt").read_bytes()):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        save_payloads(tmp_path / "s", [payload()], {})
        page = json.loads((tmp_path / "s" / "payloads.json").read_text())
        page.pop("xxh3_128")
        (tmp_path / "s" / "segment-00000.safetensors").write_bytes(written)
        page["segments"][0] |= {"nbytes": len(written), "xxh3_128": xxhash.xxh3_128_hexdigest(written)}
        (tmp_path / "s" / "payloads.json").write_text(json.dumps({**page, "xxh3_128": _digest(page)}))
        with pytest.raises(RunUnreadable, match="is not a payload"):
            load_payloads(tmp_path / "s")


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/hostname", "a/b"])
def test_a_page_names_no_file_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    save_payloads(tmp_path / "s", [payload()], {})
    page = json.loads((tmp_path / "s" / "payloads.json").read_text())
    page.pop("xxh3_128")
    page["segments"][0]["file"] = name
    (tmp_path / "s" / "payloads.json").write_text(json.dumps({**page, "xxh3_128": _digest(page)}))
    with pytest.raises(RunUnreadable, match="which is not in it"):
        load_payloads(tmp_path / "s")


@pytest.mark.parametrize("file", ["events.arrows", "run.json"])
def test_in_place_of_a_runs_file(tmp_path: Path, harm: bytes, file: str) -> None:
    folder = new_run_folder("run", root=tmp_path)
    folder.write_config({"a": 1})
    folder.complete()
    (folder.path / file).write_bytes(harm)
    with pytest.raises(RunUnreadable, match=r"events\.arrows|run\.json"):
        open_run(folder.path).config  # noqa: B018 - reads it


def test_in_place_of_a_model(tmp_path: Path, tiny_model_dir: str, harm: bytes) -> None:
    from kvlab.engine.loading import load_engine
    from kvlab.engine.models import resolve

    shutil.copytree(tiny_model_dir, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "kept")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(harm)
    for read in (resolve, load_engine):
        with pytest.raises(KVLabError, match="safetensors"):
            read(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(harm)
    with pytest.raises(Exception, match="."):
        load_engine(tmp_path / "model")


def test_code_in_a_models_folder_is_not_run(tmp_path: Path, tiny_model_dir: str) -> None:
    from kvlab.engine.chat import ChatTokenizer
    from kvlab.engine.loading import load_engine
    from kvlab.errors import ModelNotFound, ModelRefused

    shutil.copytree(tiny_model_dir, tmp_path / "model")
    (tmp_path / "model" / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'was unpickled')!r})\n")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config |= {"model_type": "its-own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelRefused, match="transformers cannot read"):
        load_engine(tmp_path / "model")
    with pytest.raises(ModelNotFound, match="no tokenizer and configuration"):
        ChatTokenizer.load(tmp_path / "model")


@pytest.mark.parametrize(
    "command",
    [
        lambda file, out: ["run", str(file.with_suffix(".yaml"))],
        lambda file, out: ["bench", "eviction", "--trace", str(file), "--out", str(out)],
    ],
    ids=["workflow", "trace"],
)
def test_in_place_of_what_a_command_reads(
    tmp_path: Path, harm: bytes, command: Callable[[Path, Path], list[str]], capsys: Any
) -> None:
    for name in ("file", "file.yaml"):
        (tmp_path / name).write_bytes(harm)
    assert main(command(tmp_path / "file", tmp_path / "out")) == 2
    assert "kvlab:" in capsys.readouterr().err


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    from kvlab.workflow.workflow import Workflow

    with pytest.raises(KVLabError, match="not YAML"):
        Workflow.from_yaml(f"name: !!python/object/apply:os.mkdir ['{tmp_path / 'was unpickled'}']\n")


def test_in_place_of_a_calibration(tmp_path: Path, harm: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlab.runtime import calibration

    monkeypatch.setattr(calibration, "cache_dir", lambda: tmp_path)
    kept = calibration.Kept("links", {"a": "b"})
    kept.path.parent.mkdir(parents=True)
    kept.path.write_bytes(harm)
    said: list[str] = []
    assert kept.read(said.append) is None
    assert "cannot be read" in said[0]
