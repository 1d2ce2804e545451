"""The corpus pack: whole z-scored recordings in half precision, their table, and the teacher kernel.

::

    pack.json                     format, alpha, parcels, digest
    recordings.tsv                one row per recording: where it is and where it came from
    series-00000.safetensors      ``series`` (sum of T, P) float16, time-major
    teacher-00000.safetensors     ``vectors`` (n, P (P - 1) / 2) float32, to prove and to enlarge the pack
    teacher_kernel.safetensors    ``kernel`` (N, N) float32, ``digests`` (N, 32) of its recordings
    parts/                        recordings that wait for a shard, while it is being packed
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fcpower_bids.encoders.seen import series_signature
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.pretraining.corpus.proof import prove_pack
from fcpower_bids.pretraining.corpus.shards import series_file

Indices = NDArray[np.intp]
KERNEL = "teacher_kernel.safetensors"
FORMAT = 2
"""Of the files of a pack. Format 1 (which states none) could hold scrambled series and is never read."""
TEXT_COLUMNS = ("id", "dataset", "subject", "session", "family", "licence", "sha256", "source")


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
    """

    table: pd.DataFrame
    parcel_names: tuple[str, ...]
    alpha: float
    sha256: str
    kernel: Tensor
    atlas: str = "n/a"

    def __len__(self) -> int:
        return len(self.table)

    @property
    def families(self) -> NDArray[np.str_]:
        """Label of the family of each recording, unique across datasets; people without one are their own."""
        family = self.table["family"].where(self.table["family"] != "n/a", "sub-" + self.table["subject"])
        return (self.table["dataset"] + "/" + family).to_numpy(dtype=str)

    @abstractmethod
    def places(self, length: int) -> Indices:
        """Windows of this length that can be cut out of each recording, shape (N,)."""

    @abstractmethod
    def windows(self, rows: Indices, places: Indices, length: int) -> Tensor:
        """Cut one window (length, P) out of each of B recordings: (B, length, P) float32.

        Parameters
        ----------
        rows : ndarray of int, shape (B,)
            Rows of the table.
        places : ndarray of int, shape (B,)
            Which of the windows of each recording, from 0.
        length : int
        """

    @abstractmethod
    def signatures(self, rows: Indices) -> list[str]:
        """Signatures of whole recordings (`fcpower_bids.encoders.seen`); none where only windows of them are left."""

    @abstractmethod
    def to(self, device: torch.device) -> Corpus:
        """Hold on a device what fits there."""

    def kernel_of(self, rows: Indices) -> Tensor:
        """Teacher kernel (B, B) of these recordings."""
        index = torch.from_numpy(np.asarray(rows)).to(self.kernel.device)
        return self.kernel[index][:, index]


@dataclass(frozen=True, kw_only=True)
class Pack(Corpus):
    """Our own pack: whole recordings, so that a window begins at any volume.

    Attributes
    ----------
    shards : tuple of Tensor
        Series (sum of T, P) float16, memory-mapped until they are moved to a device. The table has where a recording
        is in them (``shard, position, offset``), its ``sha256`` and the ``rank`` of its FC.
    """

    shards: tuple[Tensor, ...]

    def to(self, device: torch.device) -> Pack:
        """Hold series and kernel on a device, so that a step loads nothing."""
        return replace(self, shards=tuple(s.to(device) for s in self.shards), kernel=self.kernel.to(device))

    def signatures(self, rows: Indices) -> list[str]:
        """Of the stored series, whose signs are those of the written ones."""
        found = self.table.iloc[rows]
        places = zip(found["shard"], found["offset"], found["T"], strict=True)
        return [series_signature(self.shards[shard][first : first + length].cpu()) for shard, first, length in places]

    def places(self, length: int) -> Indices:
        """First volumes at which a window fits."""
        return np.maximum(self.table["T"].to_numpy(dtype=np.intp) - length + 1, 0)

    def windows(self, rows: Indices, places: Indices, length: int) -> Tensor:
        """Cut windows that begin at volume `places`."""
        shard = self.table["shard"].to_numpy()[rows]
        first = self.table["offset"].to_numpy()[rows] + places
        device = self.shards[0].device
        out = torch.empty(len(rows), length, len(self.parcel_names), device=device)
        for number in np.unique(shard):
            members = np.flatnonzero(shard == number)
            times = torch.from_numpy(first[members, None] + np.arange(length)).to(device)
            out[torch.from_numpy(members).to(device)] = self.shards[number][times].float()
        return out


def load_corpus(folder: Path) -> Pack:
    """Open a corpus pack.

    Raises
    ------
    DatasetError
        A file is missing or damaged, the pack is of another format, its kernel belongs to other recordings, or its
        teacher is not that of its series: pack again.
    """
    try:
        facts = json.loads((folder / "pack.json").read_text(encoding="utf-8"))
        _check_format(folder, facts)
        if "sha256" not in facts:
            raise DatasetError(f"The packing of {folder} was interrupted; run the pack level again, which goes on.")
        table = read_table(folder)
        with safe_open(folder / KERNEL, "pt") as file:
            belongs = (file.metadata() or {}).get("corpus_sha256") == facts["sha256"]
            kernel = file.get_tensor("kernel")
        if not belongs or len(kernel) != len(table):
            raise DatasetError(f"The teacher kernel in {folder} belongs to other recordings; pack the corpus again.")
        prove_pack(folder, table, facts["alpha"], kernel.numpy())
        shards = tuple(_series(series_file(folder, number)) for number in range(facts["n_shards"]))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DatasetError(f"{folder} is not a complete corpus pack ({error}); pack the corpus again.") from error
    names, atlas = tuple(facts["parcel_names"]), facts.get("atlas", "n/a")
    return Pack(
        table=table,
        parcel_names=names,
        alpha=facts["alpha"],
        sha256=facts["sha256"],
        kernel=kernel,
        atlas=atlas,
        shards=shards,
    )


def _check_format(folder: Path, facts: Mapping[str, Any]) -> None:
    if (found := facts.get("format", 1)) != FORMAT:
        raise DatasetError(
            f"{folder} was packed in format {found}, and this version reads format {FORMAT} (the series of older packs "
            "are scrambled); run the pretrain level again, which packs anew."
        )


def read_table(folder: Path) -> pd.DataFrame:
    """Read ``recordings.tsv`` of a pack."""
    text = dict.fromkeys(TEXT_COLUMNS, str)
    return pd.read_csv(folder / "recordings.tsv", sep="\t", dtype=text, keep_default_na=False)


def _series(path: Path) -> Tensor:
    with safe_open(path, "pt") as file:
        tensor: Tensor = file.get_tensor("series")
    return tensor


def refuse_leakage(table: pd.DataFrame, evaluation: Iterable[str]) -> None:
    """Refuse to train on recordings of the evaluation set.

    Parameters
    ----------
    table : DataFrame
        With the columns ``dataset``, ``subject``, ``id``.
    evaluation : iterable of str
        ``dataset`` (all of it) or ``dataset/subject``.

    Raises
    ------
    UsageError
        Names the recordings in both.
    """
    forbidden = set(evaluation)
    people = table["dataset"] + "/" + table["subject"]
    leaked = table["id"][table["dataset"].isin(forbidden) | people.isin(forbidden)].tolist()
    if leaked:
        more = f" and {len(leaked) - 5} more" if len(leaked) > 5 else ""
        raise UsageError(
            f"{len(leaked)} recordings of the corpus are in the evaluation set ({', '.join(leaked[:5])}{more}); "
            "pack a corpus without them."
        )
