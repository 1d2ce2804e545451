"""Slow references for the published encoders: numpy in float64, one query token at a time, no shared code."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import erf, softmax


def random_state(shapes: dict[str, tuple[int, ...]], seed: int = 0, scale: float = 0.2) -> dict[str, torch.Tensor]:
    """Random tensors under the published names."""
    generator = torch.Generator().manual_seed(seed)
    return {key: scale * torch.randn(shape, generator=generator) for key, shape in shapes.items()}


def doubles(state: dict[str, torch.Tensor], prefix: str = "") -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v.double().numpy() for k, v in state.items() if k.startswith(prefix)}


def with_bias(weights: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Published names of layers and norms that have a bias."""
    return {f"{name}.{kind}": shape[:n] for name, shape in weights.items() for kind, n in (("weight", 9), ("bias", 1))}


def vit_shapes(d: int, ff: int, prefix: str, mlp: tuple[str, str], bias: bool = True) -> dict[str, tuple[int, ...]]:
    """Published names of one pre-norm block."""
    layers = {"norm1": (d,), "attn.qkv": (3 * d, d), "attn.proj": (d, d), "norm2": (d,)}
    shapes = with_bias(layers | {f"mlp.{mlp[0]}": (ff, d), f"mlp.{mlp[1]}": (d, ff)})
    return {f"{prefix}{name}": shape for name, shape in shapes.items() if bias or name != "attn.qkv.bias"}


def slow_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    out = np.empty_like(x)
    for i, row in enumerate(x):
        out[i] = (row - row.mean()) / np.sqrt(((row - row.mean()) ** 2).mean() + eps) * weight + bias
    return out


def slow_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def slow_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, kept: np.ndarray | None = None):
    """(N, d) each; tokens that are not kept get the score -inf as keys."""
    out = np.empty_like(q)
    width = q.shape[1] // heads
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        for i in range(len(q)):
            scores = k[:, part] @ q[i, part] / np.sqrt(width)
            if kept is not None:
                scores = np.where(kept, scores, -np.inf)
            out[i, part] = softmax(scores) @ v[:, part]
    return out


def slow_block(x, w, prefix, heads, eps, mlp=("fc1", "fc2"), kept=None):
    """One published block from its tensors by their published names."""
    d = x.shape[1]
    y = slow_norm(x, w[f"{prefix}norm1.weight"], w[f"{prefix}norm1.bias"], eps)
    qkv = y @ w[f"{prefix}attn.qkv.weight"].T + w.get(f"{prefix}attn.qkv.bias", 0.0)
    y = slow_attention(qkv[:, :d], qkv[:, d : 2 * d], qkv[:, 2 * d :], heads, kept)
    y = y @ w[f"{prefix}attn.proj.weight"].T + w[f"{prefix}attn.proj.bias"]
    x = x + y * w.get(f"{prefix}ls1.gamma", 1.0)
    y = slow_norm(x, w[f"{prefix}norm2.weight"], w[f"{prefix}norm2.bias"], eps)
    y = slow_gelu(y @ w[f"{prefix}mlp.{mlp[0]}.weight"].T + w[f"{prefix}mlp.{mlp[0]}.bias"])
    y = y @ w[f"{prefix}mlp.{mlp[1]}.weight"].T + w[f"{prefix}mlp.{mlp[1]}.bias"]
    return x + y * w.get(f"{prefix}ls2.gamma", 1.0)


def slow_sincos(position: int, d: int) -> np.ndarray:
    row = np.zeros(d)
    for i in range(d // 2):
        angle = position / 10000 ** (2 * i / d)
        row[i], row[d // 2 + i] = np.sin(angle), np.cos(angle)
    return row


def noise(length: int, n_parcels: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((length, n_parcels)).cumsum(axis=0) * 0.1 + rng.standard_normal((length, n_parcels))


def assert_embeds(encoder, series: np.ndarray, names, time: float, expected: np.ndarray) -> None:
    """The embedding is the expected one whatever the order of columns."""
    shuffle = np.random.default_rng(2).permutation(len(names))
    embedded = encoder.embed([series[:, shuffle]], [names[i] for i in shuffle], time)
    np.testing.assert_allclose(embedded, [expected], atol=1e-5)
