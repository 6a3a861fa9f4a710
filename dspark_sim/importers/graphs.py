"""Sizes at which engines capture CUDA graphs, and so pad a batch up to."""

from __future__ import annotations

from dspark_sim.errors import InputError, shown

__all__ = ["capture_sizes"]

VLLM_LIMIT = 512


def vllm_sizes(limit: int = VLLM_LIMIT) -> list[int]:
    """vLLM's default: 1, 2, 4, every 8 below 256, every 16 up to ``limit``.

    Source: vllm/config/vllm.py, ``_set_cudagraph_sizes`` (512 on Hopper; half of that many requests, or fewer with
    speculation, lower the limit).
    """
    return [n for n in (1, 2, 4, *range(8, 256, 8), *range(256, limit + 1, 16)) if n <= limit]


def capture_sizes(text: str) -> list[int]:
    """``vllm``, ``vllm:LIMIT``, ``none``, or sizes with commas, as ``--graph-sizes`` takes them; rising.

    Raises:
        InputError: anything else.
    """
    word, colon, rest = text.strip().partition(":")
    if word == "none" and not colon:
        return []
    if word == "vllm" and (not colon or (rest.isdecimal() and 1 <= int(rest) <= 8192)):
        return vllm_sizes(int(rest) if rest else VLLM_LIMIT)
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isdecimal() and 1 <= int(p) <= 1 << 20 for p in parts):
        raise InputError(f"got {shown(text)}", key="--graph-sizes", allowed="vllm, vllm:LIMIT, none, or sizes as "
                                                                            "1,2,4,8")
    sizes = [int(p) for p in parts]
    if sizes != sorted(set(sizes)):
        raise InputError(f"got {shown(text)}", key="--graph-sizes", allowed="rising sizes, each once")
    return sizes
