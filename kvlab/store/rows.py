"""Events to Arrow and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from kvlab.errors import InvalidInput, RunUnreadable
from kvlab.store import schema
from kvlab.store.events import Event, Kind

_PLAIN = tuple(name for name in schema.EVENTS.names if name not in ("seq", "kind", "detail"))


def event_batch(numbered: Sequence[tuple[int, Event]]) -> pa.RecordBatch:
    """One record batch of :data:`kvlab.store.schema.EVENTS`.

    Raises
    ------
    InvalidInput
        Naming the event whose detail is not JSON or whose field has the wrong type.
    """
    columns: dict[str, list[object]] = {
        "seq": [seq for seq, _ in numbered],
        "kind": [str(event.kind) for _, event in numbered],
        "detail": [_json(event) for _, event in numbered],
    }
    for name in _PLAIN:
        columns[name] = [getattr(event, name) for _, event in numbered]
    arrays = []
    for field in schema.EVENTS:
        try:
            arrays.append(pa.array(columns[field.name], field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:
            kinds = ", ".join(sorted(set(columns["kind"])))  # type: ignore[arg-type]
            raise InvalidInput(
                f"field {field.name!r} of an event ({kinds}) is not {field.type}: {error}",
                hint=f"{field.name} is {schema.column_docs(schema.EVENTS)[field.name]}",
            ) from error
    return pa.record_batch(arrays, schema=schema.EVENTS)


def _json(event: Event) -> str:
    try:
        return json.dumps(event.detail, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the detail of a {event.kind} event is not JSON: {error}",
            hint="plain numbers, strings, lists and dicts; None where a number is unknown or infinite",
            kind=str(event.kind),
        ) from error


def events_of(table: pa.Table) -> Iterator[tuple[int, Event]]:
    """The events of a log's table, each with its number.

    Raises
    ------
    RunUnreadable
        At a batch that is damaged, or an event of a kind this version does not know.
    """
    for batch in table.to_batches():
        try:
            # Offsets that lie outside their buffers would be followed into foreign memory.
            batch.validate(full=True)
        except pa.ArrowException as error:
            raise RunUnreadable(
                f"a batch of events is damaged: {error}", hint="restore the file from a copy"
            ) from error
        for row in batch.to_pylist():
            seq, kind, detail = row.pop("seq"), row.pop("kind"), row.pop("detail")
            try:
                event = Event(kind=Kind(kind), detail=json.loads(detail), **row)
            except (ValueError, TypeError) as error:
                raise RunUnreadable(
                    f"event {seq} cannot be understood: {error}", hint="a newer kvlab may have written it", seq=seq
                ) from error
            yield seq, event
