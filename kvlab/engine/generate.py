"""Running branches on one past: prefill in rows, then decode steps in which only live branches take part."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from transformers import PreTrainedModel

from kvlab.engine.cache import SegmentedCache, Span, Tails
from kvlab.engine.parts import PartKernel
from kvlab.engine.payload import obtain, shortened
from kvlab.engine.prefill import forward_row, pack_rows
from kvlab.engine.protocol import Allocate, Branch, Listener, Produced
from kvlab.engine.sampling import draw
from kvlab.engine.siblings import SiblingTails
from kvlab.errors import Cancelled
from kvlab.state.identity import KVConfig
from kvlab.state.tokens import pack_ids, unpack_ids

Finish = Literal["stop", "length", "prefill"]


@dataclass(slots=True)
class Running:
    """One branch while it runs. ``row`` is its tail row, valid until it is settled."""

    index: int
    branch: Branch
    prompt: tuple[int, ...]
    row: int
    generated: list[int] = field(default_factory=list)
    last_logits: torch.Tensor | None = None
    first_token_at: int = 0
    finish: Finish | None = None
    payload: torch.Tensor | None = None

    @property
    def kv_ids(self) -> tuple[int, ...]:
        """Ids that have K/V once the branch is finished: all but the last sampled token."""
        return self.prompt + tuple(self.generated[:-1])

    @property
    def limit(self) -> int:
        """Most tokens of K/V it can come to."""
        return len(self.prompt) + max(0, self.branch.sampling.max_new_tokens - 1)


class Run:
    """One piece of work: branches on one past. Used once, by one thread, in inference mode.

    A lone branch writes straight into the caller's memory for all it can come to, and is compacted once if it stops
    early: on a CPU in place, so that it never takes more than it was given. Siblings work in shared tails; each gets
    memory for exactly its tokens when it is finished.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: KVConfig,
        kernel: PartKernel,
        branches: Sequence[Branch],
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener,
    ) -> None:
        self.model = model
        self.config = config
        self.allocate = allocate
        self.listener = listener
        self.device = model.device
        self.all = [Running(i, branch, unpack_ids(branch.ids), i) for i, branch in enumerate(branches)]
        self.live: list[Running] = list(self.all)
        self.whole: torch.Tensor | None = None
        self.tails: Tails
        if len(branches) == 1:
            self.whole = obtain(allocate, self.all[0].limit, config, self.device)
            self.tails = Tails(self.whole[None])
        else:
            longest = max(len(running.prompt) for running in self.all)
            most = max(running.limit for running in self.all)
            self.tails = SiblingTails(config, len(branches), longest, self.device, most=most)
        self.cache = SegmentedCache(past, self.tails, kernel)

    def __call__(self, chunk: int) -> list[Produced]:
        """Prefill and generate; the results are in the order of the branches.

        Raises
        ------
        Cancelled
            When the listener says so; nothing is kept.
        """
        began = time.perf_counter()
        self._prefill(chunk)
        prefilled = time.perf_counter()
        while self.live:
            self._step()
        decoded = time.perf_counter()
        return [self._produced(running, prefilled - began, decoded - prefilled) for running in self.all]

    def _prefill(self, chunk: int) -> None:
        lengths = [len(running.prompt) for running in self.all]
        done = 0
        finished: list[Running] = []
        for spans in pack_rows(lengths, chunk):
            self._stop_if_cancelled()
            fed = [self.all[span.row].prompt[span.start : span.start + span.count] for span in spans]
            ends, keep, offset = [], [], 0
            for span in spans:
                offset += span.count
                if span.start + span.count == lengths[span.row]:
                    ends.append(self.all[span.row])
                    keep.append(offset - 1)
            ids = torch.tensor([token for piece in fed for token in piece], device=self.device)
            logits = forward_row(self.model, self.cache, ids, spans, keep)
            for running, row_logits in zip(ends, logits, strict=True):
                running.last_logits = row_logits.clone()
                self._take(running, row_logits)
            finished += [running for running in ends if running.finish]
            done += offset
            self.listener.on_chunk(done, sum(lengths))
        for running in finished:
            self._settle(running)

    def _step(self) -> None:
        self._stop_if_cancelled()
        by_row = sorted(self.live, key=lambda running: running.row)
        lengths = self.tails.lengths
        if isinstance(self.tails, SiblingTails):
            self.tails.reserve(max(lengths) + 1)
        spans = [Span(running.row, lengths[running.row], 1) for running in by_row]
        ids = torch.tensor([running.generated[-1] for running in by_row], device=self.device)
        logits = forward_row(self.model, self.cache, ids, spans, range(len(by_row)))
        for running, row_logits in zip(by_row, logits, strict=True):
            self._take(running, row_logits)
        for running in by_row:
            if running.finish:
                self._settle(running)

    def _take(self, running: Running, logits: torch.Tensor) -> None:
        """Draw the branch's next token, and see whether it was the last."""
        sampling = running.branch.sampling
        if sampling.max_new_tokens == 0:
            running.finish = "prefill"
        else:
            position = self.cache.n_past + len(running.prompt) + len(running.generated)
            token = draw(logits, sampling, position)
            running.generated.append(token)
            self.listener.on_token(running.index, token)
            if token in running.branch.stop_ids:
                running.finish = "stop"
            elif len(running.generated) == sampling.max_new_tokens:
                running.finish = "length"
        if not running.first_token_at:
            running.first_token_at = time.time_ns()

    def _settle(self, running: Running) -> None:
        """Give a finished branch memory of exactly its tokens, and let it leave."""
        n_tokens = len(running.kv_ids)
        if self.whole is not None and (self.whole.shape[3] == n_tokens or self.device.type == "cpu"):
            running.payload = shortened(self.whole, n_tokens)
        else:
            running.payload = obtain(self.allocate, n_tokens, self.config, self.device)
            running.payload.copy_(self.tails.buffer[running.row, ..., :n_tokens, :])
        self.live.remove(running)
        if isinstance(self.tails, SiblingTails):
            moved = self.tails.remove(running.row)
            for other in self.live:
                if other.row == moved:
                    other.row = running.row

    def _stop_if_cancelled(self) -> None:
        if self.listener.cancelled():
            raise Cancelled("the work was stopped between two pieces", hint="start it again; nothing of it was kept")

    def _produced(self, running: Running, prefill_seconds: float, decode_seconds: float) -> Produced:
        payload, finish, last_logits = running.payload, running.finish, running.last_logits
        if payload is None or finish is None or last_logits is None:
            raise RuntimeError(f"branch {running.index} was left unfinished")
        return Produced(
            payload=payload,
            kv_ids=pack_ids(running.kv_ids),
            generated=pack_ids(running.generated),
            finish=finish,
            last_logits=last_logits,
            prefill_seconds=prefill_seconds,
            decode_seconds=decode_seconds,
            first_token_at=running.first_token_at,
        )
