"""Views of kvlab's runs on Bokeh. kvlab finds them through the entry-point group ``kvlab.views``.

Importing it loads neither Bokeh nor Panel; each function below loads what it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["inspect", "serve", "write_page"]


def inspect(run: Any, **options: Any) -> Any:
    """The inspector of ``run`` for a cell; see :class:`kvlab_widgets.notebook.CellInspector`."""
    from kvlab_widgets.notebook import CellInspector

    return CellInspector(run, **options)


def serve(run: Any, *, port: int = 0) -> None:
    """Serve the inspector of ``run`` on 127.0.0.1 until Ctrl-C; see :func:`kvlab_widgets.page.serve`."""
    from kvlab_widgets.page import serve

    serve(run, port=port)


def write_page(run: Any, path: str | Path, **options: Any) -> Path:
    """Write the inspector of ``run`` to one HTML file; see :func:`kvlab_widgets.export.write_page`."""
    from kvlab_widgets.export import write_page

    return write_page(run, path, **options)
