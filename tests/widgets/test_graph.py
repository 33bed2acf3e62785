"""The state graph in a real browser, from files: one state, a handful of agents, and ten thousand states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvlab_widgets.export import rows_of, write_page
from kvlab_widgets.inspector import CAP
from kvlab_widgets.packing import as_json
from kvlab_widgets.rows import RunRows

import kvlab
from kvlab.display.quantities import count_text
from kvlab.store.events import Kind
from kvlab.store.rows import events_of

pytestmark = pytest.mark.browser

CELL = {"width": 1130, "height": 640}
"""What a cell has at 1280×800 beside the side bar."""

GRAPH = "root => root.kvlab.views[0]"
N_STATES, N_MANY = 10_000, 1_500


class Runs(dict[str, Any]):
    """Runs by name, each written when it is first asked for."""

    def __init__(self, root: Path, events: dict[str, Callable[[], list[Any]]], write: Callable[..., Path]) -> None:
        self._root, self._events, self._write = root, events, write

    def __missing__(self, name: str) -> Any:
        self[name] = kvlab.open_run(self._write(self._root / name, self._events[name]()))
        return self[name]


@pytest.fixture(scope="module")
def runs(generate: Any, review: Any, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """One state, a handful of agents, ``many`` and its first half, 10,000 as ``huge``, and a ``crowd`` of lanes."""
    events = {
        "one": lambda: generate.make_events(1),
        "demo": lambda: review.review_events("state"),
        "many": lambda: generate.make_events(N_MANY),
        "half": lambda: (whole := generate.make_events(N_MANY))[: len(whole) // 2],
        "huge": lambda: generate.make_events(N_STATES),
        "crowd": lambda: generate.make_events(400, agents=60),
    }
    return Runs(tmp_path_factory.mktemp("runs"), events, generate.write_run)


@pytest.fixture(scope="module")
def files(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``files(name, page=…)``: the exported file, written once."""
    written: dict[tuple[str, bool], Path] = {}

    def file(name: str, page: bool = False) -> Path:
        if (name, page) not in written:
            target = tmp_path_factory.mktemp("page") / "run.html"
            written[name, page] = write_page(runs[name], target, page=page)
        return written[name, page]

    return file


@pytest.fixture
def shown(files: Any, opened: Any) -> Callable[..., Any]:
    """``shown(name, page=…)``: a run's inspector, in a cell's or a page's size."""

    def show(name: str, *, page: bool = False) -> Any:
        viewport = {"width": 1920, "height": 1080} if page else CELL
        return opened(files(name, page), viewport=viewport)

    return show


def events_until(run: Any, k: int) -> list[Any]:
    """The first ``k`` events."""
    return [event for _, event in events_of(run.events.slice(0, k))]


def made(run: Any, k: int) -> int:
    """States that are made by the ``k``-th event."""
    return run.events.slice(0, k)["kind"].to_pylist().count("state.created")


def of_graph(view: Any, expression: str) -> Any:
    """Value of ``expression`` in the browser; ``g`` is the graph's view, ``s`` the rows."""
    return view.root.evaluate(f"root => {{ const g = root.kvlab.views[0], s = g.store; return {expression} }}")


def press(view: Any, name: str) -> None:
    """Click the button ``name`` of the graph's head and wait until all is drawn."""
    view.page.locator(f'[data-kv="{name}"]').click()
    settle(view)


def settle(view: Any) -> None:
    """Wait until what was asked for is drawn."""
    view.page.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 90))")


def click(view: Any, x: float, y: float) -> None:
    """Click where the graph draws ``(x, y)``."""
    where = of_graph(
        view,
        f"""(() => {{ const box = g.client.view(g.figure).el.getBoundingClientRect(), f = g.frame();
          return [box.x + f.x_scale.compute({x}), box.y + f.y_scale.compute({y})] }})()""",
    )
    view.page.mouse.click(*where)
    settle(view)


def search(view: Any, text: str) -> None:
    """Type ``text`` into the search field, and Enter."""
    view.root.focus()
    view.page.keyboard.press("/")
    view.page.locator('[data-kv="search"]').fill(text)
    view.page.keyboard.press("Enter")
    settle(view)


DRAWN = """(() => { const marks = g.layers.find(l => l.table === 'marks'), f = g.frame(), at = new Map();
  for (const { data: { u, y } } of [marks.base, marks.fresh])
    u.forEach((_, i) => at.set(`${u[i]},${y[i]}`, [f.x_scale.compute(u[i]), f.y_scale.compute(y[i])]));
  return [...at.values()] })()"""
"""Where different marks are drawn, in px."""


@pytest.mark.slow
@pytest.mark.parametrize("page", [False, True])
def test_of_ten_thousand_states_a_page_is_shown_that_can_be_told_apart(page: bool, shown: Any, runs: Any) -> None:
    view, n = shown("huge", page=page), runs["huge"].events.num_rows
    starts = set()
    for k in (n, n // 2, n // 7):
        view.move(k)
        n_states = made(runs["huge"], k)
        told = re.fullmatch(r"([\d\u202f]+) of ([\d\u202f]+) shown", view.text("shown"))
        assert told is not None
        assert told[2] == count_text(n_states)
        places = of_graph(view, DRAWN)
        assert 20 < len(places) <= CAP
        assert told[1] == count_text(
            of_graph(view, f"s.nodes.u.filter((_, i) => s.nodes.born[i] <= {k} && g.inside(i)).length")
        )
        for x, y in places:
            assert not [1 for a, b in places if (a, b) != (x, y) and abs(a - x) < 24 and abs(b - y) < 16]
        assert of_graph(view, "g.inside(root.kvlab.newest)")
        starts.add(of_graph(view, "g.figure.x_range.start"))
    assert len(starts) == 3
    assert view.errors == view.foreign() == []


def test_pages_turn_by_button_and_a_step_returns_to_the_cursor(shown: Any) -> None:
    view = shown("many")
    start = of_graph(view, "g.pages.start")
    press(view, "earlier")
    assert of_graph(view, "g.pages.start + g.pages.span") == pytest.approx(start, abs=1)
    assert not of_graph(view, "g.inside(root.kvlab.newest)")
    assert of_graph(view, "g.layers.find(l => l.table === 'marks').base.get_length()") > 20
    press(view, "later")
    assert of_graph(view, "g.inside(root.kvlab.newest)")
    press(view, "earlier")
    view.root.focus()
    view.page.keyboard.press("ArrowLeft")
    settle(view)
    assert of_graph(view, "g.inside(root.kvlab.newest)")


@pytest.mark.slow
def test_all_states_at_once_are_groups_that_lose_none(shown: Any, runs: Any) -> None:
    view, n = shown("huge"), runs["huge"].events.num_rows
    press(view, "all")
    assert view.text("shown") == f"{count_text(N_STATES)} of {count_text(N_STATES)} shown, grouped"
    numbers = list(map(int, of_graph(view, "g.numbers.data.text")))
    assert sum(numbers) == N_STATES
    assert 12 < len(numbers) <= CAP
    assert of_graph(view, DRAWN) == []
    view.move(n // 2)
    assert sum(map(int, of_graph(view, "g.numbers.data.text"))) == made(runs["huge"], n // 2)
    agents = Counter(event.agent for event in events_until(runs["huge"], n // 2) if event.kind is Kind.STATE_CREATED)
    lanes = of_graph(view, "[g.numbers.data.text, g.numbers.data.y.map(y => s.lanes[-y])]")
    by_lane: Counter[str] = Counter()
    for number, lane in zip(*lanes, strict=True):
        by_lane[lane] += int(number)
    assert by_lane == agents
    # A group opens to the page that has its states.
    wanted = of_graph(view, "g.groups.per * 2.5")
    click(view, wanted, -3)
    low, high = of_graph(view, "[g.figure.x_range.start, g.figure.x_range.end]")
    assert low <= wanted <= high
    assert "grouped" not in view.text("shown")


def test_the_strip_counts_all_states_and_a_click_moves_the_window(shown: Any) -> None:
    view = shown("many")
    u, (low, high), bars = of_graph(
        view, "[s.nodes.u, [g.strip.x_range.start, g.strip.x_range.end], [g.density.data.left, g.density.data.top]]"
    )
    bins = Counter(min(179, int((x - low) / (high - low) * 180)) for x in u)
    assert bars[1] == pytest.approx([bins[i] / max(bins.values()) for i in sorted(bins)])
    assert of_graph(view, "g.now.location") == of_graph(view, "s.nodes.u[root.kvlab.newest]")
    box = view.root.evaluate(
        f"root => ({GRAPH})(root).client.view(({GRAPH})(root).strip).el.getBoundingClientRect().toJSON()"
    )
    wanted = of_graph(view, f"g.client.frame(g.strip).x_scale.invert({box['width'] / 3})")
    view.page.mouse.click(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    settle(view)
    assert of_graph(view, "g.figure.x_range.start") < wanted < of_graph(view, "g.figure.x_range.end")
    pane = of_graph(view, "[g.pane.data.left[0], g.pane.data.right[0]]")
    assert pane == of_graph(view, "[g.figure.x_range.start, g.figure.x_range.end]")


def _begun(run: Any) -> dict[str, float]:
    """When each state was begun: when its edge was decided, else with the work that made it."""
    began, works, seconds, latest = {}, {}, run.at(1).run["started_ns"], 0.0
    for _, event in events_of(run.events):
        latest = max(latest, (event.time_ns - seconds) / 1e9)
        if event.kind is Kind.DECISION:
            began.setdefault(event.detail["target"], latest)
        if event.kind is Kind.ACTION_STARTED:
            works |= dict.fromkeys(str(event.agent).split(", "), latest)
        if event.kind is Kind.STATE_CREATED:
            work = works.get(event.detail["name"], works.get(event.agent, latest))
            began.setdefault(event.state, began.get(event.agent, work))
    return began


@pytest.mark.parametrize("name", ["demo", pytest.param("many", marks=pytest.mark.slow)])
def test_x_is_layer_or_time_and_both_only_grow(name: str, shown: Any, runs: Any) -> None:
    view = shown(name)
    assert view.page.locator('[data-kv="layer"]').get_attribute("aria-pressed") == "true"
    if name == "many":
        press(view, "chains")
    nodes = rows_of(runs[name]).take()["tables"]["nodes"]
    assert of_graph(view, "s.nodes.u") == nodes["x"]
    press(view, "time")
    assert view.page.locator('[data-kv="time"]').get_attribute("aria-pressed") == "true"
    assert view.page.locator('[data-kv="layer"]').get_attribute("aria-pressed") == "false"
    began = _begun(runs[name])
    of_state = of_graph(view, "Object.fromEntries(s.nodes.u.map((u, i) => [s.nodes.id[i], u]))")
    assert of_state == pytest.approx({state: began[state] for state in of_state}, rel=1e-5)
    assert of_graph(view, "g.inside(root.kvlab.newest)")
    for table in ("edges", "data"):  # from one state to a later one: nothing is handed back in time
        assert of_graph(view, f"s.{table}.u0.every((u, i) => u < s.{table}.u1[i])")
    press(view, "layer")
    assert of_graph(view, "s.nodes.u") == nodes["x"]
    assert view.errors == []


@pytest.mark.parametrize(
    "mode", ["layer", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("time", "chains"))]
)
def test_what_comes_later_moves_nothing(mode: str, shown: Any, runs: Any) -> None:
    events = [event for _, event in events_of(runs["many"].events)]
    rows = RunRows()
    rows.feed(events[: len(events) // 2])
    rows.take()
    view = shown("half")
    if mode != "chains":
        press(view, "chains")
        press(view, mode)
    before = of_graph(view, "s.nodes.u")
    start = of_graph(view, "g.pages.start")
    for end in (len(events) // 2 + 1, len(events) // 2 + 700, len(events)):
        rows.feed(events[rows.n_events : end])
        view.root.evaluate("(root, text) => root.kvlab.heard(JSON.parse(text))", as_json(rows.take()))
        view.drawn(end)
        after = of_graph(view, "s.nodes.u")
        assert after[: len(before)] == before
        before = after
    assert len(before) == N_MANY
    assert of_graph(view, "g.pages.start") > start
    assert of_graph(view, "g.inside(root.kvlab.newest)")
    assert view.errors == []


def test_in_time_too_no_more_than_the_cap_is_shown(shown: Any, runs: Any) -> None:
    view, n = shown("many"), runs["many"].events.num_rows
    press(view, "time")
    for k in (n, n // 3):
        view.move(k)
        assert 20 < len(of_graph(view, DRAWN)) <= CAP
        assert " shown" in view.text("shown")
    press(view, "all")
    assert view.text("shown").endswith("shown, grouped")


def kin(nodes: Any, name: str, towards: str, steps: int | None) -> list[int]:
    """Rows of the nodes that :func:`test_kin_are_filtered_and_counted` asks for."""
    above: list[list[int]] = nodes["parents"]
    below: dict[int, list[int]] = {}
    for node, parents in enumerate(above):
        for parent in parents:
            below.setdefault(parent, []).append(node)
    found = edge = {nodes["id"].index(name)}
    while edge and (steps is None or steps > 0):
        edge = {other for node in edge for other in (above[node] if towards == "up" else below.get(node, ()))} - found
        found, steps = found | edge, None if steps is None else steps - 1
    return sorted(found)


def test_kin_are_filtered_and_counted(shown: Any, runs: Any) -> None:
    nodes = rows_of(runs["many"]).take()["tables"]["nodes"]
    view = shown("many")
    for text, *asked in (
        ("ancestors(s1200, 3)", "s1200", "up", 3),
        ("descendants(s1171, 2)", "s1171", "down", 2),
        ("ancestors( s120 )", "s120", "up", None),
    ):
        found = kin(nodes, *asked)
        assert len(found) > 2
        search(view, text)
        assert of_graph(view, "[...g.matches]") == found
        assert f"{len(found)} match {text}" in view.text("shown")
        assert of_graph(view, "g.kin.data.x.length") > 0  # the window went where they are
        assert of_graph(view, "root.kvlab.told.fades.every(glyph => glyph.line_alpha.value < 0.5)")
        view.page.keyboard.press("Escape")
        settle(view)
        assert of_graph(view, "g.matches") is None
    assert "match" not in view.text("shown")
    assert of_graph(view, "root.kvlab.told.fades.every(glyph => glyph.line_alpha.value === 1)")


def test_words_find_states_by_agent_and_operator_and_enter_goes_on(shown: Any, runs: Any) -> None:
    rows = [row for row in runs["many"].tables["states"].to_pylist() if row["operator"]]
    view = shown("many")
    for text, matches in (
        ("merge", [row["state"] for row in rows if row["operator"] == "merge"]),
        ("critic-2", [row["state"] for row in rows if row["agent"] == "critic-2"]),
    ):
        search(view, text)
        assert f"{len(matches)} match {text}" in view.text("shown")
        view.page.keyboard.press("Enter")
        assert view.root.get_attribute("data-kv-selected") == matches[0]
        view.page.keyboard.press("Enter")
        assert view.root.get_attribute("data-kv-selected") == matches[1]
        settle(view)
        assert of_graph(view, "g.inside(root.kvlab.selected)")
        view.page.keyboard.press("Escape")
    search(view, "s77")
    assert view.root.get_attribute("data-kv-selected") == "s77"
    search(view, "ancestors(s123456)")
    assert view.page.locator('[data-kv="search"]').get_attribute("aria-invalid") == "true"


def test_selecting_fades_what_is_unrelated(shown: Any) -> None:
    view = shown("demo")
    alphas = "root.kvlab.told.fades.map(glyph => glyph.line_alpha.value ?? glyph.line_alpha)"
    search(view, "s3")
    assert set(of_graph(view, alphas)) == {0.22}
    row = of_graph(view, "s.nodeOf.get('s3')")
    related = of_graph(
        view,
        f"[{row}, ...s.nodes.parents[{row}], ...(s.children.get({row}) ?? [])].map(i => [s.nodes.u[i], s.nodes.y[i]])",
    )
    kin = of_graph(view, "g.kin.data.x.map((x, i) => [x, g.kin.data.y[i]])")
    assert len(related) > 1
    assert all(place in kin for place in related)
    view.root.focus()
    view.page.keyboard.press("Escape")
    assert set(of_graph(view, alphas)) == {1}


def _chains(nodes: dict[str, list[Any]]) -> list[list[int]]:
    """Runs of states of which each is the only child of the one before, its only parent, in the same lane."""
    n_children = Counter(parent for parents in nodes["parents"] for parent in parents)
    chain_of: dict[int, list[int]] = {}
    chains = []
    for node, parents in enumerate(nodes["parents"]):
        if len(parents) == 1 and n_children[parents[0]] == 1 and nodes["y"][parents[0]] == nodes["y"][node]:
            chain_of[node] = chain_of[parents[0]]
        else:
            chain_of[node] = []
            chains.append(chain_of[node])
        chain_of[node].append(node)
    return [chain for chain in chains if len(chain) > 1]


def test_chains_are_one_mark_each_until_they_are_opened(shown: Any, runs: Any) -> None:
    nodes = rows_of(runs["many"]).take()["tables"]["nodes"]
    chains = _chains(nodes)
    assert len(chains) > 50
    view = shown("many")
    assert view.page.locator('[data-kv="chains"]').get_attribute("aria-pressed") == "true"
    u = of_graph(view, "s.nodes.u")
    folded = Counter(zip(u, nodes["y"], strict=True))
    assert {(u[chain[0]], nodes["y"][chain[0]]): len(chain) for chain in chains} == {
        place: n for place, n in folded.items() if n > 1
    }
    assert of_graph(view, "s.edges.u0.every((u, i) => u <= s.edges.u1[i])")
    counts = of_graph(view, "g.counts.data.x.map((x, i) => [x, g.counts.data.y[i], g.counts.data.text[i]])")
    assert counts
    assert all(text == f"×{folded[x, y]}" for x, y, text in counts)
    x, y, _ = counts[len(counts) // 2]
    chain = next(chain for chain in chains if (u[chain[0]], nodes["y"][chain[0]]) == (x, y))
    click(view, x, y)
    after = of_graph(view, "s.nodes.u")
    assert len({after[node] for node in chain}) == len(chain)
    assert view.root.get_attribute("data-kv-selected") == nodes["id"][chain[-1]]
    assert [after[i] for i in range(len(u)) if u[i] < x] == [u[i] for i in range(len(u)) if u[i] < x]
    press(view, "chains")
    assert of_graph(view, "s.nodes.u") == nodes["x"]
    press(view, "chains")
    assert of_graph(view, "s.nodes.u") == u


def test_a_chain_opens_by_keyboard(shown: Any, runs: Any) -> None:
    nodes = rows_of(runs["many"]).take()["tables"]["nodes"]
    chain = max(_chains(nodes), key=len)
    view = shown("many")
    search(view, nodes["id"][chain[0]])
    button = view.page.locator('[data-kv="expand"]')
    assert button.inner_text() == f"expand ×{len(chain)}"
    button.focus()
    view.page.keyboard.press("Enter")
    settle(view)
    assert button.is_hidden()
    assert len(set(of_graph(view, f"{chain}.map(i => s.nodes.u[i])"))) == len(chain)


def test_every_button_of_the_head_is_reached_and_pressed_by_keyboard(shown: Any) -> None:
    view = shown("many")
    names = ["earlier", "later", "pages", "all", "chains", "layer", "time", "table-graph"]
    view.page.locator('[data-kv="earlier"]').focus()
    met = []
    for _ in names:
        met.append(view.page.evaluate("() => { let e = document.activeElement; while (e.shadowRoot?.activeElement) "
                                      "e = e.shadowRoot.activeElement; return e.dataset.kv }"))  # fmt: skip
        view.page.keyboard.press("Tab")
    assert met == names
    view.page.locator('[data-kv="time"]').focus()
    view.page.keyboard.press("Space")
    settle(view)
    assert of_graph(view, "g.time") is True


LABELS = """(() => { const pen = document.createElement('canvas').getContext('2d'), f = g.frame(), d = g.labels.data;
  pen.font = `11px ${getComputedStyle(g.client.at(g.head)).fontFamily}`;
  return d.x.map((x, i) => { const left = f.x_scale.compute(x) + d.dx[i], y = f.y_scale.compute(d.y[i]) + d.dy[i];
    return { left, right: left + pen.measureText(d.text[i]).width, top: y - 7, bottom: y + 7, text: d.text[i] } }) })()"""


@pytest.mark.parametrize("name", ["demo", pytest.param("many", marks=pytest.mark.slow)])
def test_labels_of_states_never_overlap_and_stay_inside(name: str, shown: Any, runs: Any) -> None:
    view, n = shown(name), runs[name].events.num_rows
    frame = of_graph(view, "(({ left, right, top, bottom }) => ({ left, right, top, bottom }))(g.frame().bbox)")
    several = 0
    for k in (n, n // 2, 2 * n // 3):
        view.move(k)
        near = of_graph(
            view, "s.nodes.u.map((_, i) => i).filter(i => s.nodes.born[i] <= root.kvlab.k && g.inside(i)).slice(-14)"
        )
        for chosen in near[::3]:
            for hovered in near[::2]:
                labels = of_graph(view, f"(root.kvlab.select({chosen}), g.hover({hovered}), {LABELS})")
                several += len(labels) > 1
                assert any(label["text"].startswith(of_graph(view, f"s.nodes.id[{hovered}] + ' '")) for label in labels)
                for i, one in enumerate(labels):
                    assert one["left"] >= frame["left"]
                    assert one["right"] <= frame["right"] + 1
                    for other in labels[i + 1 :]:
                        apart = one["right"] < other["left"] or other["right"] < one["left"]
                        assert apart or one["bottom"] < other["top"] or other["bottom"] < one["top"]
    assert several > 3


CUT = """[g.head, g.key].flatMap(div => {
  const box = g.client.view(div).el.getBoundingClientRect();
  const out = r => r.right > box.right + 1 || r.left < box.left - 1 || r.bottom > box.bottom + 1;
  const hides = e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'hidden';
  return [...g.client.at(div).querySelectorAll('span, button, h3')]
    .filter(e => e.getBoundingClientRect().width && (out(e.getBoundingClientRect()) || hides(e))).map(e => e.outerHTML) })"""
"""What of the head and of the legend is not to be seen."""


@pytest.mark.parametrize("name", ["one", pytest.param("demo", marks=pytest.mark.slow), "many"])
def test_head_and_legend_are_not_clipped_in_a_cell(name: str, shown: Any) -> None:
    view = shown(name)
    words = {word.lstrip("●▲◆▼■◇ ") for word in of_graph(view, "g.client.at(g.key).innerText").splitlines()}
    wanted = {
        "one": {"materialize"},
        "demo": {"materialize", "resume", "planned", "text", "in place"},
        "many": {"materialize", "fork", "resume", "merge", "evicted", "in place", "transfer", "recompute", "hybrid"},
    }[name]
    assert wanted <= words
    if name == "one":
        assert words == wanted, "what the run does not have needs no key"
    assert of_graph(view, CUT) == []


@pytest.mark.parametrize("name", [pytest.param("one", marks=pytest.mark.slow), "demo"])
def test_a_small_run_is_shown_whole_without_what_only_many_need(name: str, shown: Any, runs: Any) -> None:
    view, n = shown(name), runs[name].events.num_rows
    for k in (n, 0, n // 2, n):
        view.move(k)
        assert view.text("shown") == ""
        assert of_graph(view, "g.pages.whole && !g.pages.grouped")
    assert of_graph(view, f"{DRAWN}.length") == of_graph(view, "s.nodes.u.length") > 0
    for button in ("earlier", "pages", "chains", "expand"):
        assert view.page.locator(f'[data-kv="{button}"]').is_hidden()
    press(view, "time")
    assert of_graph(view, f"{DRAWN}.length") == of_graph(view, "s.nodes.u.length")
    assert view.errors == []


def test_what_is_planned_is_small_and_full_and_what_was_evicted_large_and_hollow(shown: Any) -> None:
    view = shown("demo")
    glyphs = """(name => { const [one] = g.layers.filter(l => l.table === name), model = one.base;
      const glyph = g.figure.renderers.find(r => r.data_source === model).glyph;
      return [glyph.size.value, glyph.line_color.value ?? glyph.line_color.field ?? null] })"""
    planned, drawn = of_graph(view, f"{glyphs}('plan')"), of_graph(view, f"{glyphs}('marks')")
    assert planned[0] < 0.7 * drawn[0]
    assert planned[1] is None
    assert drawn[1] == "fill"


def test_more_lanes_than_fit_are_named_and_follow_the_cursor(shown: Any, runs: Any) -> None:
    view, n = shown("crowd"), runs["crowd"].events.num_rows
    tops = set()
    for k in (n, n - 40, n // 2, 60):
        view.move(k)
        assert of_graph(view, "g.inside(root.kvlab.newest)")
        assert re.search(r"\d+ of 60 lanes", view.text("shown"))
        assert len(of_graph(view, DRAWN)) <= CAP
        tops.add(of_graph(view, "g.pages.top"))
    assert len(tops) > 1
