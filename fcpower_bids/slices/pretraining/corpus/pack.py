"""The format of a pack: its parts, its table, and the proof that it is sound."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fcpower_bids.core.connectome.edges import edge_count
from fcpower_bids.errors import DatasetError
from fcpower_bids.slices.pretraining.corpus.opened import Corpus, Indices, series_file, teacher_file, write_arrays
from fcpower_bids.slices.pretraining.corpus.teacher import stored_teacher, unit_vectors
from fcpower_bids.store import digest_of, load_json, parse_json, stored_path

AGREEMENT = 0.7
"""Least correlation of a recomputed with the stored teacher vector: real packs have .99, scrambled ones about 0."""
KERNEL_TOLERANCE = 1e-3


def prove_pack(folder: Path, table: pd.DataFrame, alpha: float, kernel: NDArray[np.float32]) -> None:
    """Recompute teacher vectors of a few recordings from their stored series; compare them and the kernel."""
    chosen = {*table.groupby("shard").head(1).index, 0, len(table) // 2, len(table) - 1}
    vectors = []
    for index in sorted(chosen):
        row = table.loc[index]
        vectors.append(unit_vectors(stored_vector(folder, row)[None])[0])
        again = stored_teacher(_series(folder, row), alpha, int(row["rank"]))
        agreement = float(again @ vectors[-1])
        if not agreement > AGREEMENT:
            raise DatasetError(
                f"The series of {row['id']} in {series_file(folder, row['shard'])} are not those that its teacher was "
                f"computed from (correlation {agreement:.2f}, expected {AGREEMENT} or more): the file was changed or "
                f"damaged. Remove the folder {folder} and run the same command again, which packs anew."
            )
    rows = np.array(sorted(chosen))
    Z = np.array(vectors)
    if np.abs(Z @ Z.T - kernel[np.ix_(rows, rows)]).max() > KERNEL_TOLERANCE:
        raise DatasetError(
            f"The teacher kernel in {folder} is not that of its teacher vectors: a file was changed or damaged. "
            "Remove the folder and run the same command again, which packs anew."
        )


def _series(folder: Path, row: pd.Series[Any]) -> NDArray[np.float16]:
    first = int(row["offset"])
    with safe_open(series_file(folder, row["shard"]), "np") as file:
        found: NDArray[np.float16] = file.get_slice("series")[first : first + int(row["T"])]
    return found


def stored_vector(folder: Path, row: pd.Series[Any]) -> NDArray[np.float32]:
    """Teacher vector of one row of the table, as it is stored."""
    position = int(row["position"])
    with safe_open(teacher_file(folder, row["shard"]), "np") as file:
        vectors: NDArray[np.float32] = file.get_slice("vectors")[position : position + 1]
    return vectors[0]


KERNEL = "teacher_kernel.safetensors"
FORMAT = 2
"""Of the files of a pack. Format 1 (which states none) could hold scrambled series and is never read."""
PLACES = ("shard", "position", "offset", "T", "rank")
"""Columns of whole numbers."""
TABLE = "recordings.tsv"
DIGESTS, OWN_DIGEST = "files", "pack_sha256"
"""Entries of ``pack.json``: digest of each other file of a complete pack, and that of its own other entries."""
SITE = "site"
"""Column that digests depend on where any site is known: packs without sites have the digests of earlier versions."""
MADE = ("citation", "space", "cleaning", "band")
"""Columns for the card of a model: whose data it is, and how the series was made."""
UNTOLD = ("source", "place", *MADE)
"""Columns on which no digest depends: they say where a recording lies, or what its series shows."""
TEXT_COLUMNS = ("id", "dataset", "subject", "session", "family", "licence", "sha256", *UNTOLD, SITE)


@dataclass(frozen=True, kw_only=True)
class Pack(Corpus):
    """Our own pack: whole recordings, so that a window begins at any volume; the table has where they are."""

    folder: Path
    begins: Indices  # (n_shards + 1,): first volume of each shard, were they all one file; at the end the sum of T

    @property
    def n_bytes(self) -> int:
        """Size of all series."""
        return int(self.begins[-1]) * len(self.parcel_names) * 2

    def places(self, length: int) -> Indices:
        """First volumes at which a window fits."""
        return np.maximum(self.table["T"].to_numpy(dtype=np.intp) - length + 1, 0)

    def windows_apart(self, length: int) -> Indices:
        """Windows end to end."""
        return self.table["T"].to_numpy(dtype=np.intp) // length

    def _nth(self, numbers: Indices, length: int) -> Indices:
        return numbers * length

    def _load(self, device: torch.device) -> Tensor:
        whole = torch.empty(int(self.begins[-1]), len(self.parcel_names), dtype=torch.float16, device=device)
        for shard, (first, last) in enumerate(pairwise(self.begins)):
            with safe_open(series_file(self.folder, shard), "pt") as file:
                whole[first:last].copy_(file.get_tensor("series"))
        return whole

    def _index(self, rows: Indices, places: Indices, length: int) -> Indices:
        shard, offset = (self.table[name].to_numpy(dtype=np.intp)[rows] for name in ("shard", "offset"))
        return np.stack([rows, self.begins[shard] + offset + places])

    def _read(self, index: Indices, length: int, pinned: bool) -> Tensor:
        out = torch.empty(index.shape[1], length, len(self.parcel_names), dtype=torch.float16, pin_memory=pinned)
        shard = np.searchsorted(self.begins, index[1], side="right") - 1
        for number in np.unique(shard):
            with safe_open(series_file(self.folder, number), "np") as file:
                series = file.get_slice("series")
                for member in np.flatnonzero(shard == number):
                    first = int(index[1, member] - self.begins[number])
                    out[member] = torch.from_numpy(series[first : first + length])
        return out

    def _gather(self, resident: Tensor, index: Tensor, length: int) -> Tensor:
        return resident[index[1][:, None] + torch.arange(length, device=resident.device)]


def load_corpus(folder: Path) -> Pack:
    """Open a corpus pack. Raises DatasetError."""
    _check_digests(folder)
    facts, table, kernel, sizes = _read(folder)
    _check_place_of_rows(folder, table, sizes)
    prove_pack(folder, table, facts["alpha"], kernel.numpy())
    names, atlas = tuple(facts["parcel_names"]), facts.get("atlas", "n/a")
    return Pack(
        table=table,
        parcel_names=names,
        alpha=facts["alpha"],
        sha256=facts["sha256"],
        kernel=kernel,
        atlas=atlas,
        folder=folder,
        begins=np.cumsum([0, *(volumes for volumes, _ in sizes)]),
    )


def _check_digests(folder: Path) -> None:
    """Refuse a pack with a file that is not as it was written; packs of earlier versions state no digests."""
    try:
        files = read_facts(folder).get(DIGESTS, {})
    except (OSError, ValueError) as error:
        raise _incomplete(folder, error) from error
    for name, digest in files.items():
        path = stored_path(folder, name)
        if not path.is_file() or digest_of(path) != digest:
            raise DatasetError(
                f"{path} is not as it was packed (its checksum differs): it was changed or damaged, or the folder was "
                f"not copied whole. Copy it again, or remove {folder} and run the same command again, which packs anew."
            )


def _incomplete(folder: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{folder} is not a complete corpus pack ({error}); remove it and pack the corpus again.")


def _read(folder: Path) -> tuple[dict[str, Any], pd.DataFrame, Tensor, list[tuple[int, int]]]:
    """Read facts, table, kernel and the size of every shard: a failure here is the fault of a file."""
    try:
        facts = read_facts(folder)
        if (found := facts.get("format", 1)) != FORMAT:
            raise DatasetError(
                f"{folder} was packed in format {found}, and this version reads format {FORMAT} (the series of older "
                "packs are scrambled); run the pretrain level again, which packs anew."
            )
        if "sha256" not in facts:
            raise DatasetError(f"The packing of {folder} was interrupted; run the pack level again, which goes on.")
        table = read_table(folder)
        with safe_open(folder / KERNEL, "pt") as file:
            belongs = (file.metadata() or {}).get("corpus_sha256") == facts["sha256"]
            kernel = file.get_tensor("kernel")
        sizes = [_size(folder, number, len(facts["parcel_names"])) for number in range(facts["n_shards"])]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise _incomplete(folder, error) from error
    if not belongs or kernel.shape != (len(table), len(table)):
        raise DatasetError(f"The teacher kernel in {folder} belongs to other recordings; pack the corpus again.")
    return facts, table, kernel, sizes


def _check_place_of_rows(folder: Path, table: pd.DataFrame, sizes: list[tuple[int, int]]) -> None:
    """Refuse a table whose rows are in no shard of the pack."""
    volumes, vectors = np.array([*sizes, (0, 0)])[table["shard"].clip(-1, len(sizes)).mod(len(sizes) + 1)].T
    whole = (table["offset"] >= 0) & (table["T"] > 0) & (table["offset"] + table["T"] <= volumes)
    whole &= (table["position"] >= 0) & (table["position"] < vectors)
    if not whole.all():
        raise DatasetError(
            f"{folder}/recordings.tsv places {table['id'][~whole].iloc[0]} where no shard has it; remove {folder} and "
            "pack the corpus again."
        )


KINDS = {
    DIGESTS: (dict,),
    "alpha": (int, float),
    "parcel_names": (list,),
    "atlas": (str,),
    "sha256": (str,),
    "n_shards": (int,),
}
"""Types of the entries of ``pack.json``."""


def read_facts(folder: Path) -> dict[str, Any]:
    """Read ``pack.json``; its entries are of their kind, so that what fails later is no fault of the file."""
    facts = load_json(folder / "pack.json")
    if not isinstance(facts, dict):
        raise ValueError("pack.json holds no object")
    if facts.get("format") == FORMAT and facts.get(OWN_DIGEST, "") not in ("", facts_digest(facts)):
        raise ValueError("pack.json is not as it was written: its checksum differs")
    needed = {"alpha", "parcel_names", "atlas"} if facts.get("format") == FORMAT else set()
    for name in sorted(needed | (facts.keys() & KINDS.keys())):
        if not isinstance(facts.get(name), KINDS[name]):
            raise ValueError(f"pack.json has no sound {name}")
    return facts


def check_table(folder: Path, facts: Mapping[str, Any]) -> None:
    """Compare the table of a pack with its digest, where one is stated. Raises ValueError."""
    digest = facts.get(DIGESTS, {}).get(TABLE)
    if digest and digest_of(folder / TABLE) != digest:
        raise ValueError(f"{TABLE} is not as it was packed: its checksum differs")


def facts_digest(facts: Mapping[str, Any]) -> str:
    """SHA-256 of the entries of ``pack.json``, without that which holds it."""
    said = {key: value for key, value in facts.items() if key != OWN_DIGEST}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def read_table(folder: Path) -> pd.DataFrame:
    """Read ``recordings.tsv`` of a pack. Raises ValueError."""
    path = folder / TABLE
    table = pd.read_csv(
        path, sep="\t", dtype=dict.fromkeys(TEXT_COLUMNS, str), keep_default_na=False, na_values={"TR": [""]}
    )
    if not path.read_bytes().endswith(b"\n") or table.empty:
        raise ValueError("recordings.tsv ends too early")
    table = table.assign(**{name: "n/a" for name in (*UNTOLD, SITE) if name not in table})  # packs of earlier versions
    if lacking := {*TEXT_COLUMNS, *PLACES} - set(table.columns):
        raise ValueError(f"recordings.tsv lacks the column {min(lacking)}")
    return table.astype(dict.fromkeys(PLACES, int))


def _size(folder: Path, number: int, parcels: int) -> tuple[int, int]:
    """Volumes and teacher vectors of a shard that is as wide as the pack has parcels."""
    with safe_open(series_file(folder, number), "np") as file:
        shape: list[int] = file.get_slice("series").get_shape()
    with safe_open(teacher_file(folder, number), "np") as file:
        vectors, edges = file.get_slice("vectors").get_shape()
    if shape[1] != parcels or edges != edge_count(parcels):
        raise ValueError(f"shard {number} is not of {parcels} parcels")
    return shape[0], vectors


@dataclass(frozen=True)
class Part:
    """One recording that waits."""

    row: dict[str, Any]  # its row of the table, without its place in a shard
    series: NDArray[np.float16]  # (T, P)
    vector: NDArray[np.float32]  # (P (P - 1) / 2,)
    path: Path


class Parts:
    """The folder of the parts of one pack."""

    def __init__(self, folder: Path, **facts: str) -> None:
        self.folder, self.facts = folder, {"format": str(FORMAT), **facts}
        self.next = 0

    def write(self, row: dict[str, Any], series: NDArray[np.float16], vector: NDArray[np.float32]) -> Part:
        """Store one recording."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{self.next:07d}.safetensors"
        facts = {**self.facts, "row": json.dumps(row)}
        write_arrays({"series": series, "vector": vector}, path, facts, flush=False)  # lost parts are prepared again
        self.next += 1
        return Part(row, series, vector, path)

    def recover(self, stored: set[str]) -> list[Part]:
        """Return what an interrupted run left, in its order; what is damaged, of another pack, or stored is removed."""
        found = []
        for path in sorted(self.folder.glob("*.safetensors")):
            part = self._read(path)
            if part is None or part.row["sha256"] in stored:
                path.unlink()
                continue
            found.append(part)
            self.next = int(path.stem) + 1
        return found

    def _read(self, path: Path) -> Part | None:
        try:
            with safe_open(path, "np") as file:
                metadata = file.metadata() or {}
                row = parse_json(metadata.pop("row", "null"))
                if metadata != self.facts or row is None:
                    return None
                return Part(row, file.get_tensor("series"), file.get_tensor("vector"), path)
        except (OSError, SafetensorError, ValueError):
            return None

    def remove(self, parts: Iterable[Part]) -> None:
        """Forget parts that are in a shard now."""
        for part in parts:
            part.path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()
