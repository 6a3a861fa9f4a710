"""Draft tokens drawn beside a text that exists already, by the conditional law of rejection sampling.

Rejection sampling draws d from q (the drafter), keeps it with probability min(1, p(d) / q(d)) and otherwise draws the
text's token y from (p − q)⁺, normalised. Read backwards, given y: d = y and kept with probability min(1, q(y) / p(y));
otherwise d comes from (q − p)⁺, normalised, and does not depend on y. So a block may be drafted after the text, and
has the joint law with it that a real engine gives (docs/method.md; the tests enumerate it).

Shapes: A blocks drafted together, Vd draft vocabulary. p of tokens that the drafter cannot propose is in nobody's
residual, for q is 0 there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["acceptance", "couple", "pick", "residual"]


def acceptance(draft: Tensor, target: Tensor) -> Tensor:
    """P(the draft token equals the text's token y and is kept | y) = min(1, q(y) / p(y)).

    Args:
        draft: q(y), any shape; 0 where the drafter cannot propose y.
        target: p(y), same shape; above 0, since y was drawn from it (an underflow counts as smaller than q).
    """
    ratio = draft / torch.where(target > 0, target, torch.ones_like(target))
    chance = torch.where(target > 0, ratio.clamp(max=1), torch.ones_like(ratio))
    return torch.where(draft > 0, chance, torch.zeros_like(chance))


def residual(draft: Tensor, target: Tensor) -> Tensor:
    """Weights (…, Vd) of a draft token that is rejected: the positive part of q − p, not normalised.

    Where q and p agree to the last bit nothing is ever rejected; rounding may ask all the same, and gets q.
    """
    weight = (draft - target).clamp(min=0)
    return torch.where(weight.sum(-1, keepdim=True) > 0, weight, draft)


def pick(weight: Tensor, uniform: Tensor) -> Tensor:
    """(A,) indices drawn with probabilities in proportion to ``weight`` (A, V) at points ``uniform`` (A,) of 0..1.

    Never an index of weight 0.
    """
    total = weight.double().cumsum(dim=-1)
    index = torch.searchsorted(total, uniform[:, None] * total[:, -1:], right=True)[:, 0]
    return torch.minimum(index, (total < total[:, -1:]).sum(dim=-1))


def couple(
    draft: Tensor, text: Tensor, probability: Tensor, target: Callable[[Tensor], Tensor], on_path: Tensor,
    accept: Tensor, place: Tensor,
) -> tuple[Tensor, Tensor]:
    """One position of A blocks.

    Args:
        draft: (A, Vd) q, after what each block has drafted so far.
        text: (A,) row of the text's next token in the draft vocabulary, Vd if it is not there.
        probability: (A,) p of the text's next token.
        target: called with the indices (n,) of blocks that reject here; answers p on the draft vocabulary (n, Vd).
        on_path: (A,) bool: everything before was kept. Off the path a token simply comes from q.
        accept, place: (A,) uniform numbers: whether a token is kept; which one it is if not.

    Returns:
        (A,) drawn tokens as rows of the draft vocabulary, and (A,) bool: kept.
    """
    outputs = draft.shape[1]
    own = draft.gather(1, text.clamp(max=outputs - 1)[:, None])[:, 0]
    own = torch.where(text < outputs, own, torch.zeros_like(own))
    kept = on_path & (accept < acceptance(own.double(), probability.double()))
    token = text.clone()
    off, rejected = (~on_path).nonzero()[:, 0], (on_path & ~kept).nonzero()[:, 0]
    if len(off):
        token[off] = pick(draft[off], place[off])
    if len(rejected):
        token[rejected] = pick(residual(draft[rejected], target(rejected)), place[rejected])
    return token, kept
