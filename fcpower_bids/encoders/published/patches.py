"""Encoders of patches of one parcel: Brain-JEPA and BrainHarmonix-F (docs/encoder.md).

Brain-JEPA (Dong et al. 2024) has 450 x 10 tokens of 16 volumes; BrainHarmonix-F (Dong et al. 2025) patches of 35.28 s
at any repetition time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders import EIGENMODES, GRADIENTS, JEPA_GRADIENTS
from fcpower_bids.encoders.fbert import position_code
from fcpower_bids.encoders.published.adapters import (
    Block,
    PublishedEncoder,
    as_tensor,
    fill,
    read_number_table,
    z_scored,
)
from fcpower_bids.errors import RecordingError


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


class PatchModel(nn.Module):
    """Blocks over patches (B, parcels, n, p) with codes of their time and parcel; the mean token is the embedding."""

    def __init__(self, size: BrainJEPASize, tables: Mapping[str, Tensor], stores_time: bool) -> None:
        super().__init__()
        self.tables = tables  # (parcels, ...) each, by the name of its projection
        self.patch = nn.Conv2d(1, size.d, (1, size.patch))
        self.maps = nn.ModuleDict({name: nn.Linear(table.shape[1], size.d // 2) for name, table in tables.items()})
        codes = torch.zeros(size.parcels * size.patches, size.d // 2)
        self.time = nn.Parameter(codes) if stores_time else None  # parcel by parcel; else it is computed
        self.blocks = nn.ModuleList(Block(size.d, size.heads, size.ff) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.d, eps=1e-6)

    def forward(self, patches: Tensor) -> Tensor:
        """Patches that hold data to the mean token (B, d)."""
        n = patches.shape[2]
        projected: Tensor = sum(self.maps[name](table) for name, table in self.tables.items()) / len(self.tables)
        low, high = projected.min(), projected.max()
        space = 2 * (projected - low) / (high - low) - 1  # the smallest entry of all is -1 and the largest 1
        code = position_code(n, space.shape[1], "sinusoidal_halves").to(space).expand(len(space), -1, -1)
        time = code if self.time is None else self.time.view(len(space), n, -1)
        positions = torch.cat((time, space[:, None].expand(-1, n, -1)), dim=-1)
        tokens = (F.linear(patches, self._resized(patches.shape[-1]), self.patch.bias) + positions).flatten(1, 2)
        for block in self.blocks:
            tokens = block(tokens)
        out: Tensor = self.norm(tokens).mean(dim=1)
        return out

    def _resized(self, volumes: int) -> Tensor:
        """The map of a patch (d, p), resized to its length (FlexiViT, Beyer et al. 2023)."""
        weight = self.patch.weight.flatten(1)
        if volumes == weight.shape[1]:
            return weight
        # antialiased bicubic resizing as a matrix: row i is the resized i-th unit vector
        units = torch.eye(weight.shape[1])[:, None, None]
        resize = F.interpolate(units, (1, volumes), mode="bicubic", antialias=True)[:, 0, 0]
        return weight @ torch.linalg.pinv(resize).T


def renamed(prefixes: Mapping[str, str]) -> Callable[[str], tuple[str, ...]]:
    """Our keys to theirs, by what they begin with."""

    def published(key: str) -> tuple[str, ...]:
        ours = next((prefix for prefix in prefixes if key.startswith(prefix)), "")
        return (prefixes.get(ours, "") + key.removeprefix(ours),)

    return published


# --- Brain-JEPA -----------------------------------------------------------------------------------------------------


JEPA_PROJECTION = "predictor_pos_embed_proj"
JEPA_KEYS = {"patch.": "patch_embed.proj.", "maps.": "pos_embed_proj.", "time": "pos_embed_proj.emb_h"}


class BrainJEPAEncoder(PublishedEncoder):
    """Brain-JEPA, fed one recording standardised as a whole."""

    name = "brain-jepa"
    url = "https://github.com/Eric-LRL/Brain-JEPA"
    size = BrainJEPASize()
    atlas = "Schaefer450x17"
    n_parcels = 450
    n_dimensions = 768
    repetition_time = 2.0
    frames: ClassVar[int] = 160

    @classmethod
    def make(cls, path: Path, aux: Mapping[str, Path], size: BrainJEPASize) -> BrainJEPAEncoder:
        """Make the target encoder of a checkpoint."""
        tables = {JEPA_PROJECTION: as_tensor(read_number_table(aux[JEPA_GRADIENTS], size.parcels, size.gradients))}
        model = fill(lambda: PatchModel(size, tables, True), path, "target_encoder", published=renamed(JEPA_KEYS))
        return cls(model)

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Standardise with one mean and one standard deviation, resample, cut: (n, 450, 10, 16)."""
        standard = (series - series.mean()) / series.std(ddof=1)
        windows = self.windows(self.resampled(standard, repetition_time), self.frames).transpose(0, 2, 1)
        return as_tensor(windows.reshape(*windows.shape[:2], -1, self.size.patch))


# --- BrainHarmonix-F ------------------------------------------------------------------------------------------------


PATCH_SECONDS = 48 * 0.735
TRAINED_PATCHES = {"own": 18, "paper": 11}
"""Patches of a window: as pretrained, and as in the comparison of the paper."""
SHORTEST, LONGEST = 0.3, 3.6
"""Repetition times in seconds that give a patch 10 to about 120 volumes."""
HARMONIX_KEYS = {"patch.": "patch_embed.proj.", "maps.": "pos_embed."}


@dataclass(frozen=True)
class HarmonixSize(BrainJEPASize):
    """The same of the stored patch, and eigenmodes."""

    parcels: int = 400
    patch: int = 48
    patches: int = 18
    eigenmodes: int = 200


class HarmonixEncoder(PublishedEncoder):
    """BrainHarmonix-F, the averaged encoder for functional series; z-scored per parcel."""

    name = "brain-harmonix-f"
    url = "https://github.com/hzlab/Brain-Harmony"
    size = HarmonixSize()
    atlas = "Schaefer400x17"
    n_parcels = 400
    n_dimensions = 768

    @classmethod
    def make(cls, path: Path, aux: Mapping[str, Path], size: HarmonixSize) -> HarmonixEncoder:
        """Make the averaged encoder of a checkpoint."""
        tables = {
            "grad_proj": as_tensor(read_number_table(aux[GRADIENTS], size.parcels, size.gradients)),
            "geo_harm_proj": as_tensor(
                read_number_table(aux[EIGENMODES], size.parcels, size.eigenmodes, header=0, index_col=0)
            ),
        }
        # Fixed time codes, which are computed here, and what only the decoder of pretraining uses.
        unused = ("pos_embed.emb_h_encoder", "pos_embed.emb_h_decoder", "pos_embed.decoder_pos_embed_proj.")
        keys = renamed(HARMONIX_KEYS)
        model = fill(
            lambda: PatchModel(size, tables, False), path, prefix="encoder_ema.", published=keys, unused=unused
        )
        return cls(model)

    @property
    def reading(self) -> str:
        """Whole patches, as many as the model was trained on at most."""
        return f"windows of up to {TRAINED_PATCHES[self.protocol]} patches of {PATCH_SECONDS:g} s"

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Z-score, cut into patches of 35.28 s, pad the last with 0: (n, 400, patches, p). Raises RecordingError."""
        if not SHORTEST <= repetition_time <= LONGEST:
            raise RecordingError(
                f"{self.name} takes repetition times from {SHORTEST} to {LONGEST} s, not {repetition_time:g} s."
            )
        patch = round(PATCH_SECONDS / repetition_time)
        if len(series) < patch:
            raise RecordingError(
                f"The recording has {len(series)} volumes and a patch of {self.name} {patch}; leave it out."
            )
        n_patches = min(TRAINED_PATCHES[self.protocol], math.ceil(len(series) / patch))
        frames = n_patches * patch
        padded = np.pad(z_scored(series), ((0, max(0, frames - len(series))), (0, 0)))
        windows = self.windows(padded, frames).transpose(0, 2, 1)
        return as_tensor(windows.reshape(*windows.shape[:2], n_patches, patch))
