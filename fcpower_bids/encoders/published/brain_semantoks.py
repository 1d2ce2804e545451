"""Brain-Semantoks (Gijsen, Schulz & Ritter 2025): a token per network and 20 volumes (docs/encoder.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.encoders.published.adapters import (
    Block,
    Columns,
    PublishedEncoder,
    as_tensor,
    fill,
    parcel_order,
    z_scored,
)

ATLASES = ("Schaefer400", "TianS3", "Buckner7")
N_CROPS = {"own": 8, "paper": 16}
"""Windows of a recording: of the released probe, and of the comparison of the paper."""


@dataclass(frozen=True)
class SemantoksSize:
    """Width, layers, heads, feed-forward; parcels per network, volumes per patch, patches, taps and scales."""

    d: int = 768
    layers: int = 8
    heads: int = 12
    ff: int = 3072
    networks: tuple[int, ...] = (61, 77, 46, 47, 26, 52, 91, 50, 7)
    patch: int = 20
    patches: int = 5
    taps: int = 4
    scales: int = 3


class LongConvolution(nn.Module):
    """Depthwise convolution whose kernel is made of pieces of growing length and falling weight (SGConv, Li 2023)."""

    def __init__(self, channels: int, heads: int, taps: int, scales: int) -> None:
        super().__init__()
        self.D = nn.Parameter(torch.zeros(heads, channels))
        self.kernel_list = nn.ParameterList(nn.Parameter(torch.zeros(heads, channels, taps)) for _ in range(scales))
        self.register_buffer("multiplier", torch.ones(1, channels, 1))
        self.register_buffer("kernel_norm", torch.ones(heads, channels, 1))
        self.register_buffer("kernel_norm_initialized", torch.tensor(True))

    def kernel(self) -> Tensor:
        """Whole kernel (heads, channels, taps 2^(scales - 1)), divided by the norm it had when training began."""
        last = len(self.kernel_list) - 1
        pieces = [
            piece.repeat_interleave(2 ** max(0, i - 1), dim=-1) * self.get_buffer("multiplier") ** (last - i)
            for i, piece in enumerate(self.kernel_list)
        ]
        whole = torch.cat(pieces, dim=-1)
        norm = self.get_buffer("kernel_norm")
        return whole / (norm if bool(self.get_buffer("kernel_norm_initialized")) else whole.norm(dim=-1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        """Series (B, channels, T) to (B, channels heads, T): all heads of a channel side by side."""
        kernel = self.kernel().transpose(0, 1)
        channels, heads, length = kernel.shape
        before = (length - 1) // 2
        padded = F.pad(x, (before, length - 1 - before))
        convolved = F.conv1d(padded, kernel.flip(-1).reshape(channels * heads, 1, length), groups=channels)
        return convolved + x.repeat_interleave(heads, dim=1) * self.D.T.reshape(-1, 1)


class NetworkTokenizer(nn.Module):
    """20 volumes of one network to one token: short and long convolution, GELU, mean over time, norm."""

    def __init__(self, parcels: int, size: SemantoksSize) -> None:
        super().__init__()
        half = size.d // 2
        heads = math.ceil(half / parcels)
        convolution = LongConvolution(parcels, heads, size.taps, size.scales)
        long = nn.ModuleDict({"slconv": convolution, "projection": nn.Linear(heads * parcels, half)})
        self.branches = nn.ModuleList([nn.Conv1d(parcels, half, 3, padding="same"), long])
        self.norm = nn.LayerNorm(size.d)

    def forward(self, x: Tensor) -> Tensor:
        """Series (B, parcels, 20) to tokens (B, d)."""
        short, long = self.branches
        mapped = long["projection"](long["slconv"](x).transpose(1, 2)).transpose(1, 2)  # type: ignore[index]
        both = torch.cat((short(x), mapped), dim=1)
        out: Tensor = self.norm(F.gelu(both).mean(dim=-1))
        return out


class InterNetworkTransformer(nn.Module):
    """Tokens of networks and times, ``[CLS]`` before them."""

    def __init__(self, size: SemantoksSize) -> None:
        super().__init__()
        self.mask_embedding = nn.Parameter(torch.zeros(1, size.d))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, size.d))
        self.register_buffer("temporal_pos_embedding", torch.zeros(size.patches, size.d))
        self.network_learnable_pos_embedding = nn.Embedding(len(size.networks), size.d)
        self.transformer_blocks = nn.ModuleList(
            Block(size.d, size.heads, size.ff, eps=1e-5, qkv_bias=False, layer_scale=True) for _ in range(size.layers)
        )

    def forward(self, tokens: Tensor, masked: Tensor) -> Tensor:
        """Tokens (B, networks, patches, d), some masked (B, networks), to (B, 1 + networks patches, d)."""
        tokens = torch.where(masked[:, :, None, None], self.mask_embedding, tokens)
        networks = self.network_learnable_pos_embedding.weight[:, None]
        x = (tokens + networks + self.get_buffer("temporal_pos_embedding")).flatten(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1)
        for block in self.transformer_blocks:
            x = block(x)
        return x


class BrainSemantoks(nn.Module):
    """The teacher encoder. Parcels are sorted by network; those of an atlas that is not there are NaN."""

    def __init__(self, size: SemantoksSize) -> None:
        super().__init__()
        self.size = size
        tokenizers = nn.ModuleList(NetworkTokenizer(parcels, size) for parcels in size.networks)
        self.network_tokenizers = nn.ModuleDict({"schaefer400": tokenizers})
        self.inter_network_transformer = InterNetworkTransformer(size)
        self.norm = nn.LayerNorm(size.d)

    def forward(self, x: Tensor) -> Tensor:
        """Series (B, parcels, volumes) to [mean of tokens, ``[CLS]``] (B, 2 d)."""
        networks = x.split(self.size.networks, dim=1)
        masked = torch.stack([network.isnan().any(dim=2).any(dim=1) for network in networks], dim=1)
        tokens = torch.stack([self.tokens(i, network.nan_to_num()) for i, network in enumerate(networks)], dim=1)
        out = self.norm(self.inter_network_transformer(tokens, masked))
        return torch.cat((out[:, 1:].mean(dim=1), out[:, 0]), dim=1)

    def tokens(self, i: int, network: Tensor) -> Tensor:
        """Series of network i (B, parcels, volumes) to its tokens (B, patches, d)."""
        patches = network.unflatten(2, (self.size.patches, self.size.patch)).transpose(1, 2)
        tokenizer = self.network_tokenizers["schaefer400"][i]  # type: ignore[index]
        out: Tensor = tokenizer(patches.flatten(0, 1)).unflatten(0, patches.shape[:2])
        return out


def network_order() -> Columns:
    """Schaefer's 400 parcels (7-network release) sorted by network, hemisphere after hemisphere: positions (400,)."""
    names = parcel_order("Schaefer400").names
    networks = [name.split("_")[2] for name in names]
    first = list(dict.fromkeys(networks))
    return np.argsort([first.index(network) for network in networks], kind="stable")


def published_keys(key: str) -> tuple[str, ...]:
    """Our key to theirs: the feed-forward part is a sequence there."""
    return (key.replace(".mlp.fc1.", ".mlp.0.").replace(".mlp.fc2.", ".mlp.3."),)


class SemantoksEncoder(PublishedEncoder):
    """Brain-Semantoks; z-scored per parcel over the recording."""

    name = "brain-semantoks"
    url = "https://huggingface.co/SamGijsen/Brain-Semantoks"
    size = SemantoksSize()
    atlas = "Schaefer457"
    n_parcels = 457
    n_dimensions = 1536
    repetition_time = 2.0
    tolerance = 0.01
    frames: ClassVar[int] = 100
    band = (0.01, 0.1)

    @classmethod
    def make(cls, path: Path, aux: Mapping[str, Path], size: SemantoksSize) -> SemantoksEncoder:
        """Make the teacher of a checkpoint."""
        # The checkpoint has tokenizers under the names of all atlases; only the first set and only one norm are used.
        spare = ("network_tokenizers.tian3.", "network_tokenizers.buckner7.", "inter_network_transformer.norm.")
        keys = ("model_state_dict", "teacher_encoder.")
        return cls(fill(lambda: BrainSemantoks(size), path, *keys, published_keys, spare))

    def columns(self, parcel_names: Sequence[str]) -> Columns:
        """Find the parcels of each atlas; subcortex and cerebellum may be missing, but only as a whole."""
        cortex = parcel_order("Schaefer400").match(parcel_names)
        columns = [cortex[network_order()]]
        for atlas in ATLASES[1:]:
            order = parcel_order(atlas)
            there = set(order.names) & set(parcel_names)
            columns.append(order.match(parcel_names) if there else np.full(len(order), -1))
        return np.concatenate(columns)

    def select(self, series: ArrayLike, columns: Columns) -> FloatArray:
        """Take the parcels, NaN for those of an atlas that is not there: (T, 457) float64."""
        return np.where(columns >= 0, super().select(series, columns), np.nan)

    def prepare(self, series: FloatArray, repetition_time: float) -> Tensor:
        """Z-score, resample, cut: (n, 457, 100)."""
        scored = np.where(np.isnan(series), np.nan, z_scored(np.nan_to_num(series)))
        windows = self.windows(self.resampled(scored, repetition_time), self.frames, N_CROPS[self.protocol])
        return as_tensor(windows.transpose(0, 2, 1))

    @property
    def reading(self) -> str:
        """A fixed number of windows."""
        return f"{N_CROPS[self.protocol]} {super().reading}"

    @property
    def target_time(self) -> float | None:
        """2 s under both protocols."""
        return self.repetition_time
