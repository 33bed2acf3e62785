"""SmolLM2 itself, for what only a real model shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvlab.progress import Progress
from kvlab.runtime.lab import Lab


@pytest.fixture(scope="module")
def smol_lab(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two workers with SmolLM2."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVLAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        with Lab(kv_budget="2 GiB", progress=Progress("nothing")) as lab:
            yield lab


@pytest.fixture(scope="session")
def dense(smollm2: Path) -> Any:
    """SmolLM2 in unmodified transformers: SDPA, DynamicCache, fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2, attn_implementation="sdpa", dtype=torch.float32).eval()
