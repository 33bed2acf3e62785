"""Where things are kept, and the logger."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kvlab.config import CACHE_VARIABLE, DEBUG_VARIABLE, cache_dir, is_set, set_up_logging


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    assert not cache_dir().exists()


def test_a_tilde_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "~/kv")
    assert cache_dir() == Path.home() / "kv"


@pytest.mark.parametrize("value", [None, ""])
def test_without_it_the_systems_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(CACHE_VARIABLE, value)
    assert cache_dir() == tmp_path / "kvlab"


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_what_set_means(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool) -> None:
    monkeypatch.delenv("KVLAB_PROBE", raising=False)
    if value is not None:
        monkeypatch.setenv("KVLAB_PROBE", value)
    assert is_set("KVLAB_PROBE") is expected


def test_logging_is_set_up_once_and_below_kvlab_only(monkeypatch: pytest.MonkeyPatch) -> None:
    root = list(logging.getLogger().handlers)
    logger = logging.getLogger("kvlab")
    before, logger.handlers = logger.handlers, []
    try:
        monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
        set_up_logging()
        set_up_logging()
        assert len(logger.handlers) == 1
        assert logger.level == logging.WARNING
        monkeypatch.setenv(DEBUG_VARIABLE, "1")
        assert set_up_logging().level == logging.DEBUG
        assert set_up_logging(logging.INFO).level == logging.INFO
        assert logging.getLogger().handlers == root
    finally:
        logger.handlers = before
        logger.setLevel(logging.NOTSET)
