"""What a benchmark writes: one JSON file with every figure, its unit, and whether it was measured."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

SCHEMA = "kvlab.bench.summary.v1"
FILE_NAME = "summary.json"
PACKAGES = ("kvlab", "torch", "transformers", "distributed")


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure.

    Attributes
    ----------
    value, unit
        The figure; ratios have unit ``"×"``.
    kind
        Measured here, predicted by a model, or published by others.
    n
        Measurements it comes from.
    lo, hi
        Smallest and largest of them.
    """

    value: float
    unit: str
    kind: Literal["measured", "predicted", "published"]
    n: int
    lo: float
    hi: float


def measured(value: float, unit: str) -> Metric:
    """A figure measured once."""
    return Metric(value, unit, "measured", 1, value, value)


def ratio_of_medians(above: Sequence[float], below: Sequence[float]) -> Metric:
    """median(above) / median(below); ``lo`` and ``hi`` are of the ratios within one round."""
    rounds = [a / b for a, b in zip(above, below, strict=True)]
    value = statistics.median(above) / statistics.median(below)
    return Metric(value, "×", "measured", len(rounds), min(rounds), max(rounds))


def median_of(values: Sequence[float], unit: str) -> Metric:
    """The median of several measurements, with their range."""
    return Metric(statistics.median(values), unit, "measured", len(values), min(values), max(values))


def difference_of_medians(more: Sequence[float], less: Sequence[float], unit: str) -> Metric:
    """median(more) - median(less); ``lo`` and ``hi`` are of the differences within one round."""
    rounds = [a - b for a, b in zip(more, less, strict=True)]
    value = statistics.median(more) - statistics.median(less)
    return Metric(value, unit, "measured", len(rounds), min(rounds), max(rounds))


def environment(**more: Any) -> dict[str, Any]:
    """Machine and versions, with whatever else the benchmark should say."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        **more,
    }


def summary(experiment: str, metrics: Mapping[str, Metric], where: Mapping[str, Any]) -> dict[str, Any]:
    """The whole record, ready for JSON."""
    return {
        "schema": SCHEMA,
        "experiment": experiment,
        "revision": revision(),
        "metrics": {name: asdict(metric) for name, metric in metrics.items()},
        "environment": dict(where),
    }


def write_summary(out: Path, record: Mapping[str, Any]) -> Path:
    """Write ``record`` to ``out/summary.json``: first beside it, then in its place, so that it is whole or absent."""
    out.mkdir(parents=True, exist_ok=True)
    target, beside = out / FILE_NAME, out / f".{FILE_NAME}.{os.getpid()}"
    beside.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(target)
    return target


def revision() -> str:
    """Commit of the checkout kvlab runs from (``+`` when it has changes), else the version of the package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return _version("kvlab")
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],  # noqa: S607  git is found on PATH
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return _version("kvlab")
    return commit.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor()
    return platform.processor()
