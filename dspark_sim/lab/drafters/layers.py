"""The parts of a draft layer: RMSNorm, rotary positions, attention with injected context, gated MLP.

Shapes: A blocks drafted together, Q queries of a block, L context entries, N heads, K key-value heads, E head size, H
hidden size. Names of submodules are the released checkpoints' tensor names.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from dspark_sim.lab.drafters.config import DrafterConfig

__all__ = ["KV", "MLP", "Attention", "RMSNorm", "rotate"]

KV: TypeAlias = tuple[Tensor, Tensor]  # keys (…, L, K, E) with rotary positions applied, values (…, L, K, E)


class RMSNorm(nn.Module):
    """x / rms(x) · weight, the root mean square taken in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary positions: ``x`` (…, L, heads, E) turned by ``positions`` (…, L); halves are paired, as in Llama."""
    half = x.shape[-1] // 2
    rate = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = positions[..., None].float() * rate  # (…, L, E/2)
    cos, sin = angle.cos()[..., None, :].to(x.dtype), angle.sin()[..., None, :].to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    """Grouped-query attention whose keys and values are a context's plus the block's own.

    Args:
        input_size: size of what q, k and v are projected from (H, or 2H for the autoregressive drafters).
    """

    def __init__(self, config: DrafterConfig, input_size: int) -> None:
        super().__init__()
        c = config
        self.heads, self.kv_heads, self.size, self.theta = (
            c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rope_theta)
        self.q_proj = nn.Linear(input_size, c.num_attention_heads * c.head_dim, bias=c.attention_bias)
        self.k_proj = nn.Linear(input_size, c.num_key_value_heads * c.head_dim, bias=c.attention_bias)
        self.v_proj = nn.Linear(input_size, c.num_key_value_heads * c.head_dim, bias=c.attention_bias)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=c.attention_bias)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)

    def keys_values(self, x: Tensor, positions: Tensor) -> KV:
        """Keys and values (…, L, K, E) of entries ``x`` (…, L, input) at ``positions`` (…, L)."""
        shape = (*x.shape[:-1], self.kv_heads, self.size)
        keys = rotate(self.k_norm(self.k_proj(x).view(shape)), positions, self.theta)
        return keys, self.v_proj(x).view(shape)

    def forward(
        self, x: Tensor, positions: Tensor, context: KV, visible: Tensor, own: KV, own_visible: Tensor
    ) -> Tensor:
        """Attend from a block.

        Args:
            x: (A, Q, input) queries' inputs at ``positions`` (A, Q).
            context: keys and values (A or 1, L, K, E).
            visible: (A, L) bool: context entries that block A may see.
            own: the block's own keys and values (A, M, K, E).
            own_visible: (Q, M) bool.

        Returns:
            (A, Q, H).
        """
        A, Q = x.shape[:2]
        q = rotate(self.q_norm(self.q_proj(x).view(A, Q, self.heads, self.size)), positions, self.theta)
        group = self.heads // self.kv_heads
        q = q.view(A, Q, self.kv_heads, group, self.size).permute(0, 2, 3, 1, 4)  # A, K, group, Q, E
        far = _scores(q, context[0])  # A, K, group, Q, L
        near = _scores(q, own[0])  # A, K, group, Q, M
        far = far.masked_fill(~visible[:, None, None, None, :], float("-inf"))
        near = near.masked_fill(~own_visible[None, None, None], float("-inf"))
        weight = torch.softmax(torch.cat([far, near], dim=-1).float() * self.size**-0.5, dim=-1).to(x.dtype)
        L = context[0].shape[1]
        out = _weighted(weight[..., :L], context[1]) + _weighted(weight[..., L:], own[1])
        joined: Tensor = self.o_proj(out.permute(0, 3, 1, 2, 4).reshape(A, Q, self.heads * self.size))
        return joined


def _scores(q: Tensor, keys: Tensor) -> Tensor:
    """(A, K, group, Q, E) · (A or 1, L, K, E) -> (A, K, group, Q, L)."""
    A, K, group, Q, E = q.shape
    if keys.shape[0] == 1 and A > 1:  # one shared context: a single large product per head
        flat = q.permute(1, 0, 2, 3, 4).reshape(K, A * group * Q, E)
        out = flat @ keys[0].permute(1, 2, 0)
        return out.view(K, A, group, Q, -1).permute(1, 0, 2, 3, 4)
    out = q.reshape(A, K, group * Q, E) @ keys.permute(0, 2, 3, 1)
    return out.view(A, K, group, Q, -1)


def _weighted(weight: Tensor, values: Tensor) -> Tensor:
    """(A, K, group, Q, L) · (A or 1, L, K, E) -> (A, K, group, Q, E)."""
    A, K, group, Q, L = weight.shape
    if values.shape[0] == 1 and A > 1:
        flat = weight.permute(1, 0, 2, 3, 4).reshape(K, A * group * Q, L)
        out = flat @ values[0].permute(1, 0, 2)
        return out.view(K, A, group, Q, -1).permute(1, 0, 2, 3, 4)
    out = weight.reshape(A, K, group * Q, L) @ values.permute(0, 2, 1, 3)
    return out.view(A, K, group, Q, -1)


class MLP(nn.Module):
    """down(act(gate(x)) · up(x))."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.tanh_gelu = config.hidden_act == "gelu_pytorch_tanh"

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        gate = gelu(gate, approximate="tanh") if self.tanh_gelu else silu(gate)
        out: Tensor = self.down_proj(gate * self.up_proj(x))
        return out
