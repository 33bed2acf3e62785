"""What an exported page says of a real run, at every position of its cursor, is what the store says of that moment.

The page is opened from its file. What it should say is folded here from the events, and written with kvlab's own words for
numbers; every cell of every table is compared, then what the views say beside their pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.export import write_page

import kvlab
from kvlab.display.decision_quality import decision_quality
from kvlab.display.drawing import actual_terms_of, alternatives_of
from kvlab.display.inequality import inequalities, inequality_formula
from kvlab.display.quantities import NONE, bytes_text, count_text, seconds_text
from kvlab.display.sentences import sentence
from kvlab.store.events import Event, Kind
from kvlab.store.fold import Row, World
from kvlab.store.rows import events_of
from kvlab.workloads.review import review

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

TABLES = ("graph", "lineage", "memory", "decision", "quality", "timeline")
CONTEXT = "Keys and values of a prefix are the same for every question that follows it. " * 6
ROADS = {
    "planner→reviewer-1": ("transfer", "worker-1"),
    "planner→reviewer-2": ("hybrid", "worker-1"),
    "planner→reviewer-3": ("recompute", "worker-1"),
}

READ = """async (root, tables) => {
  const client = root.kvlab, view = name => client.views.find(one => one.name === name), told = [];
  const cells = table => table ? [...table.rows].map(row => [...row.cells].map(cell => cell.textContent)) : null;
  const text = (div, name) => client.at(div)?.querySelector(`[data-kv="${name}"]`)?.textContent ?? null;
  for (let k = 0; k <= client.store.n; k++) {
    client.moveTo(k);
    while (root.dataset.kvDrawn !== String(k)) await new Promise(done => setTimeout(done, 4));
    const found = { now: client.bar.ui("now").textContent, position: client.bar.ui("position").textContent };
    for (const name of tables) found[name] = cells(client.at(view(name).table)?.querySelector("table"));
    if (!tables.length) {
      found.events = cells(client.at(view("events").rows)?.querySelector("table"));
      found.dots = client.layersOf("quality")
        .reduce((n, layer) => n + layer.base.get_length() + layer.fresh.get_length(), 0);
      found.inequality = text(view("decision").rows, "inequality");
      for (const [name, place] of [["quality", view("quality").told], ["card", view("lineage").card]]) {
        const facts = [...client.at(place)?.querySelectorAll("dt") ?? []];
        found[name] = Object.fromEntries(facts.map(dt => [dt.textContent, dt.nextElementSibling.textContent]));
      }
    }
    told.push(found);
  }
  return told;
}"""


class Moments:
    """The store's fold, one event further at a time, and what of its past only a fold on the way can know."""

    def __init__(self, events: list[Event]) -> None:
        self.events, self.world, self.k = events, World.empty(), 0
        self.made_on: dict[str, str] = {}
        self.ended: list[tuple[Row, Row | None]] = []

    def step(self) -> None:
        event = self.events[self.k]
        self.world.apply(event)
        self.k += 1
        world = self.world
        if event.kind is Kind.STATE_CREATED:
            row = self.state(event.state)
            segment = world.find("segments", row["segments"][-1]) or {}
            self.made_on[str(event.state)] = (
                segment.get("worker") or (world.find("agents", event.agent) or {})["worker"]
            )
        if event.kind in (Kind.ACTION_FINISHED, Kind.ACTION_FAILED):
            first = str(event.agent).split(", ", 1)[0]
            # An action of several pieces of work has one row, which tells of the last of them; here each is kept.
            self.ended.append((dict(world.find("operators", event.action) or {}), self.edge_to(first)))

    def state(self, name: Any) -> Row:
        return self.world.find("states", name) or {}

    def edge_to(self, *names: str) -> Row | None:
        return next(
            (row for row in reversed(self.world.rows["edges"]) if row["target"] in names and row["chosen"]), None
        )

    def since_start(self, time_ns: int) -> str:
        return seconds_text((time_ns - self.world.run.get("started_ns", time_ns)) / 1e9)

    @property
    def states(self) -> list[Row]:
        return [row for row in self.world.rows["states"] if row["operator"]]

    def own_tokens(self, row: Row) -> int:
        return row["n_tokens"] - max((self.state(parent)["n_tokens"] for parent in row["parents"]), default=0)

    def holders(self, row: Row) -> list[str]:
        held = [set(self.world.held.get(segment, ())) for segment in row["segments"]]
        return sorted(set.intersection(*held)) if held else []

    # -- what each table says

    def graph(self) -> list[list[str]]:
        if self.world.flow == "text":  # no state is made; what is drawn are turns
            return [self._turn_row(row) for row in self.world.rows["turns"][::-1]]
        return [self._graph_row(row) for row in self.states[::-1][:300]]

    def _turn_row(self, row: Row) -> list[str]:
        n_tokens, own = row["prompt_tokens"] + row["n_generated"], row["n_prefilled"] + row["n_generated"]
        return [row["agent"], row["agent"], "resume", "", count_text(n_tokens), count_text(own), NONE, row["worker"], "", "",
                "exact"]  # fmt: skip

    def _graph_row(self, row: Row) -> list[str]:
        edge = self.edge_to(row["agent"], row["state"])
        return [
            row["state"], row["name"] or row["agent"], row["operator"], ", ".join(row["parents"]),
            count_text(row["n_tokens"]), count_text(self.own_tokens(row)), bytes_text(row["nbytes"]),
            self.made_on[row["state"]], (edge["actual_how"] or edge["chosen"]) if edge else "", row["phase"],
            "exact" if row["exact"] else "approximate",
        ]  # fmt: skip

    def lineage(self) -> list[list[str]]:
        rows: list[list[str]] = []
        if self.world.flow == "text" and self.world.rows["turns"]:
            told = self._turn_row(self.world.rows["turns"][-1])
            n_shared = self.world.rows["turns"][-1]["n_reused"]
            return [[told[0], told[1], told[2], count_text(n_shared), told[5], NONE]]
        row = self.states[-1] if self.states else None
        while row:
            own = self.own_tokens(row)
            rows.insert(0, [row["state"], row["name"] or row["agent"], row["operator"], count_text(row["n_tokens"] - own),
                            count_text(own), bytes_text(row["nbytes"])])  # fmt: skip
            row = self.state(row["parents"][0]) if row["parents"] else None
        return rows

    def memory(self) -> dict[str, list[str]]:
        workers = {row["worker"]: row for row in self.world.rows["workers"]}
        told = {}
        for name in {*workers, *self.world.sampled}:
            alive = [row for copies in self.world.held.values() for row in copies.values() if row["worker"] == name]
            of = {"map": sum(row["nbytes"] for row in alive if row["how"] == "map")}
            of["received"] = sum(row["received_bytes"] for row in alive)
            every = workers[name]["kv_bytes"] if name in workers else 0
            sample = next((row for row in reversed(self.world.rows["memory"]) if row["worker"] == name), {})
            known = sample if name in self.world.sampled else {}
            told[name] = [*map(bytes_text, (every - of["received"] - of["map"], of["received"], of["map"], every)),
                          bytes_text(known.get("nbytes")), bytes_text(known.get("pss_bytes"))]  # fmt: skip
        return told

    def decision(self) -> list[dict[str, str]]:
        row = self.decided
        if row is None:
            return []
        told = []
        for one in alternatives_of(row):
            out, chosen = one.get("excluded"), (one["how"], one["worker"]) == (row["chosen"], row["worker"])
            cells = {"alternative": one["how"] + (" ✓" if chosen and not out else ""), "on": one["worker"], "": out or "",
                     "missing": count_text(one["missing_tokens"])}  # fmt: skip
            if not out:
                cells |= {"seconds": seconds_text(one["seconds"]), "bytes": bytes_text(one["nbytes"] or 0)}
                cells |= {name: seconds_text(value) for name, value in one["terms"].items()}
            told.append(cells)
        if row["actual_how"]:
            told.append(
                {"alternative": f"did {row['actual_how']}", "on": row["actual_worker"], "": row["because"] or "",
                 "seconds": seconds_text(row["actual_seconds"]), "bytes": bytes_text(row["actual_nbytes"])}
                | {name: seconds_text(value) for name, value in actual_terms_of(row).items()}
            )  # fmt: skip
        return [_known(cells) for cells in told]

    def quality(self) -> list[list[str]]:
        rows = []
        done = [row for row in self.world.rows["edges"] if row["chosen"] and row["actual_seq"]]
        for row in sorted(done, key=lambda row: -row["actual_seq"]):
            kept = row["chosen"] == row["actual_how"] and row["predicted_seconds"]
            off = (
                f"{100 * (row['actual_seconds'] / row['predicted_seconds'] - 1):+.0f} %".replace("-", "−")
                if kept
                else NONE
            )
            regret = NONE if row["regret"] is None else f"{100 * row['regret']:.0f} %"
            rows.append([row["edge"], row["chosen"], row["actual_how"], seconds_text(row["predicted_seconds"]),
                         seconds_text(row["actual_seconds"]), off, regret, row["because"] or ""])  # fmt: skip
        return rows

    def timeline(self) -> list[list[str]]:
        rows = []
        for row, edge in reversed(self.ended):
            how = (edge["actual_how"] or edge["chosen"]) if edge else ""
            rows.append([row["worker"], row["op"], row["agent"], self.since_start(row["started_ns"]),
                         self.since_start(row["finished_ns"]), seconds_text(row["seconds"]), how])  # fmt: skip
        return rows[:300]

    # -- what is said beside the pictures

    def events_shown(self, shown: list[list[str]]) -> list[list[str]]:
        """What the rows of the numbers in ``shown`` should be."""
        rows = []
        for number in (int(row[0].replace("\u202f", "")) for row in shown):
            event = self.events[number - 1]
            began = self.events[0].time_ns if self.events[0].kind is Kind.RUN_STARTED else event.time_ns
            rows.append(
                [count_text(number), seconds_text((event.time_ns - began) / 1e9), str(event.kind), sentence(event)]
            )
        return rows

    @property
    def decided(self) -> Row | None:
        """The last decision."""
        return next((row for row in reversed(self.world.rows["edges"]) if row["chosen"]), None)

    def inequality(self) -> str | None:
        told = inequalities(self.decided) if self.decided else []
        return "\n".join([inequality_formula(self.decided), *told]) if self.decided and told else None

    def quality_told(self) -> dict[str, str]:
        return decision_quality(self.world).lines

    def card(self) -> dict[str, str]:
        row = self.states[-1]
        children = [one["state"] for one in self.states if row["state"] in one["parents"]]
        own = f"{count_text(self.own_tokens(row))} of them its own ({bytes_text(row['nbytes'])})"
        return {
            "tokens": f"{count_text(row['n_tokens'])}, {own}",
            "copies": ", ".join(self.holders(row)) or "no worker has all of it",
            "from": ", ".join(row["parents"]) or NONE,
            "to": ", ".join(children) or NONE,
        }


def _ordered(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """By alternative and worker: which of them comes first is the view's matter."""
    return sorted(rows, key=lambda cells: (cells["alternative"], cells["on"]))


def _known(cells: dict[str, str]) -> dict[str, str]:
    """Without what is not known."""
    return {name: cell for name, cell in cells.items() if cell not in (NONE, "")}


@pytest.fixture(scope="module")
def tiny_lab(make_lab: Callable[..., Any]) -> Iterator[Any]:
    """Two workers with the tiny model, a slow link between them."""
    with make_lab(same_host="frames", link_rate="16 Mbit/s", kv_budget="1 GiB") as lab:
        yield lab


@pytest.fixture(scope="module")
def tiny_run(tiny_lab: Any) -> Any:
    """The review workflow: every road, each audited."""
    run = tiny_lab.run(review(CONTEXT, max_new_tokens=6), overrides=ROADS, audit=True).wait()
    return kvlab.open_run(run.path)


@pytest.fixture(scope="module")
def tiny_text(tiny_lab: Any) -> Any:
    """The same as textflow."""
    return kvlab.open_run(tiny_lab.run(review(CONTEXT, max_new_tokens=6), flow="text").wait().path)


@pytest.fixture(scope="module")
def demo_run(smollm2: Path, kvlab_folders: Path) -> Any:
    """The review workflow as the demo runs it, on SmolLM2."""
    from kvlab.progress import Progress
    from kvlab.runtime.lab import Lab

    with Lab(kv_budget="2 GiB", progress=Progress("nothing")) as lab:
        return kvlab.open_run(lab.run(review()).wait().path)


@pytest.mark.parametrize(
    "which",
    [
        "tiny_run",
        pytest.param("tiny_text", marks=pytest.mark.slow),
        pytest.param("demo_run", marks=[pytest.mark.model, pytest.mark.slow]),
    ],
)
def test_every_moment_is_the_stores(which: str, request: Any, opened: Any, tmp_path: Path) -> None:
    run = request.getfixturevalue(which)
    shown = opened(write_page(run, tmp_path / "run.html"))
    natively = shown.root.evaluate(READ, [])
    for name in TABLES:
        shown.page.locator(f'[data-kv="table-{name}"]').click()
    shown.move(0)
    shown.move(1)
    tables = shown.root.evaluate(READ, list(TABLES))
    events = [event for _, event in events_of(run.events)]
    assert len(natively) == len(tables) == len(events) + 1
    moments = Moments(events)
    for k, (beside, told) in enumerate(zip(natively, tables, strict=True)):
        if k:
            moments.step()
        said = sentence(events[k - 1]) if k else "before the first event"
        for found in (beside, told):
            assert found["now"] == said
            assert found["position"] == f"{count_text(k)} / {count_text(len(events))}"
        for name in ("graph", "lineage", "quality", "timeline"):
            assert told[name][1:] == getattr(moments, name)(), (name, k, said)
        assert {row[0]: row[1:] for row in told["memory"][1:]} == moments.memory(), (k, said)
        head, *rows = told["decision"]
        # Where the bytes would come from is the cost model's word; its own test compares it with decide().
        decided = [_known({**dict(zip(head, row, strict=True)), "from": ""}) for row in rows]
        assert _ordered(decided) == _ordered(moments.decision()), (k, said)
        assert beside["events"][1:] == moments.events_shown(beside["events"][1:]), (k, said)
        assert beside["inequality"] == moments.inequality(), (k, said)
        assert beside["dots"] == len(moments.quality()), (k, said)
        if moments.quality():
            assert beside["quality"] == moments.quality_told(), (k, said)
        if moments.states:
            assert moments.card().items() <= beside["card"].items(), (k, said)
    assert shown.errors == []
    assert shown.foreign() == []
