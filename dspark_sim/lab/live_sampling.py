"""Rejection sampling of a batch of drafts of different lengths: what is kept, and the token after it.

Draft token d, drawn from q, is kept with probability min(1, p(d) / q(d)). At the first one that is not kept the next
token comes from the positive part of p − q, normalised; where all are kept, from p behind the last of them. Whatever
the lengths are, as long as they do not look at the tokens, the text has the target's law. Greedy decoding keeps d where
it is the target's arg max.

Shapes: R requests, G block size, B = Σ (1 + ℓ) tokens of the pass, V vocabulary, Vd draft vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark_sim.lab.coupling import pick
from dspark_sim.policy import IntArray

__all__ = ["Block", "Dice", "Verdict", "draw_draft", "judge", "pick_wide"]

CHUNK = 512  # vocabulary entries per group of the two-level search


@dataclass(frozen=True)
class Block:
    """What was drafted in a step.

    Attributes:
        tokens: (R, G) token ids; behind a request's draft length anything.
        law: (R, G, Vd) q, on the device; None when greedy.
        confidence: (R, G) raw; None without a confidence head.
        probability: (R, G) of the drawn token; None when greedy.
    """

    tokens: Tensor
    law: Tensor | None
    confidence: Tensor | None
    probability: Tensor | None


@dataclass(frozen=True)
class Verdict:
    """Per request: (R,) draft tokens kept, and the token behind them."""

    accepted: IntArray
    after: IntArray


class Dice:
    """The random numbers of each request: a stream of its own, whoever else is in the batch.

    Args:
        seed: of the run; ``keys`` of a request (its number, the repeat) choose its stream.
    """

    def __init__(self, seed: int, block_size: int) -> None:
        self.seed, self.G = seed, block_size
        self._streams: dict[tuple[int, ...], np.random.Generator] = {}

    def first(self, key: tuple[int, ...]) -> float:
        """The uniform number of the token that prefill emits."""
        self._streams[key] = np.random.default_rng(np.random.SeedSequence([self.seed, *key], spawn_key=(83,)))
        return float(self._streams[key].random())

    def roll(self, keys: list[tuple[int, ...]], device: torch.device) -> Tensor:
        """(R, 2 G + 1) uniform numbers: which token is drafted, whether it is kept, which one comes after."""
        rolled = np.stack([self._streams[key].random(2 * self.G + 1) for key in keys])
        return torch.from_numpy(rolled).to(device)


def draw_draft(logits: Tensor, temperature: float, place: Tensor) -> tuple[Tensor, Tensor | None]:
    """Rows (A,) of the draft vocabulary from logits (A, Vd), and q (A, Vd); greedy: the arg max, and None."""
    if temperature == 0:
        return logits.argmax(dim=-1), None
    law = torch.softmax(logits / temperature, dim=-1)
    return pick(law, place), law


def pick_wide(weight: Tensor, uniform: Tensor) -> Tensor:
    """As :func:`~dspark_sim.lab.coupling.pick`, over groups first: quick for a vocabulary of hundreds of thousands."""
    A, V = weight.shape
    if V % CHUNK:
        weight = torch.nn.functional.pad(weight, (0, CHUNK - V % CHUNK))
    groups = weight.view(A, -1, CHUNK)
    total = groups.sum(dim=-1).double().cumsum(dim=-1)
    point = uniform[:, None] * total[:, -1:]
    top = (total < total[:, -1:]).sum(dim=-1, keepdim=True)  # the last group that has any weight
    group = torch.minimum(torch.searchsorted(total, point, right=True), top)
    before = torch.where(group > 0, total.gather(1, (group - 1).clamp(min=0)), torch.zeros_like(point))
    inside = groups[torch.arange(A, device=weight.device), group[:, 0]].double().cumsum(dim=-1)
    last = (inside < inside[:, -1:]).sum(dim=-1, keepdim=True)  # never a token of weight 0
    within = torch.minimum(torch.searchsorted(inside, point - before, right=True), last)
    return (group * CHUNK + within)[:, 0]


def judge(
    logits: Tensor, lengths: IntArray, block: Block | None, draft_ids: Tensor | None, draft_rows: Tensor | None,
    temperature: float, dice: Tensor | None,
) -> Verdict:
    """Decide what is kept of every draft.

    Args:
        logits: (B, V) of the target behind every token of the pass; those of a request stand together: its anchor
            first, then its ℓ draft tokens.
        lengths: (R,) ℓ.
        block: what was drafted; None when nothing was.
        draft_ids: (Vd,) token ids of the draft vocabulary.
        draft_rows: (V,) the other way round.
        temperature: 0 is greedy.
        dice: (R, 2 G + 1) of :class:`Dice`; None when greedy.
    """
    device, R, G = logits.device, len(lengths), int(lengths.max(initial=0))
    length = torch.from_numpy(lengths).to(device)
    begin = (length + 1).cumsum(0) - length - 1
    inside = torch.arange(G, device=device) < length[:, None]
    at = (begin[:, None] + torch.arange(G, device=device)).clamp(max=len(logits) - 1)  # (R, G) rows that judge a draft
    kept = torch.zeros(R, dtype=torch.long, device=device)
    if temperature == 0:
        best = logits.argmax(dim=-1)
        if block is not None and G:
            kept = ((block.tokens[:, :G] == best[at]) & inside).long().cumprod(dim=1).sum(dim=1)
        return Verdict(kept.cpu().numpy(), best[begin + kept].cpu().numpy())
    assert dice is not None
    width = (dice.shape[1] - 1) // 2
    scaled = logits / temperature
    if block is not None and G:
        assert block.probability is not None
        normaliser = torch.logsumexp(scaled, dim=-1)
        drawn = block.tokens[:, :G]
        p = (scaled[at, drawn].double() - normaliser[at].double()).exp()
        keep = (dice[:, width:width + G] * block.probability[:, :G].double() < p) & inside
        kept = keep.long().cumprod(dim=1).sum(dim=1)
    law = torch.softmax(scaled[begin + kept], dim=-1)
    refused = (kept < length).nonzero()[:, 0]
    if len(refused):
        assert block is not None
        assert block.law is not None
        assert draft_ids is not None
        weight = law[refused]
        draft = block.law[refused, kept[refused]]
        weight[:, draft_ids] = (weight[:, draft_ids] - draft).clamp(min=0)
        empty = weight.sum(dim=-1, keepdim=True) <= 0  # p and q agree to the last bit, and rounding asked all the same
        law[refused] = torch.where(empty, law[refused], weight)
    return Verdict(kept.cpu().numpy(), pick_wide(law, dice[:, -1]).cpu().numpy())
