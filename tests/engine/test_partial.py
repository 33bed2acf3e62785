"""Single layers on chosen rows: equal to the dense run when the cache holds the dense K/V."""

from __future__ import annotations

import pytest
import torch

from kvlab.errors import InvalidInput, ModelRefused

EXACT = 1e-4
FAMILIES = ("llama", "qwen2", "qwen3", "mistral")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", (1, 40, 300))
def test_all_rows_through_all_layers_are_a_dense_prefill(family, n, engine_of, dense_of, tokens):
    engine, dense, ids = engine_of(family), dense_of(family), tokens(n)
    cache = engine.new_payload(n).fill_(float("nan"))
    logits = engine.partial_forward(torch.tensor(ids), torch.arange(n), range(engine.config.layers), cache)
    torch.testing.assert_close(logits, dense.logits(ids), atol=EXACT, rtol=0)
    torch.testing.assert_close(cache, dense.payload(ids), atol=EXACT, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", ((0,), (49,), (3, 4, 5, 20), tuple(range(7, 50, 3))))
def test_some_rows_on_dense_columns_are_the_dense_rows(family, rows, engine_of, dense_of, tokens):
    engine, dense, ids = engine_of(family), dense_of(family), tokens(50)
    cache = dense.payload(ids).clone()
    cache[:, :, :, list(rows)] = 7.0
    positions = torch.tensor(rows)
    logits = engine.partial_forward(torch.tensor(ids)[positions], positions, range(engine.config.layers), cache)
    torch.testing.assert_close(logits, dense.logits(ids)[positions], atol=EXACT, rtol=0)
    torch.testing.assert_close(cache, dense.payload(ids), atol=EXACT, rtol=0)


def test_layers_may_be_run_one_by_one_and_touch_no_other_layer(engine_of, dense_of, tokens):
    engine, dense, ids = engine_of("qwen3"), dense_of("qwen3"), tokens(20)
    cache = torch.zeros_like(engine.new_payload(20))
    positions = torch.arange(20)
    hidden = engine.partial_forward(torch.tensor(ids), positions, range(1), cache)
    assert hidden.shape == (20, 64)
    assert (cache[1:] == 0).all()
    hidden = engine.partial_forward(hidden, positions, range(1, 2), cache)
    logits = engine.partial_forward(hidden, positions, range(2, 3), cache)
    torch.testing.assert_close(logits, dense.logits(ids), atol=EXACT, rtol=0)


@pytest.mark.parametrize(
    ("rows", "layers"),
    (
        ((), range(3)),
        ((1, 1), range(3)),
        ((4, 2), range(3)),
        ((0, 8), range(3)),
        ((-1,), range(3)),
        ((0,), range(2, 2)),
        ((0,), range(4)),
        ((0,), range(0, 3, 2)),
    ),
)
def test_rows_and_layers_that_cannot_be_meant_are_refused(rows, layers, engine_of):
    engine = engine_of()
    with pytest.raises(InvalidInput):
        engine.partial_forward(
            torch.zeros(len(rows), dtype=torch.long),
            torch.tensor(rows, dtype=torch.long),
            layers,
            engine.new_payload(8),
        )


def test_a_backbone_that_is_not_llama_like_is_refused_by_name_but_resumes(engine_of, dense_of, tokens):
    from kvlab.state.tokens import pack_ids

    engine, dense, ids = (
        engine_of("gpt_neox", num_key_value_heads=4),
        dense_of("gpt_neox", num_key_value_heads=4),
        tokens(30),
    )
    first = engine.prefill(pack_ids(ids[:20]), [], engine.new_payload)
    second = engine.prefill(pack_ids(ids[20:]), [first.payload], engine.new_payload)
    torch.testing.assert_close(second.last_logits, dense.logits(ids)[-1], atol=EXACT, rtol=0)
    with pytest.raises(ModelRefused, match="single layers"):
        engine.partial_forward(torch.tensor(ids[:1]), torch.tensor([0]), range(3), engine.new_payload(1))
