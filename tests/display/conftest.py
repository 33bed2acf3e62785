"""Worlds of generated review runs, from the store's generator."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvlab.store.fold import World, fold


@pytest.fixture(scope="session")
def review() -> ModuleType:
    """The generator: ``review_events(flow)``, ``review_graph()`` and their constants."""
    name = "kvlab_tests_review_run"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "store" / "review_run.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def state(review: ModuleType) -> World:
    """A stateflow run."""
    return fold(review.review_events("state"))


@pytest.fixture
def texts(review: ModuleType) -> list[World]:
    """Two textflow runs, the second one slower."""
    return [fold(review.review_events("text", prefill)) for prefill in (0.0011, 0.0013)]
