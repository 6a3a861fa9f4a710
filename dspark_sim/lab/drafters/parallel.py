"""DSpark and DFlash: a block's tokens from one bidirectional pass, the target's features injected as context.

The block's inputs are the anchor's embedding and γ − 1 mask embeddings; the output at slot k predicts token k + 1
after the anchor. Every layer's keys and values are those of the fused target features strictly before the anchor,
then the block's own. DSpark adds the heads of :mod:`dspark_sim.lab.drafters.heads`. Source: the DSpark paper, section
3; DFlash.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dspark_sim.lab.drafters.base import Context, Drafter, State, chosen
from dspark_sim.lab.drafters.config import DrafterConfig
from dspark_sim.lab.drafters.heads import ConfidenceHead, MarkovHead
from dspark_sim.lab.drafters.layers import KV, DraftLayer, RMSNorm

__all__ = ["ParallelDrafter"]


class _Layer(DraftLayer):
    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config, config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor, context: KV, visible: Tensor, own_visible: Tensor) -> Tensor:
        inner = self.input_layernorm(x)
        own = self.self_attn.keys_values(inner, positions)
        return self.added(x, self.self_attn(inner, positions, context, visible, own, own_visible))


class ParallelDrafter(Drafter):
    """DSpark (with heads) or DFlash (without)."""

    def __init__(self, config: DrafterConfig, draft_ids: Tensor | None = None) -> None:
        super().__init__(config, draft_ids)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.markov_head = MarkovHead(config) if config.markov_rank else None
        self.confidence_head = ConfidenceHead(config) if config.enable_confidence_head else None

    def context(self, ids: Tensor, features: Tensor, start: int | Tensor = 0) -> Context:
        fused = self.hidden_norm(self.fc(features))
        positions = _positions(fused, start)
        return Context([layer.self_attn.keys_values(fused, positions) for layer in self.layers], fused)  # type: ignore[union-attr,operator]

    def begin(
        self, context: Context, row: Tensor, position: Tensor, anchor: Tensor, entries: Tensor | None = None
    ) -> State:
        G = self.config.block_size
        ids = torch.full((anchor.shape[0], G), self.config.mask_token_id, dtype=torch.long, device=anchor.device)
        ids[:, 0] = anchor
        positions = position[:, None] + torch.arange(G, device=anchor.device)
        seen = position if entries is None else entries
        visible = torch.arange(context.length, device=anchor.device) < seen[:, None]
        own_visible = torch.ones(G, G, dtype=torch.bool, device=anchor.device)
        x = self.embed(ids).to(context.fused.dtype)
        for layer, kv in zip(self.layers, chosen(context.layers, row), strict=True):
            x = layer(x, positions, kv, visible, own_visible)
        return State(0, self.norm(x))

    def step(self, state: State, previous: Tensor) -> tuple[Tensor, Tensor | None]:
        hidden = state.hidden[:, state.step]
        logits = self.head(hidden)
        before = None
        if self.markov_head is not None:
            rows = previous if self.config.markov_by_token else self.draft_rows[previous]
            before, latent, state.markov = self.markov_head.latent(rows, hidden, state.markov)
            logits = logits + self.markov_head.markov_w2(latent)
        state.step += 1
        return logits.float(), None if self.confidence_head is None else self.confidence_head(hidden, before)


def _positions(entries: Tensor, start: int | Tensor) -> Tensor:
    """(B, L) text positions of entries (B, L, H)."""
    steps = torch.arange(entries.shape[1], device=entries.device)
    if isinstance(start, int):
        return (steps + start).expand(entries.shape[0], -1)
    return steps + start[:, None]
