"""The closed-form student as a model: edges of FC^alpha of a series, less their mean, times weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.spectrum import CLIP_TOLERANCE
from fcpower_bids.encoders.fbert import MAX_PARAMETERS, FBertConfig
from fcpower_bids.encoders.field_types import wrong_types


@dataclass(frozen=True)
class ClosedFormConfig:
    """Shape of the model: parcels, length of the embedding, exponent of its features."""

    model_type: ClassVar[str] = "closed-form"
    n_parcels: int
    d: int
    exponent: float = ALPHA_STAR

    def __post_init__(self) -> None:
        if problems := wrong_types(ClosedFormConfig, vars(self)):
            raise ValueError(f"{'; '.join(problems)}.")
        if not 0 < self.exponent <= 1:
            raise ValueError(f"The exponent must be above 0 and at most 1, not {self.exponent:g}.")
        if self.n_edges * self.d > MAX_PARAMETERS:
            raise ValueError(f"It would have more than {MAX_PARAMETERS:.0e} parameters, which is not credible.")

    @property
    def n_edges(self) -> int:
        """E, the length of the features."""
        return self.n_parcels * (self.n_parcels - 1) // 2

    def build(self) -> ClosedForm:
        """Make the model, with weights of zero."""
        return ClosedForm(self)


Architecture = FBertConfig | ClosedFormConfig
"""Shape of a model, which builds it."""


class ClosedForm(nn.Module):
    """``mean`` (E,) and ``weights`` (E, d); nothing of it is trained by steps."""

    def __init__(self, config: ClosedFormConfig) -> None:
        super().__init__()
        self.config = config
        self.mean = nn.Parameter(torch.zeros(config.n_edges), requires_grad=False)
        self.weights = nn.Parameter(torch.zeros(config.n_edges, config.d), requires_grad=False)

    @classmethod
    def of(cls, mean: FloatArray, weights: FloatArray, n_parcels: int, exponent: float) -> ClosedForm:
        """Make the model of fitted arrays: mean (E,), weights (E, d)."""
        model = cls(ClosedFormConfig(n_parcels, weights.shape[1], exponent))
        model.load_state_dict({"mean": torch.from_numpy(mean).float(), "weights": torch.from_numpy(weights).float()})
        return model

    def widened(self, d: int) -> ClosedForm:
        """Return the same map with zeros behind its coordinates, where there are fewer than `d`."""
        rest = torch.zeros(len(self.weights), d - self.weights.shape[1])
        wide = ClosedForm(replace(self.config, d=d))
        wide.load_state_dict({"mean": self.mean, "weights": torch.cat((self.weights, rest), dim=1)})
        return wide

    @torch.compiler.disable
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Embed series (B, T, P): (B, d)."""
        with torch.autocast(x.device.type, enabled=False):
            edges = power_edges_of(x.detach(), self.config.exponent).to(self.mean)
            return (edges - self.mean) @ self.weights


def power_edges_of(x: Tensor, exponent: float) -> Tensor:
    """Edges of FC^alpha of series (B, T, P), centred and of unit norm, in double precision: (B, E)."""
    x = x.to("cpu" if x.device.type == "mps" else x.device, torch.float64)
    there = (x.amax(1) > x.amin(1))[:, None]
    z = (x - x.mean(1, keepdim=True)) * there
    z = z / z.norm(dim=1, keepdim=True).masked_fill(~there, 1.0)
    long = z.shape[1] > z.shape[2]
    values, vectors = torch.linalg.eigh(z.mT @ z if long else z @ z.mT)
    kept = values > CLIP_TOLERANCE * values[:, -1:]
    weights = values.where(kept, 1.0) ** (exponent if long else exponent - 1) * kept
    sides = vectors if long else z.mT @ vectors
    matrices = (sides * weights[:, None]) @ sides.mT
    row, column = torch.triu_indices(z.shape[2], z.shape[2], 1, device=x.device)
    edges = matrices[:, row, column]
    edges = edges - edges.mean(1, keepdim=True)
    return edges / edges.norm(dim=1, keepdim=True)
