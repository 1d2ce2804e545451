"""F-BERT, the whole model: one token per timepoint, a ``[CLS]`` token, a BERT encoder, the ``[CLS]`` output.

Each detail left open by the paper (activation, place of the norms, dropout, position of ``[CLS]``) is a field of the
configuration, so that a checkpoint states it. Parameter names are those of ``torch.nn.TransformerEncoder``.
Shapes: B recordings, T timepoints, P parcels, d hidden width, h heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZES: dict[str, dict[str, int]] = {
    "fbert-1m": {"d": 128, "layers": 4, "heads": 4, "ff": 512},
    "fbert-8m": {"d": 384, "layers": 8, "heads": 8, "ff": 512},
}
"""The two published sizes (their model cards): 850,944 and 8,069,632 parameters at 450 parcels.

The number of parameters does not depend on the heads, so no loader can detect a wrong number from the tensors.
"""
MAX_PARAMETERS = 10**9
"""A hundred times the largest published size: more is a slip, or a file that means harm."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}


def _whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)


KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_whole, "a whole number above 0"),
    "float": (_finite, "a finite number"),
    "bool": (lambda value: isinstance(value, (bool, int)) and value in (0, 1), "true or false"),
    "str": (lambda value: isinstance(value, str), "text"),
    "tuple[str, ...]": (_names, "a list of names"),
    "int | None": (lambda value: value is None or _whole(value, 0), "a whole number"),
    "float | None": (lambda value: value is None or _finite(value), "a finite number"),
    "tuple[float, float] | None": (
        lambda value: (
            value is None
            or (
                isinstance(value, (list, tuple))
                and len(value) == 2
                and all(map(_finite, value))
                and value[0] <= value[1]
            )
        ),
        "two finite numbers, the lower first",
    ),
}
"""By annotation: whether a value is one, and what to call it."""


def wrong_types(kind: type, values: Mapping[str, Any]) -> list[str]:
    """Say of every value that a field of a dataclass cannot hold what it must be."""
    problems = []
    for field in fields(kind):
        fits, words = KINDS[str(field.type)]
        if field.name in values and not fits(values[field.name]):
            text = repr(values[field.name])
            short = text if len(text) <= 40 else f"{text[:40]}..."
            problems.append(f"{field.name} must be {words}, not {short}")
    return problems


@dataclass(frozen=True)
class FBertConfig:
    """Everything that decides the output of F-BERT, apart from its weights."""

    model_type: ClassVar[str] = "fbert"
    n_parcels: int  # P, the number of input channels
    d: int = 128  # hidden width
    layers: int = 4
    heads: int = 4  # of attention
    ff: int = 512  # width of the feed-forward part
    activation: str = "gelu"  # ``"gelu"`` (exact, as BERT) or ``"relu"``
    norm_first: bool = False  # norm before each sublayer instead of after it
    final_norm: bool = False  # one more norm after the last layer
    norm_eps: float = 1e-5  # added to the variance in the layer norms
    # ``"sinusoidal"`` (sine and cosine interleaved), ``"sinusoidal_halves"`` (sines, then cosines) or ``"none"``
    pe: str = "sinusoidal"
    # whether ``[CLS]`` takes position 0; if not it has none and the first timepoint is position 0
    cls_position: bool = True
    dropout: float = 0.1  # probability during training, at attention weights and after each sublayer, as in BERT

    def __post_init__(self) -> None:
        if problems := wrong_types(type(self), vars(self)):
            raise ValueError(f"{'; '.join(problems)}.")
        if self.norm_eps <= 0 or not 0 <= self.dropout < 1:
            raise ValueError(
                f"norm_eps={self.norm_eps:g} must be above 0, and dropout={self.dropout:g} at least 0 and below 1."
            )
        if (size := self.n_parcels * self.d + self.layers * (4 * self.d**2 + 2 * self.d * self.ff)) > MAX_PARAMETERS:
            raise ValueError(
                f"It would have {size:.1e} parameters, and more than {MAX_PARAMETERS:.0e} are not credible."
            )
        if self.d % self.heads or self.d % 2:
            raise ValueError(f"The width d={self.d} must be even and a multiple of the number of heads ({self.heads}).")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"The activation must be one of {', '.join(ACTIVATIONS)}, not '{self.activation}'.")
        if self.pe not in ("sinusoidal", "sinusoidal_halves", "none"):
            raise ValueError(f"The position code must be sinusoidal, sinusoidal_halves or none, not '{self.pe}'.")

    def build(self, seed: int = 0) -> FBert:
        """Make the model, with initial weights."""
        return FBert(self, seed)


POSITIONS = 512
"""Positions whose code a model holds from the start; it makes more when a recording is longer."""


def position_code(length: int, d: int, kind: str = "sinusoidal") -> Tensor:
    """Sinusoidal positions (length, d) in float64: angles p / 10000^(2i/d) (Vaswani et al. 2017)."""
    if kind == "none":
        return torch.zeros(length, d, dtype=torch.float64)
    rate = torch.exp(torch.arange(0, d, 2, dtype=torch.float64) * (-math.log(10000.0) / d))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    pair = torch.stack((angle.sin(), angle.cos()), dim=-1)  # (length, d/2, 2)
    return pair.flatten(1) if kind == "sinusoidal" else pair.transpose(1, 2).flatten(1)


class Attention(nn.Module):
    """Multi-head self-attention without the T x T matrix; optionally for the first query only."""

    def __init__(self, config: FBertConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * config.d, config.d))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * config.d))
        self.out_proj = nn.Linear(config.d, config.d)

    def forward(self, h: Tensor, cls_only: bool) -> Tensor:
        """Attend from every token of h (B, T, d), or from the first one only: (B, T or 1, d)."""
        d = h.shape[-1]
        if cls_only:
            q = F.linear(h[:, :1], self.in_proj_weight[:d], self.in_proj_bias[:d])
            k, v = F.linear(h, self.in_proj_weight[d:], self.in_proj_bias[d:]).chunk(2, dim=-1)
        else:
            q, k, v = F.linear(h, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))  # (B, h, T, d/h)
        a = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        out: Tensor = self.out_proj(a.transpose(1, 2).flatten(2))
        return out


class Norm(nn.LayerNorm):
    """Layer norm in the precision of its weights.

    Under mixed precision this keeps the norms and the residual stream in float32 on every device: windows of different
    recordings differ by less than the rounding of bfloat16 before training, and would all embed to the same vector.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return super().forward(x.to(self.weight.dtype))


class Block(nn.Module):
    """One encoder layer: attention and a feed-forward part, each with a residual and a norm."""

    def __init__(self, config: FBertConfig) -> None:
        super().__init__()
        self.norm_first, self.activation = config.norm_first, ACTIVATIONS[config.activation]
        self.self_attn = Attention(config)
        self.linear1 = nn.Linear(config.d, config.ff)
        self.linear2 = nn.Linear(config.ff, config.d)
        self.norm1 = Norm(config.d, eps=config.norm_eps)
        self.norm2 = Norm(config.d, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def feed_forward(self, h: Tensor) -> Tensor:
        """Apply linear, activation, linear: (B, T, d) to (B, T, d)."""
        out: Tensor = self.linear2(self.dropout(self.activation(self.linear1(h))))
        return out

    def forward(self, x: Tensor, cls_only: bool) -> Tensor:
        """Map (B, T, d) to (B, T, d), or to the row of the first token (B, 1, d)."""
        kept = x[:, :1] if cls_only else x
        if self.norm_first:
            kept = kept + self.dropout(self.self_attn(self.norm1(x), cls_only))
            return kept + self.dropout(self.feed_forward(self.norm2(kept)))
        kept = self.norm1(kept + self.dropout(self.self_attn(x, cls_only)))
        out: Tensor = self.norm2(kept + self.dropout(self.feed_forward(kept)))
        return out


class Stack(nn.Module):
    """The layers and the optional last norm; only the ``[CLS]`` row leaves the last layer."""

    def __init__(self, config: FBertConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = Norm(config.d, eps=config.norm_eps) if config.final_norm else nn.Identity()

    def forward(self, x: Tensor, cls_only: bool) -> Tensor:
        """Map (B, T, d) to (B, 1, d), or to (B, T, d) when every token is asked for."""
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x, cls_only=cls_only and i == last)
        out: Tensor = self.norm(x)
        return out


class FBert(nn.Module):
    """fMRI-BERT ("Pretraining by distillation" in the paper)."""

    def __init__(self, config: FBertConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.input_projection = nn.Linear(config.n_parcels, config.d)
            self.cls_token = nn.Parameter(torch.empty(config.d))
            self.encoder = Stack(config)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            nn.init.normal_(self.cls_token)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
        code = position_code(POSITIONS, config.d, config.pe).float()
        self.register_buffer("positions", code, persistent=False)  # moves with the model, is in no checkpoint

    def tokens(self, x: Tensor) -> Tensor:
        """Series (B, T, P) to tokens with positions (B, T + 1, d), ``[CLS]`` first."""
        h = self.input_projection(x).to(self.cls_token.dtype)
        cls = self.cls_token.expand(len(h), 1, -1)
        if self.config.cls_position:
            tokens = torch.cat((cls, h), dim=1)
            return tokens + self._positions(tokens)
        return torch.cat((cls, h + self._positions(h)), dim=1)

    def _positions(self, tokens: Tensor) -> Tensor:
        """Code of the first positions, where the tokens are; exact for double precision."""
        length, config, known = tokens.shape[1], self.config, self.get_buffer("positions")
        if tokens.dtype == torch.float64:
            return position_code(length, config.d, config.pe).to(tokens)
        if length > len(known):
            known = self.positions = position_code(2 * length, config.d, config.pe).to(known)
        return known[:length]

    def forward(self, x: Tensor) -> Tensor:
        """Embed z-scored series (B, T, P): the ``[CLS]`` outputs (B, d)."""
        out: Tensor = self.encoder(self.tokens(x), cls_only=True)[:, 0]
        return out


def count_parameters(model: nn.Module) -> int:
    """Number of trainable numbers of a model."""
    return sum(parameter.numel() for parameter in model.parameters())
