"""Tiny random models of real classes for the lab's tests: targets, their folders with a tokenizer, drafters.

Weights are drawn large enough that attention, norms and heads all matter: with the usual initialisation (0.02) every
distribution is nearly uniform and a test sees nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dspark_sim.lab.drafters import Drafter, DrafterConfig, build
from dspark_sim.lab.drafters.config import Kind
from dspark_sim.lab.target import Target

HIDDEN = 32
LAYERS = 4
EOS = 1
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")


def tiny_target(
    family: str = "qwen3", *, vocab: int = 64, seed: int = 0, hidden: int = HIDDEN, tokenizer: bool = False
) -> Target:
    """A target in float32: ``qwen3`` (untied head, all layers full) or ``gemma3`` (tied head, scaled embedding, layers
    sliding over 8 tokens and one full); 4 layers, 4 heads on 2 key-value heads of 8. Token 1 ends a response."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM

    shape: dict[str, Any] = dict(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=512, pad_token_id=0,
        eos_token_id=EOS, bos_token_id=2, initializer_range=0.3,
    )
    torch.manual_seed(seed)
    if family == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=False))
    elif family == "gemma3":
        model = Gemma3ForCausalLM(Gemma3TextConfig(
            **shape, sliding_window=8, query_pre_attn_scalar=8,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        ))
    else:
        raise ValueError(family)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.2 * torch.randn_like(weight))
    target = Target(model, f"tiny-{family}")
    if tokenizer:
        target.tokenizer = tiny_tokenizer(vocab)
    return target


def tiny_tokenizer(vocab: int = 64) -> Any:
    """Words ``w4``, ``w5``, …, split at white space, have those ids; anything else is <unk> (3)."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate([*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), vocab))])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>",
                                   unk_token="<unk>")


def save_target(target: Target, folder: Path) -> Path:
    """Write a tiny target as a Hugging Face folder (config.json, model.safetensors, tokenizer.json)."""
    target.model.save_pretrained(folder)
    tiny_tokenizer(target.vocab_size).save_pretrained(folder)
    return folder


def tiny_config(
    kind: Kind, target: Target, *, block_size: int | None = None, draft_vocab: int | None = None,
    layers: int | None = None, head: str | None = "vanilla", confidence: bool = True, with_markov: bool = True,
    target_layer_ids: tuple[int, ...] | None = None, rank: int = 6, bias: bool = False, **more: Any,
) -> DrafterConfig:
    """As :func:`tiny_drafter` takes it."""
    dspark, autoregressive = kind == "dspark", kind in ("eagle3", "mtp")
    gemma = target.config.model_type.startswith("gemma")
    ids = target_layer_ids or ((target.layers - 1,) if kind == "mtp" else (0, 2))
    markov = rank if dspark and head else 0
    return replace(DrafterConfig(
        kind=kind, hidden_size=target.hidden_size, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, num_hidden_layers=layers or (1 if autoregressive else 2), vocab_size=target.vocab_size,
        block_size=block_size or (1 if kind == "mtp" else 4), target_layer_ids=ids, rope_theta=10_000.0,
        hidden_act="gelu_pytorch_tanh" if gemma else "silu", attention_bias=bias, mask_token_id=0, markov_rank=markov,
        markov_head_type=head or "vanilla",  # type: ignore[arg-type]
        enable_confidence_head=dspark and confidence,
        confidence_head_with_markov=bool(dspark and confidence and markov and with_markov),
        embed_scale=target.hidden_size**0.5 if gemma else 1.0, draft_vocab_size=draft_vocab,
        num_target_layers=target.layers,
    ), **more)


def tiny_drafter(kind: Kind, target: Target, *, seed: int = 0, **options: Any) -> Drafter:
    """A drafter with random weights, embedding and head frozen from ``target``.

    Args:
        options: of :func:`tiny_config`: ``block_size`` (4; mtp 1), ``draft_vocab`` (None: full; else that many tokens),
            ``layers`` (2; autoregressive 1), ``head`` (vanilla, gated, rnn or None), ``confidence``, ``with_markov``,
            ``target_layer_ids`` ((0, 2); mtp: the last), ``rank`` (6), ``bias``, and any field of DrafterConfig.
    """
    config = tiny_config(kind, target, **options)
    generator = torch.Generator().manual_seed(seed)
    draft_ids = None
    if config.draft_vocab_size is not None:
        draft_ids = torch.randperm(config.vocab_size, generator=generator)[: config.draft_vocab_size].sort().values
    drafter = build(config, draft_ids)
    with torch.no_grad():
        for name, weight in drafter.state_dict().items():  # with Gemma's layer_scalar, which is a buffer
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(1 + 0.2 * noise if "norm" in name or "scalar" in name else 0.3 * noise)
    embedding = target.model.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding)
    drafter.frozen_from(embedding.weight, target.head_weight)
    return drafter.eval()
