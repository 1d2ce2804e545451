"""Brain-JEPA (Dong et al. 2024): patches of 16 volumes of one parcel, 450 x 10 tokens (docs/encoder.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
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
)

GRADIENTS = "gradient_mapping_450.csv"
RECIPE = Recipe(
    name="brain-jepa",
    licence="none stated by the authors",
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


class Position(nn.Module):
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


class BrainJEPA(nn.Module):
    """The target encoder."""

    def __init__(self, size: BrainJEPASize, gradients: Tensor) -> None:
        super().__init__()
        self.gradients = gradients
        self.patch_embed = PatchEmbed(size.d, size.patch)
        self.pos_embed_proj = Position(size)
        self.blocks = nn.ModuleList(Block(size.d, size.heads, size.ff) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.d, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Series (B, 1, parcels, volumes) to the mean token (B, d)."""
        tokens = self.patch_embed.proj(x).flatten(2).transpose(1, 2) + self.pos_embed_proj(self.gradients)
        for block in self.blocks:
            tokens = block(tokens)
        out: Tensor = self.norm(tokens).mean(dim=1)
        return out


@dataclass(frozen=True)
class BrainJEPAEncoder(PublishedEncoder):
    """Brain-JEPA, fed one recording standardised as a whole."""

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Standardise with one mean and one standard deviation, resample, cut: (n, 1, 450, 160)."""
        assert self.recipe.frames is not None
        standard = (series - series.mean()) / series.std(ddof=1)
        windows = self.windows(self.resampled(standard, repetition_time), self.recipe.frames)
        return as_tensor(windows.transpose(0, 2, 1)[:, None])


def build(recipe: Recipe, path: Path, aux: Mapping[str, Path], size: BrainJEPASize) -> BrainJEPAEncoder:
    """Build the target encoder of a Brain-JEPA checkpoint."""
    gradients = read_number_table(aux[GRADIENTS], size.parcels, size.gradients)
    with torch.device("meta"):
        model = BrainJEPA(size, gradients)
    return BrainJEPAEncoder(recipe, fill(model, read_state(path, nested="target_encoder"), str(path)))


load_brain_jepa = loader(build, RECIPE, BrainJEPASize(), {GRADIENTS: "the functional gradients of its parcels"})
