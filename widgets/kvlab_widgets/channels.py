"""How an inspector and its kernel or server talk: through the page's document, or through a widget of the cell.

Both carry the same: texts to the browser, and what is looked at back. A cell has a widget for it because Panel's own
channel costs a kernel far more: it compares all models of the view for one text, sends it in three messages, and each is
acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import anywidget
import ipywidgets
import traitlets
from bokeh.models import ColumnDataSource, Div

from kvlab_widgets.controls import hear_beside_cells

Mirror = dict[str, Any]
"""What a browser says: the moment ``k`` it stands at, how many events it has (``known``), the state ``selected``, whether
it is ``live`` (moves on with the run), and the number of its question (``ask``), 0 if it asks nothing."""


class Channel(Protocol):
    """Between one inspector in a browser and Python.

    Attributes
    ----------
    told
        What the browser's end has to know; may hold Bokeh models.
    models
        Those of them that Bokeh keeps equal on both sides.
    """

    told: dict[str, Any]
    models: tuple[Any, ...]

    def say(self, text: str) -> None:
        """Send ``text`` to the browser. Returns at once; whether it arrives is not known."""
        ...

    def listen(self, heard: Callable[[Mirror], None]) -> None:
        """Have ``heard`` called with what the browser says."""
        ...


class DocumentChannel:
    """Two models in the document of a page. See :class:`Channel`."""

    def __init__(self) -> None:
        self._tail = Div(text="")
        self._mirror = ColumnDataSource({"k": [0], "known": [0], "selected": [""], "live": [True], "ask": [0]})
        self.models = (self._tail, self._mirror)
        self.told = {"tail": self._tail, "mirror": self._mirror}

    def say(self, text: str) -> None:
        """See :class:`Channel`; call it in the document's own thread."""
        self._tail.text = text

    def listen(self, heard: Callable[[Mirror], None]) -> None:
        """See :class:`Channel`."""
        self._mirror.on_change("data", lambda _attr, _old, new: heard({name: value[0] for name, value in new.items()}))


class _Line(anywidget.AnyWidget):  # type: ignore[misc]  # it ships no types that mypy follows
    """A widget that shows nothing and carries messages."""

    mark = traitlets.Unicode().tag(sync=True)
    _esm: ClassVar[str] = (Path(__file__).parent / "client" / "line.js").read_text(encoding="utf-8")


class CellChannel:
    """A widget beside the inspector. See :class:`Channel`.

    Parameters
    ----------
    mark
        By which the inspector finds its own among all of a page.
    above
        Widgets to display with it.

    Attributes
    ----------
    box
        To be displayed right before the inspector.
    """

    models: tuple[Any, ...] = ()

    def __init__(self, mark: str, above: Sequence[ipywidgets.Widget] = ()) -> None:
        self._line = _Line(mark=mark, layout=ipywidgets.Layout(display="none"))
        self.box = ipywidgets.VBox([*above, self._line])
        self.told = {"mark": mark, "box": self.box.model_id}
        self._heard: Any = None
        hear_beside_cells(self._line)

    def say(self, text: str) -> None:
        """See :class:`Channel`."""
        self._line.send(text)

    def listen(self, heard: Callable[[Mirror], None]) -> None:
        """See :class:`Channel`."""
        self._heard = lambda _widget, word, _buffers: heard(word)
        self._line.on_msg(self._heard)

    def close(self) -> None:
        """Hear nothing any more. ipywidgets keeps the widget as long as the kernel lives, and would keep who listens.

        The widget itself stays: closed while its output is replaced, it makes JupyterLab remove it twice.
        """
        self._line.on_msg(self._heard, remove=True)
