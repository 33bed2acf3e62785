"""What a state graph shows, before it is drawn: nodes in lanes and layers, lines between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvlab.display.look import shape_of
from kvlab.display.quantities import bytes_text, count_text, counted, seconds_text
from kvlab.store.fold import Row, World

FORK_OFFSET = 0.28
"""Layers between a state and the mark where it forks."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One node. ``layer`` is the length of the longest path to it; ``caption`` stands below it."""

    id: str
    lane: str
    shape: str
    layer: float
    title: str
    caption: str = ""
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One edge. ``how`` is its decision if there is one; ``nbytes`` the bytes that crossed or would."""

    source: str
    target: str
    kind: str
    label: str = ""
    how: str | None = None
    nbytes: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph ready to be drawn. ``remarks`` are warnings; ``note`` says how to read it."""

    name: str
    marks: tuple[Mark, ...]
    lines: tuple[Line, ...]
    remarks: tuple[str, ...] = ()
    note: str = ""

    @property
    def lanes(self) -> tuple[str, ...]:
        """Lanes in the order of their first node."""
        return tuple(dict.fromkeys(mark.lane for mark in self.marks))


def layers(nodes: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Length of the longest path to each node. Edges of unknown nodes and edges that close a cycle are ignored."""
    order = list(nodes)
    into: dict[str, list[str]] = {node: [] for node in order}
    for source, target in edges:
        if source in into and target in into and source != target:
            into[target].append(source)
    found: dict[str, int] = {}
    for start in order:
        stack = [(start, iter(into[start]))]
        entered = {start}
        while stack:
            node, sources = stack[-1]
            waiting = next((s for s in sources if s not in found and s not in entered), None)
            if waiting is not None:
                entered.add(waiting)
                stack.append((waiting, iter(into[waiting])))
                continue
            found.setdefault(node, 1 + max((found[s] for s in into[node] if s in found), default=-1))
            stack.pop()
    return found


def graph_drawing(document: Mapping[str, Any]) -> Drawing:
    """Drawing of a compiled graph, from its document (:func:`kvlab.store.graph_document.graph_document`)."""
    nodes = document["nodes"]
    state_edges, data_edges = document["state_edges"], document["data_edges"]
    pairs = [(edge["source"], edge["target"]) for edge in (*state_edges, *data_edges)]
    layer = layers((node["id"] for node in nodes), pairs)
    marks = [
        Mark(
            node["id"],
            node["lane"],
            shape_of(node["kind"]),
            layer[node["id"]],
            _node_title(node),
            hollow=bool(node.get("unless")),
        )
        for node in nodes
    ]
    lines = [Line(edge["source"], edge["target"], "data", title=f"text of {edge['source']}") for edge in data_edges]
    for edge in state_edges:
        because = edge.get("recompute_because")
        title = f"{edge['source']} → {edge['target']}: {counted(edge['n_tokens'], 'token of state', 'tokens of state')}"
        lines.append(
            Line(
                edge["source"],
                edge["target"],
                "state",
                count_text(edge["n_tokens"]),
                "recompute" if because else None,
                title=f"{title}, recomputed because {because}" if because else title,
            )
        )
    remarks = [*document.get("warnings", ())]
    remarks += [
        f"{edge['source']} → {edge['target']} is recomputed: {edge['recompute_because']}"
        for edge in state_edges
        if edge.get("recompute_because")
    ]
    notes = ["on state edges: tokens of state (predicted)"] if state_edges else []
    notes += ["hollow: may be skipped"] if any(mark.hollow for mark in marks) else []
    note = " · ".join(notes)
    return with_forks(Drawing(document["name"], tuple(marks), tuple(lines), tuple(dict.fromkeys(remarks)), note))


def run_drawing(world: World) -> Drawing:
    """Drawing of what a run did: the graph with its decisions, or the states where there was no graph."""
    document = world.run.get("graph")
    if not isinstance(document, Mapping) or not document.get("nodes"):
        return with_forks(_states_drawing(world))
    plan = graph_drawing(document)
    title = f"{plan.name}, {world.flow}flow"
    marks = _marks_that_ran(world, plan)
    drawn = {mark.id for mark in marks}
    lines = _without_forks(plan)
    if world.flow == "text":
        lines = _as_text(lines, drawn)
        note = "textflow: every agent prefills its whole prompt · +n: prompt tokens prefilled (measured)"
        return Drawing(title, tuple(marks), tuple(lines), note=note + _left_out(marks))
    decided = {(row["source"], row["target"]): row for row in world.rows["edges"]}
    found = (decided.get((line.source, line.target)) if line.kind == "state" else None for line in lines)
    lines = [_decided(line, row) if row else line for line, row in zip(lines, found, strict=True)]
    remarks = tuple(dict.fromkeys([*plan.remarks, *_deviations(world.rows["edges"])]))
    note = "on state edges: tokens of state · width: bytes to move · +n: prompt tokens prefilled (measured)"
    note += _left_out(marks)
    return with_forks(Drawing(title, tuple(marks), tuple(lines), remarks, note))


def _as_text(lines: list[Line], drawn: set[str]) -> list[Line]:
    """What would be handed on as state is handed on as text, from the nearest node that ran."""
    above = {line.target: line.source for line in lines if line.kind == "state"}
    found: dict[tuple[str, str], Line] = {}
    for line in lines:
        source: str | None = line.source
        while source is not None and source not in drawn:
            source = above.get(source)
        if source is not None and line.target in drawn:
            found[source, line.target] = Line(source, line.target, "data", title=f"text of {source}")
    return list(found.values())


def _marks_that_ran(world: World, plan: Drawing) -> list[Mark]:
    ran = {row["agent"] for row in world.rows["agents"]} | {row["subject"] for row in world.rows["operators"]}
    turns = {row["agent"]: row for row in world.rows["turns"]}
    skipped = {row["agent"] for row in world.rows["agents"] if row["status"] == "skipped"}
    return [
        replace(mark, caption=_turn_caption(turns.get(mark.id) or turns.get(mark.lane)), hollow=mark.id in skipped)
        for mark in plan.marks
        if mark.shape != "fork" and (world.flow != "text" or mark.id in ran or mark.lane in ran)
    ]


def _left_out(marks: Iterable[Mark]) -> str:
    return " · hollow: skipped" if any(mark.hollow for mark in marks) else ""


def _without_forks(plan: Drawing) -> list[Line]:
    forks = {mark.id: mark.id.removesuffix("/fork") for mark in plan.marks if mark.shape == "fork"}
    return [
        replace(line, source=forks.get(line.source, line.source)) for line in plan.lines if line.target not in forks
    ]


def with_forks(drawing: Drawing) -> Drawing:
    """The same, with a mark where a state is continued more than once."""
    outgoing: dict[str, list[Line]] = {}
    for line in drawing.lines:
        if line.kind == "state":
            outgoing.setdefault(line.source, []).append(line)
    forked = {source: lines for source, lines in outgoing.items() if len(lines) > 1}
    at = {mark.id: mark for mark in drawing.marks}
    marks, trunks = list(drawing.marks), []
    for source, lines in forked.items():
        root = at[source]
        if root.shape == "fork":
            continue
        name = f"{source}/fork"
        title = f"{source} is continued {counted(len(lines), 'time')}; nothing is copied to fork"
        marks.append(Mark(name, root.lane, "fork", root.layer + FORK_OFFSET, title))
        trunks.append(Line(source, name, "state"))
    known = {mark.id for mark in marks}
    moved = [
        replace(line, source=f"{line.source}/fork") if line.kind == "state" and f"{line.source}/fork" in known else line
        for line in drawing.lines
    ]
    return replace(drawing, marks=tuple(marks), lines=(*moved, *trunks))


def _states_drawing(world: World) -> Drawing:
    rows = {row["state"]: row for row in world.rows["states"] if row["operator"]}
    pairs = [(parent, state) for state, row in rows.items() for parent in row["parents"] or () if parent in rows]
    layer = layers(rows, pairs)
    marks = tuple(
        Mark(
            state,
            row["agent"] or row["name"] or state,
            shape_of(row["operator"]),
            layer[state],
            f"{state} {row['name'] or ''}: {row['operator']}, {counted(row['n_tokens'], 'token')}, "
            f"{bytes_text(row['nbytes'])}, {row['phase']}",
            hollow=row["phase"] == "evicted",
        )
        for state, row in rows.items()
    )
    decided = {(row["source"], row["target"]): row for row in world.rows["edges"]}
    lines = []
    for parent, state in pairs:
        line = Line(parent, state, "state", count_text(rows[parent]["n_tokens"]))
        row = decided.get((parent, state))
        lines.append(_decided(line, row) if row else line)
    note = "on state edges: tokens of state"
    return Drawing(world.name or "states", marks, tuple(lines), tuple(_deviations(world.rows["edges"])), note)


def _decided(line: Line, row: Row) -> Line:
    how = row["actual_how"] or row["chosen"]
    parts = [f"{row['source']} → {row['target']}: {how} on {row['actual_worker'] or row['worker']}"]
    parts.append(f"{counted(row['n_tokens'], 'token')}, {bytes_text(row['nbytes'] or 0)} to move")
    parts.append(f"{seconds_text(row['predicted_seconds'])} predicted, {seconds_text(row['actual_seconds'])} measured")
    if row["reason"]:
        parts.append(row["reason"])
    return replace(line, label=count_text(row["n_tokens"]), how=how, nbytes=row["nbytes"] or 0, title="\n".join(parts))


def _deviations(edges: list[Row]) -> list[str]:
    return [
        f"{row['source']} → {row['target']}: planned {row['chosen']}, did {row['actual_how']}"
        + (f", because {row['because']}" if row["because"] else "")
        for row in edges
        if row["actual_how"] and row["chosen"] and row["actual_how"] != row["chosen"]
    ]


def _turn_caption(turn: Row | None) -> str:
    return f"+{count_text(turn['n_prefilled'])}" if turn and turn["n_prefilled"] is not None else ""


def _node_title(node: Mapping[str, Any]) -> str:
    if node["kind"] == "tool":
        return f"{node['id']}: calls {node['tool']}; the states that wait for it are idle"
    title = f"{node['id']}: {node['kind']}, {counted(node['known_tokens'], 'token')} known"
    title += f", up to {count_text(node['max_new_tokens'])} new" if node.get("max_new_tokens") else ""
    if node.get("unless"):
        agent, said = node["unless"]
        title += f"; skipped if {agent} says {said!r}"
    return title


def alternatives_of(row: Row) -> list[dict[str, Any]]:
    """The alternatives of a row of ``edges``."""
    return list(json.loads(row["alternatives"])) if row["alternatives"] else []


def actual_terms_of(row: Row) -> dict[str, float]:
    """The measured terms of a row of ``edges``, in seconds."""
    return dict(json.loads(row["actual_terms"])) if row["actual_terms"] else {}
