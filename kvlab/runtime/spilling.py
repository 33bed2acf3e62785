"""The disk tier: K/V that has to leave memory is written to the lab's own folder, where that is cheaper than computing it.

Its workers write and read; the lab keeps what each file must be, and counts what all of them take. A segment whose file
is there costs nothing to evict again, so files stay until their segment is wanted no more or the room is needed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.store.spill import Spilled

HEADER_BYTES = 512
"""At most so much longer than its payload is a file."""

SLOWEST_BYTES_PER_SECOND = 20e6
PATIENCE_SECONDS = 5.0
"""A write that takes longer than this and its bytes at that rate is given up."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Leaver:
    """A segment that has to leave memory, and what it takes to write it: its future, and the workers that have it."""

    recipe: str
    nbytes: int
    future: Any
    workers: Collection[str]


class DiskTier:
    """Files of one lab. Thread-safe; it knows bytes and files, and nothing of states.

    Parameters
    ----------
    client
        Of Dask.
    folder
        The lab's own, which is removed with it; made here, for its owner alone.
    limit_bytes
        What all files may take.
    say
        Told why something was not kept.
    """

    def __init__(self, client: Any, folder: Path, limit_bytes: int, say: Say) -> None:
        self.limit_bytes = limit_bytes
        self.seconds: Callable[[int], float] = lambda _: 0.0
        """What reading so many bytes takes. Nothing, until the lab has measured it."""
        self._client, self._folder, self._say = client, folder / "spilled", say
        self._files: dict[str, Spilled] = {}
        self._writing = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._folder.mkdir(mode=0o700)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def used_bytes(self) -> int:
        """What the files take, and those that are being written."""
        with self._lock:
            return self._used()

    def recipes(self) -> frozenset[str]:
        """Segments that can be read back."""
        with self._lock:
            return frozenset(self._files)

    def get(self, recipe: str) -> Spilled | None:
        """The file of a segment, if there is one."""
        with self._lock:
            return self._files.get(recipe)

    def pays(self, nbytes: int, seconds_again: float) -> bool:
        """Whether writing and reading a segment is quicker than computing it again. Writing counts as reading does."""
        return 2 * self.seconds(nbytes) < seconds_again

    def free_bytes(self) -> int:
        """What may still be written."""
        with self._lock:
            return self.limit_bytes - self._used()

    def write(self, leavers: Sequence[Leaver]) -> frozenset[str]:
        """Write these segments side by side; returns those whose file is there now. What finds no room is left out.

        Blocks, but not for ever. What could not be written is told to ``say``.
        """
        from kvlab.runtime import tasks

        going: list[tuple[Leaver, Path, int, Any]] = []
        for leaver in leavers:
            size = leaver.nbytes + HEADER_BYTES
            with self._lock:
                fits = self._used() + size <= self.limit_bytes
                self._writing += size if fits else 0
            if not fits:
                continue
            path = self._folder / f"{leaver.recipe[:16]}-{next(self._numbers)}.safetensors"
            try:
                path.touch(mode=0o600)
            except OSError as trouble:
                self._give_up(leaver, path, size, trouble)
                continue
            future = self._client.submit(
                tasks.spill, str(path), leaver.future, pure=False, workers=sorted(leaver.workers)
            )
            going.append((leaver, path, size, future))
        return frozenset(one[0].recipe for one in going if self._written(*one))

    def _written(self, leaver: Leaver, path: Path, size: int, future: Any) -> bool:
        try:
            told: Spilled = future.result(timeout=PATIENCE_SECONDS + leaver.nbytes / SLOWEST_BYTES_PER_SECOND)
        except Exception as trouble:  # noqa: BLE001 - whatever it was, the segment can be computed again
            future.cancel()
            self._give_up(leaver, path, size, trouble)
            return False
        with self._lock:
            self._writing -= size
            self._files[leaver.recipe] = told
        return True

    def _give_up(self, leaver: Leaver, path: Path, size: int, trouble: Exception) -> None:
        path.unlink(missing_ok=True)  # who is still at it, or begins anew, leaves nothing
        with self._lock:
            self._writing -= size
        self._say(f"segment {leaver.recipe[:12]} could not be spilled and is forgotten: {trouble or repr(trouble)}")

    def forget(self, recipe: str) -> int:
        """Remove a segment's file, if there is one. Returns its bytes."""
        with self._lock:
            file = self._files.pop(recipe, None)
        if file is None:
            return 0
        Path(file.path).unlink(missing_ok=True)
        return file.nbytes

    def _used(self) -> int:
        return self._writing + sum(file.nbytes for file in self._files.values())
