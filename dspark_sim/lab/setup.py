"""A new drafter for a target: sizes from the target's configuration, a draft vocabulary, frozen embedding and head."""

from __future__ import annotations

import torch
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.lab.drafters import Drafter, DrafterConfig, ParallelDrafter, build
from dspark_sim.lab.drafters.config import HeadType, Kind
from dspark_sim.lab.features import FeatureStore
from dspark_sim.lab.target import Target

__all__ = ["default_layers", "fold_scale", "new_drafter"]

SPREAD = 5  # layers fused by default, as the released drafters have
ENOUGH = 0.75  # of hidden_size, in the values of a draft layer
FAINT = 0.01  # root mean square of embeddings in the residual stream: a tied head reads them as "the same token again"
SMALL = 0.02  # standard deviation of fresh Markov weights


def default_layers(layers: int) -> tuple[int, ...]:
    """Layers to fuse, evenly spread and ending with the last: of 18 layers 1, 5, 9, 13, 17."""
    if layers <= SPREAD:
        return tuple(range(layers))
    return tuple(round(1 + i * (layers - 2) / (SPREAD - 1)) for i in range(SPREAD))


def new_drafter(
    target: Target, kind: Kind, *, block_size: int = 7, layers: int = 1, head: HeadType = "vanilla", rank: int = 256,
    confidence: bool = True, draft_ids: Tensor | None = None, layer_ids: tuple[int, ...] | None = None,
    mask_token_id: int | None = None, seed: int = 0,
) -> Drafter:
    """A drafter with fresh weights, ready to be trained.

    Args:
        kind: dspark, dflash, eagle3 or mtp (whose block is 1 and whose feature is the target's last layer).
        layers: draft layers (autoregressive kinds have one).
        head, rank, confidence: dspark's heads.
        draft_ids: (Vd,) the draft vocabulary, rising; None for the whole.
        layer_ids: target layers to fuse; None for :func:`default_layers`.
        mask_token_id: None for the tokenizer's mask token, else the last id of the vocabulary.
        seed: of the weights.

    Raises:
        InputError: sizes that do not fit together.
    """
    c = target.config
    if kind in ("eagle3", "mtp") and layers != 1:
        raise InputError(f"{layers} layers", key="--layers", allowed=f"1 for kind {kind}")
    spread = target.model.get_input_embeddings().weight[:4096].float().square().mean().sqrt().clamp(min=1e-9)
    mask = mask_token_id
    if mask is None:
        mask = getattr(target.tokenizer, "mask_token_id", None) if target.tokenizer is not None else None
    heads, kv_heads = int(c.num_attention_heads), int(c.num_key_value_heads)
    size = int(getattr(c, "head_dim", None) or c.hidden_size // heads)
    while kv_heads * size < ENOUGH * target.hidden_size and heads % (2 * kv_heads) == 0:
        kv_heads *= 2  # values carry features of hidden_size numbers to the block: Gemma's single head would halve them
    config = DrafterConfig(
        kind=kind, hidden_size=target.hidden_size, intermediate_size=int(c.intermediate_size),
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=size, attention_bias=True,
        num_hidden_layers=layers, vocab_size=target.vocab_size, block_size=1 if kind == "mtp" else block_size,
        target_layer_ids=(target.layers - 1,) if kind == "mtp" else layer_ids or default_layers(target.layers),
        rms_norm_eps=float(c.rms_norm_eps), mask_token_id=target.vocab_size - 1 if mask is None else int(mask),
        hidden_act="gelu_pytorch_tanh" if "gelu" in str(getattr(c, "hidden_activation", "")) else "silu",
        markov_rank=rank if kind == "dspark" else 0, markov_head_type=head,
        enable_confidence_head=kind == "dspark" and confidence,
        confidence_head_with_markov=kind == "dspark" and confidence and rank > 0,
        embed_scale=FAINT / float(spread),
        draft_vocab_size=None if draft_ids is None else len(draft_ids), num_target_layers=target.layers,
        final_logit_softcapping=target.softcap,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drafter = build(config, draft_ids)
        if isinstance(drafter, ParallelDrafter) and drafter.markov_head is not None:
            torch.nn.init.normal_(drafter.markov_head.markov_w1.weight, std=SMALL)
            torch.nn.init.normal_(drafter.markov_head.markov_w2.weight, std=SMALL)
    drafter.frozen_from(target.model.get_input_embeddings().weight, target.head_weight)
    return drafter.to(target.device)


def fold_scale(drafter: Drafter, store: FeatureStore) -> None:
    """Divide ``fc`` by the store's constants, so that the drafter reads raw features; once, after training."""
    H = drafter.config.hidden_size
    scale = torch.cat([store.scale[store.layer_ids.index(i)].expand(H) for i in drafter.config.target_layer_ids])
    with torch.no_grad():
        drafter.fc.weight /= scale.to(drafter.fc.weight)
