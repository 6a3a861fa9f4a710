"""config.json of a drafter: the released checkpoints' keys, read into and written from a :class:`DrafterConfig`.

A released configuration is the target's own, with ``num_hidden_layers`` counting draft layers and the drafter's keys
added. Of the many keys that it inherits, those that would change what is computed are read or refused, those that
cannot matter are left, and those that are not known here are named to the caller. Source: the configurations of
deepseek-ai's DeepSpec checkpoints (``Qwen3DSparkModel``, ``Gemma4DSparkModel``: markov_rank 0 is DFlash;
``Qwen3Eagle3Model``, ``Gemma4Eagle3Model``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.lab.drafters.config import KINDS, DrafterConfig, Family

__all__ = ["read_config", "written_config"]

OWN = "DsparkSimDrafter"  # what no released class computes: MTP-1, reduced DSpark vocabularies, other activations
RELEASED: dict[str, tuple[Family, bool]] = {  # architecture -> family, parallel
    "Qwen3DSparkModel": ("qwen3", True),
    "Gemma4DSparkModel": ("gemma4", True),
    "Qwen3Eagle3Model": ("qwen3", False),
    "Gemma4Eagle3Model": ("gemma4", False),
}
OTHERS = {  # formats that people may try, and why they are not this one
    "DFlashDraftModel": "the z-lab format, in which a slot predicts itself, not the token after it",
    "LlamaForCausalLMEagle3": "the SpecForge format, with other tensor names",
    "DSparkDraftModel": "the DeepSeek-V4 or SpecForge form of DSpark",
}
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {  # key -> values under which nothing changes, why others are refused
    "quantization_config": ((None,), "quantised weights"),
    "enable_d2_feature": ((False, None), "slots that predict themselves"),
    "enable_moe_block": ((False, None), "mixtures of experts"),
    "hidden_size_per_layer_input": ((0, None), "per-layer inputs"),
    "num_kv_shared_layers": ((0, None), "layers that share keys and values"),
    "mlp_bias": ((False, None), "biases in the MLP"),
}
READ = {
    "architectures", "kind", "family", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
    "head_dim", "global_head_dim", "num_global_key_value_heads", "num_hidden_layers", "vocab_size", "block_size",
    "ttt_length", "target_layer_ids", "rms_norm_eps", "rope_theta", "rope_parameters", "rope_scaling", "hidden_act",
    "hidden_activation", "attention_bias", "mask_token_id", "markov_rank", "markov_head_type", "enable_confidence_head",
    "confidence_head_with_markov", "embed_scale", "draft_vocab_size", "num_target_layers", "attention_k_eq_v",
    "final_logit_softcapping", "layer_types", "use_sliding_window", "tie_word_embeddings",
}
HARMLESS = {  # training, generation and book-keeping: nothing in a forward pass at inference
    "attention_dropout", "attn_implementation", "_attn_implementation", "bos_token_id", "cache_implementation",
    "d2_prefix_weight_base", "draft_num_hidden_layers", "dtype", "eos_token_id", "id2label", "initializer_range",
    "is_encoder_decoder", "label2id", "max_position_embeddings", "max_window_layers", "model_type",
    "moe_intermediate_size", "num_anchors", "num_experts", "output_attentions", "output_hidden_states", "pad_token_id",
    "return_dict", "sliding_window", "step_loss_decay", "target_model_name_or_path", "target_model_type",
    "target_text_model_type", "top_k_experts", "torch_dtype", "transformers_version", "use_bidirectional_attention",
    "use_cache", "use_double_wide_mlp", "vocab_size_per_layer_input",
}
_MISSING = object()


def read_config(raw: Any, file: Path) -> tuple[DrafterConfig, bool, tuple[str, ...]]:
    """A drafter's configuration.

    Args:
        raw: what config.json holds.
        file: its path, for messages.

    Returns:
        The configuration, whether the head is tied to the embedding, and the keys that are not known here.

    Raises:
        InputError: names file and key.
    """
    if not isinstance(raw, dict):
        raise InputError(f"got {shown(raw)}", file=file, allowed="a JSON object")
    architectures = raw.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and len(architectures) == 1 else architectures
    if name != OWN and (not isinstance(name, str) or name not in RELEASED):
        why = f": {OTHERS[name]}" if isinstance(name, str) and name in OTHERS else ""
        raise InputError(f"got {shown(name)}{why}", file=file, key="architectures", allowed=", ".join([*RELEASED, OWN]),
                         suggestion=nearest(str(name), RELEASED) if not why else None)

    def take(key: str, kind: type, default: Any = _MISSING) -> Any:
        value = raw.get(key)
        if value is None:
            if default is _MISSING:
                raise InputError("missing", file=file, key=key, allowed=f"a value ({kind.__name__})")
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InputError(f"got {shown(value)}", file=file, key=key, allowed=f"a value of type {kind.__name__}")
        return value

    for key, (fine, why) in REFUSED.items():
        if key in raw and raw[key] not in fine:
            raise InputError(f"got {shown(raw[key])}: {why} are not supported", file=file, key=key,
                             allowed=" or ".join("null" if v is None else str(v).lower() for v in fine))
    rank, confidence = take("markov_rank", int, 0), take("enable_confidence_head", bool, False)
    if name == OWN:
        kind, family = take("kind", str), take("family", str, "qwen3")
        if kind not in KINDS:
            raise InputError(f"got {shown(kind)}", file=file, key="kind", allowed=", ".join(KINDS),
                             suggestion=nearest(kind, KINDS))
    else:
        family, parallel = RELEASED[name]
        kind = ("dspark" if rank or confidence else "dflash") if parallel else "eagle3"
    gemma, autoregressive = family == "gemma4", kind in ("eagle3", "mtp")
    layers, heads = take("num_hidden_layers", int), take("num_attention_heads", int)
    _check_layers(raw, layers, file)
    ids = take("target_layer_ids", list)
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise InputError(f"got {shown(ids)}", file=file, key="target_layer_ids", allowed="a list of layer numbers")
    theta, turned = _rotary(raw, gemma, file)
    same = take("attention_k_eq_v", bool, False)
    hidden, vocabulary = take("hidden_size", int), take("vocab_size", int)
    size = take("global_head_dim" if gemma else "head_dim", int, hidden // max(heads, 1))
    groups = take("num_global_key_value_heads" if gemma and same else "num_key_value_heads", int, heads)
    act = take("hidden_activation", str, "gelu_pytorch_tanh") if gemma else take("hidden_act", str, "silu")
    draft = take("draft_vocab_size", int, None)
    try:
        config = DrafterConfig(
            kind=kind, hidden_size=hidden, intermediate_size=take("intermediate_size", int), num_attention_heads=heads,
            num_key_value_heads=groups, head_dim=size, num_hidden_layers=layers, vocab_size=vocabulary,
            block_size=take("ttt_length" if autoregressive and "ttt_length" in raw else "block_size", int),
            target_layer_ids=tuple(ids), rms_norm_eps=take("rms_norm_eps", float, 1e-6), rope_theta=theta,
            hidden_act=act, attention_bias=take("attention_bias", bool, False),
            mask_token_id=0 if autoregressive else take("mask_token_id", int), markov_rank=rank,
            markov_head_type=take("markov_head_type", str, "vanilla"), enable_confidence_head=confidence,
            confidence_head_with_markov=confidence and take("confidence_head_with_markov", bool, False),
            embed_scale=take("embed_scale", float, hidden**0.5 if gemma else 1.0),
            draft_vocab_size=None if draft == vocabulary else draft,
            num_target_layers=take("num_target_layers", int, None), family=family, attention_k_eq_v=same,
            partial_rotary_factor=turned, final_logit_softcapping=take("final_logit_softcapping", float, None),
        )
    except InputError as error:
        raise error if error.file else InputError(error.problem, file=file, key=error.key, allowed=error.allowed,
                                                  suggestion=error.suggestion) from None
    unknown = tuple(sorted(set(raw) - READ - HARMLESS - set(REFUSED)))
    return config, take("tie_word_embeddings", bool, False), unknown


def _check_layers(raw: dict[str, Any], layers: int, file: Path) -> None:
    """Draft layers attend to everything; raises where the configuration says that some slide."""
    types = raw.get("layer_types")
    if types is None and raw.get("use_sliding_window"):
        raise InputError("got true without layer_types", file=file, key="use_sliding_window", allowed="false")
    if types is not None and types != ["full_attention"] * layers:
        raise InputError(f"got {shown(types)}", file=file, key="layer_types",
                         allowed=f"{layers} times full_attention (num_hidden_layers)")


def _rotary(raw: dict[str, Any], gemma: bool, file: Path) -> tuple[float, float]:
    """(theta, share of turned pairs), from ``rope_parameters`` (Gemma: of its full attention) or, in older files,
    ``rope_theta`` and ``rope_scaling``."""
    key = "rope_parameters" if raw.get("rope_parameters") is not None else "rope_scaling"
    nested = raw.get(key) if raw.get(key) is not None else {}
    if gemma and isinstance(nested, dict) and "full_attention" in nested:
        key, nested = f"{key}.full_attention", nested["full_attention"]
    if not isinstance(nested, dict):
        raise InputError(f"got {shown(nested)}", file=file, key=key, allowed="an object, e.g. rope_type and rope_theta")
    kinds = ("default", "proportional") if gemma else ("default",)
    kind = nested.get("rope_type", nested.get("type", "default"))
    if kind not in kinds:
        raise InputError(f"got {shown(kind)}: this scaling of rotary positions is not supported", file=file,
                         key=f"{key}.rope_type", allowed=", ".join(kinds))
    if nested.get("factor") not in (None, 1, 1.0):
        raise InputError(f"got {shown(nested['factor'])}: scaled rotary positions are not supported", file=file,
                         key=f"{key}.factor", allowed="1")
    stated = [t for t in (nested.get("rope_theta"), raw.get("rope_theta")) if t is not None]
    share = nested.get("partial_rotary_factor")
    if kind == "default" and share not in (None, 1, 1.0) and not gemma:
        raise InputError(f"got {shown(share)}: partial rotary positions are not supported here", file=file,
                         key=f"{key}.partial_rotary_factor", allowed="1")
    share = share if kind == "proportional" and share is not None else 1.0
    for value, where in [*((t, "rope_theta") for t in stated), (share, f"{key}.partial_rotary_factor")]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"got {shown(value)}", file=file, key=where, allowed="a number")
    if not stated or len(set(map(float, stated))) > 1:
        raise InputError(f"got {stated}" if stated else "missing", file=file, key="rope_theta",
                         allowed="one base of the rotary positions, here or in rope_parameters")
    return float(stated[0]), float(share)


def written_config(config: DrafterConfig) -> dict[str, Any]:
    """What config.json says of ``config``.

    ``architectures`` names a released class only where that class computes the same; else ``DsparkSimDrafter``.
    """
    c, gemma = config, config.family == "gemma4"
    alike = (c.hidden_act == ("gelu_pytorch_tanh" if gemma else "silu") and c.kind != "mtp"
             and c.embed_scale == (c.hidden_size**0.5 if gemma else 1.0)
             and (gemma or (c.final_logit_softcapping is None and c.partial_rotary_factor == 1.0))
             and c.draft_vocab_size is None)
    name = next(n for n, form in RELEASED.items() if form == (c.family, c.parallel)) if alike else OWN
    rope: dict[str, Any] = {"rope_type": "proportional" if gemma else "default", "rope_theta": c.rope_theta}
    if gemma:
        rope = {"full_attention": rope | {"partial_rotary_factor": c.partial_rotary_factor}}
    out: dict[str, Any] = {
        "architectures": [name], "model_type": "gemma4_text" if gemma else "qwen3", "kind": c.kind, "family": c.family,
        "hidden_size": c.hidden_size, "intermediate_size": c.intermediate_size, "vocab_size": c.vocab_size,
        "num_attention_heads": c.num_attention_heads, "num_key_value_heads": c.num_key_value_heads,
        "head_dim": c.head_dim, "num_hidden_layers": c.num_hidden_layers, "rms_norm_eps": c.rms_norm_eps,
        "layer_types": ["full_attention"] * c.num_hidden_layers, "rope_parameters": rope,
        "attention_bias": c.attention_bias, "target_layer_ids": list(c.target_layer_ids),
        "hidden_activation" if gemma else "hidden_act": c.hidden_act, "tie_word_embeddings": False,
        "block_size" if c.parallel else "ttt_length": c.block_size, "num_target_layers": c.num_target_layers,
        "embed_scale": c.embed_scale, "final_logit_softcapping": c.final_logit_softcapping,
        "draft_vocab_size": c.draft_vocab_size,
    }
    if gemma:
        out |= {"global_head_dim": c.head_dim, "num_global_key_value_heads": c.num_key_value_heads,
                "attention_k_eq_v": c.attention_k_eq_v}
    if c.parallel:
        out |= {"mask_token_id": c.mask_token_id, "markov_rank": c.markov_rank, "markov_head_type": c.markov_head_type,
                "enable_confidence_head": c.enable_confidence_head,
                "confidence_head_with_markov": c.confidence_head_with_markov}
    return {key: value for key, value in out.items() if value is not None}
