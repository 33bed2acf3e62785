"""Loading a model from a directory: refuse by name before reading weights, then load, then prove."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from kvlab.engine.fingerprint import tokenizer_digest
from kvlab.engine.support import require_supported
from kvlab.engine.torch_engine import TorchEngine
from kvlab.errors import InvalidInput, ModelNotFound, ModelRefused


def load_engine(
    path: str | Path, *, name: str | None = None, device: str = "auto", dtype: str | torch.dtype = "auto"
) -> TorchEngine:
    """Load the model in directory ``path`` (``config.json`` and safetensors) into an engine.

    Parameters
    ----------
    name
        For people; the directory's name by default.
    device
        ``"auto"`` takes CUDA where there is one, else the CPU. MPS is refused: it has no attention with log-sum-exp.
    dtype
        ``"auto"`` is fp32 on CPU, where 16 bits are slower, and the checkpoint's own on CUDA.

    Raises
    ------
    ModelNotFound
        When there is no model in that directory.
    ModelRefused
        By name, before weights are read where the configuration says enough.
    """
    folder = Path(path)
    place = _device(device)
    name = name or folder.name
    if not (folder / "config.json").is_file():
        raise ModelNotFound(
            f"there is no config.json in {folder}", hint="give a directory with config.json and safetensors"
        )
    try:
        # Said outright: transformers would ask on the terminal whether code in the folder may run.
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError, KeyError) as error:
        raise ModelRefused(
            f"transformers cannot read the configuration of {name}: {error}",
            hint="use a model type this transformers knows",
        ) from error
    require_supported(config, _model_class(config, name), name)
    wanted = _dtype(dtype, place)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=wanted, local_files_only=True, use_safetensors=True, trust_remote_code=False
        )
    except OSError as error:
        raise ModelNotFound(
            f"no safetensors weights of {name} can be read in {folder}: {error}",
            hint="download it whole, or convert it with save_pretrained",
        ) from error
    return TorchEngine.from_model(model.to(place), name=name, tokenizer_digest=tokenizer_digest(folder))


def _model_class(config: PreTrainedConfig, name: str) -> type[PreTrainedModel]:
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelRefused(
            f"{name} ({config.model_type}) is not a causal language model", hint="use a decoder-only language model"
        )
    found: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model_class: type[PreTrainedModel] = found
    return model_class


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"device is {device!r}", hint='use "auto", "cpu", "cuda" or "cuda:0"') from error
    if place.type not in ("cpu", "cuda"):
        raise ModelRefused(
            f"device {device!r} has no attention with log-sum-exp in torch", hint='use device="cpu" or a CUDA device'
        )
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(f"device is {device!r}, but torch sees no CUDA here", hint='use device="auto" or "cpu"')
    return place


def _dtype(dtype: str | torch.dtype, place: torch.device) -> torch.dtype | str:
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        return torch.float32 if place.type == "cpu" else "auto"
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise InvalidInput(f"dtype is {dtype!r}", hint='use "auto", "float32", "float16" or "bfloat16"')
    return found
