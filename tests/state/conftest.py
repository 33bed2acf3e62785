from __future__ import annotations

import pytest

from kvlab.state.identity import KVConfig, ModelIdentity, identity_of, root_digest
from kvlab.state.records import Lineage, SegmentRecord, StateRecord
from kvlab.state.tokens import pack_ids

MODEL = ModelIdentity("tiny", "weights", "tokenizer")
CONFIG = KVConfig(layers=3, kv_heads=2, head_dim=16, dtype="float32", rope="{}", max_positions=64)


@pytest.fixture
def model():
    return MODEL


@pytest.fixture
def config():
    return CONFIG


@pytest.fixture(scope="session")
def make_state():
    """A state whose path is cut into segments of the given ids."""

    def make(*cuts, name="s", model=MODEL, config=CONFIG, namespace="", unfed=()):
        segments, start, parent = [], 0, None
        for index, ids in enumerate(cuts):
            recipe = f"{name}-{index}"
            nbytes = len(ids) * config.bytes_per_token
            segments.append(SegmentRecord(recipe, parent, start, pack_ids(ids), len(ids), nbytes))
            start, parent = start + len(ids), recipe
        path = b"".join(segment.token_ids for segment in segments)
        identity = identity_of(root_digest(model, config, namespace), path)
        lineage = Lineage("materialize")
        return StateRecord(
            name, name, model, config, namespace, tuple(segments), lineage, identity, unfed=pack_ids(unfed)
        )

    return make
