"""Who a state is: the model M, the configuration Θ, and the three digests, which are never mixed.

==========  =======================================  =====================================================
digest      over                                     used for
==========  =======================================  =====================================================
recipe      what is known *before* running           naming the Dask key of a segment
identity    the token ids that have K/V, from root   finding reusable prefixes (the ids are compared after)
checksum    the bytes of one copy                    noticing a damaged copy; a recompute may change it
==========  =======================================  =====================================================

The identity covers the whole path from the root, so it does not depend on how the path is cut into segments.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

LAYOUT = "kvlab.layers-kv-heads-tokens-dim.v1"
"""Name and version of the payload layout ``[layers, 2, kv_heads, tokens, head_dim]``; unknown ones are refused."""

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """M: which weights, which tokenizer, which adapter. ``name`` is for people and is not compared."""

    name: str
    weights: str
    tokenizer: str
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class KVConfig:
    """Θ: what the bytes of a payload mean. ``rope`` is canonical JSON of the rotary parameters."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    rope: str
    max_positions: int
    layout: str = LAYOUT

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V that one token adds, all layers together."""
        return self.layers * 2 * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Randomness is a function of (seed, branch, position) alone.

    ``temperature`` 0 is greedy. ``branch`` is the agent's name and fork index, e.g. ``"reviewer-1/0"``.
    """

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    branch: str = ""

    def __post_init__(self) -> None:
        # 0, 0.0 and -0.0 mean one thing and must not name three recipes
        object.__setattr__(self, "temperature", float(self.temperature) + 0.0)


def canonical_json(value: Any) -> str:
    """JSON with one spelling for one value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def sha256_hex(*parts: bytes | str) -> str:
    """sha256 over length-prefixed parts, so that no two different lists of parts collide by concatenation."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


def root_digest(model: ModelIdentity, config: KVConfig, namespace: str) -> str:
    """Where every path of this model, configuration and namespace starts."""
    fields = asdict(model)
    del fields["name"]
    return sha256_hex("root", canonical_json(fields), canonical_json(asdict(config)), namespace)


def identity_of(root: str, path_ids: bytes) -> str:
    """Identity of the state whose packed token ids from the root are ``path_ids``."""
    return sha256_hex("identity", root, path_ids)


def recipe_of(
    root: str, parent_recipe: str | None, input_ids: bytes, sampling: Sampling | None = None, operation: str = "turn"
) -> str:
    """Name of the segment that this operation will make: equal recipes make equal tokens."""
    drawn = canonical_json(asdict(sampling)) if sampling is not None else ""
    return sha256_hex("recipe", root, parent_recipe or "", operation, input_ids, drawn)
