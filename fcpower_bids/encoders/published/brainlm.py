"""BrainLM (Ortega Caro et al. 2024): a masked autoencoder of 424 x 200, unmasked (docs/encoder.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.checkpoints import CheckpointError
from fcpower_bids.encoders.published.adapters import (
    STATISTICS,
    Block,
    PublishedEncoder,
    Recipe,
    as_tensor,
    fill,
    loader,
)
from fcpower_bids.encoders.published.parcel_orders import Columns, match_labels
from fcpower_bids.store import load_json

N_PARCELS, FRAMES = 424, 200
LABELS = tuple(str(label) for label in range(1, N_PARCELS + 1))
LARGEST = 5.6430855
"""Largest scaled value of the authors' training data, which they divide by."""
COORDINATES = "A424_Coordinates.dat"
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


SIZES = {
    "brainlm-111m": BrainLMSize(768, 12, 12, 3072, 16, 432),
    "brainlm-650m": BrainLMSize(1280, 32, 16, 5120, 14, 434),
}
RECIPE = Recipe(
    name="brainlm",
    licence="CC BY-NC-ND 4.0",
    source="https://huggingface.co/vandijklab/brainlm",
    atlas="A424",
    n_parcels=N_PARCELS,
    n_dimensions=768,
    repetition_time=0.735,
    frames=FRAMES,
)
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

    rows: NDArray[np.intp] | None = None  # (424,): label order to image order; ties keep the order of the labels
    side: int = 432  # of the padded image

    uses_statistics = needs_statistics = True

    @property
    def statistics_names(self) -> tuple[str, ...]:
        """The labels 1 to 424."""
        return LABELS

    def columns(self, parcel_names: Sequence[str]) -> Columns:
        """Find the 424 parcels by their label in the atlas image."""
        return match_labels(parcel_names, N_PARCELS)

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Centre, scale by the cohort, resample, cut, sort, pad: images (n, 3, side, side)."""
        assert self.statistics is not None
        scaled = self.statistics.scale(self.scaled_alone(series)) / LARGEST
        windows = self.windows(self.resampled(scaled, repetition_time), FRAMES)
        images = as_tensor(windows[:, :, self.rows].transpose(0, 2, 1))
        above, left = (self.side - N_PARCELS) // 2, (self.side - FRAMES) // 2
        padded = F.pad(images, (left, left, above, above), value=PADDING)
        return padded[:, None].expand(-1, 3, -1, -1)


def image_rows(path: Path) -> NDArray[np.intp]:
    """Read the coordinates (index, x, y, z) and return the stable order of ascending y. Raises CheckpointError."""
    try:
        table = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a table of coordinates ({error}); give {COORDINATES}.") from None
    if table.shape != (N_PARCELS, 4) or not np.array_equal(table[:, 0], np.arange(1, N_PARCELS + 1)):
        raise CheckpointError(f"{path} is not {N_PARCELS} rows of index, x, y, z; give {COORDINATES}.")
    return np.argsort(table[:, 2], kind="stable")


def build(recipe: Recipe, path: Path, aux: Mapping[str, Path], size: BrainLMSize) -> BrainLMEncoder:
    """Build BrainLM from a Hugging Face folder or its weights file."""
    config = path.parent / "config.json"
    if config.is_file():  # compare the sizes that do not show in the tensors
        expected = {"hidden_size": size.d, "num_attention_heads": size.heads, "patch_size": size.patch}
        try:
            stated = load_json(config)
            wrong = {key: stated[key] for key, value in expected.items() if stated.get(key, value) != value}
        except (ValueError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{config} is not a JSON object ({error}); download it again.") from None
        if wrong:
            listed = ", ".join(f"{key} {value}" for key, value in wrong.items())
            raise CheckpointError(f"{config} is of another model ({listed}); give the folder of this encoder.")
    model = fill(lambda: BrainLM(size), path, published=published_keys, unused=("decoder.",))
    recipe = replace(recipe, n_dimensions=size.d)
    return BrainLMEncoder(recipe, model, rows=image_rows(aux[COORDINATES]), side=size.side)


load_brainlm, load_brainlm_650m = (
    loader(build, replace(RECIPE, name=name), size, {COORDINATES: "the coordinates of its parcels"}, (STATISTICS,))
    for name, size in SIZES.items()
)
