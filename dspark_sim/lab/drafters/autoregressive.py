"""Eagle3-style and MTP drafters: one token after another, each from the token before it and a hidden state.

Entry j of the context joins the embedding of token j + 1 with the fused target features of token j (both normed, side
by side: attention projects from 2H); its output predicts token j + 2. The block's first token comes from the entry
before the anchor, whose token is the anchor; later ones feed the layer's own output, before the final norm, back in
place of target features. Names, norms and residual (the feature before ``hidden_norm``) are those of the released
Eagle3 checkpoints (``Qwen3Eagle3Model``, ``Gemma4Eagle3Model``). MTP-1 is this project's own kind on the same module,
with the target's last layer and a block of one; it is in the spirit of the DeepSeek-V3 report, section 2.2, but no
released MTP module loads into it. Source: EAGLE-3 (Li et al. 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dspark_sim.lab.drafters.base import Context, Drafter, State, chosen
from dspark_sim.lab.drafters.config import DrafterConfig
from dspark_sim.lab.drafters.layers import KV, DraftLayer, RMSNorm
from dspark_sim.lab.drafters.parallel import _positions

__all__ = ["AutoregressiveDrafter"]


class _Layer(DraftLayer):
    """``input_layernorm`` is of the token's embedding, ``hidden_norm`` of the feature."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config, 2 * config.hidden_size)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def joined(self, embedded: Tensor, feature: Tensor) -> Tensor:
        """(…, 2H)."""
        return torch.cat([self.input_layernorm(embedded), self.hidden_norm(feature)], dim=-1)


class AutoregressiveDrafter(Drafter):
    """Eagle3 (block of γ, several target layers) or MTP-1 (block of 1, the last layer); one draft layer."""

    def __init__(self, config: DrafterConfig, draft_ids: Tensor | None = None) -> None:
        if config.num_hidden_layers != 1:
            raise ValueError("autoregressive drafters have one layer")
        super().__init__(config, draft_ids)
        self.layers = nn.ModuleList([_Layer(config)])

    @property
    def layer(self) -> _Layer:
        layer = self.layers[0]
        assert isinstance(layer, _Layer)
        return layer

    def context(self, ids: Tensor, features: Tensor, start: int | Tensor = 0) -> Context:
        fused = self.fc(features)
        entries = self.layer.joined(self.embed(ids[:, 1:]).to(fused.dtype), fused)
        return Context([self.layer.self_attn.keys_values(entries, _positions(fused, start))], fused)

    def begin(
        self, context: Context, row: Tensor, position: Tensor, anchor: Tensor, entries: Tensor | None = None
    ) -> State:
        seen = position if entries is None else entries
        if bool((seen < 1).any()):
            raise ValueError("an autoregressive drafter needs at least one token before the anchor")
        last = seen - 1
        rows = torch.zeros_like(row) if context.fused.shape[0] == 1 else row
        # Entry `last` is the query itself: it stays out of the context and comes back as the block's own first entry,
        # with the anchor that this block really has.
        visible = torch.arange(context.length, device=anchor.device) < last[:, None]
        return State(0, context.fused[rows, last], context=chosen(context.layers, row), visible=visible,
                     position=position - 1)

    def step(self, state: State, previous: Tensor) -> tuple[Tensor, Tensor | None]:
        assert state.visible is not None
        assert state.position is not None
        layer, feature = self.layer, state.hidden
        entry = layer.joined(self.embed(previous).to(feature.dtype), feature)[:, None]  # (A, 1, 2H)
        positions = (state.position + state.step)[:, None]
        new = layer.self_attn.keys_values(entry, positions)
        own: KV = new if not state.own else (
            torch.cat([state.own[0][0], new[0]], 1), torch.cat([state.own[0][1], new[1]], 1))
        everything = torch.ones(1, own[0].shape[1], dtype=torch.bool, device=previous.device)
        attended = layer.self_attn(entry, positions, state.context[0], state.visible, own, everything)[:, 0]
        x = layer.added(feature, attended)
        state.hidden, state.own = x, [own]
        state.step += 1
        return self.head(self.norm(x)).float(), None
