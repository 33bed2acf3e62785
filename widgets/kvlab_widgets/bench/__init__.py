"""How fast the inspector is: ``kvlab bench inspector``, on a generated run, in the system's Chromium.

Importing it loads neither Bokeh nor a browser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["run"]


def run(out: Path, **options: Any) -> dict[str, Any]:
    """Measure everything and write ``out/summary.json``; see :func:`kvlab_widgets.bench.inspector.run`."""
    from kvlab_widgets.bench.inspector import run

    return run(out, **options)
