"""The closed-form student as a model: edges of FC^alpha of a series, less their mean, times weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import power_from_series
from fcpower_bids.core.filters.student import power_edges
from fcpower_bids.core.regression.kernels import normalise_rows
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

    def forward(self, x: Tensor) -> Tensor:
        """Embed series (B, T, P): (B, d)."""
        edges = self._edges(x.detach().cpu().double().numpy())
        features = torch.from_numpy(edges).to(self.mean.device, self.mean.dtype)
        return (features - self.mean) @ self.weights

    def _edges(self, series: NDArray[np.float64]) -> FloatArray:
        """Parcels without a signal, which are allowed when they are asked for, have edges of 0."""
        there = np.ptp(series, axis=1) > 0
        if there.all():
            return power_edges(series, self.config.exponent)
        matrices = np.zeros((len(series), self.config.n_parcels, self.config.n_parcels))
        for matrix, one, kept in zip(matrices, series, there, strict=True):
            matrix[np.ix_(kept, kept)] = power_from_series(one[:, kept], self.config.exponent)
        return normalise_rows(np.stack([vectorise_edges(one) for one in matrices]))
