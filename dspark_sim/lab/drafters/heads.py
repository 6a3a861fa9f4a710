"""Heads on the parallel backbone: Markov heads, by which a block's tokens depend on each other; the confidence head.

Shapes: A blocks, H hidden size, r Markov rank, Vd draft vocabulary. Source: the DSpark paper, section 3 (sequential
heads), and the released checkpoints' tensor names.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dspark_sim.lab.drafters.config import DrafterConfig

__all__ = ["ConfidenceHead", "MarkovHead"]


class MarkovHead(nn.Module):
    """What the previous token adds to a position's logits.

    vanilla: W2·W1[prev]. gated: W2·(σ(gate·[hidden; W1[prev]]) ∘ W1[prev]). rnn: a state of size r runs along the
    block, (gate, candidate, output) = joint·[state; W1[prev]; hidden];
    state ← σ(gate)∘state + (1 − σ(gate))∘tanh(candidate); W2·tanh(output).

    W1 has a row per token of the target's vocabulary, as released; with a reduced draft vocabulary, a row per draft
    token and a last one for every other token (unless ``markov_all_tokens``).
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        r, H = config.markov_rank, config.hidden_size
        rows = config.vocab_size if config.markov_by_token else config.outputs + 1
        self.kind = config.markov_head_type
        self.markov_w1 = nn.Embedding(rows, r)
        self.markov_w2 = nn.Linear(r, config.outputs, bias=False)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(H + r, r)
        elif self.kind == "rnn":
            self.joint_proj = nn.Linear(H + 2 * r, 3 * r)

    def latent(self, previous: Tensor, hidden: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """One position.

        Args:
            previous: (A,) rows of W1 of the tokens before this position.
            hidden: (A, H) the backbone's output here.
            state: (A, r) of the rnn head; None at the block's start.

        Returns:
            W1[previous] (A, r), what W2 is applied to (A, r), the new state.
        """
        before = self.markov_w1(previous)
        if self.kind == "vanilla":
            return before, before, None
        if self.kind == "gated":
            return before, torch.sigmoid(self.gate_proj(torch.cat([hidden, before], dim=-1))) * before, None
        state = torch.zeros_like(before) if state is None else state
        gate, candidate, output = self.joint_proj(torch.cat([state, before, hidden], dim=-1)).chunk(3, dim=-1)
        gate = torch.sigmoid(gate)
        state = gate * state + (1 - gate) * torch.tanh(candidate)
        return before, torch.tanh(output), state


class ConfidenceHead(nn.Module):
    """Logit of "this token is accepted, given that those before it in the block were"."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.with_markov = config.confidence_head_with_markov
        self.proj = nn.Linear(config.hidden_size + (config.markov_rank if self.with_markov else 0), 1)

    def forward(self, hidden: Tensor, before: Tensor | None) -> Tensor:
        """(…,) logits from ``hidden`` (…, H) and W1[previous token] (…, r)."""
        if self.with_markov:
            assert before is not None
            hidden = torch.cat([hidden, before.to(hidden.dtype)], dim=-1)
        out: Tensor = self.proj(hidden).squeeze(-1)
        return out.float()
