"""A corpus that is open for training: its windows are on the device, or streamed from disk as they are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.intp]
C = TypeVar("C", bound="Corpus")


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """Recordings that are open for training, wherever their windows lie.

    Attributes
    ----------
    table : DataFrame
        One row per recording: ``id, dataset, subject, session, family, licence, TR, T``.
    parcel_names : tuple of str
    alpha : float
        Exponent of the teacher.
    sha256 : str
        Digest of the contents.
    kernel : Tensor, shape (N, N)
    atlas : str
    resident : Tensor or None
        All that windows are cut out of, on the device of the kernel; None where they are streamed.
    """

    table: pd.DataFrame
    parcel_names: tuple[str, ...]
    alpha: float
    sha256: str
    kernel: Tensor
    atlas: str = "n/a"
    resident: Tensor | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def families(self) -> NDArray[np.str_]:
        """Label of the family of each recording, unique across datasets; people without one are their own."""
        family = self.table["family"].where(self.table["family"] != "n/a", "sub-" + self.table["subject"])
        return (self.table["dataset"] + "/" + family).to_numpy(dtype=str)

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
    def signatures(self, rows: Indices) -> list[str]:
        """Signatures of whole recordings (`fcpower_bids.encoders.seen`); none where only windows of them are left."""

    def to(self: C, device: torch.device, resident_mb: int | None = None) -> C:
        """Hold the kernel on a device, and the windows too where they fit.

        Parameters
        ----------
        device : torch.device
        resident_mb : int, optional
            Size in MB up to which windows are held. Default: half of the free memory of a GPU, and nothing elsewhere,
            where files that are read again and again are in memory as it is.
        """
        moved = replace(self, kernel=self.kernel.to(device))
        if self.n_bytes > (_room(device) if resident_mb is None else resident_mb * 1_000_000):
            return moved
        return replace(moved, resident=self._load(device))

    def windows(self, rows: Indices, places: Indices, length: int) -> Tensor:
        """Cut one window out of each of B recordings: (B, length, P) float32 on the device.

        Parameters
        ----------
        rows : ndarray of int, shape (B,)
            Rows of the table.
        places : ndarray of int, shape (B,)
            Which of the windows of each recording, from 0.
        length : int
        """
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
        """Read windows from disk: (B, length, P) as stored, in memory that a GPU can copy from while the host goes on.

        Files are opened for each batch and closed after it, so that what was read does not stay in the process.
        """

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
