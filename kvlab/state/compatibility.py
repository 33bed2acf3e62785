"""May this state be used there? Every field that differs is named."""

from __future__ import annotations

from dataclasses import fields

from kvlab.errors import StateMismatch
from kvlab.state.identity import KVConfig, ModelIdentity

NOT_COMPARED = frozenset({"name"})


def differences(
    state_model: ModelIdentity, state_config: KVConfig, model: ModelIdentity, config: KVConfig
) -> dict[str, tuple[object, object]]:
    """Fields of M and Θ that differ: name → (the state's, the other's). Empty means compatible."""
    found: dict[str, tuple[object, object]] = {}
    for mine, theirs in ((state_model, model), (state_config, config)):
        for field in fields(mine):
            a, b = getattr(mine, field.name), getattr(theirs, field.name)
            if field.name not in NOT_COMPARED and a != b:
                found[field.name] = (a, b)
    return found


def told(found: dict[str, tuple[object, object]]) -> str:
    """:func:`differences` for people: ``weights: 1f0c… here 77ab…``."""
    return "; ".join(f"{name}: {_short(a)} here {_short(b)}" for name, (a, b) in found.items())


def require_compatible(
    state: str, state_model: ModelIdentity, state_config: KVConfig, model: ModelIdentity, config: KVConfig
) -> None:
    """Return if the state of ``state_model`` can be used by ``model``.

    Raises
    ------
    StateMismatch
        With every differing field, its two values, and the way out.
    """
    found = differences(state_model, state_config, model, config)
    if found:
        raise StateMismatch(
            f"state {state} was made by {state_model.name} and cannot be used by {model.name}: {told(found)}",
            hint="open it in a lab with that model, or pass the text and let it be prefilled again",
            fields=sorted(found),
        )


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:12]}…" if len(text) > 16 else text
