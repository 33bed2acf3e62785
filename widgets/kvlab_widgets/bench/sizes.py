"""What does not need a key: how large a run is on its way to a browser, how long it takes to place its states and to open."""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import Any

from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document

from kvlab.bench.summary import Metric, measured, median_of
from kvlab.store.events import Event, Kind
from kvlab.store.saved import SavedRun
from kvlab_widgets.bench.browser import READY, READY_MS, VIEWPORT
from kvlab_widgets.bench.stepping import p95
from kvlab_widgets.channels import DocumentChannel
from kvlab_widgets.export import write_page
from kvlab_widgets.inspector import Inspector
from kvlab_widgets.layout import Layout
from kvlab_widgets.packing import as_json, packed
from kvlab_widgets.rows import RunRows

BATCH = 6
"""Events of one batch at 60 events a second."""

BATCHES = 100


def layout(events: list[Event], rounds: int) -> dict[str, Metric]:
    """Placing all states of a run anew, each behind its parents in its agent's lane."""
    added = [
        (str(event.state), str(event.agent), event.detail["parents"])
        for event in events
        if event.kind is Kind.STATE_CREATED
    ]
    took = []
    for _ in range(rounds):
        began, places = time.perf_counter(), Layout()
        for node, lane, parents in added:
            places.place(node, lane, parents)
        took.append(1e3 * (time.perf_counter() - began))
    name = f"layout_ms_{len(added) // 1000}k"
    return {name: median_of(took, "ms")}


def sending(events: list[Event], rounds: int) -> dict[str, Metric]:
    """What a view of the run sends at first, and the time to make one more batch of rows of it.

    The size is that of the rows, which are deflated, and of the deflated models and module around them. A page's socket carries
    the rows as they are; a file and a notebook's messages carry them in base64, a third more.
    """
    rows, last = RunRows(), len(events) - BATCH * BATCHES * rounds
    began = time.perf_counter()
    rows.feed(events[:last])
    first = rows.take()
    folded = time.perf_counter() - began
    began = time.perf_counter()
    packed(first)
    packing = time.perf_counter() - began
    every = []
    for number in range(rounds):
        took = []
        for batch in range(BATCHES):
            start = last + BATCH * (number * BATCHES + batch)
            began = time.perf_counter()
            rows.feed(events[start : start + BATCH])
            as_json(rows.take())
            took.append(1e3 * (time.perf_counter() - began))
        every.append(p95(took))
    whole = RunRows()
    whole.feed(events)
    size, document = len(packed(whole.take())), Document()
    document.add_root(Inspector(b"", page=True, channel=DocumentChannel()).root)
    around = len(zlib.compress(serialize_json(document.to_json(deferred=False)).encode()))
    return {
        "view_mib": measured((size + around) / 2**20, "MiB"),
        "rows_mib": measured(size / 2**20, "MiB"),
        "rows_bytes_per_event": measured(size / len(events), "B"),
        "append_ms": median_of(every, "ms"),
        "fold_seconds": measured(folded, "s"),
        "pack_seconds": measured(packing, "s"),
    }


def page_file(browser: Any, path: Path, target: Path, rounds: int) -> dict[str, Metric]:
    """The exported page of a run: its size, and the time from asking for the file to the frame after it can be stepped."""
    write_page(SavedRun(path), target)
    took = []
    for _ in range(rounds):
        context = browser.new_context(viewport=VIEWPORT, offline=True)
        page = context.new_page()
        began = time.perf_counter()
        page.goto(target.resolve().as_uri(), wait_until="commit")
        page.wait_for_selector(READY, timeout=READY_MS)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        took.append(time.perf_counter() - began)
        context.close()
    return {"html_mib": measured(target.stat().st_size / 2**20, "MiB"), "html_open_s": median_of(took, "s")}
