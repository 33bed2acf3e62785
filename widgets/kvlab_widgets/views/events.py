"""Events: what happened around the cursor, in sentences."""

from __future__ import annotations

from kvlab_widgets.figures import Build, Panel


def events(build: Build, height: int) -> Panel:
    """The panel of events: a native table, so it needs no other one."""
    body = build.div(height=height)
    return build.panel("events", "Events", [body], 0, rows=body)
