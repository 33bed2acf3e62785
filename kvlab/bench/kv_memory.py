"""K/V memory as the kernel counts it: the pages of every memfd of K/V that a lab's workers hold, each memory once.

What proportional shares (PSS) add up to is the pages that somebody has mapped. To read them the kernel walks all page
tables of a process, its model's too, which takes tens of milliseconds. The kernel also keeps how many pages each memfd
has (``st_blocks``): the same pages, and those besides that are held by a descriptor alone, for one ``fstat`` each. At the
end of a watch both are read, and what PSS says beyond that count is reported. Only the tails in which siblings work lie
on the heap; they count with what is set aside for them. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self

PAGE = 4096
BLOCK = 512
"""Unit of ``st_blocks``."""

PERIOD_SECONDS = 0.010

_NAME = "/memfd:kvlab"

# One mapping of smaps: its name ends the first line, and the share is a few lines below.
_MAPPING = re.compile(rb"/memfd:kvlab[^\n]*\n(?:[^\n]*\n){1,6}?Pss: +(\d+) kB")


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment: bytes by the kernel and on the heap, bytes by the lab's accounting, and in how many memories they lie.

    A memory is counted in whole pages: each may take up to one page more than its bytes.
    """

    kv_bytes: int
    accounted_bytes: int
    n_memories: int


@cache
def _memfd_device() -> int:
    """The file system in which this system's memfds lie."""
    fd = os.memfd_create("kvlab-which")
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def kv_memory(pids: Iterable[int]) -> tuple[int, int]:
    """(bytes, memories) of the memfds of K/V that these processes hold; a process that is gone holds none."""
    device, found = _memfd_device(), dict[int, int]()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY)
            try:
                for name in os.listdir(folder):
                    with contextlib.suppress(FileNotFoundError):  # closed since then
                        status = os.stat(name, dir_fd=folder)
                        if status.st_dev != device or status.st_ino in found:
                            continue
                        if os.readlink(name, dir_fd=folder).startswith(_NAME):
                            found[status.st_ino] = status.st_blocks * BLOCK
            finally:
                os.close(folder)
    return sum(found.values()), len(found)


def kv_pss(pids: Iterable[int]) -> int:
    """Proportional shares (PSS) of K/V that these processes have mapped, bytes; a process that is gone has none."""
    nbytes = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            nbytes += 1024 * sum(int(found) for found in _MAPPING.findall(Path(f"/proc/{pid}/smaps").read_bytes()))
    return nbytes


@dataclass(slots=True)
class Watch:
    """Samples ``pids``, ``heap()`` and ``accounted()`` every 10 ms inside a ``with`` block.

    ``pss_beyond`` is what PSS said at its end beyond what was counted just before or after, bytes.
    """

    pids: Callable[[], Iterable[int]]
    accounted: Callable[[], int]
    heap: Callable[[], int] = lambda: 0
    samples: list[Sample] = field(default_factory=list)
    seconds: float = 0.0
    longest_seconds: float = 0.0
    pss_beyond: int = 0
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
        pids = list(self.pids())
        before, pss, after = kv_memory(pids)[0], kv_pss(pids), kv_memory(pids)[0]
        self.pss_beyond = max(0, pss - max(before, after))

    @property
    def peak_bytes(self) -> int:
        """The most that lay there at one moment."""
        return max((one.kv_bytes for one in self.samples), default=0)

    @property
    def period_seconds(self) -> float:
        """Mean time from one sample to the next."""
        return self.seconds / max(1, len(self.samples))

    def over(self, limit_bytes: int) -> int:
        """Samples in which more lay there than ``limit_bytes``, by the kernel (in whole pages) or by the accounting."""
        return sum(
            one.kv_bytes > limit_bytes + PAGE * one.n_memories or one.accounted_bytes > limit_bytes
            for one in self.samples
        )

    def _look(self) -> None:
        began = following = last = time.monotonic()
        while not self._stop.is_set():
            nbytes, memories = kv_memory(self.pids())
            self.samples.append(Sample(nbytes + self.heap(), self.accounted(), memories))
            now = time.monotonic()
            self.longest_seconds, last = max(self.longest_seconds, now - last), now
            following = max(following + PERIOD_SECONDS, now)
            self._stop.wait(following - now)
        self.seconds = time.monotonic() - began
