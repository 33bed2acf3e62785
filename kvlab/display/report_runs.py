"""Which of several runs a report is about, and what each is called in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlab.display.comparison import Comparison, RunFigures, compare, run_figures
from kvlab.display.worlds import Shown, world_of
from kvlab.errors import InvalidInput
from kvlab.store.fold import World
from kvlab.transport.link_pace import LinkPace

_TOLD = ("command", "seed", "git", "environment", "model", "config", "namespace", "lab")


class Told:
    """Runs in the order of the report, and the figures that all its forms share.

    Parameters
    ----------
    runs
        At least one. The first stateflow run is the subject (else the first run); it is compared with every textflow
        run of the same workflow.
    title
        Instead of the workflow's name.
    redact
        Leave out every text that a person or a model wrote.

    Raises
    ------
    InvalidInput
        If there are no runs.
    """

    def __init__(self, runs: Sequence[Shown], title: str | None = None, *, redact: bool = False) -> None:
        if not runs:
            raise InvalidInput("a report needs at least one run", hint="pass what lab.run(...) returned")
        self.redact = redact
        worlds = [world_of(run) for run in runs]
        first = next((index for index, world in enumerate(worlds) if world.flow != "text"), 0)
        self.subject = runs[first]
        self.runs: list[Shown] = [runs[first], *(run for index, run in enumerate(runs) if index != first)]
        name = world_of(self.subject).name
        self.textflows = [run for run in self.runs[1:] if world_of(run).flow == "text" and world_of(run).name == name]
        self.comparison: Comparison = compare(self.subject, self.textflows)
        self.title = title or name or "run"

    @property
    def labelled(self) -> list[tuple[str, World]]:
        """(label, world), with labels ``stateflow``, ``textflow``, ``textflow 2`` and so on."""
        counts: dict[str, int] = {}
        found = []
        for run in self.runs:
            world = world_of(run)
            same = world_of(self.subject).name == world.name
            label = f"{world.flow or 'a '}flow" if same else f"{world.name} {world.flow}flow"
            counts[label] = counts.get(label, 0) + 1
            found.append((label if counts[label] == 1 else f"{label} {counts[label]}", world))
        return found

    @property
    def totals(self) -> list[tuple[str, Shown, RunFigures]]:
        """(label, run, totals) of every run."""
        return [(label, run, run_figures(run)) for (label, _), run in zip(self.labelled, self.runs, strict=True)]

    @property
    def side_by_side(self) -> list[tuple[str, World]]:
        """(label, world) of the subject and the fastest textflow run: what pictures show."""
        worlds = [world_of(run) for run in self.textflows]
        fastest = min(worlds, key=lambda world: (world.wall_seconds is None, world.wall_seconds or 0.0), default=None)
        shown = (world_of(self.subject), fastest)
        return [(label, world) for label, world in self.labelled if any(world is one for one in shown)]

    @property
    def environments(self) -> list[tuple[str, dict[str, Any]]]:
        """(label, what the run said of command, machine, versions, model and lab)."""
        found = []
        for (label, world), run in zip(self.labelled, self.runs, strict=True):
            written = getattr(run, "config", None)
            both = {**(written if isinstance(written, dict) else {}), **world.run}
            found.append((label, {key: both[key] for key in _TOLD if both.get(key) not in (None, {}, "")}))
        return found

    @property
    def lines(self) -> list[str]:
        """What stands under the verdict: model, machine, and what of the lab decides about roads."""
        told = self.environments[0][1]
        model, config, lab, machine = (_section(told, key) for key in ("model", "config", "lab", "environment"))
        workers = lab.get("workers")
        n_workers = len(workers) if isinstance(workers, list) else workers
        parts = [model.get("name"), config.get("dtype"), machine.get("processor")]
        parts += [f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"] if machine.get("cores") else []
        parts += [f"{n_workers} worker{'' if n_workers == 1 else 's'}"] if n_workers else []
        parts += [f"same host: {lab['same_host']}"] if lab.get("same_host") else []
        if lab.get("link_rate_bits"):
            parts.append(
                f"links paced to {LinkPace(lab['link_rate_bits'] / 8, lab.get('link_latency_seconds') or 0.0)}"
            )
        line = " · ".join(str(part) for part in parts if part)
        stepped = ", ".join(label for label, world in self.labelled if world.run.get("stepped"))
        held = (
            f"{stepped}: stepped by a person; the time for which actions were held is in no figure" if stepped else ""
        )
        return [one for one in (line, held) if one]


def _section(told: dict[str, Any], key: str) -> dict[str, Any]:
    value = told.get(key)
    return value if isinstance(value, dict) else {}
