"""BrainMass (Yang et al. 2024): layers over the rows of a correlation matrix; 100 rows of 8 numbers come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.published.adapters import PublishedEncoder, Recipe, as_tensor, fill, loader, z_scored

RECIPE = Recipe(
    name="brainmass",
    licence="none stated by the authors",
    source="https://github.com/podismine/BrainMass",
    atlas="Schaefer100",
    n_parcels=100,
    n_dimensions=800,
)


@dataclass(frozen=True)
class BrainMassSize:
    """Parcels (the width), layers, heads, feed-forward, numbers per parcel in the embedding."""

    d: int = 100
    layers: int = 16
    heads: int = 10
    ff: int = 2048
    reduced: int = 8


class BrainMass(nn.Module):
    """The online network without its projection head."""

    def __init__(self, size: BrainMassSize) -> None:
        super().__init__()
        self.attention_list = nn.ModuleList(
            nn.TransformerEncoderLayer(size.d, size.heads, size.ff, batch_first=True) for _ in range(size.layers)
        )
        self.dim_reduction = nn.Sequential(nn.Linear(size.d, size.reduced))

    def forward(self, matrices: Tensor) -> Tensor:
        """Matrices (B, P, P) to embeddings (B, 8 P)."""
        x = matrices
        for layer in self.attention_list:
            x = layer(x)
        return F.leaky_relu(self.dim_reduction(x)).flatten(1)


def shrunk_correlation(series: FloatArray) -> FloatArray:
    """Correlation with Ledoit-Wolf shrinkage of the z-scored series (T, P); diagonal 1, undefined entries 0."""
    from sklearn.covariance import ledoit_wolf  # slow to load, and no other transform needs it

    covariance = ledoit_wolf(z_scored(series))[0]
    spread = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(spread, spread)
    np.fill_diagonal(correlation, 1.0)
    return np.asarray(np.nan_to_num(correlation, nan=0.0))


@dataclass(frozen=True)
class BrainMassEncoder(PublishedEncoder):
    """BrainMass, fed the correlations of the whole recording under both protocols."""

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Correlate: (1, 100, 100)."""
        return as_tensor(shrunk_correlation(self.resampled(series, repetition_time))[None])


def build(recipe: Recipe, path: Path, aux: Mapping[str, Path], size: BrainMassSize) -> BrainMassEncoder:
    """Build the online network of a BrainMass checkpoint."""
    return BrainMassEncoder(recipe, fill(lambda: BrainMass(size), path, "online_network_state_dict", unused=("g.",)))


load_brainmass = loader(build, RECIPE, BrainMassSize())
