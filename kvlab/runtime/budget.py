"""The KV budget: how many bytes of K/V may lie on this host. Room is reserved before any work is submitted."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvlab.errors import NoRoom

Holders = Callable[[], list[tuple[str, int]]]
MakeRoom = Callable[[int], int]
"""Frees at least so many bytes if it can, and returns how many it freed."""


class Budget:
    """Counts reservations of distinct memory against a limit. Thread-safe.

    Parameters
    ----------
    limit_bytes
        The limit.
    holders
        Gives (name, bytes) of what lies there, largest first, for the error message.
    make_room
        Called where a reservation does not fit, and with no lock of the budget held.
    """

    def __init__(self, limit_bytes: int, holders: Holders, make_room: MakeRoom = lambda _: 0) -> None:
        self.limit_bytes = limit_bytes
        self._holders, self._make_room = holders, make_room
        self._lock = threading.Lock()
        self._reserved: dict[str, int] = {}

    @property
    def used_bytes(self) -> int:
        """Reserved now."""
        with self._lock:
            return sum(self._reserved.values())

    def held(self, prefix: str) -> int:
        """Bytes reserved under ``prefix`` itself and under names that begin with it and ``@``."""
        with self._lock:
            return sum(
                nbytes for name, nbytes in self._reserved.items() if name == prefix or name.startswith(f"{prefix}@")
            )

    def reserve(self, name: str, nbytes: int, what: str, *, evict: bool = True) -> None:
        """Set aside ``nbytes`` under ``name``, replacing what was reserved under it.

        Where there is no room, what nobody uses at the moment is evicted first, unless ``evict`` is false.

        Raises
        ------
        NoRoom
            With need, have and who holds what; the reservations are as before.
        """
        while True:
            missing, free = self._try(name, nbytes)
            if missing <= 0:
                return
            if not evict or self._make_room(missing) <= 0:
                break
        held = ", ".join(f"{holder} {size / 2**20:.1f} MiB" for holder, size in self._holders()[:6]) or "nothing yet"
        raise NoRoom(
            f"{what} needs {nbytes / 2**20:.1f} MiB of KV memory; {free / 2**20:.1f} of "
            f"{self.limit_bytes / 2**20:.1f} MiB are free, and what is held is pinned or in use. Held: {held}",
            hint="unpin or evict states, run fewer agents at once, shorten the context, or give Lab(kv_budget=...) more",
            need_bytes=nbytes,
            free_bytes=free,
        )

    def hold(self, name: str, nbytes: int) -> None:
        """Set aside ``nbytes`` under ``name``, whether there is room or not: they are taken already."""
        with self._lock:
            self._reserved[name] = nbytes

    def _try(self, name: str, nbytes: int) -> tuple[int, int]:
        """Reserve if it fits. Bytes that are missing, none or less if it did, and bytes that are free."""
        with self._lock:
            free = self.limit_bytes - sum(self._reserved.values()) + self._reserved.get(name, 0)
            if nbytes <= free:
                self._reserved[name] = nbytes
            return nbytes - free, free

    def release_all(self, prefix: str) -> None:
        """Give back everything reserved under names that begin with ``prefix``."""
        with self._lock:
            for name in [name for name in self._reserved if name.startswith(prefix)]:
                del self._reserved[name]

    def release(self, name: str) -> None:
        """Give back what is reserved under ``name``; unknown names are ignored."""
        with self._lock:
            self._reserved.pop(name, None)
