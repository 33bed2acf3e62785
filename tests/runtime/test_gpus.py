"""Which GPU a local worker is given."""

from __future__ import annotations

import pytest

from kvlab.runtime import gpus


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1"])
def test_a_device_that_a_person_named_is_left_alone(device: str) -> None:
    assert gpus.environment(0, device) == {}


def test_without_a_driver_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "DRIVER", gpus.DRIVER / "of-no-machine")
    gpus._may_be_shared_out.cache_clear()
    assert gpus.environment(0, "auto") == {}
    gpus._may_be_shared_out.cache_clear()


@pytest.mark.gpu
def test_workers_take_turns_with_the_devices() -> None:
    pytest.importorskip("dask_cuda", reason="needs pip install 'kvlab[gpu]'")
    import torch

    n_gpus = torch.cuda.device_count()
    first = [gpus.environment(index, "auto")["CUDA_VISIBLE_DEVICES"].split(",")[0] for index in range(2 * n_gpus)]
    assert len(set(first)) == n_gpus
    assert first[:n_gpus] == first[n_gpus:]
