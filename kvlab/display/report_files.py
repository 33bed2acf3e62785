"""Files of a report's folder for other programs: Parquet tables and a trace."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kvlab.display.report_runs import Told
from kvlab.display.timeline_picture import spans
from kvlab.store.fold import World

FILES = {"states.parquet": "states", "decisions.parquet": "edges", "memory.parquet": "memory"}
"""File → table of :mod:`kvlab.store.schema`."""

_US = 1e6


def table_files(told: Told) -> dict[str, pa.Table]:
    """File → table of all runs, with the run's label as first column."""
    return {
        file: pa.concat_tables([_labelled(told, name, *one) for one in told.labelled]) for file, name in FILES.items()
    }


def trace(told: Told) -> dict[str, Any]:
    """Chrome's trace format: a run is a process, a worker a thread, times in µs since the run began (measured).

    Source: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
    """
    found: list[dict[str, Any]] = []
    for process, (label, world) in enumerate(told.labelled, 1):
        found.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": label}})
        threads: dict[str, int] = {}
        for span in spans(world):
            if span.worker not in threads:
                thread = threads[span.worker] = len(threads) + 1
                args = {"name": span.worker}
                found.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": args})
            found.append(
                {
                    "ph": "X",
                    "name": f"{span.op} {span.agent}",
                    "cat": span.how or span.op,
                    "pid": process,
                    "tid": threads[span.worker],
                    "ts": span.start * _US,
                    "dur": (span.end - span.start) * _US,
                }
            )
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _labelled(told: Told, name: str, label: str, world: World) -> pa.Table:
    table = world.table(name)
    if told.redact and "preview" in table.column_names:
        at = table.column_names.index("preview")
        table = table.set_column(at, table.schema.field(at), pa.nulls(table.num_rows, pa.string()))
    return table.add_column(0, "run", pa.array([label] * table.num_rows, pa.string()))
