"""The event log on disk: an Arrow IPC stream that only grows.

Each batch is written as one piece, so what a reader sees is always whole batches and perhaps the beginning of one
more. A reader finds the last whole one by walking the frames of the stream
(https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format) and maps the file up to there.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import pyarrow as pa

from kvlab.errors import InvalidInput, RunUnreadable
from kvlab.store import schema
from kvlab.store.events import Event
from kvlab.store.room import is_full, no_room
from kvlab.store.rows import event_batch

FLUSH_EVENTS = 256
"""Events that wait at most before a batch is written."""

FLUSH_SECONDS = 0.1
"""Age at which waiting events are written by whoever appends next: soon enough for who follows the log on a screen."""

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_CONTINUATION = 0xFFFFFFFF


class EventLog:
    """Writes events of one run to ``path``; safe to use from several threads.

    Parameters
    ----------
    path
        File to create. It must not exist: a log is written by one process, once.
    clock
        Seconds, monotonic; decides when waiting events are old enough.

    Raises
    ------
    InvalidInput
        If the file exists.
    NoRoom
        If not even the schema can be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[pa.RecordBatch] = []
        self._n_waiting = 0
        self._last_seq = 0
        self._flushed_at = clock()
        self._length = 0
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InvalidInput(
                f"{self.path} exists; a log is never written twice", hint="make a new run folder"
            ) from None
        # Held for the life of the writer, so that others can tell a live run; who asks holds it for a moment.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._write(schema.EVENTS.serialize())

    def append(self, events: Iterable[Event]) -> int:
        """Take ``events`` into the log, in this order, and return the number of the last one.

        They are on disk after :meth:`flush`, after :data:`FLUSH_EVENTS` events, or with the first append later than
        :data:`FLUSH_SECONDS`.

        Raises
        ------
        InvalidInput
            If a detail is not JSON, or the log is closed; none of ``events`` is taken then.
        NoRoom
            If the disk is full. The events stay waiting and are written by the next flush that finds room; what was
            written before stays readable.
        """
        with self._lock:
            self._require_open()
            numbered = list(enumerate(events, start=self._last_seq + 1))
            if numbered:
                self._waiting.append(event_batch(numbered))
                self._n_waiting += len(numbered)
                self._last_seq += len(numbered)
            if self._n_waiting >= FLUSH_EVENTS or self._clock() - self._flushed_at >= FLUSH_SECONDS:
                self._flush()
            return self._last_seq

    def flush(self) -> None:
        """Write what waits as one batch. Raises :class:`NoRoom` as :meth:`append` does."""
        with self._lock:
            self._require_open()
            self._flush()

    def close(self) -> None:
        """Write what waits, mark the end, and force all of it to the disk. A second call does nothing.

        Raises
        ------
        NoRoom
            If what waits does not fit; the log stays open, so closing can be tried again.
        """
        with self._lock:
            if self._file < 0:
                return
            self._flush()
            self._write(END_OF_STREAM)
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._file < 0:
            raise InvalidInput(f"the log {self.path} is closed", hint="start a new run")

    def _flush(self) -> None:
        if self._waiting:
            self._write(pa.concat_batches(self._waiting).serialize())
            self._waiting.clear()
            self._n_waiting = 0
        self._flushed_at = self._clock()

    def _write(self, piece: pa.Buffer | bytes) -> None:
        view = memoryview(piece)
        written = 0
        try:
            while written < len(view):
                written += os.write(self._file, view[written:])
        except OSError as error:
            os.ftruncate(self._file, self._length)
            os.lseek(self._file, self._length, os.SEEK_SET)
            if not is_full(error):
                raise
            kept = f"its {self._length} bytes are kept"
            raise no_room(
                self.path, len(view), kept=kept, hint="free space and flush again; nothing is lost"
            ) from error
        self._length += written


def read_log(path: str | os.PathLike[str]) -> pa.Table:
    """The events of a log, as far as whole batches were written. Maps the file and copies nothing.

    Returns
    -------
    A table of :data:`kvlab.store.schema.EVENTS`. It stays valid as long as it is referenced, also when the file grows
    or is deleted. A log that was cut off in its first batch is empty.

    Raises
    ------
    RunUnreadable
        If there is no such file, it is not an event log, it ends before its schema does, or a newer version wrote it.
        Damage inside a batch is found when its rows are read (:func:`kvlab.store.rows.events_of`), not here.
    """
    file = Path(path)
    length = whole_length(file)
    source = pa.memory_map(str(file))
    try:
        reader = pa.ipc.open_stream(pa.BufferReader(source.read_buffer(length)))
        version = int((reader.schema.metadata or {})[schema.VERSION_KEY])
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise RunUnreadable(f"{file} is not a kvlab event log", hint="point at the events.arrows of a run") from error
    if version > schema.FORMAT_VERSION:
        raise RunUnreadable(
            f"{file} has format version {version}; this kvlab reads up to {schema.FORMAT_VERSION}",
            hint="open it with the kvlab that wrote it, or a newer one",
            found=version,
            known=schema.FORMAT_VERSION,
        )
    if not reader.schema.equals(schema.EVENTS):
        raise RunUnreadable(f"the schema of {file} is damaged", hint="restore it from a copy", path=str(file))
    try:
        batches = list(reader)
    except (pa.ArrowException, OSError, TypeError) as error:
        raise RunUnreadable(f"{file} is damaged: {error}", hint="restore it from a copy", path=str(file)) from error
    return pa.Table.from_batches(batches, reader.schema)


def _last_seq(batch: pa.RecordBatch) -> int:
    return int(batch["seq"][-1].as_py()) if batch.num_rows else 0


class LogTail:
    """Reads on where it stopped, in a log that another process may be writing: each call costs what is new."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._end = self._last_seq = 0

    def new(self) -> pa.Table:
        """Events that were written since the last call, at first all. Raises as :func:`read_log` does."""
        end = whole_length(self._path, self._end)
        if not self._end:
            table = read_log(self._path)
        else:
            batches = [] if end == self._end else self._batches(end)
            table = pa.Table.from_batches([one for one in batches if _last_seq(one) > self._last_seq], schema.EVENTS)
        self._end = end
        if table.num_rows:
            self._last_seq = int(table["seq"][-1].as_py())
        return table

    def _batches(self, end: int) -> list[pa.RecordBatch]:
        with self._path.open("rb") as file:
            piece = pa.py_buffer(os.pread(file.fileno(), end - self._end, self._end))
        at, batches = 0, []
        try:
            while at < piece.size:
                reader = pa.BufferReader(piece.slice(at))
                batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema.EVENTS))
                at += reader.tell()
        except (pa.ArrowException, OSError) as error:
            path = str(self._path)
            raise RunUnreadable(f"{path} is damaged: {error}", hint="restore it from a copy", path=path) from error
        return batches


def whole_length(path: Path, start: int = 0) -> int:
    """Bytes of ``path`` up to the end of its last whole message, without an end mark. ``start`` is the end of an earlier one.

    The file is read, not mapped: a writer may cut off its own unfinished batch meanwhile, and touching a mapped page
    beyond the end of a file kills the process.
    """
    end = start
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while (length := _frame_length(file.fileno(), end, size)) > 0 and end + length <= size:
                end += length
    except OSError as error:
        raise RunUnreadable(f"{path} cannot be read: {error.strerror}", hint="is this a run folder?") from error
    if end == 0:
        raise RunUnreadable(
            f"{path} ends before its schema does ({size} bytes)",
            hint="the run died as it began; there is nothing in it",
        )
    return end


def _frame_length(file: int, at: int, size: int) -> int:
    """Length of the message at ``at``: prefix, metadata and body; 0 if it is unfinished or the end mark."""
    prefix = os.pread(file, 8, at)
    if len(prefix) < 8:
        return 0
    marker, n_metadata = struct.unpack("<Ii", prefix)
    if marker != _CONTINUATION or n_metadata <= 0 or at + 8 + n_metadata > size:
        return 0
    metadata = os.pread(file, n_metadata, at + 8)
    return 8 + int(n_metadata) + _body_length(metadata)


def _body_length(metadata: bytes) -> int:
    """``bodyLength``, the fourth field of the flatbuffer table Message; absent means 0."""
    try:
        (table,) = struct.unpack_from("<I", metadata)
        (to_vtable,) = struct.unpack_from("<i", metadata, table)
        vtable = table - to_vtable
        (vtable_size,) = struct.unpack_from("<H", metadata, vtable)
        if vtable_size <= 10:
            return 0
        (offset,) = struct.unpack_from("<H", metadata, vtable + 10)
        return int(struct.unpack_from("<q", metadata, table + offset)[0]) if offset else 0
    except struct.error:
        return 0
