"""A draft layer and its parts: RMSNorm, rotary positions, attention with injected context, gated MLP.

Shapes: A blocks drafted together, Q queries of a block, L context entries, N heads, K key-value heads, E head size, H
hidden size. Names of submodules are the released checkpoints' tensor names.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from dspark_sim.lab.drafters.config import DrafterConfig

__all__ = ["KV", "MLP", "Attention", "DraftLayer", "RMSNorm", "rotate"]

KV: TypeAlias = tuple[Tensor, Tensor]  # keys (…, L, K, E) with rotary positions applied, values (…, L, K, E)


class RMSNorm(nn.Module):
    """x / rms(x) · weight, the root mean square taken in float32; ``size`` 0: without a weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size)) if size else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        out = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)
        return out if self.weight is None else self.weight * out


def rotate(x: Tensor, positions: Tensor, theta: float, share: float = 1.0) -> Tensor:
    """Rotary positions: ``x`` (…, L, heads, E) turned by ``positions`` (…, L); halves are paired, as in Llama.

    ``share``: of the pairs, from the fastest on; the others do not turn.
    """
    half = x.shape[-1] // 2
    rate = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    rate[int(share * x.shape[-1] // 2):] = 0.0
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
        gemma = c.family == "gemma4"
        self.turned = c.partial_rotary_factor
        self.scale = 1.0 if gemma else c.head_dim**-0.5
        self.q_proj = nn.Linear(input_size, c.num_attention_heads * c.head_dim, bias=c.attention_bias)
        self.k_proj = nn.Linear(input_size, c.num_key_value_heads * c.head_dim, bias=c.attention_bias)
        self.v_proj = None if c.attention_k_eq_v else nn.Linear(
            input_size, c.num_key_value_heads * c.head_dim, bias=c.attention_bias)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=c.attention_bias)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.v_norm = RMSNorm(0, c.rms_norm_eps) if gemma else None

    def keys_values(self, x: Tensor, positions: Tensor) -> KV:
        """Keys and values (…, L, K, E) of entries ``x`` (…, L, input) at ``positions`` (…, L)."""
        shape = (*x.shape[:-1], self.kv_heads, self.size)
        raw = self.k_proj(x).view(shape)
        values = raw if self.v_proj is None else self.v_proj(x).view(shape)
        keys = rotate(self.k_norm(raw), positions, self.theta, self.turned)
        return keys, values if self.v_norm is None else self.v_norm(values)

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
        q = rotate(self.q_norm(self.q_proj(x).view(A, Q, self.heads, self.size)), positions, self.theta, self.turned)
        group = self.heads // self.kv_heads
        q = q.view(A, Q, self.kv_heads, group, self.size).permute(0, 2, 3, 1, 4)  # A, K, group, Q, E
        far = _scores(q, context[0])  # A, K, group, Q, L
        near = _scores(q, own[0])  # A, K, group, Q, M
        far = far.masked_fill(~visible[:, None, None, None, :], float("-inf"))
        near = near.masked_fill(~own_visible[None, None, None], float("-inf"))
        weight = torch.softmax(torch.cat([far, near], dim=-1).float() * self.scale, dim=-1).to(x.dtype)
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


class DraftLayer(nn.Module):
    """Attention and MLP with their norms; what attention reads is the drafter's business.

    Args:
        input_size: as for :class:`Attention`.
    """

    layer_scalar: Tensor

    def __init__(self, config: DrafterConfig, input_size: int) -> None:
        super().__init__()
        H, eps = config.hidden_size, config.rms_norm_eps
        self.gemma = config.family == "gemma4"
        self.self_attn = Attention(config, input_size)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(H, eps)
        self.post_attention_layernorm = RMSNorm(H, eps)  # qwen3: before the MLP; gemma4: of what attention returns
        if self.gemma:
            self.pre_feedforward_layernorm = RMSNorm(H, eps)
            self.post_feedforward_layernorm = RMSNorm(H, eps)
            self.register_buffer("layer_scalar", torch.ones(1))

    def added(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output (…, H) from its input ``x`` and what attention returned."""
        if not self.gemma:
            x = x + attended
            out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
            return out
        x = x + self.post_attention_layernorm(attended)
        x = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        return x * self.layer_scalar
