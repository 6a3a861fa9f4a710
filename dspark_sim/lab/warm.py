"""A warm start in closed form: before its first step a drafter predicts its first token linearly.

A ridge regression predicts what the target's head reads at the anchor from the features of the token before it and
the anchor's embedding. Its two halves go where a drafter can use them:

* features: into ``fc``; parallel drafters get one head per key-value head that looks at the entry before (biases of q
  and k whose rotary phases peak one position back), whose values carry the prediction into the residual stream;
* anchor: into the Markov head (dspark; it then serves every slot), into heads that look at their own slot (dflash), or
  into the attention's own entry (eagle3, mtp).

The learning rate that follows must be small against the weights written here (5e-4), or the first steps wipe them out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dspark_sim.lab.drafters import AutoregressiveDrafter, Drafter, ParallelDrafter
from dspark_sim.lab.features import FeatureStore

__all__ = ["Ridge", "fit_ridge", "warm_start"]

SHARP = 0.2  # rotary rates (radians per position) that the looking heads use: the fast ones
QUIET = 0.1  # what the random parts of a fresh layer are scaled by
LOUD = 2.0  # biases of q and k against what the projections add


@dataclass(frozen=True)
class Ridge:
    """target state ≈ features · f + embedding · e + bias.

    Attributes:
        f: (F·H, H); e: (H, H); bias: (H,).
        size_f, size: root mean square of the features' part and of the whole prediction.
        basis: (H, H) principal directions of the features' part, most important first.
    """

    f: Tensor
    e: Tensor
    bias: Tensor
    size_f: float
    size: float
    basis: Tensor


def fit_ridge(drafter: Drafter, store: FeatureStore, *, anchors: int = 60_000, penalty: float = 30.0) -> Ridge:
    """Fit on random anchors of a store (its scaled features)."""
    columns = store.columns(drafter.config.target_layer_ids)
    draw = torch.Generator().manual_seed(0)
    n = len(columns) + drafter.config.hidden_size + 1
    gram, cross, seen = torch.zeros(n, n), torch.zeros(n, drafter.config.hidden_size), 0
    kept: list[Tensor] = []
    for index in torch.randperm(len(store), generator=draw).tolist():
        s, (first, past) = store.read(index), store.anchors(index)
        first = max(first, 1)
        if past <= first:
            continue
        at = first + torch.randperm(past - first, generator=draw)[:120]
        with torch.no_grad():
            embedded = _unit(drafter.embed(s.ids[at].to(drafter.fc.weight.device)).float()).cpu()
        x = torch.cat([s.features[at - 1][:, columns].float(), embedded, torch.ones(len(at), 1)], 1)
        gram += x.T @ x
        cross += x.T @ s.last[at].float()
        kept.append(x[:64])
        seen += len(at)
        if seen >= anchors:
            break
    solved = torch.linalg.solve(gram + penalty * torch.eye(n), cross)
    f, e, bias = solved[:len(columns)], solved[len(columns):-1], solved[-1]
    some = torch.cat(kept)[:8192]
    part = some[:, :len(columns)] @ f
    basis = torch.linalg.svd(part, full_matrices=False)[2].T
    return Ridge(f, e, bias, float(part.square().mean().sqrt()), float((some @ solved).square().mean().sqrt()), basis)


def _unit(x: Tensor) -> Tensor:
    """Rows of root mean square 1: embeddings as a fresh input norm hands them on."""
    return x / x.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-9)


def _fill(norm: Any, value: float) -> None:
    norm.weight.fill_(value)


@torch.no_grad()
def warm_start(drafter: Drafter, ridge: Ridge) -> None:
    """Write a regression into a fresh drafter (its ``attention_bias`` must be on for the parallel kinds)."""
    where = drafter.fc.weight.device
    ridge = replace(ridge, f=ridge.f.to(where), e=ridge.e.to(where), bias=ridge.bias.to(where),
                    basis=ridge.basis.to(where))
    layers: Any = drafter.layers
    for layer in layers:  # what is still random starts quietly
        layer.mlp.down_proj.weight.mul_(QUIET)
        layer.self_attn.o_proj.weight.mul_(QUIET)
    if isinstance(drafter, ParallelDrafter):
        _parallel(drafter, ridge)
    elif isinstance(drafter, AutoregressiveDrafter):
        _autoregressive(drafter, ridge)


def _parallel(drafter: ParallelDrafter, ridge: Ridge) -> None:
    c, layer = drafter.config, drafter.layers[0]
    attention: Any = layer.self_attn
    E, K, group = c.head_dim, c.num_key_value_heads, c.num_attention_heads // c.num_key_value_heads
    drafter.fc.weight.copy_(ridge.f.T / ridge.size_f)
    half = E // 2
    rate = c.rope_theta ** (-torch.arange(half) / half)
    fast = rate >= SHARP
    size = LOUD * (E / 2 / max(1, int(fast.sum()))) ** 0.5
    here = torch.cat([torch.where(fast, size, 0.0), torch.zeros(half)])  # phase 0 in every fast pair
    back = torch.cat([torch.where(fast, size * rate.cos(), 0.0), torch.where(fast, size * rate.sin(), 0.0)])
    share = min(E, -(-c.hidden_size // K))  # directions per key-value head
    with_markov = drafter.markov_head is not None
    own = ridge.e.T / ridge.size_f
    for j in range(K):
        lines = slice(j * E, j * E + share)
        part = ridge.basis[:, j * share:(j + 1) * share]
        width = part.shape[1]
        attention.k_proj.bias[j * E:(j + 1) * E] = back
        attention.v_proj.weight[lines][:width] = part.T
        attention.v_proj.bias[j * E:(j + 1) * E] = 0
        looks = slice(j * group * E, j * group * E + width)
        attention.q_proj.bias[j * group * E:(j * group + 1) * E] = here
        attention.o_proj.weight[:, j * group * E:(j * group + 1) * E] = 0
        attention.o_proj.weight[:, looks] = part
        if group > 1 and not with_markov:  # a head that looks at its own slot
            second = slice((j * group + 1) * E, (j * group + 2) * E)
            attention.q_proj.bias[second] = back
            attention.o_proj.weight[:, second] = 0
            attention.o_proj.weight[:, second.start:second.start + width] = own @ part
    attention.o_proj.bias.copy_(ridge.bias / ridge.size_f * (0.0 if with_markov else 1.0))
    if drafter.markov_head is not None:
        _markov(drafter, ridge)
        _fill(drafter.norm, ridge.size_f)
    else:
        _fill(drafter.norm, ridge.size)


def _markov(drafter: ParallelDrafter, ridge: Ridge) -> None:
    """W2·W1[token] ≈ head · (embedding · e + bias), in the head's rank."""
    head = drafter.markov_head
    assert head is not None
    if head.kind != "vanilla":
        return  # gated and rnn heads put something between W1 and W2
    said = _unit(drafter.embed(drafter.draft_ids).float()) @ ridge.e + ridge.bias
    _, _, directions = torch.linalg.svd(said.T @ said)
    V = directions[: drafter.config.markov_rank].T  # (H, r)
    rows = said @ V
    size = float(rows.square().mean().sqrt())
    if head.markov_w1.weight.shape[0] == len(rows) + 1:
        rows = torch.cat([rows, rows.mean(0, keepdim=True)])
    if head.markov_w1.weight.shape[0] == len(rows):
        head.markov_w1.weight[:, : V.shape[1]] = rows / size
        head.markov_w2.weight[:, : V.shape[1]] = drafter.lm_head.weight.float() @ V * size


def _autoregressive(drafter: AutoregressiveDrafter, ridge: Ridge) -> None:
    """fc predicts; the block's own entry adds the anchor's part through the attention's values."""
    c, layer = drafter.config, drafter.layers[0]
    attention: Any = layer.self_attn
    E, K, group = c.head_dim, c.num_key_value_heads, c.num_attention_heads // c.num_key_value_heads
    drafter.fc.weight.copy_(ridge.f.T)
    _fill(drafter.norm, ridge.size)
    share = min(E, -(-c.hidden_size // K))
    left = torch.linalg.svd(ridge.e)[0]  # directions of the embedding that matter most to the prediction
    half = E // 2
    rate = c.rope_theta ** (-torch.arange(half) / half)
    fast = rate >= SHARP
    here = torch.cat([torch.where(fast, LOUD * (E / 2 / max(1, int(fast.sum()))) ** 0.5, 0.0), torch.zeros(half)])
    for j in range(K):
        part = left[:, j * share:(j + 1) * share]
        width = part.shape[1]
        attention.v_proj.weight[j * E:j * E + width, : c.hidden_size] = part.T
        attention.v_proj.weight[j * E:j * E + width, c.hidden_size:] = 0
        first = slice(j * group * E, (j * group + 1) * E)
        attention.o_proj.weight[:, first] = 0
        attention.o_proj.weight[:, first.start:first.start + width] = (part.T @ ridge.e).T
        if attention.q_proj.bias is not None:
            attention.q_proj.bias[first] = here
            attention.k_proj.bias[j * E:(j + 1) * E] = here
            attention.v_proj.bias[j * E:(j + 1) * E] = 0
    if attention.o_proj.bias is not None:
        attention.o_proj.bias.copy_(ridge.bias)
