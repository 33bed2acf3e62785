"""Every table of a run: its columns, their units, and what each means.

These schemas are the only contract between runtime, views and reports. The version is in each schema's metadata; a
column's meaning is in its field's metadata, so that a table read by another program still explains itself. Adding,
removing or changing a column or the meaning of one raises :data:`FORMAT_VERSION`.

Times are Unix times in ns at the source that saw them. ``seq`` is the number of the event that made the row, from 1.
"""

from __future__ import annotations

import difflib

import pyarrow as pa

FORMAT_VERSION = 1
"""Version of all schemas here. A log of a newer version is refused by name; older ones stay readable."""

VERSION_KEY = b"kvlab.format_version"

_INT, _REAL, _TEXT, _BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
_TEXTS, _INTS = pa.list_(pa.string()), pa.list_(pa.int32())

_Column = tuple[str, pa.DataType, str]

_SEQ: _Column = ("seq", _INT, "number of the event that made this row")
_TIME: _Column = ("time_ns", _INT, "ns: when that event happened")


def _table(doc: str, *columns: _Column) -> pa.Schema:
    fields = [pa.field(name, kind, metadata={"doc": meaning}) for name, kind, meaning in columns]
    return pa.schema(fields, metadata={VERSION_KEY: str(FORMAT_VERSION), b"doc": doc})


EVENTS = _table(
    "everything that happened, in the order of the log; fields a kind does not use are null",
    ("seq", _INT, "running number in this log, from 1, without gaps"),
    ("kind", _TEXT, "what happened: a value of kvlab.store.events.Kind"),
    ("time_ns", _INT, "ns: Unix time at the source; clocks of sources may differ"),
    ("source", _TEXT, "who saw it"),
    ("source_seq", _INT, "the source's own running number; a gap is a lost event"),
    ("agent", _TEXT, "agent or context"),
    ("action", _TEXT, "operator instance"),
    ("state", _TEXT, "state"),
    ("segment", _TEXT, "segment"),
    ("edge", _TEXT, "state edge"),
    ("worker", _TEXT, "worker"),
    ("n_tokens", _INT, "tokens"),
    ("nbytes", _INT, "bytes"),
    ("seconds", _REAL, "seconds"),
    ("detail", _TEXT, "the rest, a JSON object; its keys are named beside each kind"),
)

AGENTS = _table(
    "one row per agent or context that did anything",
    _SEQ,
    _TIME,
    ("agent", _TEXT, "name"),
    ("worker", _TEXT, "worker it last ran on"),
    ("status", _TEXT, "planned, running, done, failed or skipped"),
    ("n_prefill_done", _INT, "tokens prefilled so far in its current turn, of its whole batch"),
    ("n_prefill_total", _INT, "tokens to prefill in its current turn, in its whole batch"),
    ("n_generated", _INT, "tokens of its finished turns; while none is finished, those sampled so far"),
    ("n_turns", _INT, "turns finished"),
    ("state", _TEXT, "the last state made for it"),
    ("error", _TEXT, "why it failed, or was skipped"),
)

TURNS = _table(
    "one row per finished turn; kvlab.bench.metrics defines each measure",
    _SEQ,
    _TIME,
    ("agent", _TEXT, "agent"),
    ("state", _TEXT, "state the turn made"),
    ("worker", _TEXT, "worker"),
    ("prompt_tokens", _INT, "tokens of the whole prompt, from the root"),
    ("n_prefilled", _INT, "prompt tokens computed for it (measured)"),
    ("n_reused", _INT, "prompt tokens whose K/V was already there (measured)"),
    ("n_generated", _INT, "tokens sampled (measured)"),
    ("ttft_seconds", _REAL, "s: time to first token (measured)"),
    ("queue_seconds", _REAL, "s: waiting for a busy worker or link (measured)"),
    ("prefill_seconds", _REAL, "s: prefill compute (measured)"),
    ("decode_seconds", _REAL, "s: decode compute (measured)"),
    ("overhead_seconds", _REAL, "s: overhead Ω (measured)"),
    ("finish", _TEXT, "stop or length"),
    ("token_ids", _INTS, "sampled token ids"),
    ("text", _TEXT, "the answer"),
)

STATES = _table(
    "one row per state",
    _SEQ,
    _TIME,
    ("state", _TEXT, "id"),
    ("agent", _TEXT, "agent or context it was made for"),
    ("name", _TEXT, "name for people"),
    ("operator", _TEXT, "Λ: operator that made it"),
    ("parents", _TEXTS, "Λ: ids of the states it was made from"),
    ("segments", _TEXTS, "B: ids of its segments, from the root"),
    ("n_tokens", _INT, "tokens with K/V, from the root"),
    ("nbytes", _INT, "bytes made for it; what it shares with its parents is theirs"),
    ("exact", _BOOL, "Λ: false as soon as any ancestor is approximate"),
    ("note", _TEXT, "Λ: remark of the operator"),
    ("preview", _TEXT, "beginning of its text"),
    ("phase", _TEXT, "where it is in its life"),
    ("phase_seq", _INT, "event that brought it there"),
)

SEGMENTS = _table(
    "one row per segment",
    _SEQ,
    _TIME,
    ("segment", _TEXT, "id"),
    ("worker", _TEXT, "worker that computed it"),
    ("parent", _TEXT, "segment below it"),
    ("start", _INT, "position of its first token"),
    ("n_tokens", _INT, "tokens"),
    ("n_prompt", _INT, "how many of them were given; the rest were generated"),
    ("nbytes", _INT, "bytes of one copy"),
    ("checksum", _TEXT, "of the bytes of the first copy"),
    ("n_copies", _INT, "workers that hold it now"),
)

PLACEMENTS = _table(
    "one row per stay of a segment on a worker; alive until dropped_seq",
    _SEQ,
    _TIME,
    ("segment", _TEXT, "segment"),
    ("worker", _TEXT, "worker"),
    ("nbytes", _INT, "bytes"),
    ("received_bytes", _INT, "bytes of these that came from elsewhere; a hybrid's others were computed here"),
    ("how", _TEXT, "computed, map, transfer, restored or hybrid; a map shares the memory of another copy"),
    ("dropped_seq", _INT, "event that ended the stay; null while it lasts"),
    ("dropped_ns", _INT, "ns: when it ended"),
)

EDGES = _table(
    "one row per decision about a state edge",
    _SEQ,
    _TIME,
    ("edge", _TEXT, "id of the edge"),
    ("agent", _TEXT, "agent that needed the state"),
    ("source", _TEXT, "node or state the state comes from"),
    ("target", _TEXT, "node it goes to"),
    ("n_tokens", _INT, "tokens of the state"),
    ("nbytes", _INT, "bytes the chosen alternative was to move (predicted)"),
    ("chosen", _TEXT, "in place, map, transfer, restore, recompute, hybrid or corrected"),
    ("worker", _TEXT, "worker chosen"),
    ("reason", _TEXT, "why"),
    ("predicted_seconds", _REAL, "s: of the chosen alternative (predicted)"),
    (
        "alternatives",
        _TEXT,
        "JSON: [{how, worker, seconds, terms: {name: s}, nbytes, missing_tokens, excluded}] (predicted)",
    ),
    ("policy", _TEXT, "which policy chose"),
    ("actual_how", _TEXT, "what was done; null while undecided"),
    ("actual_worker", _TEXT, "where"),
    ("actual_seconds", _REAL, "s: what it cost (measured)"),
    ("actual_nbytes", _INT, "bytes that crossed a wire for it (measured)"),
    ("actual_terms", _TEXT, "JSON: {name: s} (measured)"),
    ("because", _TEXT, "why what was done differs from what was chosen"),
    ("actual_seq", _INT, "event that said so"),
    ("audit", _TEXT, "JSON: [{how, worker, seconds, because}]: every road really taken (measured), null without audit"),
    ("regret", _REAL, "(chosen − best) / best of the audited roads (measured)"),
)

OPERATORS = _table(
    "one row per operator instance (action)",
    _SEQ,
    _TIME,
    ("action", _TEXT, "id"),
    ("op", _TEXT, "verb"),
    ("subject", _TEXT, "what it is about"),
    ("agent", _TEXT, "agent"),
    ("worker", _TEXT, "worker"),
    ("status", _TEXT, "planned, running, done, failed or skipped"),
    ("planned_ns", _INT, "ns"),
    ("started_ns", _INT, "ns, the worker's clock"),
    ("finished_ns", _INT, "ns"),
    ("seconds", _REAL, "s: how long it took (measured)"),
    ("threads", _INT, "threads granted"),
    ("error", _TEXT, "why it failed, or was skipped"),
)

WORKERS = _table(
    "one row per worker",
    _SEQ,
    _TIME,
    ("worker", _TEXT, "name or address"),
    ("host", _TEXT, "host"),
    ("pid", _INT, "process"),
    ("device", _TEXT, "device"),
    ("threads", _INT, "threads"),
    ("memory_bytes", _INT, "bytes: its memory limit"),
    ("status", _TEXT, "running or lost"),
    ("reason", _TEXT, "why it was lost"),
    ("lost_ns", _INT, "ns: when"),
    ("kv_bytes", _INT, "bytes of K/V placed on it now, maps included"),
)

MEMORY = _table(
    "one row per memory sample",
    _SEQ,
    _TIME,
    ("worker", _TEXT, "worker"),
    ("nbytes", _INT, "bytes of K/V it held (measured)"),
    ("pss_bytes", _INT, "bytes: proportional set size of its process (measured)"),
    ("kv_unique_bytes", _INT, "bytes of K/V that it alone holds (measured)"),
)

TRANSFERS = _table(
    "one row per arrival or departure of a segment",
    _SEQ,
    _TIME,
    ("segment", _TEXT, "segment"),
    ("direction", _TEXT, "sent or received"),
    ("worker", _TEXT, "who saw it"),
    ("peer", _TEXT, "the other end"),
    ("nbytes", _INT, "bytes on the wire, 0 when mapped (measured)"),
    ("how", _TEXT, "the way it crossed"),
    ("seconds", _REAL, "s (measured)"),
)

NOTES = _table(
    "one row per remark",
    _SEQ,
    _TIME,
    ("level", _TEXT, "info, warning or error"),
    ("text", _TEXT, "the remark"),
    ("agent", _TEXT, "agent it concerns"),
)

TABLES: dict[str, pa.Schema] = {
    "agents": AGENTS,
    "turns": TURNS,
    "states": STATES,
    "segments": SEGMENTS,
    "placements": PLACEMENTS,
    "edges": EDGES,
    "operators": OPERATORS,
    "workers": WORKERS,
    "memory": MEMORY,
    "transfers": TRANSFERS,
    "notes": NOTES,
}
"""The tables folded from events, by name."""


def column_docs(schema: pa.Schema) -> dict[str, str]:
    """What each column of ``schema`` means."""
    return {field.name: (field.metadata or {}).get(b"doc", b"").decode() for field in schema}


def unknown_table(name: object) -> str:
    """What to say when there is no table ``name``."""
    near = difflib.get_close_matches(str(name), TABLES, n=1, cutoff=0.0)
    return f"no table {name!r}; did you mean {near[0]!r}? There are: {', '.join(TABLES)}"
