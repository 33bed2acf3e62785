"""What can be shown as a run: a world, or anything that has one (a saved run, a live one)."""

from __future__ import annotations

from typing import Protocol

from kvlab.store.fold import World


class HasWorld(Protocol):
    """A run, saved or live."""

    @property
    def world(self) -> World:
        """Everything folded from its events."""


Shown = World | HasWorld


def world_of(run: Shown) -> World:
    """The world of ``run``."""
    return run if isinstance(run, World) else run.world
