"""Encoders that were trained on masked input: BrainLM and BrainMass (docs/encoder.md).

BrainLM (Ortega Caro et al. 2024) is an autoencoder of 424 x 200, unmasked here. BrainMass (Yang et al. 2024) has layers
over the rows of a correlation matrix; 100 rows of 8 numbers come out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders import COORDINATES, STATISTICS
from fcpower_bids.encoders.checkpoints import CheckpointError, read_fields
from fcpower_bids.encoders.embedding import Read
from fcpower_bids.encoders.published.adapters import (
    Block,
    PublishedEncoder,
    as_tensor,
    fill,
    read_number_table,
    z_scored,
)

# --- BrainLM ----------------------------------------------------------------------------------------------------------


N_PARCELS, FRAMES = 424, 200
LARGEST = 5.6430855
"""Largest scaled value of the authors' training data, which they divide by."""
PADDING = -1.0


@dataclass(frozen=True)
class BrainLMSize:
    """Width, layers, heads, feed-forward, side of a patch and of the padded image."""

    d: int
    layers: int
    heads: int
    ff: int
    patch: int
    side: int


HF_BLOCK = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}


class BrainLM(nn.Module):
    """The encoder half of the masked autoencoder."""

    def __init__(self, size: BrainLMSize) -> None:
        super().__init__()
        tokens = (size.side // size.patch) ** 2 + 1
        self.cls_token = nn.Parameter(torch.zeros(1, 1, size.d))
        self.position_embeddings = nn.Parameter(torch.zeros(1, tokens, size.d))
        self.projection = nn.Conv2d(3, size.d, size.patch, stride=size.patch)
        self.blocks = nn.ModuleList(Block(size.d, size.heads, size.ff, eps=1e-12) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.d, eps=1e-12)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, side, side) to the ``[CLS]`` token (B, d)."""
        patches = self.projection(images).flatten(2).transpose(1, 2)
        cls = self.cls_token.expand(len(images), -1, -1)
        x = torch.cat((cls, patches), dim=1) + self.position_embeddings
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.norm(x[:, 0])
        return out


def published_keys(key: str) -> tuple[str, ...]:
    """Our key to the keys of a Hugging Face ViT-MAE; queries, keys and values are apart there."""
    if match := re.fullmatch(r"blocks\.(\d+)\.(.+)\.(weight|bias)", key):
        layer, part, kind = match.groups()
        if part == "attn.qkv":
            split = ("query", "key", "value")
            return tuple(f"vit.encoder.layer.{layer}.attention.attention.{name}.{kind}" for name in split)
        return (f"vit.encoder.layer.{layer}.{HF_BLOCK[part]}.{kind}",)
    if key.startswith("projection."):
        return (f"vit.embeddings.patch_embeddings.{key}",)
    return (f"vit.{key.replace('norm.', 'layernorm.')}" if key.startswith("norm.") else f"vit.embeddings.{key}",)


@dataclass(frozen=True)
class BrainLMEncoder(PublishedEncoder):
    """BrainLM with the rows of its image in the order of their coordinates, back to front."""

    name = "brainlm-111m"
    url = "https://huggingface.co/vandijklab/brainlm"
    size = BrainLMSize(768, 12, 12, 3072, 16, 432)
    atlas = "A424"
    n_parcels = N_PARCELS
    n_dimensions = 768
    repetition_time = 0.735
    frames = FRAMES

    rows: NDArray[np.intp] | None = None  # (424,): label order to image order; ties keep the order of the labels
    side: int = 432  # of the padded image
    median: FloatArray | None = None  # (424,), by label, over the training recordings, never over one
    iqr: FloatArray | None = None  # the same

    def provenance(self, read: Read = "sequence") -> dict[str, Any]:
        """Identity of the embeddings, for the sidecar."""
        return super().provenance(read) | {"statistics": "read from the auxiliary files"}

    @classmethod
    def make(cls, path: Path, aux: Mapping[str, Path], size: BrainLMSize) -> BrainLMEncoder:
        """Make BrainLM from a Hugging Face folder or its weights file."""
        check_config(path.parent / "config.json", size)
        model = fill(lambda: BrainLM(size), path, published=published_keys, unused=("decoder.",))
        places = read_number_table(aux[COORDINATES], N_PARCELS, 4, numbered=True, sep=r"\s+")
        columns = ["name", "median", "iqr"]
        statistics = read_number_table(aux[STATISTICS], N_PARCELS, columns, numbered=True, sep="\t", header=0)
        _, median, iqr = statistics.T
        if not (iqr > 0).all():
            raise CheckpointError(f"{aux[STATISTICS]} has an iqr that is not positive; write it again.")
        rows = np.argsort(places[:, 2].astype(np.float32), kind="stable")
        return cls(model, rows=rows, side=size.side, median=median, iqr=iqr)

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Centre, scale by the cohort, resample, cut, sort, pad: images (n, 3, side, side)."""
        scaled = (series - series.mean(axis=0) - self.median) / self.iqr / LARGEST
        windows = self.windows(self.resampled(scaled, repetition_time), FRAMES)
        images = as_tensor(windows[:, :, self.rows].transpose(0, 2, 1))
        above, left = (self.side - N_PARCELS) // 2, (self.side - FRAMES) // 2
        padded = F.pad(images, (left, left, above, above), value=PADDING)
        return padded[:, None].expand(-1, 3, -1, -1)


def check_config(config: Path, size: BrainLMSize) -> None:
    """Compare the sizes that do not show in the tensors, where a file states them. Raises CheckpointError."""
    if not config.is_file():
        return
    expected = {"hidden_size": size.d, "num_attention_heads": size.heads, "patch_size": size.patch}
    stated = read_fields(config)[0]
    if wrong := {key: stated[key] for key, value in expected.items() if stated.get(key, value) != value}:
        listed = ", ".join(f"{key} {value}" for key, value in wrong.items())
        raise CheckpointError(f"{config} is of another model ({listed}); give the folder of this encoder.")


class BrainLM650Encoder(BrainLMEncoder):
    """The large BrainLM."""

    name = "brainlm-650m"
    size = BrainLMSize(1280, 32, 16, 5120, 14, 434)
    n_dimensions = 1280


# --- BrainMass --------------------------------------------------------------------------------------------------------


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


class BrainMassEncoder(PublishedEncoder):
    """BrainMass, fed the correlations of the whole recording under both protocols."""

    name = "brainmass"
    url = "https://github.com/podismine/BrainMass"
    size = BrainMassSize()
    atlas = "Schaefer100"
    n_parcels = 100
    n_dimensions = 800

    @classmethod
    def make(cls, path: Path, aux: Mapping[str, Path], size: BrainMassSize) -> BrainMassEncoder:
        """Make the online network of a checkpoint."""
        return cls(fill(lambda: BrainMass(size), path, "online_network_state_dict", unused=("g.",)))

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Correlate: (1, 100, 100)."""
        return as_tensor(shrunk_correlation(self.resampled(series, repetition_time))[None])
