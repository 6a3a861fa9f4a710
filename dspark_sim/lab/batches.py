"""What one training step sees: some sequences, and blocks anchored at random positions of them.

Everything follows from (seed, step), so a run that starts again sees the same batches. Blocks of several anchors share
their sequence's context (anchor-bounded packing): a context entry at or after an anchor is invisible to its block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_sim.lab.features import FeatureStore

__all__ = ["Batch", "make_batch"]


@dataclass(frozen=True)
class Batch:
    """Shapes: B sequences padded to L tokens, A blocks, G block size.

    Attributes:
        ids: (B, L + 1) token ids, zero-padded.
        features: (B, L, F·H).
        row: (A,) sequence of each block.
        position: (A,) text position of each anchor.
        tokens: (A, G + 1) the anchor and the G tokens after it (0 past the end).
        count: (A,) how many of the G exist.
        last: (A, G, H) what the target's head reads to predict them.
        normaliser: (A, G).
    """

    ids: Tensor
    features: Tensor
    row: Tensor
    position: Tensor
    tokens: Tensor
    count: Tensor
    last: Tensor
    normaliser: Tensor


def make_batch(
    store: FeatureStore, columns: Tensor, block_size: int, *, sequences: int, anchors: int, seed: int, step: int,
    dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu",
) -> Batch:
    """Batch number ``step``: ``sequences`` of the store (in a shuffled order that repeats only when all were seen),
    ``anchors`` random anchors in each (all of them where a sequence has fewer)."""
    epoch, where = divmod(step * sequences, len(store))
    order = _order(len(store), seed, epoch)
    if where + sequences > len(store):
        order = torch.cat([order, _order(len(store), seed, epoch + 1)])
    draw = torch.Generator().manual_seed(_mix(seed, 2, step))
    read = [(store.read(i), store.anchors(i)) for i in order[where:where + sequences].tolist()]
    L = max(len(s.ids) for s, _ in read)
    ids = torch.zeros(len(read), L + 1, dtype=torch.long)
    features = torch.zeros(len(read), L, len(columns), dtype=dtype)
    rows, positions, tokens, counts, last, normal = [], [], [], [], [], []
    G = block_size
    for b, (s, (first, past)) in enumerate(read):
        n = len(s.ids)
        ids[b, :n] = s.ids
        features[b, :n] = s.features[:, columns].to(dtype)
        chosen = (first + torch.randperm(past - first, generator=draw)[:anchors]).sort().values
        after = chosen[:, None] + torch.arange(G + 1)
        rows.append(torch.full_like(chosen, b))
        positions.append(chosen)
        counts.append((n - 1 - chosen).clamp(max=G))
        tokens.append(torch.where(after < n, s.ids[after.clamp(max=n - 1)], torch.zeros_like(after)))
        before = after[:, :G].clamp(max=n - 1)
        last.append(s.last[before])
        normal.append(s.normaliser[before])
    batch = Batch(ids, features, torch.cat(rows), torch.cat(positions), torch.cat(tokens), torch.cat(counts),
                  torch.cat(last).to(dtype), torch.cat(normal))
    return Batch(**{name: value.to(device) for name, value in vars(batch).items()})


def _order(size: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(_mix(seed, 1, epoch)))


def _mix(seed: int, purpose: int, number: int) -> int:
    return (seed * 1_000_003 + purpose) * 1_000_000_007 + number & (2**63 - 1)
