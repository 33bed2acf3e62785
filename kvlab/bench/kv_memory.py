"""K/V memory as the kernel sees it: proportional shares (PSS) of the shared memory that a lab's workers have mapped.

What two workers map counts half for each, so that the sum is what lies in memory once. Linux only.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

PAGE = 4096
PERIOD_SECONDS = 0.010

# One mapping of smaps: its name ends the first line, and the share is a few lines below.
_MAPPING = re.compile(rb"/memfd:kvlab[^\n]*\n(?:[^\n]*\n){1,6}?Pss: +(\d+) kB")


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment: bytes by the kernel and by the lab's accounting, and how many mappings they lie in.

    A mapping is counted in whole pages: each may take up to one page more than its bytes.
    """

    pss_bytes: int
    accounted_bytes: int
    n_mappings: int


def kv_pss(pids: Iterable[int]) -> tuple[int, int]:
    """(bytes, mappings) of K/V that these processes have mapped; a process that is gone has none."""
    nbytes = mappings = 0
    for pid in pids:
        try:
            shares = [int(found) for found in _MAPPING.findall(Path(f"/proc/{pid}/smaps").read_bytes())]
        except (FileNotFoundError, ProcessLookupError):
            continue
        nbytes += 1024 * sum(shares)
        mappings += len(shares)
    return nbytes, mappings


@dataclass(slots=True)
class Watch:
    """Samples ``pids`` and ``accounted()`` every 10 ms, or as often as the kernel answers, inside a ``with`` block."""

    pids: Callable[[], Iterable[int]]
    accounted: Callable[[], int]
    samples: list[Sample] = field(default_factory=list)
    seconds: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, name="kvlab-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def peak_bytes(self) -> int:
        """The most that lay there at one moment, by the kernel."""
        return max((one.pss_bytes for one in self.samples), default=0)

    @property
    def period_seconds(self) -> float:
        """Mean time from one sample to the next."""
        return self.seconds / max(1, len(self.samples))

    def over(self, limit_bytes: int) -> int:
        """Samples in which more lay there than ``limit_bytes``, by the kernel (in whole pages) or by the accounting."""
        return sum(
            one.pss_bytes > limit_bytes + PAGE * one.n_mappings or one.accounted_bytes > limit_bytes
            for one in self.samples
        )

    def _look(self) -> None:
        began = following = time.monotonic()
        while not self._stop.is_set():
            nbytes, mappings = kv_pss(self.pids())
            self.samples.append(Sample(nbytes, self.accounted(), mappings))
            following = max(following + PERIOD_SECONDS, time.monotonic())
            self._stop.wait(following - time.monotonic())
        self.seconds = time.monotonic() - began
