"""Writing a report: a page, a summary, or a folder with everything."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pyarrow import parquet

from kvlab.display.report_files import table_files, trace
from kvlab.display.report_page import page
from kvlab.display.report_runs import Told
from kvlab.display.summary import csv_text, document, markdown
from kvlab.display.worlds import Shown
from kvlab.errors import InvalidInput
from kvlab.store.room import require_writable

COMPLETE = "_COMPLETE"
FORMS = (".html", ".md", ".json")
"""Endings of reports that are one file."""


def write_report(
    path: str | os.PathLike[str], runs: Sequence[Shown], *, title: str | None = None, redact: bool = False
) -> Path:
    """Write what came of ``runs`` to ``path`` and return it. An earlier report there is replaced.

    Parameters
    ----------
    path
        ``….html`` (one page that needs nothing else), ``….md``, ``….json``, or a folder, which gets all of them,
        ``summary.csv``, ``environment.json``, ``trace.json`` (Chrome's trace format, opens in Perfetto), the states,
        decisions and memory samples of all runs as Parquet, and ``_COMPLETE`` last.
    runs
        Saved runs, live ones, or worlds. The first stateflow run is compared with the textflow runs of its workflow.
    title
        Instead of the workflow's name.
    redact
        Leave out every text that a person or a model wrote.

    Raises
    ------
    InvalidInput
        If there are no runs, or the ending of ``path`` is none of these.
    """
    target = require_target(path)
    told = Told(runs, title, redact=redact)
    forms = {".html": page, ".md": markdown, ".json": _json}
    if target.suffix in forms and not target.is_dir():
        _write(target, forms[target.suffix](told))
        return target
    target.mkdir(parents=True, exist_ok=True)
    (target / COMPLETE).unlink(missing_ok=True)
    _write(target / "report.html", page(told))
    _write(target / "summary.json", _json(told))
    _write(target / "summary.md", markdown(told))
    _write(target / "summary.csv", csv_text(told))
    _write(target / "environment.json", json.dumps(dict(told.environments), indent=2, ensure_ascii=False) + "\n")
    _write(target / "trace.json", json.dumps(trace(told), ensure_ascii=False))
    for name, table in table_files(told).items():
        draft = target / f".{name}.{os.getpid()}"
        parquet.write_table(table, draft)
        draft.replace(target / name)
    _write(target / COMPLETE, "")
    return target


def require_target(path: str | os.PathLike[str]) -> Path:
    """``path``, once it is known that a report can be written there.

    Raises
    ------
    InvalidInput
        For another ending than those of :func:`write_report`, no name at all, or a place that may not be written.
    """
    target = Path(path)
    if not target.name:
        raise InvalidInput(f"a report needs a name, not {str(path)!r}", hint='run.report("report.html")')
    if target.suffix not in ("", *FORMS) and not target.is_dir():
        raise InvalidInput(f"a report cannot be written as {target.name!r}", hint="a folder, .html, .md or .json")
    folder = target.parent if target.suffix in FORMS and not target.is_dir() else target
    require_writable(folder, "a report", "name another place")
    return target


def _json(told: Told) -> str:
    return json.dumps(document(told), indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    """Draft, then rename: who reads at the same time sees the old report or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    # A lone surrogate in a text has no UTF-8 form; it is shown as a question mark.
    draft.write_text(text, encoding="utf-8", errors="replace")
    draft.replace(path)
