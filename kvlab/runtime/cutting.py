"""Shorter states, and looking at what comes next: both read a state's segments and leave it as it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from kvlab.engine.protocol import Branch
from kvlab.runtime import tasks
from kvlab.runtime.orders import MODEL_WORK
from kvlab.runtime.workbench import LAB, Workbench
from kvlab.state.identity import Sampling, recipe_of
from kvlab.state.records import SegmentRecord, StateRecord
from kvlab.state.tokens import BYTES_PER_ID


def truncated(bench: Workbench, record: StateRecord, n_tokens: int) -> StateRecord:
    """The state of the first ``n_tokens`` tokens: whole segments are shared, a cut one is copied."""
    kept = [segment for segment in record.segments if segment.end <= n_tokens]
    boundary = kept[-1].end if kept else 0
    with bench.claiming("truncate") as claim:
        if boundary < n_tokens:
            parent = kept[-1].recipe if kept else None
            kept.append(_cut(bench, record, record.segments[len(kept)], parent, n_tokens - boundary, claim))
        return bench.operations.register(
            None,
            kept,
            operator="truncate",
            name=record.name,
            run=LAB,
            namespace=record.namespace,
            parents=(record.id,),
            conversation=record.conversation,
            note=f"first {n_tokens} tokens",
        )


def _cut(
    bench: Workbench,
    record: StateRecord,
    segment: SegmentRecord,
    parent: str | None,
    n_tokens: int,
    claim: Callable[[str], None],
) -> SegmentRecord:
    ids = segment.token_ids[: n_tokens * BYTES_PER_ID]
    recipe = recipe_of(bench.core.root(record.namespace), parent, ids, None, "cut")
    nbytes = n_tokens * bench.core.config.bytes_per_token
    claim(recipe)
    if not bench.operations.living_copies(recipe):
        worker = bench.pick_worker(record)
        with bench.using(record, worker) as path:
            source = path[record.segments.index(segment)]
            order = bench.order("truncate", "truncate", (record.name,), (recipe,), (), worker)
            bench.make_segment(tasks.cut, order, n_tokens, source, worker=worker, nbytes=nbytes)
    return SegmentRecord(recipe, parent, segment.start, ids, min(n_tokens, segment.n_prompt), nbytes)


def logits_after(bench: Workbench, record: StateRecord | None, ids: bytes) -> Any:
    """fp32 logits ``[vocabulary]`` after feeding ``ids`` on a state (None: from the root); nothing is kept."""
    worker = bench.pick_worker(record)
    with ExitStack() as held:
        past = held.enter_context(bench.using(record, worker)) if record is not None else []
        order = bench.order("logits", "logits", ("",), ("logits",), (Branch(ids, Sampling(0)),), worker)
        future = bench.core.client.submit(
            tasks.next_logits, order, *past, pure=False, resources=MODEL_WORK, **bench.where(worker)
        )
        return np.array(bench.wait([future])[0], dtype=np.float32)
