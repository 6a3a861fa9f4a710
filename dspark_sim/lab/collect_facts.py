"""What a collected trace says of itself: machine, software, drafter, and how well the text fits the target."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import torch

from dspark_sim.lab.drafters import Drafter
from dspark_sim.lab.target import Target

if TYPE_CHECKING:
    from dspark_sim.lab.collect_parts import Part

__all__ = ["facts_of", "machine", "text_fit"]


def machine(target: Target) -> dict[str, Any]:
    """Device, software and number type."""
    import transformers

    device = (torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else
              f"CPU, {torch.get_num_threads()} of {os.cpu_count()} threads, {platform.machine()}")
    return {
        "source": "dspark-sim trace collect: teacher-forced target, blocks coupled to its own text",
        "model": target.name, "device": device,
        "software": f"torch {torch.__version__}, transformers {transformers.__version__}, "
                    f"Python {platform.python_version()}",
        "dtype": str(target.dtype).removeprefix("torch."), "date": datetime.now(UTC).date().isoformat(),
    }


def facts_of(name: str, drafter: Drafter, parts: Sequence[Part], temperature: float) -> dict[str, Any]:
    """What is particular to one drafter, and what was seen on the way."""
    c = drafter.config
    rows = sum(len(p.document) for p in parts)
    said = f"{c.kind}, block size {c.block_size}, {c.num_hidden_layers} layer{'s' if c.num_hidden_layers > 1 else ''}"
    said += f", target layers {', '.join(map(str, c.target_layer_ids))}"
    if c.markov_rank:
        said += f", {c.markov_head_type} Markov head of rank {c.markov_rank}"
    if c.draft_vocab_size is not None:
        said += f", draft vocabulary {c.draft_vocab_size:,} of {c.vocab_size:,}"
    out: dict[str, Any] = {
        "drafter": said, "hours": round(sum(p.seconds for p in parts) / 3600, 4), "documents": len(
            {int(d) for p in parts for d in p.document}), "text_fit": text_fit(parts, temperature),
    }
    if all(name in p.coverage for p in parts):
        out["draft_vocabulary_mass"] = round(sum(p.coverage[name] for p in parts) / rows, 4)
    if temperature == 0:
        out["draft_probability"] = "of the softmax at temperature 1"
    return out


def text_fit(parts: Sequence[Part], temperature: float) -> str:
    """A sentence on whether the texts are the target's own at this temperature."""
    n = sum(p.surprise.tokens for p in parts)
    if temperature == 0:
        foreign = sum(p.surprise.foreign for p in parts)
        return f"{foreign:,} of {n:,} tokens are not this target's arg max"
    mean, spread = surprise(parts)
    return f"surprise minus entropy {mean:+.4f} ± {1.96 * spread:.4f} nats a token (0 for the target's own text)"


def surprise(parts: Sequence[Part]) -> tuple[float, float]:
    """Mean excess of surprise over entropy per token, and its standard error (excesses are martingale differences)."""
    n = sum(p.surprise.tokens for p in parts)
    return sum(p.surprise.excess for p in parts) / n, math.sqrt(sum(p.surprise.square for p in parts)) / n
