"""The cost model of this machine and model: measured once, kept in the user's cache, refused when it does not fit.

What the model computes does not depend on how the workers are joined, so curves and links are kept apart: two labs with
other links share one prefill curve.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kvlab.config import cache_dir
from kvlab.cost.model import CostModel, DecodeCurve, Link, PrefillCurve
from kvlab.runtime.core import Core
from kvlab.runtime.measuring import QUICK, THOROUGH, measure_compute, measure_links
from kvlab.state.identity import sha256_hex

FORMAT = 4
MAX_AGE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of measurement in the cache: what it holds for, and where it lies."""

    kind: str
    holds_for: dict[str, str]

    @property
    def path(self) -> Path:
        """Where it lies in the cache."""
        parts = [f"{name}={value}" for name, value in sorted(self.holds_for.items())]
        return cache_dir() / "calibration" / f"{self.kind}-{sha256_hex(*parts)[:24]}.json"

    def read(self, say: Callable[[str], None]) -> dict[str, Any] | None:
        """What is kept if it may be used; else None, and ``say`` is told why."""
        if not self.path.exists():
            return None
        try:
            stored = json.loads(self.path.read_text())
            told, age = stored["holds_for"], datetime.now(UTC) - datetime.fromisoformat(stored["measured_at"])
            found: dict[str, Any] = stored["measured"]
        except (ValueError, KeyError, TypeError):
            say(f"The {self.kind} calibration in {self.path} cannot be read: measured again")
            return None
        foreign = [name for name, value in self.holds_for.items() if told.get(name) != value]
        if foreign or stored.get("format") != FORMAT:
            say(
                f"The {self.kind} calibration in {self.path} is of another {', '.join(foreign) or 'kvlab'}: measured again"
            )
            return None
        if age > MAX_AGE:
            say(f"The {self.kind} calibration of this machine is {age.days} days old: measured again")
            return None
        return {**found, "measured_at": stored["measured_at"]}

    def write(self, measured: dict[str, Any]) -> str:
        """Keep it; returns the time it counts as measured at."""
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        document = {"format": FORMAT, "holds_for": self.holds_for, "measured_at": stamp, "measured": measured}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(document, indent=2, ensure_ascii=False))
        draft.replace(self.path)
        return stamp


def calibrated(core: Core, cores: int) -> CostModel:
    """What is kept of this machine and model where it is fresh; the rest measured now, in a few seconds, and kept."""
    compute_kept, links_kept = kept(core, cores)
    compute, links = compute_kept.read(core.progress.say), links_kept.read(core.progress.say)
    if compute is None:
        with core.progress.task(f"Measuring prefill and decode of {core.model.name} on this machine (once)"):
            compute = asdict(measure_compute(core, cores, QUICK))
            compute["measured_at"] = compute_kept.write(compute)
    if links is None:
        with core.progress.task("Measuring the links between workers (once)"):
            links = asdict(measure_links(core, QUICK))
            links["measured_at"] = links_kept.write(links)
    return _model(compute, links)


def calibrated_beside(core: Core) -> CostModel:
    """The cost model of a model beside the lab's own: its own curves, and the links, which are the same."""
    cores = max(worker.cores for worker in core.workers.values())
    compute_kept, _ = kept(core, cores)
    compute = compute_kept.read(core.progress.say)
    if compute is None:
        with core.progress.task(f"Measuring prefill and decode of {core.model.name} on this machine (once)"):
            compute = asdict(measure_compute(core, cores, QUICK))
            compute["measured_at"] = compute_kept.write(compute)
    return replace(
        core.cost,
        prefill=PrefillCurve(**compute["prefill"]),
        decode=DecodeCurve(**compute["decode"]),
        copy_bytes_per_second=compute["copy_bytes_per_second"],
        measured_at=min(compute["measured_at"], core.cost.measured_at),
    )


def calibrate(core: Core, cores: int) -> CostModel:
    """Measure everything thoroughly now (within half a minute), and keep it."""
    compute_kept, links_kept = kept(core, cores)
    with core.progress.task(f"Measuring prefill and decode of {core.model.name} on this machine"):
        compute = asdict(measure_compute(core, cores, THOROUGH))
    with core.progress.task("Measuring the links between workers"):
        links = asdict(measure_links(core, THOROUGH))
    compute["measured_at"], links["measured_at"] = compute_kept.write(compute), links_kept.write(links)
    return _model(compute, links)


def kept(core: Core, cores: int) -> tuple[Kept, Kept]:
    """What is kept of this lab's machine and model: of its compute, and of its links."""
    import distributed
    import torch
    import transformers

    machine = {
        "machine": platform.node(),
        "processor": f"{platform.machine()} {platform.processor()}",
        "cores": str(cores),
        "model": core.model.weights,
        "dtype": core.config.dtype,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "devices": ", ".join(sorted({worker.device for worker in core.workers.values()})),
    }
    joined = {
        **machine,
        "distributed": distributed.__version__,
        "same host": core.same_host,
        "wire": core.wire,
        "pace": str(core.pace) if core.pace is not None else "",
        "workers": ", ".join(sorted(f"{worker.name}@{worker.host}" for worker in core.workers.values())),
    }
    return Kept("compute", machine), Kept("links", joined)


def _model(compute: dict[str, Any], links: dict[str, Any]) -> CostModel:
    return CostModel(
        prefill=PrefillCurve(**compute["prefill"]),
        decode=DecodeCurve(**compute["decode"]),
        frames=Link(**links["frames"]),
        map_seconds=links["map_seconds"],
        task_seconds=links["task_seconds"],
        links={name: Link(**link) for name, link in links["links"].items()},
        copy_bytes_per_second=compute["copy_bytes_per_second"],
        receive_seconds_per_byte=links["receive_seconds_per_byte"],
        measured_at=min(compute["measured_at"], links["measured_at"]),
    )
