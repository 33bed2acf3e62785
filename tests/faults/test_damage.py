"""A flipped byte, a truncated file: never an answer made of them; by another road, or an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvlab.errors import ChecksumMismatch, RunUnreadable

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 3


def flip(recipe: str, dask_worker: Any) -> int:
    """Flip a bit of a segment in a worker's memory, as a bad memory module would. Returns how many segments were hit."""
    import torch

    from kvlab.runtime.keys import recipe_in

    found = [value for key, value in dask_worker.data.items() if recipe_in(key) == recipe]
    for segment in found:
        numbers = segment.tensor().view(-1).view(torch.uint8)
        numbers[numbers.numel() // 2] ^= 4
    return len(found)


def flip_on(lab: Any, worker: str, state: Any) -> None:
    """Flip a bit in every segment of a state, where it arrived as bytes (what was made there is sealed)."""
    for segment in state.record.segments:
        told = lab.core.client.run(flip, segment.recipe, workers=lab.core.address_of(worker))
        assert list(told.values()) == [1]


def moved(lab: Any, text: str) -> Any:
    """A state that lies on worker-1 alone, where it arrived over the wire."""
    state = lab.materialize(text, worker="worker-0").transfer("worker-1")
    assert state.workers == ("worker-1",)
    return state


def test_a_bit_flipped_in_memory_does_not_survive_the_way_to_another_worker(frames_lab: Any, cold: Any) -> None:
    state = moved(frames_lab, TEXT + "one way")
    flip_on(frames_lab, "worker-1", state)
    answer = state.resume(" so", max_new_tokens=5, worker="worker-0", how="transfer")
    cold.require_right(frames_lab, answer)
    assert (answer.how, answer.n_reused) == ("recompute", 0)
    edge = frames_lab._session.world.find("edges", answer.decision.edge.id)
    assert (edge["chosen"], edge["actual_how"]) == ("transfer", "recompute")
    assert edge["because"].startswith("planned transfer: segment")
    assert "checksum" in edge["because"]


def test_a_transfer_of_it_is_refused_and_the_damaged_copy_never_used(frames_lab: Any, cold: Any) -> None:
    state = moved(frames_lab, TEXT + "another way")
    flip_on(frames_lab, "worker-1", state)
    with pytest.raises(ChecksumMismatch, match="arrived with checksum") as caught:
        state.transfer("worker-0")
    assert caught.value.hint
    # Where it lies nobody would notice: the copy that is known to be damaged is given up.
    for worker in ("worker-1", "worker-0"):
        cold.require_right(frames_lab, state.resume(" so", max_new_tokens=5, worker=worker))


def flipped(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 4
    file.write_bytes(whole)


def truncated(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1)


@pytest.mark.parametrize(
    ("damage", "error"), [(flipped, ChecksumMismatch), (truncated, RunUnreadable)], ids=["flipped", "truncated"]
)
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_a_damaged_file_is_named_and_nothing_of_it_stays(
    lab: Any, cold: Any, faults: Any, tmp_path: Path, damage: Callable[[Path], None], error: type[Exception], which: int
) -> None:
    """The last one is found when what came before it is in memory already: that goes again."""
    state = lab.materialize(TEXT + damage.__name__).resume(" and", max_new_tokens=3).state
    folder = state.save(tmp_path / "kept")
    used = faults.used_bytes(lab)
    damage(sorted(folder.glob("*.safetensors"))[which])
    with pytest.raises(error) as caught:
        lab.load(folder)
    assert ".safetensors" in str(caught.value)
    assert faults.used_bytes(lab) == used
    cold.require_right(lab, state.resume(" so", max_new_tokens=3))
