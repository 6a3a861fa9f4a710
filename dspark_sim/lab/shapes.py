"""What may be timed: named configurations with random weights (a step's time does not depend on them), or a model.

Sizes are those of the published config.json of Qwen/Qwen3-4B, -8B and -14B.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from dspark_sim.errors import InputError, nearest, shown
from dspark_sim.lab.gemma import NAME
from dspark_sim.lab.target import DTYPES, Target, load_target

__all__ = ["SHAPES", "open_shape"]

QWEN3: dict[str, Any] = {
    "model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40_960, "rope_theta": 1_000_000, "hidden_act": "silu", "attention_bias": False,
    "tie_word_embeddings": False,
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-4b": QWEN3 | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
                         "num_attention_heads": 32, "tie_word_embeddings": True},
    "qwen3-8b": QWEN3 | {"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36,
                         "num_attention_heads": 32},
    "qwen3-14b": QWEN3 | {"hidden_size": 5120, "intermediate_size": 17_408, "num_hidden_layers": 40,
                          "num_attention_heads": 40},
}


def open_shape(reference: str, *, device: torch.device, dtype: str) -> tuple[Target, bool]:
    """The model to time, and whether its weights are random.

    Args:
        reference: a name of :data:`SHAPES`; ``gemma-3-270m``; a folder of a Hugging Face model (its own weights where
            it has any); or a ``config.json`` (random weights).
        device: where.
        dtype: float32, bfloat16 or float16.

    Raises:
        InputError: no such thing, or too little memory.
    """
    path = Path(reference).expanduser()
    if reference in SHAPES:
        return _random(reference, dict(SHAPES[reference]), None, device, dtype), True
    if reference == NAME or (path.is_dir() and any(path.glob("*.safetensors"))):
        return load_target(reference, device=device, dtype=dtype), False
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        names = [*SHAPES, NAME]
        raise InputError(f"no model {shown(reference)}", suggestion=nearest(reference, names),
                         allowed=f"{', '.join(names)}, the folder of a Hugging Face causal LM, or a config.json")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "model_type" not in data:
            raise ValueError("it has no model_type")
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"is no configuration of a model ({problem})", file=file,
                         allowed="a config.json as Hugging Face models have it") from None
    name = file.parent.resolve().name if file.name == "config.json" else file.stem
    return _random(name, data, file, device, dtype), True


def _random(name: str, data: dict[str, Any], file: Path | None, device: torch.device, dtype: str) -> Target:
    from transformers import AutoConfig, AutoModelForCausalLM

    if dtype not in DTYPES:
        raise InputError(f"dtype {shown(dtype)}", allowed=", ".join(DTYPES), suggestion=nearest(dtype, DTYPES))
    kind = data.pop("model_type")
    try:
        config = AutoConfig.for_model(kind, **{k: v for k, v in data.items() if k not in ("architectures", "auto_map")})
        with torch.device(device):
            auto: Any = AutoModelForCausalLM  # untyped
            model = auto.from_config(config, dtype=DTYPES[dtype], trust_remote_code=False)
    except (torch.OutOfMemoryError, MemoryError):
        raise InputError(f"{device} has too little memory for {name} in {dtype}", file=file,
                         allowed="another --device, or --dtype bfloat16") from None
    except Exception as problem:  # transformers raises many kinds for a configuration that is none
        first = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        if "memory" in first:
            raise InputError(f"{device} has too little memory for {name} in {dtype}", file=file,
                             allowed="another --device, or --dtype bfloat16") from None
        raise InputError(f"transformers cannot build {name} ({first[:150]})", file=file,
                         allowed="the configuration of a causal LM that transformers knows") from None
    return Target(model, name, None)
