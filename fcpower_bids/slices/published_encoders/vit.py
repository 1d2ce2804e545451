"""The block that all published encoders but BrainMass share: a pre-norm vision transformer layer.

Shapes: B windows, N tokens, d hidden width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sincos(positions: Tensor, d: int) -> Tensor:
    """Fixed position code (N, d) in float64: [sin(p w) | cos(p w)], w_i = 10000^(-i / (d/2))."""
    rates = 10000.0 ** (-torch.arange(d // 2, dtype=torch.float64) / (d // 2))
    angles = positions.double()[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def scaled_to_unit_range(table: Tensor) -> Tensor:
    """Scale a whole table linearly so that its smallest entry is -1 and its largest 1."""
    low, high = table.min(), table.max()
    return 2 * (table - low) / (high - low) - 1


class Attention(nn.Module):
    """Multi-head self-attention that never forms the N x N matrix; rows of ``qkv`` are queries, keys, values."""

    def __init__(self, d: int, heads: int, qkv_bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d, bias=qkv_bias)
        self.proj = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from every token (B, N, d) to every token."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        out: Tensor = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """Two linear maps with the exact GELU between them."""

    def __init__(self, d: int, ff: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, ff), nn.Linear(ff, d)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, d) to (B, N, d)."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class LayerScale(nn.Module):
    """One learned factor per channel."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        """Scale the last axis."""
        return x * self.gamma


class Block(nn.Module):
    """x + attention(norm1 x), then x + feed-forward(norm2 x), each optionally scaled per channel."""

    def __init__(
        self, d: int, heads: int, ff: int, eps: float = 1e-6, qkv_bias: bool = True, layer_scale: bool = False
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=eps), nn.LayerNorm(d, eps=eps)
        self.attn, self.mlp = Attention(d, heads, qkv_bias), FeedForward(d, ff)
        self.ls1: nn.Module = LayerScale(d) if layer_scale else nn.Identity()
        self.ls2: nn.Module = LayerScale(d) if layer_scale else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, d) to (B, N, d)."""
        x = x + self.ls1(self.attn(self.norm1(x)))
        out: Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return out
