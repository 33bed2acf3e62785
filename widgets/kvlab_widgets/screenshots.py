"""Pictures of the inspector from real runs: those of the documentation, and a sheet of everything it can look like.

``python -m kvlab_widgets.screenshots RUN --out docs/images`` writes the pictures; ``--sheet DIR RUN…`` writes a page with
every size, theme and state of the view. Needs Playwright and a Chromium on the path.
"""

from __future__ import annotations

import argparse
import html
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import kvlab
from kvlab.errors import InvalidInput, MissingExtra
from kvlab.store.rows import events_of
from kvlab_widgets.export import rows_html, rows_of
from kvlab_widgets.rows import RunRows

SIZES = {"cell": (1130, 670), "laptop": (1280, 800), "screen": (1920, 1080)}
"""Name → width and height in px. A cell has the arrangement of a cell, the others that of a page."""

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SHEET = (
    "body { font: 13px system-ui; display: grid; grid-template-columns: 1fr 1fr; gap: 16px }"
    "img { width: 100%; border: 1px solid #ccc }"
)

SILENCE_MS = 6_000
"""Longer than an inspector waits for a sign of life."""


BOX = """(root, name) => {
  const panel = root.kvlab.views.find(view => view.name === name);
  const boxes = [panel.head, ...panel.body].map(model => root.kvlab.view(model).el.getBoundingClientRect());
  const [x, y] = [Math.min(...boxes.map(b => b.left)) - 8, Math.min(...boxes.map(b => b.top)) - 4];
  return { x, y, width: Math.max(...boxes.map(b => b.right)) + 8 - x, height: Math.max(...boxes.map(b => b.bottom)) + 6 - y };
}"""
"""Where a view is on the page."""


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at: the moment, the selected state, and how long nothing is heard before the picture is taken."""

    k: int | None = None
    select: str | None = None
    silence_ms: int = 0
    live: bool = False


class Camera:
    """Takes pictures in one browser."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def take(
        self, rows: RunRows, path: Path, size: str, theme: Literal["light", "dark"], view: View, *, part: str = ""
    ) -> None:
        """Write one picture to ``path``; with ``part`` only that view of it."""
        width, height = SIZES[size]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.html"
            told = rows_html(rows, theme=theme, page=size != "cell", live=view.live)
            file.write_text(told, encoding="utf-8")
            page = self._browser.new_page(viewport={"width": width, "height": height})
            try:
                page.goto(file.as_uri())
                root = page.locator('[data-kv="inspector"][data-kv-ready="1"]')
                root.wait_for()
                page.wait_for_timeout(view.silence_ms)
                if view.select:
                    root.evaluate("(root, name) => root.kvlab.select(root.kvlab.store.nodeOf.get(name))", view.select)
                if view.k is not None:
                    root.evaluate("(root, k) => root.kvlab.moveTo(k)", view.k)
                page.wait_for_timeout(400)
                page.screenshot(path=path, clip=root.evaluate(BOX, part) if part else None)
            finally:
                page.close()


@contextmanager
def camera() -> Iterator[Camera]:
    """A camera, as long as the block runs.

    Raises
    ------
    MissingExtra
        Without Playwright or without a Chromium on the path.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise MissingExtra("pictures need playwright", hint="pip install playwright") from error
    path = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if path is None:
        raise MissingExtra("pictures need a Chromium on the path", hint="apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield Camera(browser)
        browser.close()


def telling_edge(run: Any) -> dict[str, Any]:
    """The edge with most to tell: the one with the most possible roads, of these one that moved bytes.

    Raises
    ------
    InvalidInput
        If no state was handed on in ``run``.
    """
    edges = [row for row in run.tables["edges"].to_pylist() if row["actual_how"]]
    if not edges:
        raise InvalidInput(f"no state was handed on in {run.name}", hint="name a run of the tour that is done")
    moved = ("hybrid", "transfer")
    return max(edges, key=lambda row: (row["alternatives"].count('"excluded": null'), row["actual_how"] in moved))


def pictures(run: Any, out: Path) -> list[Path]:
    """Write the pictures of the documentation into ``out``; return their paths."""
    edge = telling_edge(run)
    # When the last agent has answered: what comes after, an audit, is not the run.
    chosen = View(k=run.tables["turns"].to_pylist()[-1]["seq"], select=edge["target"])
    wanted: list[tuple[str, str, Literal["light", "dark"], View, str]] = [
        ("inspector.png", "screen", "light", chosen, ""),
        ("inspector_dark.png", "screen", "dark", chosen, ""),
        ("inspector_cell.png", "cell", "light", chosen, ""),
        ("inspector_cell_dark.png", "cell", "dark", chosen, ""),
        ("inspector_decision.png", "screen", "light", chosen, "decision"),
    ]
    out.mkdir(parents=True, exist_ok=True)
    with camera() as one:
        for name, size, theme, view, part in wanted:
            one.take(rows_of(run), out / name, size, theme, view, part=part)
    return [out / name for name, *_ in wanted]


def sheet(runs: list[Any], out: Path) -> Path:
    """Write a page of all sizes, themes and states of the view into ``out``; return its path."""
    out.mkdir(parents=True, exist_ok=True)
    cut = runs[0].events.num_rows // 2
    shots: list[tuple[str, Any, View]] = [
        ("no events", RunRows, View()),
        ("waiting", RunRows, View(live=True)),
        ("disconnected", lambda: first_rows(runs[0], cut), View(live=True, silence_ms=SILENCE_MS)),
        ("half way", lambda: rows_of(runs[0]), View(k=cut)),
        ("selected", lambda: rows_of(runs[0]), View(select=telling_edge(runs[0])["target"])),
        *((run.name, lambda run=run: rows_of(run), View()) for run in runs),
    ]
    cells = []
    with camera() as one:
        for number, (title, rows, view) in enumerate(shots):
            for size in SIZES:
                for theme in THEMES:
                    path = out / f"{number}-{size}-{theme}.png"
                    one.take(rows(), path, size, theme, view)
                    said = f"{html.escape(title)}, {size}, {theme}"
                    cells.append(f'<figure><img src="{path.name}"><figcaption>{said}</figcaption></figure>')
    page = out / "sheet.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><title>contact sheet</title><style>{SHEET}</style>{''.join(cells)}",
        encoding="utf-8",
    )
    return page


def first_rows(run: Any, n: int) -> RunRows:
    """Rows of the first ``n`` events of a run, as one that is still going on shows them."""
    rows = RunRows()
    rows.feed(event for _, event in islice(events_of(run.events), n))
    return rows


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m kvlab_widgets.screenshots", description=__doc__)
    parser.add_argument("runs", nargs="+", help="runs, by name or folder; the pictures are of the first")
    parser.add_argument("--out", type=Path, help="folder for the pictures of the documentation")
    parser.add_argument("--sheet", type=Path, help="folder for the contact sheet")
    told = parser.parse_args()
    runs = [kvlab.open_run(name) for name in told.runs]
    written = [*(pictures(runs[0], told.out) if told.out else []), *([sheet(runs, told.sheet)] if told.sheet else [])]
    print("\n".join(map(str, written)))  # noqa: T201 - what the person who called it waits for


if __name__ == "__main__":
    main()
