"""The series of a pack: shards of arrays, and a corpus that is opened to be read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import Tensor

from fcpower_bids.encoders.training_people import part_signatures
from fcpower_bids.errors import FcPowerError
from fcpower_bids.store import atomic


def write_arrays(
    arrays: Mapping[str, NDArray[Any]], path: Path, metadata: dict[str, str] | None = None, *, flush: bool = True
) -> None:
    """Write arrays as one ``.safetensors`` file, in one step, and only if they read back as they were given."""
    with atomic(path, flush=flush) as part:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, part, metadata)
        with safe_open(part, "np") as file:
            wrong = [name for name, array in arrays.items() if not np.array_equal(file.get_tensor(name), array)]
        if wrong:
            raise FcPowerError(
                f"{path} does not read back as it was written ({', '.join(wrong)}): the disk or this program is at "
                "fault, not the recordings. Nothing was added; try another disk, and report it if it happens again."
            )


def series_file(folder: Path, shard: int) -> Path:
    """Series of one shard: ``series`` (sum of T, P) float16."""
    return folder / f"series-{int(shard):05d}.safetensors"


def teacher_file(folder: Path, shard: int) -> Path:
    """Teacher vectors of one shard: ``vectors`` (n, P (P - 1) / 2) float32."""
    return folder / f"teacher-{int(shard):05d}.safetensors"


BLOCK = 256
"""Windows in memory at a time."""
Indices = NDArray[np.intp]
C = TypeVar("C", bound="Corpus")


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """Recordings that are open for training, wherever their windows lie."""

    # one row per recording: ``id, dataset, subject, session, family, site, licence, TR, T`` and `pack.MADE`
    table: pd.DataFrame
    parcel_names: tuple[str, ...]
    alpha: float  # exponent of the teacher
    sha256: str  # digest of the contents
    kernel: Tensor  # (N, N)
    atlas: str = "n/a"
    revision: str = "n/a"  # commit, of a corpus from the hub
    # all that windows are cut out of, on the device of the kernel; None where they are streamed
    resident: Tensor | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def families(self) -> NDArray[np.str_]:
        """Label of the family of each recording, unique across datasets; people without one are their own."""
        family = self.table["family"].where(self.table["family"] != "n/a", "sub-" + self.table["subject"])
        return (self.table["dataset"] + "/" + family).to_numpy(dtype=str)

    @property
    def sites(self) -> NDArray[np.str_]:
        """Label of the site of each recording, unique across datasets: the dataset where no site is known."""
        site = self.table["site"].where(self.table["site"] == "n/a", "/" + self.table["site"])
        return (self.table["dataset"] + site.where(site != "n/a", "")).to_numpy(dtype=str)

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Size of all that windows are cut out of."""

    @abstractmethod
    def places(self, length: int) -> Indices:
        """Windows of this length that can be cut out of each recording, shape (N,)."""

    @abstractmethod
    def windows_apart(self, length: int) -> Indices:
        """Windows of this length in each recording that share no volume, shape (N,)."""

    @abstractmethod
    def _nth(self, numbers: Indices, length: int) -> Indices:
        """Place of the n-th window of a recording, where they are cut end to end."""

    def signatures(self, rows: Indices, length: int) -> tuple[list[str], Indices]:
        """Signatures of all parts of these recordings (`encoders.training_people`), and the recording of each."""
        apart = self.windows_apart(length)[rows]
        owners, numbers = np.repeat(rows, apart), np.concatenate([np.arange(0), *map(np.arange, apart)])
        places, found = self._nth(numbers, length), []
        for i in (slice(first, first + BLOCK) for first in range(0, len(owners), BLOCK)):
            found += part_signatures(self.windows(owners[i], places[i], length).cpu().numpy())
        return found, owners[: len(found)]

    def to(self: C, device: torch.device) -> C:
        """Hold the kernel on a device, and the windows too where they fit in half of the free memory of a GPU."""
        moved = replace(self, kernel=self.kernel.to(device))
        if self.n_bytes > _room(device):
            return moved
        return replace(moved, resident=self._load(device))

    def windows(self, rows: Indices, places: Indices, length: int) -> Tensor:
        """Cut one window out of each of B recordings: (B, length, P) float32 on the device. Rows (B,), places (B,)."""
        index = self._index(rows, places, length)
        return self._cut(index, self._copied(index), length)

    def kernel_of(self, rows: Indices) -> Tensor:
        """Teacher kernel (B, B) of these recordings."""
        index = self._copied(np.asarray(rows))
        return self.kernel[index][:, index]

    def batch(self, rows: Indices, places: Indices, length: int, mine: slice) -> tuple[Tensor, Tensor]:
        """Windows of some of B recordings and the teacher kernel (B, B) of all; one copy of indices to the device."""
        index = self._index(rows, places, length)
        copied = self._copied(index)
        return self._cut(index[:, mine], copied[:, mine], length), self.kernel[copied[0]][:, copied[0]]

    def _copied(self, index: Indices) -> Tensor:
        return to_device(torch.from_numpy(np.ascontiguousarray(index)), self.kernel.device)

    def _cut(self, index: Indices, copied: Tensor, length: int) -> Tensor:
        device = self.kernel.device
        if self.resident is not None:
            return self._gather(self.resident, copied, length).float()
        return self._read(index, length, pinned=device.type == "cuda").to(device, non_blocking=True).float()

    @abstractmethod
    def _load(self, device: torch.device) -> Tensor:
        """All that windows are cut out of, on the device."""

    @abstractmethod
    def _index(self, rows: Indices, places: Indices, length: int) -> Indices:
        """Rows of the table, and where their windows are: shape (k, B)."""

    @abstractmethod
    def _read(self, index: Indices, length: int, pinned: bool) -> Tensor:
        """Read windows (B, length, P) from disk as stored, in memory that a GPU can copy from meanwhile."""

    @abstractmethod
    def _gather(self, resident: Tensor, index: Tensor, length: int) -> Tensor:
        """Cut windows out of what is on the device: (B, length, P) as stored."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy from the host without making it wait for what the device is still doing."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _room(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else 0
