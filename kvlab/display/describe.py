"""A run as text: what ``kvlab inspect RUN`` prints."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from kvlab.display.comparison import compare
from kvlab.display.look import SHAPES, shape_of
from kvlab.display.quantities import bytes_text, count_text, counted, seconds_text
from kvlab.display.sentences import sentence
from kvlab.display.tables import agent_rows, numeric, plain_table
from kvlab.display.worlds import Shown, world_of
from kvlab.store.fold import Row, World
from kvlab.store.rows import events_of
from kvlab.store.saved import SavedRun

if TYPE_CHECKING:
    from rich.console import Group
    from rich.tree import Tree

LAST_EVENTS = 8


def run_line(run: Shown) -> str:
    """``review stateflow, done in 7.15 s, 5 agents, 101 events``."""
    world = world_of(run)
    name = world.name or getattr(getattr(run, "path", None), "name", "")
    wall = f" in {seconds_text(world.wall_seconds)}" if world.wall_seconds is not None else ""
    counts = (
        f"{counted(len(world.rows['turns']), 'answer')}, {counted(len(world.rows['states']), 'state')}, "
        f"{counted(world.n_events, 'event')}"
    )
    held = ", stepped by a person" if world.run.get("stepped") else ""
    status, left = world.status, ""
    if isinstance(run, SavedRun) and not run.complete:
        writing = run.being_written
        status = status if writing or status != "running" else "interrupted"
        left = ", still being written" if writing else ", left unfinished by its process"
    return f"{name} {world.flow or '?'}flow, {status}{wall}, {counts}{held}{left}"


def describe(run: Shown, width: int = 110) -> str:
    """The run as plain text of at most ``width`` columns. Changes nothing."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(description(run))
    return "\n".join(row.rstrip() for row in out.getvalue().splitlines())


def description(run: Shown) -> Group:
    """The run for a rich console: header, agents, decisions, lineage, memory, last events."""
    from rich.console import Group
    from rich.text import Text

    world = world_of(run)
    folder = getattr(run, "path", None)
    parts: list[Any] = [Text(run_line(run), "bold")]
    if folder is not None:
        parts.append(Text(str(folder), "dim"))
    if world.run.get("error"):
        parts.append(Text(f"error: {world.run['error']}", "red"))
    headers, rows = agent_rows(compare(world))
    parts += _titled("Agents", plain_table(headers, rows, numeric(headers)))
    if world.rows["edges"]:
        parts += _titled("Decisions", plain_table(*_decision_rows(world), frozenset({1, 3, 5, 7})))
    if world.rows["states"]:
        parts += _titled("States", _lineage(world))
    if world.rows["workers"]:
        parts += _titled("Memory", plain_table(*_memory_rows(world), frozenset({2, 3, 4, 5})))
    events = getattr(run, "events", None)
    if events is not None and events.num_rows:
        last = events.slice(max(0, events.num_rows - LAST_EVENTS))
        parts += _titled(
            "Last events", Text("\n".join(f"{seq:>6}  {sentence(event)}" for seq, event in events_of(last)))
        )
    for row in world.rows["notes"]:
        parts.append(Text(f"{row['level']}: {row['text']}", "yellow" if row["level"] != "info" else ""))
    return Group(*parts)


def _titled(title: str, what: Any) -> list[Any]:
    from rich.text import Text

    return [Text(), Text(title, "bold"), what]


def _decision_rows(world: World) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            f"{row['source']} → {row['target']}",
            count_text(row["n_tokens"]),
            str(row["chosen"] or "–"),
            seconds_text(row["predicted_seconds"]),
            str(row["actual_how"] or "–"),
            seconds_text(row["actual_seconds"]),
            str(row["actual_worker"] or row["worker"] or "–"),
            bytes_text(row["actual_nbytes"]),
            str(row["because"] or row["reason"] or ""),
        ]
        for row in world.rows["edges"]
    ]
    return ["state edge", "tokens", "chosen", "predicted", "did", "measured", "on", "moved", "why"], rows


def _lineage(world: World) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    states = {row["state"]: row for row in world.rows["states"]}
    root = Tree(Text("root", "dim"))
    branches: dict[str, Tree] = {}
    for state, row in states.items():
        parent = next((states[name] for name in row["parents"] or () if name in states), None)
        under = branches.get(parent["state"], root) if parent else root
        branches[state] = under.add(Text(_state_line(world, row, parent)))
    return root


def _state_line(world: World, row: Row, parent: Row | None) -> str:
    shape = SHAPES[shape_of(row["operator"])]
    tokens = row["n_tokens"] or 0
    shared = (parent["n_tokens"] or 0) if parent else 0
    size = counted(tokens, "token")
    if shared:
        size += f" = {count_text(min(shared, tokens))} shared + {count_text(max(0, tokens - shared))} own"
    holders = sorted(world.held.get((row["segments"] or [""])[-1], {}))
    where = f" on {', '.join(holders)}" if holders else ""
    approximate = "  ≈" if row["exact"] is False else ""
    return f"{shape} {row['state']} {row['name'] or ''}  {size}  {row['phase']}{where}{approximate}"


def _memory_rows(world: World) -> tuple[list[str], list[list[str]]]:
    last = {row["worker"]: row for row in world.rows["memory"]}
    rows = []
    for worker in world.rows["workers"]:
        sample = last.get(worker["worker"], {})
        numbers = (worker["memory_bytes"], worker["kv_bytes"], sample.get("kv_unique_bytes"), sample.get("pss_bytes"))
        status = worker["status"] if worker["status"] == "running" else f"{worker['status']}: {worker['reason']}"
        rows.append([worker["worker"], str(worker["host"] or "–"), *map(bytes_text, numbers), status])
    return ["worker", "host", "limit", "K/V placed", "K/V its own", "process", "status"], rows
