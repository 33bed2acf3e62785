"""Where kvlab keeps things on this machine, the environment variables that move them, and its logger."""

from __future__ import annotations

import logging
import os
from pathlib import Path

CACHE_VARIABLE = "KVLAB_CACHE"
"""Folder for converted models and calibrations; the system's own place for caches otherwise."""

RUNS_VARIABLE = "KVLAB_RUNS"
"""Folder for the runs that are recorded."""

CI_VARIABLE = "KVLAB_CI"
"""Set to anything but 0 where no person looks: tests that would be skipped for a missing part fail instead."""

DEBUG_VARIABLE = "KVLAB_DEBUG"
"""Set to anything but 0 to see tracebacks and debug messages on the command line."""

LOGGER_NAME = "kvlab"


def cache_dir() -> Path:
    """Folder for what can be made again. It need not exist yet; nothing is created here."""
    import platformdirs

    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("kvlab", appauthor=False)


def is_set(variable: str) -> bool:
    """Whether the environment variable is there and neither empty nor 0."""
    return os.environ.get(variable, "") not in ("", "0")


def set_up_logging(level: int | None = None) -> logging.Logger:
    """Show kvlab's messages on standard error and return its logger. Calling it again only changes the level.

    Programs call this; the library itself never does. ``level`` defaults to WARNING, or DEBUG with ``KVLAB_DEBUG``.
    """
    logger = logging.getLogger(LOGGER_NAME)
    logger.setLevel(level if level is not None else logging.DEBUG if is_set(DEBUG_VARIABLE) else logging.WARNING)
    if not any(getattr(handler, "name", None) == LOGGER_NAME for handler in logger.handlers):
        handler = logging.StreamHandler()
        handler.name = LOGGER_NAME
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    return logger
