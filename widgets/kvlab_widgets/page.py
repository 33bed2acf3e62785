"""The inspector on a page of its own, served to this machine alone; it follows a run that another process makes."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.server.server import Server

from kvlab.errors import InvalidInput
from kvlab.store.saved import SavedRun
from kvlab_widgets.channels import DocumentChannel
from kvlab_widgets.export import rows_of
from kvlab_widgets.feeds import LogFeed
from kvlab_widgets.inspector import Inspector
from kvlab_widgets.packing import packed
from kvlab_widgets.telling import Telling

HOST = "127.0.0.1"
LOOK_MS = 25
"""Between two looks into the log: what its writer has flushed should not lie there as long again."""

ELSEWHERE = (
    "This page only looks. The run is stepped where it was started: run.step(), run.play(), or its inspector there."
)


class PageServer:
    """A server of one run. Its address has a token that nobody can guess; without it every path is 404.

    Attributes
    ----------
    url
        Where the page is.
    """

    def __init__(self, run: Any, *, port: int = 0) -> None:
        path = f"/{secrets.token_urlsafe(24)}"
        folder = Path(run.path)

        def show(document: Any) -> None:
            _show(document, folder)

        # The port must be known before the server is made: only pages from this very port may open its websocket.
        port = port or _free_port()
        try:
            # The index would tell the token to whoever asks for "/".
            self._server = Server(
                {path: Application(FunctionHandler(show))}, address=HOST, port=port, use_index=False,
                allow_websocket_origin=[f"{HOST}:{port}", f"localhost:{port}"],
            )  # fmt: skip
        except OSError as error:
            raise InvalidInput(f"port {port} of {HOST} cannot be served: {error}", hint="leave out --port") from error
        self.url = f"http://{HOST}:{port}{path}"

    def run(self) -> None:
        """Serve until Ctrl-C or :meth:`stop`."""
        self._server.start()
        self._server.io_loop.start()

    def stop(self) -> None:
        """Stop serving; safe to call from another thread."""
        loop = self._server.io_loop
        loop.add_callback(self._server.stop)
        loop.add_callback(loop.stop)


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind((HOST, 0))
        return int(asked.getsockname()[1])


def serve(run: Any, *, port: int = 0) -> None:
    """Serve the inspector of ``run`` until Ctrl-C, and print where."""
    server = PageServer(run, port=port)
    print(server.url, flush=True)  # noqa: T201 - what the person who called it waits for
    server.run()


def _show(document: Any, folder: Path) -> None:
    feed = LogFeed(folder)
    more = feed.poll()
    channel = DocumentChannel() if more else None
    inspector = Inspector(
        packed(feed.rows.take()), page=True, channel=channel, mark=folder.name, elsewhere=ELSEWHERE if more else ""
    )
    document.add_root(inspector.root)
    document.title = f"{feed.rows.world.name or folder.name} · kvlab"
    if channel is not None:
        telling = Telling(feed, channel, lambda: rows_of(SavedRun(folder)))

        def turn() -> None:
            if not telling.turn():
                document.remove_periodic_callback(beat)

        beat = document.add_periodic_callback(turn, LOOK_MS)
