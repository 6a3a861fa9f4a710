"""The drafters' losses: cross-entropy, total variation and confidence, weighted by position.

Per position: 0.1 · CE(text token) + 0.9 · TV(p_draft, p_target) + 1.0 · BCE(confidence, 1 − TV), weighted by exp(−(k
− 1)/γ) for k = 1..γ; the confidence's label is the probability that rejection sampling keeps the token. Source: the
DSpark paper, section 3 (losses), and DeepSpec's loss (its L1 distance is 2 · TV with half the weight).

Shapes: N positions, Vd draft vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

__all__ = ["LossParts", "LossWeights", "position_loss", "position_weights"]


@dataclass(frozen=True)
class LossWeights:
    """Weights of the three losses; the paper's by default."""

    cross_entropy: float = 0.1
    total_variation: float = 0.9
    confidence: float = 1.0


@dataclass(frozen=True)
class LossParts:
    """What one position of a batch of blocks contributes.

    Attributes:
        loss: weighted sum over the N positions; the caller divides by the sum of weights.
        acceptance: (N,) 1 − TV: probability that a token drawn here is kept.
        cross_entropy, confidence: unweighted sums over the positions that count, for the progress bar.
    """

    loss: Tensor
    acceptance: Tensor
    cross_entropy: Tensor
    confidence: Tensor


def position_weights(block_size: int) -> Tensor:
    """(G,) exp(−(k − 1)/γ)."""
    return torch.exp(-torch.arange(block_size, dtype=torch.float32) / block_size)


class _Fused(torch.autograd.Function):
    """0.1·CE + 0.9·TV with their gradient in closed form: a softmax over Vd is passed over once instead of four times.

    d CE/d z = p − onehot (0 where the text's token is outside the draft vocabulary); d TV/d z = p ∘ (s − Σ p s) with
    s = ½ sign(p − q).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, row: Tensor, inside: Tensor, weight: Tensor,
        ce_tv: tuple[float, float],
    ) -> tuple[Tensor, Tensor, Tensor]:
        top = logits.amax(-1, keepdim=True)
        p = (logits - top).exp_()
        total = p.sum(-1, keepdim=True)
        p /= total
        ce = (total.log() + top)[:, 0] - logits.gather(1, row[:, None])[:, 0]
        ce = torch.where(inside, ce, torch.zeros_like(ce))
        sign = torch.sign(p - target)
        outside = 1 - target.sum(-1)  # mass that no draft token can match
        tv = 0.5 * ((p - target).abs_().sum(-1) + outside.clamp_(min=0))
        half = 0.5 * sign
        grad = p * (half - (p * half).sum(-1, keepdim=True)) * ce_tv[1]
        ce_weight = ce_tv[0] * inside.to(p.dtype)
        grad += p * ce_weight[:, None]
        grad.scatter_add_(1, row[:, None], -ce_weight[:, None])
        grad *= weight[:, None]
        ctx.save_for_backward(grad)
        loss = ((ce_tv[0] * ce + ce_tv[1] * tv) * weight).sum()
        return loss, (1 - tv).clamp_(0, 1), ce

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return grad * grads[0], None, None, None, None, None


def position_loss(
    logits: Tensor, confidence: Tensor | None, target: Tensor, row: Tensor, weight: Tensor, weights: LossWeights
) -> LossParts:
    """One block position.

    Args:
        logits: (N, Vd) float32 of the drafter.
        confidence: (N,) logits of the confidence head, None without one.
        target: (N, Vd) the target's probabilities on the draft vocabulary (they sum to at most 1).
        row: (N,) the text's token as a row of the draft vocabulary; Vd if it is outside.
        weight: (N,) position weight, 0 where the text has ended.
    """
    inside = (row < logits.shape[1]) & (weight > 0)
    loss, acceptance, ce = _Fused.apply(  # type: ignore[no-untyped-call]
        logits, target, row.clamp(max=logits.shape[1] - 1), inside, weight,
        (weights.cross_entropy, weights.total_variation))
    acceptance = acceptance.detach()
    bce = loss.new_zeros(())
    if confidence is not None:
        each = binary_cross_entropy_with_logits(confidence, acceptance, reduction="none")
        loss = loss + weights.confidence * (each * weight).sum()
        bce = (each.detach() * (weight > 0)).sum()
    return LossParts(loss, acceptance, ce.detach().sum(), bce)
