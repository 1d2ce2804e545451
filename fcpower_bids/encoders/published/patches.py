"""Encoders of patches of one parcel: Brain-JEPA and BrainHarmonix-F (docs/encoder.md).

Brain-JEPA (Dong et al. 2024) has 450 x 10 tokens of 16 volumes; BrainHarmonix-F (Dong et al. 2025) patches of 35.28 s
at any repetition time.
"""

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
from fcpower_bids.encoders import EIGENMODES, GRADIENTS, JEPA_GRADIENTS
from fcpower_bids.encoders.published.adapters import (
    Block,
    PublishedEncoder,
    Recipe,
    as_tensor,
    fill,
    loader,
    read_number_table,
    z_scored,
)
from fcpower_bids.errors import RecordingError


class PatchEmbed(nn.Module):
    """One linear map for all patches, stored as a convolution."""

    def __init__(self, d: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(1, d, (1, patch), stride=(1, patch))

    def forward(self, patches: Tensor) -> Tensor:
        """Patches (..., p) to tokens (..., d): the map is resized to their length (FlexiViT, Beyer et al. 2023)."""
        weight = self.proj.weight.flatten(1)
        if patches.shape[-1] != weight.shape[1]:
            # antialiased bicubic resizing as a matrix: row i is the resized i-th unit vector
            units = torch.eye(weight.shape[1])[:, None, None]
            resize = F.interpolate(units, (1, patches.shape[-1]), mode="bicubic", antialias=True)[:, 0, 0]
            weight = weight @ torch.linalg.pinv(resize).T
        return F.linear(patches, weight, self.proj.bias)


class PatchTransformer(nn.Module):
    """Blocks over the tokens of patches; their mean is the embedding."""

    def __init__(self, size: BrainJEPASize) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(size.d, size.heads, size.ff) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.d, eps=1e-6)

    def mean_token(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, d) to their mean after all blocks (B, d)."""
        for block in self.blocks:
            tokens = block(tokens)
        out: Tensor = self.norm(tokens).mean(dim=1)
        return out


def sincos(positions: Tensor, d: int) -> Tensor:
    """Fixed position code (N, d) in float64: [sin(p w) | cos(p w)], w_i = 10000^(-i / (d/2))."""
    rates = 10000.0 ** (-torch.arange(d // 2, dtype=torch.float64) / (d // 2))
    angles = positions.double()[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def scaled_to_unit_range(table: Tensor) -> Tensor:
    """Scale a whole table linearly so that its smallest entry is -1 and its largest 1."""
    low, high = table.min(), table.max()
    return 2 * (table - low) / (high - low) - 1


# --- Brain-JEPA -----------------------------------------------------------------------------------------------------


JEPA_RECIPE = Recipe(
    name="brain-jepa",
    source="https://github.com/Eric-LRL/Brain-JEPA",
    atlas="Schaefer450x17",
    n_parcels=450,
    n_dimensions=768,
    repetition_time=2.0,
    frames=160,
)


@dataclass(frozen=True)
class BrainJEPASize:
    """Width, layers, heads, feed-forward; parcels, volumes of a patch, patches, gradients."""

    d: int = 768
    layers: int = 12
    heads: int = 12
    ff: int = 3072
    parcels: int = 450
    patch: int = 16
    patches: int = 10
    gradients: int = 30


class JEPAPosition(nn.Module):
    """Time code (tokens, d/2) of the checkpoint and the projected gradients of the parcels."""

    def __init__(self, size: BrainJEPASize) -> None:
        super().__init__()
        self.emb_h = nn.Parameter(torch.zeros(size.parcels * size.patches, size.d // 2))
        self.predictor_pos_embed_proj = nn.Linear(size.gradients, size.d // 2)

    def forward(self, gradients: Tensor) -> Tensor:
        """Gradients (parcels, 30) to positions (tokens, d), tokens parcel by parcel."""
        patches = len(self.emb_h) // len(gradients)
        space = scaled_to_unit_range(self.predictor_pos_embed_proj(gradients))
        return torch.cat((self.emb_h, space.repeat_interleave(patches, dim=0)), dim=1)


class BrainJEPA(PatchTransformer):
    """The target encoder."""

    def __init__(self, size: BrainJEPASize, gradients: Tensor) -> None:
        super().__init__(size)
        self.gradients = gradients
        self.patch_embed = PatchEmbed(size.d, size.patch)
        self.pos_embed_proj = JEPAPosition(size)

    def forward(self, x: Tensor) -> Tensor:
        """Series (B, 1, parcels, volumes) to the mean token (B, d)."""
        tokens = self.patch_embed.proj(x).flatten(2).transpose(1, 2) + self.pos_embed_proj(self.gradients)
        return self.mean_token(tokens)


@dataclass(frozen=True)
class BrainJEPAEncoder(PublishedEncoder):
    """Brain-JEPA, fed one recording standardised as a whole."""

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Standardise with one mean and one standard deviation, resample, cut: (n, 1, 450, 160)."""
        assert self.recipe.frames is not None
        standard = (series - series.mean()) / series.std(ddof=1)
        windows = self.windows(self.resampled(standard, repetition_time), self.recipe.frames)
        return as_tensor(windows.transpose(0, 2, 1)[:, None])


def build_jepa(recipe: Recipe, path: Path, aux: Mapping[str, Path], size: BrainJEPASize) -> BrainJEPAEncoder:
    """Build the target encoder of a Brain-JEPA checkpoint."""
    gradients = read_number_table(aux[JEPA_GRADIENTS], size.parcels, size.gradients)
    return BrainJEPAEncoder(recipe, fill(lambda: BrainJEPA(size, gradients), path, "target_encoder"))


load_brain_jepa = loader(build_jepa, JEPA_RECIPE, BrainJEPASize())


# --- BrainHarmonix-F ------------------------------------------------------------------------------------------------


PATCH_SECONDS = 48 * 0.735
TRAINED_PATCHES = {"own": 18, "paper": 11}
"""Patches of a window: as pretrained, and as in the comparison of the paper."""
SHORTEST, LONGEST = 0.3, 3.6
"""Repetition times in seconds that give a patch 10 to about 120 volumes."""
HARMONIX_RECIPE = Recipe(
    name="brain-harmonix-f",
    source="https://github.com/hzlab/Brain-Harmony",
    atlas="Schaefer400x17",
    n_parcels=400,
    n_dimensions=768,
)


@dataclass(frozen=True)
class HarmonixSize(BrainJEPASize):
    """The same of the stored patch, and eigenmodes."""

    parcels: int = 400
    patch: int = 48
    patches: int = 18
    eigenmodes: int = 200


class HarmonixPosition(nn.Module):
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


class BrainHarmonix(PatchTransformer):
    """The averaged encoder for functional series."""

    def __init__(self, size: HarmonixSize, gradients: Tensor, eigenmodes: Tensor) -> None:
        super().__init__(size)
        self.gradients, self.eigenmodes = gradients, eigenmodes
        self.patch_embed = PatchEmbed(size.d, size.patch)
        self.pos_embed = HarmonixPosition(size)

    def forward(self, patches: Tensor) -> Tensor:
        """Patches (B, parcels, n, p) that hold data to the mean token (B, d)."""
        positions = self.pos_embed(self.gradients, self.eigenmodes, patches.shape[2])
        tokens = (self.patch_embed(patches) + positions).flatten(1, 2)
        return self.mean_token(tokens)


@dataclass(frozen=True)
class HarmonixEncoder(PublishedEncoder):
    """BrainHarmonix-F; z-scored per parcel."""

    @property
    def reading(self) -> str:
        """Whole patches, as many as the model was trained on at most."""
        return f"windows of up to {TRAINED_PATCHES[self.protocol]} patches of {PATCH_SECONDS:g} s"

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Z-score, cut into patches of 35.28 s, pad the last with 0: (n, 400, patches, p). Raises RecordingError."""
        if not SHORTEST <= repetition_time <= LONGEST:
            raise RecordingError(
                f"{self.recipe.name} takes repetition times from {SHORTEST} to {LONGEST} s, not {repetition_time:g} s."
            )
        patch = round(PATCH_SECONDS / repetition_time)
        if len(series) < patch:
            raise RecordingError(
                f"The recording has {len(series)} volumes and a patch of {self.recipe.name} {patch}; leave it out."
            )
        n_patches = min(TRAINED_PATCHES[self.protocol], math.ceil(len(series) / patch))
        frames = n_patches * patch
        padded = np.pad(z_scored(series), ((0, max(0, frames - len(series))), (0, 0)))
        windows = self.windows(padded, frames).transpose(0, 2, 1)
        return as_tensor(windows.reshape(*windows.shape[:2], n_patches, patch))


def build_harmonix(recipe: Recipe, path: Path, aux: Mapping[str, Path], size: HarmonixSize) -> HarmonixEncoder:
    """Build the averaged encoder of a BrainHarmonix-F checkpoint."""
    gradients = read_number_table(aux[GRADIENTS], size.parcels, size.gradients)
    eigenmodes = read_number_table(aux[EIGENMODES], size.parcels, size.eigenmodes, labelled=True)
    # Fixed time codes, which are computed here, and what only the decoder of pretraining uses.
    unused_keys = ("pos_embed.emb_h_encoder", "pos_embed.emb_h_decoder", "pos_embed.decoder_pos_embed_proj.")
    model = fill(lambda: BrainHarmonix(size, gradients, eigenmodes), path, prefix="encoder_ema.", unused=unused_keys)
    return HarmonixEncoder(recipe, model)


load_brain_harmonix = loader(build_harmonix, HARMONIX_RECIPE, HarmonixSize())
