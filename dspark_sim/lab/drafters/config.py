"""What a drafter's checkpoint says about itself: the keys of ``config.json`` that matter here.

Source of the keys: the released checkpoints (deepseek-ai/dspark_qwen3_4b_block7 and others): the target's own
configuration with ``num_hidden_layers`` = draft layers, plus the drafter's keys. ``kind``, ``embed_scale`` and
``draft_vocab_size`` are ours; absent keys mean what the released ones mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dspark_sim.errors import InputError, nearest, shown

__all__ = ["KINDS", "DrafterConfig", "Family", "HeadType", "Kind"]

Kind: TypeAlias = Literal["dspark", "dflash", "eagle3", "mtp"]
HeadType: TypeAlias = Literal["vanilla", "gated", "rnn"]
Family: TypeAlias = Literal["qwen3", "gemma4"]
KINDS: tuple[Kind, ...] = ("dspark", "dflash", "eagle3", "mtp")
FAMILIES: tuple[Family, ...] = ("qwen3", "gemma4")
HEADS: tuple[HeadType, ...] = ("vanilla", "gated", "rnn")
ACTIVATIONS = ("silu", "gelu_pytorch_tanh")
MAX_BLOCK, MAX_LAYERS, MAX_SIZE = 63, 256, 2**24  # beyond any real drafter: a mistake in the file


@dataclass(frozen=True)
class DrafterConfig:
    """One drafter.

    Attributes:
        kind: dspark (parallel backbone, Markov and confidence heads), dflash (backbone only), eagle3 and mtp
            (autoregressive; mtp has block_size 1).
        hidden_size, intermediate_size, num_attention_heads, num_key_value_heads, head_dim, num_hidden_layers,
        vocab_size, rms_norm_eps, rope_theta, hidden_act, attention_bias: as in a Hugging Face configuration;
            num_hidden_layers counts draft layers (1 for the autoregressive kinds), vocab_size is the target's.
        block_size: γ, draft tokens per round.
        target_layer_ids: layers whose raw outputs are fused; -1 is the embedding output.
        mask_token_id: input of the block's later positions (parallel drafters).
        markov_rank: rank of the Markov head, 0 for none.
        markov_head_type: vanilla, gated or rnn.
        enable_confidence_head, confidence_head_with_markov: as released.
        embed_scale: factor on input embeddings (Gemma: √hidden_size).
        draft_vocab_size: Vd, tokens that the drafter can propose; None for all.
        num_target_layers: layers of the target, to check that the two belong together; None if unknown.
        family: form of the draft layers. gemma4: norms before and after attention and MLP, a scalar per layer, values
            normed without a weight, attention scores not divided by √head_dim.
        attention_k_eq_v: gemma4: values are the keys' projection (there is no v_proj).
        partial_rotary_factor: share of a head's pairs that rotary positions turn; the others stay (gemma4: 0.25).
        final_logit_softcapping: cap of the head's logits, before the Markov head adds to them; None for none.
        markov_all_tokens: with a reduced draft vocabulary: W1 has a row per token of the whole vocabulary, as vLLM's
            loader wants, instead of one per draft token and one for all others.
    """

    kind: Kind
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_hidden_layers: int
    vocab_size: int
    block_size: int
    target_layer_ids: tuple[int, ...]
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1_000_000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    mask_token_id: int = 0
    markov_rank: int = 0
    markov_head_type: HeadType = "vanilla"
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = False
    embed_scale: float = 1.0
    draft_vocab_size: int | None = None
    num_target_layers: int | None = None
    family: Family = "qwen3"
    attention_k_eq_v: bool = False
    partial_rotary_factor: float = 1.0
    final_logit_softcapping: float | None = None
    markov_all_tokens: bool = False

    def __post_init__(self) -> None:
        def need(ok: bool, key: str, allowed: str) -> None:
            if not ok:
                value = getattr(self, key)
                raise InputError(f"got {shown(value)}", key=key, allowed=allowed)

        if self.kind not in KINDS:
            raise InputError(f"got {shown(self.kind)}", key="kind", allowed=", ".join(KINDS),
                             suggestion=nearest(str(self.kind), KINDS))
        for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                    "vocab_size"):
            need(1 <= getattr(self, key) <= MAX_SIZE, key, f"1 to {MAX_SIZE}")
        need(1 <= self.num_hidden_layers <= MAX_LAYERS, "num_hidden_layers", f"1 to {MAX_LAYERS}")
        need(self.parallel or self.num_hidden_layers == 1, "num_hidden_layers", f"1 for kind {self.kind}")
        need(self.family in FAMILIES, "family", ", ".join(FAMILIES))
        need(self.family == "gemma4" or not self.attention_k_eq_v, "attention_k_eq_v", "false unless family is gemma4")
        need(0 < self.partial_rotary_factor <= 1, "partial_rotary_factor", "more than 0, at most 1")
        need(self.final_logit_softcapping is None or self.final_logit_softcapping > 0, "final_logit_softcapping",
             "a number > 0, or null")
        need(1 < self.rope_theta < float("inf"), "rope_theta", "a number > 1")
        need(0 < self.rms_norm_eps < 1, "rms_norm_eps", "more than 0, less than 1")
        need(1 <= self.block_size <= MAX_BLOCK, "block_size", f"1 to {MAX_BLOCK}")
        need(self.kind != "mtp" or self.block_size == 1, "block_size", "1 for kind mtp")
        need(self.num_attention_heads % self.num_key_value_heads == 0, "num_key_value_heads",
             f"a divisor of num_attention_heads ({self.num_attention_heads})")
        need(self.head_dim % 2 == 0, "head_dim", "an even number (rotary positions turn pairs)")
        ids = list(self.target_layer_ids)
        need(bool(ids) and ids == sorted(set(ids)) and ids[0] >= -1, "target_layer_ids", "rising numbers from -1")
        if self.num_target_layers is not None:
            need(ids[-1] < self.num_target_layers, "target_layer_ids", f"at most {self.num_target_layers - 1}")
        need(0 <= self.mask_token_id < self.vocab_size, "mask_token_id", f"0 to {self.vocab_size - 1}")
        need(self.hidden_act in ACTIVATIONS, "hidden_act", ", ".join(ACTIVATIONS))
        need(0 <= self.markov_rank <= MAX_SIZE, "markov_rank", f"0 to {MAX_SIZE}")
        need(self.markov_head_type in HEADS, "markov_head_type", ", ".join(HEADS))
        need(self.kind == "dspark" or not self.markov_rank, "markov_rank", "0 unless kind is dspark")
        need(self.kind == "dspark" or not self.enable_confidence_head, "enable_confidence_head",
             "false unless kind is dspark")
        need(not self.confidence_head_with_markov or self.markov_rank > 0, "confidence_head_with_markov",
             "false without a Markov head")
        if self.draft_vocab_size is not None:
            need(1 <= self.draft_vocab_size <= self.vocab_size, "draft_vocab_size", f"1 to {self.vocab_size}")

    @property
    def parallel(self) -> bool:
        """Whether all tokens of a block share one backbone pass."""
        return self.kind in ("dspark", "dflash")

    @property
    def outputs(self) -> int:
        """Vd: size of the draft vocabulary."""
        return self.draft_vocab_size or self.vocab_size

    @property
    def markov_by_token(self) -> bool:
        """Whether a row of the Markov head's W1 is a token id (else a row of the draft vocabulary)."""
        return self.draft_vocab_size is None or self.markov_all_tokens
