"""The engine on torch and transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from kvlab.engine import partial
from kvlab.engine.cache import SegmentedCache, Span, Tails
from kvlab.engine.fingerprint import weights_digest
from kvlab.engine.generate import Run
from kvlab.engine.interface import NAME
from kvlab.engine.linear import speed_up_linears
from kvlab.engine.parts import part_kernel
from kvlab.engine.payload import checked_past, new_payload
from kvlab.engine.prefill import forward_row
from kvlab.engine.protocol import Allocate, Branch, Listener, Produced
from kvlab.engine.sampling import check_sampling
from kvlab.engine.selftest import partial_objection, reference_logits, require_agreement, require_true_lse
from kvlab.engine.support import kv_config, require_supported
from kvlab.errors import ContextTooLong, InvalidInput, ModelRefused
from kvlab.state.identity import KVConfig, ModelIdentity, Sampling
from kvlab.state.tokens import BYTES_PER_ID, n_ids, unpack_ids

DEFAULT_CHUNK = 1024
PREFILL_ONLY = Sampling(max_new_tokens=0)


class TorchEngine:
    """A causal language model of transformers that computes on states.

    Implements :class:`kvlab.engine.protocol.Engine`. Calls share nothing that changes, so threads may call at once
    and get bit-equal results. Made by :meth:`from_model` or :func:`kvlab.engine.loading.load_engine`.

    Examples
    --------
    >>> from kvlab.state.tokens import pack_ids, unpack_ids
    >>> engine = load_engine("path/to/model")                                         # doctest: +SKIP
    >>> paper = engine.prefill(pack_ids([11, 12, 13]), [], engine.new_payload)        # doctest: +SKIP
    >>> turn = Branch(pack_ids([14]), Sampling(max_new_tokens=8))                     # doctest: +SKIP
    >>> unpack_ids(engine.resume(turn, [paper.payload], engine.new_payload).generated)  # doctest: +SKIP
    """

    def __init__(self, model: PreTrainedModel, identity: ModelIdentity, config: KVConfig) -> None:
        self._model = model
        self._identity = identity
        self._config = config
        self._kernel = part_kernel(model.device, model.dtype, config.head_dim)
        self._partial_objection = ""

    @classmethod
    def from_model(cls, model: PreTrainedModel, *, name: str, tokenizer_digest: str = "") -> TorchEngine:
        """Take over a loaded model: checks it by name, switches its attention to kvlab's, and proves it on a prompt.

        The model and every other model that shares its configuration object change their attention; do not use
        either elsewhere.

        Raises
        ------
        ModelRefused
            Naming what the engine does not reproduce, or the way of computing that gave other logits.
        """
        require_supported(model.config, type(model), name)
        config = kv_config(model.config, model.dtype)
        model.eval().requires_grad_(requires_grad=False)
        model.set_attn_implementation("sdpa")
        n_vocabulary = _n_vocabulary(model)
        reference = reference_logits(model, n_vocabulary)
        model.set_attn_implementation(NAME)
        if model.config._attn_implementation != NAME:  # noqa: SLF001  it has no public reader
            raise ModelRefused(
                f"{name} ({type(model).__name__}) does not let its attention be set",
                hint="use a model with plain causal attention, such as Llama, Qwen2, Qwen3 or Mistral",
            )
        speed_up_linears(model)
        engine = cls(model, ModelIdentity(name, weights_digest(model), tokenizer_digest), config)
        if engine.device.type != "cpu":
            require_true_lse(engine._kernel, config, engine.device)
        require_agreement(engine, reference)
        engine._partial_objection = partial_objection(engine, reference)
        return engine

    @property
    def identity(self) -> ModelIdentity:
        """M of every state made here."""
        return self._identity

    @property
    def config(self) -> KVConfig:
        """Θ of every state made here."""
        return self._config

    @property
    def device(self) -> torch.device:
        """Where weights and payloads lie."""
        return self._model.device

    @property
    def n_vocabulary(self) -> int:
        """Ids are 0..n_vocabulary-1."""
        return _n_vocabulary(self._model)

    @property
    def n_parameters(self) -> int:
        """Weights in use, tied ones counted once."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def new_payload(self, n_tokens: int) -> torch.Tensor:
        """Plain memory for ``n_tokens`` tokens; the ``allocate`` to pass when nothing better is at hand."""
        return new_payload(self._config, n_tokens, self.device)

    def prefill(
        self,
        ids: bytes,
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener = Listener(),
        chunk: int = DEFAULT_CHUNK,
    ) -> Produced:
        """Compute K/V of ``ids`` on top of ``past``, ``chunk`` tokens a pass.

        Changes only the payload it allocates (once, for exactly these tokens).

        Raises
        ------
        InvalidInput
            For no ids, or ids that the model does not have.
        ContextTooLong
            With ``need`` and ``have`` positions.
        StateMismatch
            For a past of another dtype or shape.
        Cancelled
            When the listener says so.
        """
        return self.resume(Branch(ids, PREFILL_ONLY), past, allocate, listener, chunk)

    def resume(
        self,
        branch: Branch,
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener = Listener(),
        chunk: int = DEFAULT_CHUNK,
    ) -> Produced:
        """Prefill ``branch.ids`` on top of ``past`` and generate. Forwards exactly ``branch.ids`` plus what it samples.

        ``allocate`` is called for the most tokens the branch can come to. If it stopped early, what it came to lies at the
        start of that memory; on a device it is called once more, for exactly that, and the first memory is let go. Errors
        as :meth:`prefill`.
        """
        return self._run([branch], past, allocate, listener, chunk)[0]

    def decode_batch(
        self,
        branches: Sequence[Branch],
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener = Listener(),
    ) -> list[Produced]:
        """As :meth:`resume` for siblings on one past, packed into one row of tokens a pass.

        Branches may differ in prompt length and limits; each result equals that of its own :meth:`resume`, and a
        finished branch takes part no longer. ``allocate`` is called for each branch when it is finished, for exactly
        its tokens. Errors as :meth:`prefill`.
        """
        if not branches:
            return []
        return self._run(branches, past, allocate, listener, DEFAULT_CHUNK)

    @torch.inference_mode()
    def logits(self, ids: bytes, past: Sequence[torch.Tensor]) -> torch.Tensor:
        """``[n, vocabulary]`` fp32 logits after each of ``ids`` on top of ``past``, in one pass; keeps no K/V.

        For audits, which compare two ways of computing row by row. Errors as :meth:`prefill`.
        """
        readable = self._checked([Branch(ids, PREFILL_ONLY)], past)
        n_tokens = n_ids(ids)
        cache = SegmentedCache(readable, Tails(self.new_payload(n_tokens)[None]), self._kernel)
        fed = torch.tensor(unpack_ids(ids), device=self.device)
        return forward_row(self._model, cache, fed, [Span(0, 0, n_tokens)], range(n_tokens))

    def partial_forward(
        self, hidden_or_ids: torch.Tensor, positions: torch.Tensor, layers: range, cache: torch.Tensor
    ) -> torch.Tensor:
        """Run ``layers`` on chosen rows of a sequence, scattering their K/V into ``cache`` in place.

        See :meth:`kvlab.engine.protocol.Engine.partial_forward` for shapes.

        Raises
        ------
        ModelRefused
            When layers of this model run alone do not give what the whole model gives; checked at load.
        InvalidInput
            For layers outside the model or positions that are not ascending within the cache.
        """
        if self._partial_objection:
            raise ModelRefused(
                f"{self._identity.name} cannot run single layers: {self._partial_objection}",
                hint="correction methods need a Llama-like backbone; exact reuse works without them",
            )
        return self.run_layers(hidden_or_ids, positions, layers, cache)

    @torch.inference_mode()
    def run_layers(
        self, hidden_or_ids: torch.Tensor, positions: torch.Tensor, layers: range, cache: torch.Tensor
    ) -> torch.Tensor:
        """:meth:`partial_forward` without asking whether the self-test passed; the self-test itself uses it."""
        return partial.run_layers(self._model, self._config, hidden_or_ids, positions, layers, cache)

    @torch.inference_mode()
    def _run(
        self,
        branches: Sequence[Branch],
        past: Sequence[torch.Tensor],
        allocate: Allocate,
        listener: Listener,
        chunk: int,
    ) -> list[Produced]:
        readable = self._checked(branches, past)
        if chunk < 1:
            raise InvalidInput(f"chunk is {chunk}", hint="at least one token a pass")
        return Run(self._model, self._config, self._kernel, branches, readable, allocate, listener)(chunk)

    def _checked(self, branches: Sequence[Branch], past: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        readable = checked_past(past, self._config, self.device)
        n_past = sum(payload.shape[3] for payload in readable)
        for branch in branches:
            self._check_branch(branch, n_past)
        return readable

    def _check_branch(self, branch: Branch, n_past: int) -> None:
        if not branch.ids or len(branch.ids) % BYTES_PER_ID:
            raise InvalidInput(
                f"a branch has {len(branch.ids)} bytes of ids", hint="feed at least one token, packed by pack_ids"
            )
        check_sampling(branch.sampling)
        ids = unpack_ids(branch.ids)
        if min(ids) < 0 or max(ids) >= self.n_vocabulary:
            wrong = next(i for i in ids if not 0 <= i < self.n_vocabulary)
            raise InvalidInput(
                f"token id {wrong} is not in the vocabulary of {self.n_vocabulary}",
                hint=f"tokenize with the tokenizer of {self._identity.name}",
                token_id=wrong,
            )
        need = n_past + n_ids(branch.ids) + max(0, branch.sampling.max_new_tokens - 1)
        if need > self._config.max_positions:
            raise ContextTooLong(
                f"{n_past} past + {n_ids(branch.ids)} new + {branch.sampling.max_new_tokens} generated tokens need "
                f"{need} positions, {self._identity.name} has {self._config.max_positions}",
                hint="shorten the prompt or max_new_tokens",
                need=need,
                have=self._config.max_positions,
            )


def _n_vocabulary(model: PreTrainedModel) -> int:
    embedding: Any = model.get_input_embeddings()
    return int(embedding.num_embeddings)
