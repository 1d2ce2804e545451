"""BrainHarmonix-F (Dong et al. 2025): patches of 35.28 s at any repetition time (docs/encoder.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.checkpoint_files import fill, read_number_table, read_state
from fcpower_bids.encoders.published.adapters import (
    Block,
    PatchEmbed,
    PublishedEncoder,
    Recipe,
    as_tensor,
    loader,
    scaled_to_unit_range,
    sincos,
    z_scored,
)
from fcpower_bids.encoders.statistics import FILE as STATISTICS
from fcpower_bids.errors import RecordingError

PATCH_SECONDS = 48 * 0.735
TRAINED_PATCHES = {"own": 18, "paper": 11}
"""Patches of a window: as pretrained, and as in the comparison of the paper."""
SHORTEST, LONGEST = 0.3, 3.6
"""Repetition times in seconds that give a patch 10 to about 120 volumes."""
GRADIENTS, EIGENMODES = "gradient_mapping_400.csv", "schaefer400_roi_eigenmodes.csv"
RECIPE = Recipe(
    name="brain-harmonix-f",
    licence="CC BY-NC-SA 4.0",
    source="https://github.com/hzlab/Brain-Harmony",
    atlas="Schaefer400x17",
    n_parcels=400,
    n_dimensions=768,
)


@dataclass(frozen=True)
class HarmonixSize:
    """Width, layers, heads, feed-forward; parcels, volumes of the stored patch, patches, gradients, eigenmodes."""

    d: int = 768
    layers: int = 12
    heads: int = 12
    ff: int = 3072
    parcels: int = 400
    patch: int = 48
    patches: int = 18
    gradients: int = 30
    eigenmodes: int = 200


class FlexiblePatchEmbed(PatchEmbed):
    """A linear map of patches that is resized to their length (FlexiViT, Beyer et al. 2023)."""

    def forward(self, patches: Tensor) -> Tensor:
        """Patches (..., p) to tokens (..., d)."""
        weight = self.proj.weight.flatten(1)
        if patches.shape[-1] != weight.shape[1]:
            weight = weight @ torch.linalg.pinv(resize_matrix(weight.shape[1], patches.shape[-1])).T
        return F.linear(patches, weight, self.proj.bias)


def resize_matrix(stored: int, wanted: int) -> Tensor:
    """Antialiased bicubic resizing as a matrix (stored, wanted): row i is the resized i-th unit vector."""
    units = torch.eye(stored)[:, None, None]  # (stored, 1, 1, stored)
    return F.interpolate(units, (1, wanted), mode="bicubic", antialias=True)[:, 0, 0]


class Position(nn.Module):
    """Projections of gradients and eigenmodes; the time code is computed."""

    def __init__(self, size: HarmonixSize) -> None:
        super().__init__()
        self.geo_harm_proj = nn.Linear(size.eigenmodes, size.d // 2)
        self.grad_proj = nn.Linear(size.gradients, size.d // 2)

    def forward(self, gradients: Tensor, eigenmodes: Tensor, patches: int) -> Tensor:
        """Tables (parcels, 30) and (parcels, 200) to positions (parcels, patches, d)."""
        space = scaled_to_unit_range((self.grad_proj(gradients) + self.geo_harm_proj(eigenmodes)) / 2)
        time = sincos(torch.arange(patches), space.shape[1]).to(space)
        grid = (len(space), patches, -1)
        return torch.cat((time[None].expand(*grid), space[:, None].expand(*grid)), dim=-1)


class BrainHarmonix(nn.Module):
    """The averaged encoder for functional series."""

    def __init__(self, size: HarmonixSize, gradients: Tensor, eigenmodes: Tensor) -> None:
        super().__init__()
        self.gradients, self.eigenmodes = gradients, eigenmodes
        self.patch_embed = FlexiblePatchEmbed(size.d, size.patch)
        self.pos_embed = Position(size)
        self.blocks = nn.ModuleList(Block(size.d, size.heads, size.ff) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.d, eps=1e-6)

    def forward(self, patches: Tensor) -> Tensor:
        """Patches (B, parcels, n, p) that hold data to the mean token (B, d)."""
        positions = self.pos_embed(self.gradients, self.eigenmodes, patches.shape[2])
        tokens = (self.patch_embed(patches) + positions).flatten(1, 2)
        for block in self.blocks:
            tokens = block(tokens)
        out: Tensor = self.norm(tokens).mean(dim=1)
        return out


@dataclass(frozen=True)
class HarmonixEncoder(PublishedEncoder):
    """BrainHarmonix-F; z-scored per parcel, and scaled by a cohort if its statistics are given."""

    uses_statistics = True

    @property
    def reading(self) -> str:
        """Whole patches, as many as the model was trained on at most."""
        return f"windows of up to {TRAINED_PATCHES[self.protocol]} patches of {PATCH_SECONDS:g} s"

    def scaled_alone(self, series: FloatArray) -> FloatArray:
        """Z-score each parcel: cleaned series have no mean to compare with a cohort, as the authors' raw ones have."""
        return z_scored(series)

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Scale, cut into patches of 35.28 s, pad the last with 0: (n, 400, patches, p). Raises RecordingError."""
        if not SHORTEST <= repetition_time <= LONGEST:
            raise RecordingError(
                f"{self.recipe.name} takes repetition times from {SHORTEST} to {LONGEST} s, not {repetition_time:g} s."
            )
        patch = round(PATCH_SECONDS / repetition_time)
        if len(series) < patch:
            raise RecordingError(
                f"The recording has {len(series)} volumes and a patch of {self.recipe.name} {patch}; leave it out."
            )
        scaled = self.scaled_alone(series)
        if self.statistics is not None:
            scaled = self.statistics.scale(scaled)
        n_patches = min(TRAINED_PATCHES[self.protocol], math.ceil(len(scaled) / patch))
        frames = n_patches * patch
        padded = np.pad(scaled, ((0, max(0, frames - len(scaled))), (0, 0)))
        windows = self.windows(padded, frames).transpose(0, 2, 1)
        return as_tensor(windows.reshape(*windows.shape[:2], n_patches, patch))


def build(recipe: Recipe, path: Path, aux: Mapping[str, Path], size: HarmonixSize) -> HarmonixEncoder:
    """Build the averaged encoder of a BrainHarmonix-F checkpoint."""
    gradients = read_number_table(aux[GRADIENTS], size.parcels, size.gradients)
    eigenmodes = read_number_table(aux[EIGENMODES], size.parcels, size.eigenmodes, labelled=True)
    with torch.device("meta"):
        model = BrainHarmonix(size, gradients, eigenmodes)
    # Fixed time codes, which are computed here, and what only the decoder of pretraining uses.
    unused_keys = ("pos_embed.emb_h_encoder", "pos_embed.emb_h_decoder", "pos_embed.decoder_pos_embed_proj.")
    state = read_state(path, prefix="encoder_ema.")
    return HarmonixEncoder(recipe, fill(model, state, str(path), unused=unused_keys))


load_brain_harmonix = loader(
    build,
    RECIPE,
    HarmonixSize(),
    {GRADIENTS: "the functional gradients of its parcels", EIGENMODES: "their geometric eigenmodes"},
    (STATISTICS,),
)
