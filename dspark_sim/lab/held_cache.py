"""A KV cache that never grows: random keys and values of a stated length, for timing one step again and again.

Shapes: R requests, K key-value heads, L context, W tokens of the step, E head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

__all__ = ["held_cache"]


class HeldLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer: (R, K, L + W, E) of which the last W are written at every call.

    Args:
        shape: (R, K, L, E).
        width: W.
        window: tokens that a sliding layer looks back at, itself included; None for all.
    """

    is_compileable = True
    is_croppable = False

    def __init__(self, shape: tuple[int, int, int, int], width: int, window: int | None, device: torch.device,
                 dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        r, k, self.length, e = shape
        self.width, self.is_sliding = width, window is not None
        past = self.length if window is None else min(self.length, window - 1)
        self.keys = torch.randn(r, k, past + width, e, device=device, dtype=dtype)
        self.values = torch.randn(r, k, past + width, e, device=device, dtype=dtype)
        self.past, self.is_initialized = past, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: everything is there from the start."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **more: Any) -> tuple[Tensor, Tensor]:
        """Overwrite the step's own entries and return all."""
        keys, values = self.keys, self.values
        assert keys is not None
        assert values is not None
        keys[:, :, self.past:].copy_(key_states)
        values[:, :, self.past:].copy_(value_states)
        return keys, values

    def get_seq_length(self) -> int:
        """L, whatever was written."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(entries kept, text position of the first)."""
        return self.past + self.width, self.length - self.past

    def get_max_length(self) -> int:
        """Entries of text that the cache stands for."""
        return self.length + self.width

    def get_max_cache_shape(self) -> int:
        """The same, by its name in other versions of transformers."""
        return self.length + self.width


def held_cache(config: Any, *, requests: int, context: int, width: int, device: torch.device,
               dtype: torch.dtype) -> Cache:
    """A cache of ``context`` random tokens for each of ``requests``, for steps of ``width`` tokens each.

    Args:
        config: the target's text configuration; layers of type ``sliding_attention`` keep their window only.
    """
    heads = int(config.num_key_value_heads)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * int(config.num_hidden_layers)
    layers: Any = [HeldLayer((requests, heads, context, size), width,
                        int(config.sliding_window) if kind == "sliding_attention" else None, device, dtype)
              for kind in kinds]
    return Cache(layers=layers)
