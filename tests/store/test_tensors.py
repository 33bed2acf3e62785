"""Payloads on disk: bit-equal when they come back, and never served when anything is wrong with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import xxhash
from safetensors import safe_open

from kvlab.errors import ChecksumMismatch, InvalidInput, RunUnreadable
from kvlab.state.identity import canonical_json
from kvlab.store.tensors import load_payloads, save_payloads

METADATA = {"model": "tiny", "token_ids": [1, 2, 3], "note": "é", "10": 1, "9": 2}


def payload(n_tokens: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2, 3, n_tokens, 4, generator=generator).to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_payloads_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    saved = [payload(5, dtype), payload(1, dtype, 1), payload(64, dtype, 2)]
    saved[0].view(-1)[0] = float("nan")
    nbytes = save_payloads(tmp_path / "s", saved, METADATA)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    loaded, metadata = load_payloads(tmp_path / "s")
    assert metadata == METADATA
    assert [t.dtype for t in loaded] == [dtype] * 3
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(saved, loaded, strict=True))
    assert nbytes == sum(file.stat().st_size for file in (tmp_path / "s").iterdir())


def test_a_view_is_saved_as_what_it_shows(tmp_path: Path) -> None:
    whole = payload(10)
    save_payloads(tmp_path / "s", [whole[:, :, :, :4]], {})
    (loaded,), _ = load_payloads(tmp_path / "s")
    assert torch.equal(loaded, whole[:, :, :, :4])


def test_no_payloads_and_empty_payloads(tmp_path: Path) -> None:
    save_payloads(tmp_path / "none", [], {})
    assert load_payloads(tmp_path / "none") == ([], {})
    save_payloads(tmp_path / "empty", [payload(0)], {})
    assert load_payloads(tmp_path / "empty")[0][0].shape == (2, 2, 3, 0, 4)


def test_the_files_are_ordinary_safetensors(tmp_path: Path) -> None:
    save_payloads(tmp_path / "s", [payload(5)], {})
    with safe_open(tmp_path / "s" / "segment-00000.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("kv"), payload(5))


def test_saving_changes_nothing(tmp_path: Path) -> None:
    mine = payload(5)
    before = mine.clone()
    save_payloads(tmp_path / "s", [mine], {})
    assert torch.equal(mine, before)


def test_a_flipped_byte_anywhere_is_never_served(tmp_path: Path) -> None:
    save_payloads(tmp_path / "s", [payload(2)], METADATA)
    for file in (tmp_path / "s").iterdir():
        whole = file.read_bytes()
        for at in range(len(whole)):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            try:
                loaded, metadata = load_payloads(tmp_path / "s")
            except (ChecksumMismatch, RunUnreadable):
                continue
            # A changed blank or quoting of the page may say the same.
            assert file.name == "payloads.json"
            assert metadata == METADATA
            assert torch.equal(loaded[0], payload(2)), (file, at)
        file.write_bytes(whole)


def test_a_file_cut_off_at_any_byte_is_refused(tmp_path: Path) -> None:
    save_payloads(tmp_path / "s", [payload(2)], METADATA)
    for file in (tmp_path / "s").iterdir():
        whole = file.read_bytes()
        for length in range(len(whole)):
            file.write_bytes(whole[:length])
            with pytest.raises((RunUnreadable, ChecksumMismatch)):
                load_payloads(tmp_path / "s")
        file.write_bytes(whole)
    load_payloads(tmp_path / "s")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunUnreadable, match="holds no saved payloads"):
        load_payloads(tmp_path / "nowhere")
    save_payloads(tmp_path / "s", [payload(2)], {})
    (tmp_path / "s" / "segment-00000.safetensors").unlink()
    with pytest.raises(RunUnreadable, match=r"segment-00000\.safetensors cannot be read"):
        load_payloads(tmp_path / "s")


@pytest.mark.parametrize(("field", "value"), [("layout", "other.v9"), ("format_version", 2)])
def test_an_unknown_layout_or_version_is_refused_also_when_well_written(
    tmp_path: Path, field: str, value: object
) -> None:
    save_payloads(tmp_path / "s", [payload(2)], {})
    page = json.loads((tmp_path / "s" / "payloads.json").read_text())
    del page["xxh3_128"]
    page[field] = value
    page["xxh3_128"] = xxhash.xxh3_128_hexdigest(canonical_json(page).encode())
    (tmp_path / "s" / "payloads.json").write_text(json.dumps(page))
    with pytest.raises(RunUnreadable, match=str(value)):
        load_payloads(tmp_path / "s")


def test_nothing_is_written_over_and_a_refused_save_leaves_nothing(tmp_path: Path) -> None:
    save_payloads(tmp_path / "s", [payload(2)], {})
    with pytest.raises(InvalidInput, match="exists"):
        save_payloads(tmp_path / "s", [payload(3)], {})
    with pytest.raises(InvalidInput, match="float64"):
        save_payloads(tmp_path / "t", [payload(3), payload(3).double()], {})
    with pytest.raises(InvalidInput, match="not JSON"):
        save_payloads(tmp_path / "u", [payload(3)], {"x": object()})
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    """A real limit on the size of files, in a process of its own."""
    script = (
        "import resource, sys, torch; from kvlab.store.tensors import save_payloads; from kvlab.errors import NoRoom\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: save_payloads(sys.argv[1], [torch.ones(2, 2, 3, 10, 4), torch.ones(2, 2, 3, 10_000, 4)], {})\n"
        "except NoRoom as error: print(error.data['need'], error.data['path'])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "s")]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()
    assert out == [str((10 + 10_000) * 2 * 2 * 3 * 4 * 4), str(tmp_path / "s")]
    assert list(tmp_path.iterdir()) == []
