"""Finding a model by name, and saying what it will take before anything is loaded."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kvlab import progress as shown_progress
from kvlab.engine import embedded
from kvlab.errors import ModelNotFound
from kvlab.progress import Progress
from kvlab.state.identity import DTYPE_BYTES

DTYPE_OF_TAG = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""safetensors' names of floating types."""

HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "LICENSE*"]
"""What is taken from a hub: weights that cannot run code, configuration, tokenizer, template."""

HUB_DOUBLES = ["consolidated*", "original/*", "onnx/*"]
"""The same weights once more, in other layouts."""

_MAX_HEADER_NBYTES = 100_000_000
"""What safetensors itself allows for a header."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a model is and takes, read from its files' headers.

    Attributes
    ----------
    family
        transformers' ``model_type``.
    n_parameters
        Numbers in the weight files; weights that are tied are counted once.
    dtype
        Floating type that most of the weights have on disk.
    kv_heads, head_dim
        Of one layer's K (and V): ``[kv_heads, tokens, head_dim]``.
    max_positions
        Longest path, in tokens.
    license, source
        Where the folder says so, else empty.
    """

    name: str
    path: Path
    family: str
    n_parameters: int
    dtype: str
    layers: int
    kv_heads: int
    head_dim: int
    max_positions: int
    license: str = ""
    source: str = ""

    def weight_bytes(self, dtype: str = "float32") -> int:
        """Bytes of memory that the weights take in ``dtype``."""
        return self.n_parameters * DTYPE_BYTES[dtype]

    def kv_bytes_per_token(self, dtype: str = "float32") -> int:
        """Bytes of K and V that one token takes in ``dtype``, all layers together."""
        return self.layers * 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[dtype]

    def __str__(self) -> str:
        kv = self.kv_bytes_per_token()
        in_32, in_16 = self.weight_bytes() / 1e6, self.weight_bytes("bfloat16") / 1e6
        shape = f"{self.layers} layers, {self.kv_heads} KV heads of {self.head_dim}"
        lines = [
            ("name", self.name),
            ("folder", str(self.path)),
            ("family", self.family),
            ("parameters", f"{self.n_parameters:,} ({self.dtype} on disk)"),
            ("weights", f"{in_32:,.0f} MB in float32, {in_16:,.0f} MB in 16 bits"),
            ("KV", f"{kv:,} bytes a token in float32 ({shape})"),
            ("positions", f"{self.max_positions:,} ({self.max_positions * kv / 1e6:,.0f} MB of KV when full)"),
            ("license", self.license),
            ("source", self.source),
        ]
        return "\n".join(f"{label:<11} {value}" for label, value in lines if value)


def resolve(name: str | Path, progress: Progress = shown_progress.SHOWN) -> Path:
    """Folder of the model ``name``, fetched first where that is needed and possible.

    Parameters
    ----------
    name
        ``"smollm2"`` or its full name (the embedded model, never looked for on a hub); a folder; or a hub name such as
        ``"Qwen/Qwen2.5-0.5B-Instruct"``.

    Raises
    ------
    ModelNotFound
        If there is no such model here and none can be fetched; the hint has the nearest names.
    """
    if isinstance(name, str) and embedded.is_embedded(name):
        return embedded.fetch(progress)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _require_model_files(folder)
    if isinstance(name, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelNotFound(f"there is no folder {folder}", hint=_hint(str(name)))
    return _from_hub(name, progress)


def describe(path: str | Path) -> ModelCard:
    """Read the card of the model in folder ``path``: configuration and headers only, no weights.

    Raises
    ------
    ModelNotFound
        If the folder has no configuration or no safetensors weights, or the configuration lacks a size.
    """
    folder = _require_model_files(Path(path))
    written = json.loads((folder / "config.json").read_text())
    config = written.get("text_config", written)
    provenance_file = folder / embedded.PROVENANCE
    provenance = json.loads(provenance_file.read_text()) if provenance_file.is_file() else {}
    n_parameters, dtype = _weights(folder)
    heads = _size(folder, config, "num_attention_heads", "n_head")
    hidden = _size(folder, config, "hidden_size", "n_embd")
    return ModelCard(
        name=provenance.get("name", folder.name),
        path=folder,
        family=str(written.get("model_type", "unknown")),
        n_parameters=n_parameters,
        dtype=dtype,
        layers=_size(folder, config, "num_hidden_layers", "n_layer"),
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        max_positions=_size(folder, config, "max_position_embeddings", "n_positions"),
        license=provenance.get("license", ""),
        source=provenance.get("source", ""),
    )


def _require_model_files(folder: Path) -> Path:
    wanted = {
        "config.json": folder / "config.json",
        "*.safetensors": next(folder.glob("*.safetensors"), folder / "none"),
    }
    missing = [pattern for pattern, file in wanted.items() if not file.is_file()]
    if missing:
        raise ModelNotFound(
            f"{folder} is no model folder: it has no {' and no '.join(missing)}",
            hint="save the model with save_pretrained(folder), and its tokenizer too",
        )
    return folder


def _from_hub(name: str, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    disable_progress_bars()
    try:
        with progress.task(f"Fetching {name} from the hub"):
            folder = snapshot_download(name, allow_patterns=HUB_FILES, ignore_patterns=HUB_DOUBLES)
    # The hub's client raises errors of its own, of its HTTP library and of the operating system.
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ModelNotFound(
            f"no model {name!r} here, and the hub gave none: {type(error).__name__}: {first_line}", hint=_hint(name)
        ) from error
    finally:
        enable_progress_bars()
    return _require_model_files(Path(folder))


def _hint(name: str) -> str:
    known = {embedded.NAME, "smollm2", *_in_hub_cache()}
    near = get_close_matches(name.lower(), [alias.lower() for alias in known], n=3, cutoff=0.4)
    nearest = sorted(alias for alias in known if alias.lower() in near) or ["smollm2"]
    return f"{' or '.join(nearest)} (known here), or the folder of a model; other names need a reachable hub"


def _in_hub_cache() -> set[str]:
    from huggingface_hub.constants import HF_HUB_CACHE

    return {folder.name.removeprefix("models--").replace("--", "/") for folder in Path(HF_HUB_CACHE).glob("models--*")}


def _size(folder: Path, config: dict[str, Any], *names: str) -> int:
    for name in names:
        if config.get(name) is not None:
            return int(config[name])
    raise ModelNotFound(
        f"the configuration in {folder} says nothing about {names[0]}",
        hint="kvlab reads configurations of decoder models as transformers writes them",
    )


def _weights(folder: Path) -> tuple[int, str]:
    """Numbers in all weight files, and the floating type that most of them have."""
    count: dict[str, int] = {}
    for file in _weight_files(folder):
        for entry in _header(file).values():
            count[entry["dtype"]] = count.get(entry["dtype"], 0) + math.prod(entry["shape"])
    most = max(count, key=lambda tag: count[tag])
    return sum(count.values()), DTYPE_OF_TAG.get(most, most.lower())


def _weight_files(folder: Path) -> list[Path]:
    """The files that transformers reads: those of the index, the single one, or else all there are."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return [folder / file for file in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    single = folder / "model.safetensors"
    return [single] if single.is_file() else sorted(folder.glob("*.safetensors"))


def _header(file: Path) -> dict[str, Any]:
    """The tensors a safetensors file holds: name → dtype and shape. See its format description for the layout."""
    with file.open("rb") as stream:
        nbytes = int.from_bytes(stream.read(8), "little")
        if not 2 <= nbytes <= min(_MAX_HEADER_NBYTES, file.stat().st_size):
            raise ModelNotFound(f"{file} is cut off or no safetensors file", hint="fetch the model again")
        try:
            header: dict[str, Any] = json.loads(stream.read(nbytes))
        except ValueError as error:
            raise ModelNotFound(f"{file} is cut off or no safetensors file", hint="fetch the model again") from error
    header.pop("__metadata__", None)
    return header
