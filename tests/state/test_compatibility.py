from __future__ import annotations

from dataclasses import fields, replace

import pytest

from kvlab.errors import StateMismatch
from kvlab.state.compatibility import differences, require_compatible
from kvlab.state.identity import KVConfig, ModelIdentity


def other(value):
    return value + 1 if isinstance(value, int) else value + "x"


@pytest.mark.parametrize("name", [f.name for f in fields(ModelIdentity) if f.name != "name"])
def test_every_field_of_the_model_is_compared(model, config, name):
    changed = replace(model, **{name: other(getattr(model, name))})
    assert differences(model, config, changed, config) == {name: (getattr(model, name), getattr(changed, name))}
    with pytest.raises(StateMismatch, match=name) as raised:
        require_compatible("s", model, config, changed, config)
    assert raised.value.data["fields"] == [name]


@pytest.mark.parametrize("name", [f.name for f in fields(KVConfig)])
def test_every_field_of_the_configuration_is_compared(model, config, name):
    changed = replace(config, **{name: other(getattr(config, name))})
    with pytest.raises(StateMismatch, match=f"state s was made by tiny.*{name}") as raised:
        require_compatible("s", model, config, model, changed)
    assert raised.value.data["fields"] == [name]


def test_all_differences_are_named_at_once(model, config):
    with pytest.raises(StateMismatch) as raised:
        require_compatible("s", model, config, replace(model, weights="w"), replace(config, layers=9, dtype="float16"))
    assert raised.value.data["fields"] == ["dtype", "layers", "weights"]


def test_the_name_is_for_people(model, config):
    assert differences(model, config, replace(model, name="other"), config) == {}
    require_compatible("s", model, config, replace(model, name="other"), config)
