"""The KV budget: how many bytes of K/V may lie on this host. Room is reserved before any work is submitted."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvlab.errors import NoRoom

Holders = Callable[[], list[tuple[str, int]]]


class Budget:
    """Counts reservations of distinct memory against a limit. Thread-safe.

    Parameters
    ----------
    limit_bytes
        The limit.
    holders
        Gives (name, bytes) of what lies there, largest first, for the error message.
    """

    def __init__(self, limit_bytes: int, holders: Holders) -> None:
        self.limit_bytes = limit_bytes
        self._holders = holders
        self._lock = threading.Lock()
        self._reserved: dict[str, int] = {}

    @property
    def used_bytes(self) -> int:
        """Reserved now."""
        with self._lock:
            return sum(self._reserved.values())

    def reserve(self, name: str, nbytes: int, what: str) -> None:
        """Set aside ``nbytes`` under ``name``, replacing what was reserved under it.

        Raises
        ------
        NoRoom
            With need, have and who holds what; the reservations are as before.
        """
        with self._lock:
            used = sum(self._reserved.values()) - self._reserved.get(name, 0)
            if used + nbytes <= self.limit_bytes:
                self._reserved[name] = nbytes
                return
        held = ", ".join(f"{holder} {size / 2**20:.1f} MiB" for holder, size in self._holders()[:6]) or "nothing yet"
        raise NoRoom(
            f"{what} needs {nbytes / 2**20:.1f} MiB of KV memory; {(self.limit_bytes - used) / 2**20:.1f} of "
            f"{self.limit_bytes / 2**20:.1f} MiB are free. Held: {held}",
            hint="evict states (state.evict(), lab.clear()), shorten the context, or give Lab(kv_budget=...) more",
            need_bytes=nbytes,
            free_bytes=self.limit_bytes - used,
        )

    def release_all(self, prefix: str) -> None:
        """Give back everything reserved under names that begin with ``prefix``."""
        with self._lock:
            for name in [name for name in self._reserved if name.startswith(prefix)]:
                del self._reserved[name]

    def release(self, name: str) -> None:
        """Give back what is reserved under ``name``; unknown names are ignored."""
        with self._lock:
            self._reserved.pop(name, None)
