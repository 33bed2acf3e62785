"""Rotary parameters: the part of Θ that says what positions did to K."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from kvlab.state.identity import canonical_json

LENGTH_DEPENDENT = frozenset({"dynamic", "longrope"})
"""Kinds whose frequencies depend on the total length, so that K computed early is not K computed late."""


def rope_settings(config: PreTrainedConfig) -> dict[str, Any]:
    """The rotary parameters of a decoder's configuration; empty for other position encodings."""
    return dict(getattr(config, "rope_parameters", None) or {})


def rope_kinds(config: PreTrainedConfig) -> frozenset[str]:
    """Every rotary kind in use; families may set one for each kind of layer."""
    settings = rope_settings(config)
    nested = [value for value in settings.values() if isinstance(value, dict)]
    return frozenset(str(one["rope_type"]) for one in [settings, *nested] if one.get("rope_type"))


def rope_json(config: PreTrainedConfig) -> str:
    """Canonical JSON of the rotary parameters, for :class:`kvlab.state.identity.KVConfig`."""
    return canonical_json(rope_settings(config))
