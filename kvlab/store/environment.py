"""The machine and the versions a run was made with: what a figure means nothing without."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("kvlab", "torch", "transformers", "distributed", "pyarrow", "numpy")


@lru_cache(maxsize=1)
def environment() -> dict[str, Any]:
    """Plain values: system, processor, cores, memory, versions, git revision (with ``+`` if the tree is changed)."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "revision": revision(),
        "command": " ".join(sys.argv),
    }


def revision() -> str:
    """Git revision of the source tree kvlab runs from, or "" outside one."""
    folder = Path(__file__).resolve().parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],  # noqa: S607
            cwd=folder, capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor()
    return platform.processor()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
