"""A generated run of the review workflow."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvlab.store.events import Event


def _load() -> ModuleType:
    name = "kvlab_tests_review_run"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("review_run.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def review() -> ModuleType:
    """The generator: ``review_events(flow)`` and its constants."""
    return _load()


@pytest.fixture(scope="session")
def events(review: ModuleType) -> list[Event]:
    """Events of one stateflow run."""
    return review.review_events("state")
