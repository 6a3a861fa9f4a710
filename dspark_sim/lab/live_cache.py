"""The target as a batch engine runs it: requests of different lengths in one flat pass, each trimmed to its own length.

All tokens of a step, of all requests, lie in one row of B tokens, so the linear layers and the head cost what B costs
(the paper's flattened layout). Only attention sees requests: its queries are laid out by request, right-padded, and
masked by each request's own length and, in sliding layers, by the window. Trimming is forgetting: a request's length
goes back, and what lies behind it is overwritten by the next step and seen by nobody until then.

Shapes: B tokens of a pass, C rows of the cache, R rows in use, W the longest share of one row, L cached length, N
heads, K key-value heads, E head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from dspark_sim.errors import InputError
from dspark_sim.lab.target import Target

__all__ = ["FlatPass", "RowCache", "live_attention"]

NAME = "dspark_live"
_current: ContextVar[FlatPass] = ContextVar("flat pass")


class FlatPass:
    """Which row and position each of B tokens has; made once per pass.

    Args:
        row, position: (B,) cache row and text position of every token; a row's tokens stand together, in order.
        first, rows: the pass reads cache rows first .. first + rows - 1; all of ``row`` lie there.
        tokens: per row of that range how many tokens it has, 0 or more.
    """

    def __init__(self, row: Tensor, position: Tensor, first: int, rows: int, tokens: list[int]) -> None:
        self.row, self.position, self.first, self.rows = row, position, first, rows
        device = row.device
        self.width = max(tokens)
        count = torch.tensor(tokens, device=device)
        self.place = row - first  # (B,) row of the padded layout
        begin = torch.zeros(rows, dtype=torch.long, device=device)
        order = torch.arange(len(row), device=device)
        begin.scatter_reduce_(0, self.place, order, "amin", include_self=False)
        self.column = order - begin[self.place]  # (B,) column of it
        base = torch.zeros(rows, dtype=torch.long, device=device)
        base.scatter_(0, self.place[self.column == 0], position[self.column == 0])
        self.length = int((base + count).max())  # L: cached positions that anybody sees
        query = base[:, None] + torch.arange(self.width, device=device)  # (rows, W) text position of each query
        self._back = query[:, :, None] - torch.arange(self.length, device=device)  # how far back each key lies
        self._masks: dict[int | None, Tensor] = {}
        self._folded: dict[tuple[int | None, int], Tensor] = {}

    def mask(self, window: int | None, group: int) -> Tensor:
        """(rows, 1, group · W, L) bool: what each query sees; ``window``: the last so many tokens, itself included."""
        if window not in self._masks:
            seen = self._back >= 0
            self._masks[window] = seen if window is None else seen & (self._back < window)
        key = (window, group)
        if key not in self._folded:
            self._folded[key] = self._masks[window].repeat(1, group, 1)[:, None]
        return self._folded[key]


class RowCache:
    """Keys and values of C requests, each row with a length of its own; looks like transformers' cache to a model.

    Args:
        target: whose.
        rows: C.
        length: most tokens of a row.
    """

    def __init__(self, target: Target, rows: int, length: int) -> None:
        config = target.config
        if getattr(config, "attn_logit_softcapping", None):
            raise InputError(f"target {target.name} caps its attention logits, which the live engine cannot",
                             allowed="a target without attn_logit_softcapping")
        if getattr(config, "use_bidirectional_attention", False):
            raise InputError(f"target {target.name} attends in both directions", allowed="a causal target")
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.target, self.rows, self.length = target, rows, length
        shape = (target.layers, rows, kv_heads, length, size)
        self.keys = torch.zeros(shape, dtype=target.dtype, device=target.device)
        self.values = torch.zeros_like(self.keys)

    def update(self, keys: Tensor, values: Tensor, layer: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Called by the model's attention: put (1, K, B, E) in place, give back all of the pass's rows."""
        now = _current.get()
        self.keys[layer][now.row, :, now.position] = keys[0].transpose(0, 1)
        self.values[layer][now.row, :, now.position] = values[0].transpose(0, 1)
        rows = slice(now.first, now.first + now.rows)
        return self.keys[layer, rows, :, :now.length], self.values[layer, rows, :, :now.length]

    def get_seq_length(self, layer: int = 0) -> int:
        """Models ask it where positions are not given; they always are."""
        return 0

    def move(self, source: int, row: int) -> None:
        """Row ``source`` takes the place of ``row``."""
        self.keys[:, row] = self.keys[:, source]
        self.values[:, row] = self.values[:, source]

    @torch.no_grad()
    def forward(self, ids: Tensor, now: FlatPass, layer_ids: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
        """One pass over B tokens; call inside :func:`live_attention`.

        Args:
            ids: (B,) token ids.
            now: where they stand.
            layer_ids: layers whose raw outputs a drafter reads.

        Returns:
            (B, F·H) features and (B, H) what the head reads.
        """
        dummy = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=ids.device)  # nobody looks at it, nobody makes a mask
        kinds = getattr(self.target.config, "layer_types", None)
        mask: Any = dict.fromkeys(kinds, dummy) if kinds else dummy
        token = _current.set(now)
        try:
            out = self.target.forward(ids[None], layer_ids=layer_ids, cache=self, mask=mask,
                                      positions=now.position[None])
        finally:
            _current.reset(token)
        return out.features[0], out.last[0]


@contextmanager
def live_attention(target: Target) -> Iterator[None]:
    """Inside, the target attends by rows of a :class:`RowCache`; afterwards as before.

    Raises:
        InputError: the model's attention cannot be exchanged.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    before = target.model.config._attn_implementation
    if not target.model._can_set_attn_implementation():
        raise InputError(f"the attention of target {target.name} ({type(target.model).__name__}) cannot be exchanged",
                         allowed="a model of transformers' own attention interface, such as Qwen3 or Gemma 3")
    target.model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        target.model.set_attn_implementation(before)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float | None = None,
    sliding_window: int | None = None, **kwargs: Any,
) -> tuple[Tensor, None]:
    """Query (1, N, B, E) of a flat pass against rows of keys and values (rows, K, L, E); gives (1, B, N, E)."""
    now = _current.get()
    _, heads, _, size = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    padded = query.new_zeros(now.rows, now.width, heads, size)
    padded[now.place, now.column] = query[0].transpose(0, 1)
    # Heads that share keys become further queries of one head: nothing is copied.
    folded = padded.view(now.rows, now.width, kv_heads, group, size).permute(0, 2, 3, 1, 4)
    folded = folded.reshape(now.rows, kv_heads, group * now.width, size)
    out = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=now.mask(sliding_window, group), scale=scaling)
    out = out.view(now.rows, kv_heads, group, now.width, size).permute(0, 3, 1, 2, 4)
    return out.reshape(now.rows, now.width, heads, size)[now.place, now.column][None], None
