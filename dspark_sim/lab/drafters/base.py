"""What training, collection and the live engine ask of any drafter.

A round goes::

    context = drafter.context(ids, features)          keys and values of text that the target has read
    state = drafter.begin(context, row, anchor_position, anchor)
    for k in range(block_size):
        logits, confidence = drafter.step(state, previous)    previous: the anchor at k = 0, then token k of the block

``confidence`` comes before token k is drawn; what is drawn is the caller's business (sampled, greedy, coupled to a
text, or the text itself in training).

Shapes: B sequences, L tokens, A blocks drafted together, H hidden size, F fused layers, Vd draft vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from dspark_sim.lab.drafters.config import DrafterConfig
from dspark_sim.lab.drafters.layers import KV, RMSNorm

__all__ = ["Context", "Drafter", "State"]


@dataclass
class Context:
    """What a drafter keeps of the text so far; grows by :meth:`extended` as a request decodes.

    Attributes:
        layers: per draft layer, keys and values (B, L, K, E).
        fused: (B, L, H) fused target features (the autoregressive drafters start from them).
    """

    layers: list[KV]
    fused: Tensor

    @property
    def length(self) -> int:
        """L."""
        return self.fused.shape[1]

    def extended(self, more: Context) -> Context:
        """This context followed by ``more``."""
        return Context(
            [(torch.cat([k, k2], 1), torch.cat([v, v2], 1))
             for (k, v), (k2, v2) in zip(self.layers, more.layers, strict=True)],
            torch.cat([self.fused, more.fused], 1),
        )


@dataclass
class State:
    """A round under way.

    Attributes:
        step: draft tokens asked for so far.
        hidden: parallel drafters: (A, G, H) of the whole block; autoregressive: (A, H) latest.
        markov: (A, r) state of an rnn Markov head.
        context, visible, position: autoregressive: what its next token attends to.
        own: autoregressive: keys and values of the block so far, per layer.
    """

    step: int
    hidden: Tensor
    markov: Tensor | None = None
    context: list[KV] = field(default_factory=list)
    visible: Tensor | None = None
    position: Tensor | None = None
    own: list[KV] = field(default_factory=list)


class Drafter(nn.Module, ABC):
    """Base of all drafters; the subclasses' parameter names are the checkpoint's tensor names.

    Attributes:
        config: see :class:`DrafterConfig`.
        draft_ids: (Vd,) token ids of the draft vocabulary, rising (all tokens if it is not reduced).
        draft_rows: (V,) row of each token in the draft vocabulary; Vd for tokens outside.
    """

    draft_ids: Tensor
    draft_rows: Tensor

    def __init__(self, config: DrafterConfig, draft_ids: Tensor | None = None) -> None:
        super().__init__()
        c = self.config = config
        if (draft_ids is None) != (c.draft_vocab_size is None):
            raise ValueError("a reduced draft vocabulary needs both draft_vocab_size and draft_ids")
        # The device is named, so that a drafter can be built on "meta" and still know its vocabulary.
        ids = torch.arange(c.vocab_size, device="cpu") if draft_ids is None else draft_ids.long()
        if ids.shape != (c.outputs,) or bool((ids.diff() <= 0).any()) or ids[0] < 0 or ids[-1] >= c.vocab_size:
            raise ValueError(f"draft_ids must be {c.outputs} rising token ids below {c.vocab_size}")
        rows = torch.full((c.vocab_size,), c.outputs, dtype=torch.long, device=ids.device)
        rows[ids] = torch.arange(c.outputs, device=ids.device)
        self.register_buffer("draft_ids", ids, persistent=False)
        self.register_buffer("draft_rows", rows, persistent=False)
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.fc = nn.Linear(len(c.target_layer_ids) * c.hidden_size, c.hidden_size, bias=False)
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.lm_head = nn.Linear(c.hidden_size, c.outputs, bias=False)

    @property
    def has_confidence(self) -> bool:
        """Whether :meth:`step` answers with a confidence."""
        return self.config.enable_confidence_head

    def embed(self, ids: Tensor) -> Tensor:
        """(…, H) input embeddings."""
        out: Tensor = self.embed_tokens(ids)
        if self.config.embed_scale == 1.0:
            return out
        return out * torch.full((), self.config.embed_scale, dtype=out.dtype, device=out.device)  # rounded, as Gemma's

    def head(self, hidden: Tensor) -> Tensor:
        """(…, Vd) logits of the output head from normed ``hidden`` (…, H), capped where the checkpoint says so."""
        out: Tensor = self.lm_head(hidden)
        cap = self.config.final_logit_softcapping
        return out if cap is None else torch.tanh(out / cap) * cap

    @abstractmethod
    def context(self, ids: Tensor, features: Tensor, start: int | Tensor = 0) -> Context:
        """Entries of text that the target has read.

        Args:
            ids: (B, L + 1) token ids; the one past the end is the anchor (parallel drafters do not read it).
            features: (B, L, F·H) raw outputs of ``target_layer_ids`` at the first L of them.
            start: text position of the first entry; an int, or (B,) one per sequence.
        """

    @abstractmethod
    def begin(
        self, context: Context, row: Tensor, position: Tensor, anchor: Tensor, entries: Tensor | None = None
    ) -> State:
        """Open A blocks.

        Args:
            context: of B sequences; B = 1 is shared by all blocks.
            row: (A,) which sequence each block continues.
            position: (A,) text position of the anchor: the block sees context entries strictly before it.
            anchor: (A,) token ids.
            entries: (A,) how many context entries each block sees, when entries are not text positions from 0
                (padded batches of a live engine); None for ``position``.
        """

    @abstractmethod
    def step(self, state: State, previous: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (A, Vd) of the next draft token, float32, and the logit (A,) of its confidence (None without a head).

        Args:
            previous: (A,) token ids before it: the anchor first.
        """

    def frozen_from(self, embed: Tensor, head: Tensor) -> None:
        """Take the target's embedding (V, H) and output head (V, H), and freeze both (training starts with this)."""
        with torch.no_grad():
            self.embed_tokens.weight.copy_(embed)
            self.lm_head.weight.copy_(head[self.draft_ids] if self.config.draft_vocab_size else head)
        self.embed_tokens.requires_grad_(False)
        self.lm_head.requires_grad_(False)


def chosen(layers: list[KV], row: Tensor) -> list[KV]:
    """The contexts (A, L, K, E) of the blocks' sequences; a single sequence stays (1, L, K, E)."""
    return [(k, v) if k.shape[0] == 1 else (k[row], v[row]) for k, v in layers]
