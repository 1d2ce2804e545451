"""A corpus that is open for training, the teacher of its recordings, and our own pack of whole recordings.

A recording is one stretch of volumes or some of one length; a window begins wherever it fits into a stretch. A pack is
an array of series and one of teacher vectors, recording after recording, and a table of where they are; what is stored
is compared with its digests when it is opened.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor
from tqdm import tqdm

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import (
    ParcelError,
    decompose_series,
    eigendecompose,
    pearson_connectivity,
    power_weights,
    rank,
    spectral_map,
)
from fcpower_bids.core.edges import edge_count, vectorise_edges
from fcpower_bids.core.kernels import normalise_rows
from fcpower_bids.encoders.checkpoints import digest_facts, resolved
from fcpower_bids.errors import DAMAGED_ARRAY, DatasetError, FcPowerError
from fcpower_bids.parallel import map_tasks
from fcpower_bids.store import atomic, digest_of, flush_file, load_json

Indices = NDArray[np.intp]
SERIES, VECTORS = "series.npy", "teacher.npy"
"""Series (volumes, P) in half precision, and teacher vectors (n, P (P - 1) / 2), one recording after the other."""
KERNEL, TABLE, FACTS = "teacher_kernel.safetensors", "recordings.tsv", "pack.json"
FORMAT = 3
"""Of the files of a pack. Format 1 (which states none) could hold scrambled series, format 2 had many files."""
PLACES = ("offset", "T", "position", "rank")
"""Columns of whole numbers: first volume in the series, volumes, row of the vectors; and the rank of FC."""
PROOF = "pack_sha256"
"""Entry of the facts: the digest of the others."""
MADE = ("citation", "band")
"""Columns for the card of a model: whose data it is, and its pass-band."""
UNTOLD = ("source", "place", *MADE)
"""Columns on which no digest depends: they say where a recording lies, or what its series shows."""
KNOWN = ("id", "dataset", "subject", "session", "family", "licence", *UNTOLD)
"""Columns of what is known of a recording before it is read."""
DIGESTS = ("sha256", "stored")
"""Columns of digests: of series, name and repetition time that were read; of series and vector that are stored."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Recordings that are open for training."""

    # one row per recording: ``id, dataset, subject, session, family, licence, TR, T`` and `MADE`
    table: pd.DataFrame
    parcel_names: tuple[str, ...]
    alpha: float  # exponent of the teacher
    sha256: str  # digest of the contents
    kernel: Tensor  # (N, N), on the device
    count: Indices  # (N,): how many stretches each recording has
    volumes: Indices  # (N,): the volumes of each of these
    series: Path  # array of volumes (sum of T, P), or of windows (W, P, L)
    begins: Indices  # of the stretches of one recording after the other: the first volume, or the window
    atlas: str = "n/a"
    revision: str = "n/a"  # commit, of a corpus from the hub

    @property
    def families(self) -> NDArray[np.str_]:
        """Label of the family of each recording, unique across datasets; people without one are their own."""
        family = self.table["family"].where(self.table["family"] != "n/a", "sub-" + self.table["subject"])
        return (self.table["dataset"] + "/" + family).to_numpy(dtype=str)

    def places(self, length: int) -> Indices:
        """Windows of this length that can be cut out of each recording, shape (N,)."""
        return self.count * np.maximum(self.volumes - length + 1, 0)

    def windows(self, rows: Indices, places: Indices, length: int) -> Tensor:
        """Cut one window out of each of B recordings: (B, length, P) float32 on the device. Rows (B,), places (B,)."""
        which, start = np.divmod(places, np.maximum(self.volumes[rows] - length + 1, 1))
        begins = self.begins[(np.cumsum(self.count) - self.count)[rows] + which]
        series = np.asarray(np.load(self.series, mmap_mode="r"))  # mapped no longer than this, else its pages stay
        cut = np.empty((len(rows), length, len(self.parcel_names)), np.float16 if series.ndim == 2 else np.float32)
        for member in np.argsort(begins):  # as they lie on the disk
            stretch = series[begins[member] :] if series.ndim == 2 else series[begins[member]].T
            cut[member] = stretch[start[member] : start[member] + length]
        windows, device = torch.from_numpy(cut), self.kernel.device
        if device.type == "cuda":  # without making the host wait for what the device is still doing
            windows = windows.pin_memory()
        return windows.to(device, non_blocking=True).float()

    def kernel_of(self, rows: Indices) -> Tensor:
        """Teacher kernel (B, B) of these recordings."""
        index = torch.from_numpy(np.asarray(rows)).to(self.kernel.device)
        return self.kernel[index][:, index]


# --- The teacher: FC^alpha of whole recordings as unit vectors, and their kernel ------------------------------------


def teacher_vector_and_rank(series: ArrayLike, alpha: float) -> tuple[FloatArray, int]:
    """Edges of FC^alpha of a whole series (T, P), centred, of unit norm: z_i of Section 3.4; and the rank of its FC.

    Raises ParcelError.
    """
    series = np.asarray(series, dtype=np.float64)
    if len(series) < series.shape[1]:  # the singular value decomposition is exact, and cheaper
        eigenvalues, eigenvectors = decompose_series(series)
    else:
        eigenvalues, eigenvectors = eigendecompose(pearson_connectivity(series))
    matrix = spectral_map(eigenvectors, power_weights(eigenvalues, alpha))
    vector = np.asarray(vectorise_edges(matrix, weighted=False), dtype=np.float64)
    return normalise_rows(vector[None])[0], rank(eigenvalues)


def teacher_kernel(vectors: Path, rows: Indices, size: int = 1024) -> NDArray[np.float32]:
    """K = Z Z' (n, n) of some rows (n,) of a file of vectors, products in double precision.

    A process has two blocks of `size` vectors in memory at a time.
    """
    n = len(rows)
    K, starts = np.empty((n, n), np.float32), range(0, n, size)
    parts = map_tasks(partial(_kernel_rows, vectors, rows, size), starts)
    for start, part in zip(starts, tqdm(parts, "teacher kernel", len(starts), disable=None, delay=3), strict=True):
        K[start : start + size, start:] = part
        K[start:, start : start + size] = part.T
    np.fill_diagonal(K, 1.0)
    return K


def _kernel_rows(vectors: Path, rows: Indices, size: int, start: int) -> NDArray[np.float32]:
    """Rows of the kernel from the diagonal on."""

    def block(first: int) -> FloatArray:  # without the rounding of storage
        return normalise_rows(np.load(vectors, mmap_mode="r")[rows[first : first + size]])

    mine = block(start)
    parts = [mine @ mine.T, *(mine @ block(first).T for first in range(start + size, len(rows), size))]
    return np.hstack([part.astype(np.float32) for part in parts])


def write_kernel(path: Path, corpus_sha256: str, vectors: Path, rows: Indices) -> None:
    """Compute and store the kernel of some rows of a file of vectors. Raises FcPowerError."""
    kernel = teacher_kernel(vectors, rows)
    with atomic(path) as part:
        save_file({"kernel": kernel}, part, {"corpus_sha256": corpus_sha256})
        with safe_open(part, "np") as file:
            check_read_back(path, np.array_equal(file.get_tensor("kernel"), kernel))


def check_read_back(path: Path, is_same: bool) -> None:
    """Refuse a file that does not read back as it was written. Raises FcPowerError."""
    if not is_same:
        raise FcPowerError(
            f"{path} does not read back as it was written: the disk or this program is at fault, not the recordings. "
            "Nothing was added; try another disk, and report it if it happens again."
        )


def kernel_corpus(path: Path) -> str | None:
    """Digest of the corpus that a stored kernel was computed for."""
    try:
        with safe_open(path, "np") as file:
            return (file.metadata() or {}).get("corpus_sha256")
    except (OSError, SafetensorError):
        return None


def read_kernel(path: Path, device: torch.device | str) -> Tensor:
    """Read a stored kernel. Raises OSError, SafetensorError."""
    with safe_open(path, "pt") as file:
        kernel: Tensor = file.get_tensor("kernel")
    return kernel.to(device)


# --- Our own pack ---------------------------------------------------------------------------------------------------


def append(path: Path, parts: Sequence[NDArray[Any]], there: int) -> None:
    """Append arrays (n, width) behind the first rows of a ``.npy`` file; what follows these is of a killed run.

    The header comes last (its length is that of any number of rows), so the rows before can be read at any time.
    Raises OSError, FcPowerError.
    """
    facts = {"descr": parts[0].dtype.str, "fortran_order": False}
    shape = (there + sum(map(len, parts)), parts[0].shape[1])
    np.lib.format.write_array_header_1_0(header := io.BytesIO(), facts | {"shape": shape})
    try:
        with path.open("r+b" if path.is_file() else "wb") as file:
            file.seek(header.tell() + there * parts[0][0].nbytes)
            file.writelines(part.tobytes() for part in parts)
            end = file.tell()
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            file.write(header.getvalue())
            file.truncate(end)  # never shorter than the header says, whenever the run is killed
        flush_file(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # that of a full disk names no file
    check_read_back(path, np.array_equal(np.load(path, mmap_mode="r")[there:], np.concatenate(parts)))


def digest_stored(series: NDArray[np.float16], vector: NDArray[np.float32]) -> str:
    """Digest of what is stored of one recording: series (T, P), vector (P (P - 1) / 2,)."""
    return hashlib.sha256(series.tobytes() + vector.tobytes()).hexdigest()


def first_changed(folder: Path, rows: Iterable[Mapping[Any, Any]]) -> str | None:
    """Name of the first of some recordings that is not stored as its row says, or None."""
    for row in rows:
        with suppress(OSError, *DAMAGED_ARRAY):
            series, vectors = (np.load(folder / name, mmap_mode="r") for name in (SERIES, VECTORS))  # as in `windows`
            if digest_stored(series[row["offset"] :][: row["T"]], vectors[row["position"] :][:1]) == row["stored"]:
                continue
        return str(row["id"])
    return None


def open_pack(folder: Path, device: torch.device | str = "cpu") -> Corpus:
    """Open a corpus pack. Raises DatasetError."""
    try:
        facts = read_facts(folder)
        if "sha256" not in facts:
            raise DatasetError(f"The packing of {folder} was interrupted; run the pretrain level again, which goes on.")
        wrong = [str(folder / name) for name in (KERNEL, TABLE) if digest_of(folder / name) != facts["files"][name]]
        table = read_table(folder)
        if not wrong and (name := first_changed(folder, table.to_dict("records"))):
            wrong = [f"{name} in {folder / SERIES} and {VECTORS}"]
        if wrong:
            raise DatasetError(
                f"{wrong[0]} is not as it was packed (its checksum differs): it was changed or damaged, or the folder "
                f"was not copied whole. Copy it again, or remove {folder} and run the same command again, which "
                "packs anew."
            )
        kernel = read_kernel(folder / KERNEL, device)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DatasetError(
            f"{folder} is not a complete corpus pack ({error}); remove it and pack the corpus again."
        ) from error
    return Corpus(
        table=table,
        parcel_names=tuple(facts["parcel_names"]),
        alpha=facts["alpha"],
        sha256=facts["sha256"],
        kernel=kernel,
        count=np.ones(len(table), np.intp),
        volumes=table["T"].to_numpy(dtype=np.intp),
        series=folder / SERIES,
        begins=table["offset"].to_numpy(dtype=np.intp),
        atlas=facts["atlas"],
    )


def read_facts(folder: Path) -> dict[str, Any]:
    """Read ``pack.json``. Raises OSError, ValueError."""
    facts = load_json(folder / FACTS)
    if not isinstance(facts, dict):
        raise ValueError(f"{FACTS} holds no object")
    if facts.get("format") != FORMAT:
        raise ValueError(f"{FACTS} is of format {facts.get('format')}, and this version writes format {FORMAT}")
    if facts.get(PROOF) != digest_facts(facts, PROOF):
        raise ValueError(f"{FACTS} is not as it was written: its checksum differs")
    return facts


def read_table(folder: Path) -> pd.DataFrame:
    """Read ``recordings.tsv`` of a pack. Raises ValueError."""
    types = dict.fromkeys((*KNOWN, *DIGESTS), str)
    table = pd.read_csv(folder / TABLE, sep="\t", dtype=types, keep_default_na=False, na_values={"TR": [""]})
    return table.astype(dict.fromkeys(PLACES, int))


# --- The public layout ----------------------------------------------------------------------------------------------


WINDOWS, OWNERS, TEACHERS = "windows.npy", "window_to_recording.npy", "teachers.npy"
RECORDINGS, LICENCES = "recordings.json", "licenses.json"
FILES = (WINDOWS, OWNERS, TEACHERS, RECORDINGS, LICENCES)
PARCELS = "parcels.txt"
"""Names of the parcels, which the public files do not state."""
AGREEMENT = 0.3
"""Least correlation of the teacher with FC^alpha of the stored windows of a recording."""
SAMPLE = 64
"""Rows of the large arrays that their digest is made of."""


def is_public(folder: Path) -> bool:
    """Whether a folder holds a corpus in the public layout."""
    return (folder / WINDOWS).is_file()


def prepare_corpus(folder: Path, output: Path) -> None:
    """Check a corpus in the public layout, and compute its teacher kernel once; nothing to do for a pack."""
    if not is_public(folder):
        return
    arrays = _Arrays.read(folder)
    digest = arrays.digest()
    if kernel_corpus(output / KERNEL) == digest:
        return
    try:
        arrays.prove()
        write_kernel(output / KERNEL, digest, folder / TEACHERS, np.arange(len(arrays.teachers)))
    except ValueError as error:
        raise DatasetError(
            f"{folder / TEACHERS} has a vector that lacks a value, or has but one; download the corpus again."
        ) from error


def open_corpus(folder: Path, output: Path, device: torch.device | str = "cpu") -> Corpus:
    """Open our pack, or a corpus in the public layout whose kernel is in `output`. Raises DatasetError."""
    if not is_public(folder):
        return open_pack(folder, device)
    arrays = _Arrays.read(folder)
    owners, n = np.asarray(arrays.owners, dtype=np.intp), len(arrays.recordings)
    counts = np.bincount(owners, minlength=n)
    return Corpus(
        table=arrays.table(counts),
        parcel_names=tuple(arrays.parcels),
        alpha=ALPHA_STAR,
        sha256=arrays.digest(),
        kernel=read_kernel(output / KERNEL, device),
        count=counts,
        volumes=np.full(n, arrays.windows.shape[2]),
        series=folder / WINDOWS,
        begins=np.argsort(owners, kind="stable"),
        revision=resolved(folder, None) or "n/a",
    )


@dataclass(frozen=True)
class _Arrays:
    """The files of a folder, memory-mapped; their shapes fit each other."""

    folder: Path
    windows: NDArray[np.float32]  # (W, P, L)
    owners: NDArray[np.integer]  # (W,)
    teachers: NDArray[np.float32]  # (N, P (P - 1) / 2)
    recordings: list[str]
    parcels: list[str]

    @classmethod
    def read(cls, folder: Path) -> _Arrays:
        if not (folder / PARCELS).is_file():
            raise DatasetError(
                f"{folder} does not name its parcels, and inputs are matched to a model by name: put them there, "
                f"one per line in the order of the corpus, in a file {PARCELS}."
            )
        try:
            windows, owners, teachers = (np.load(folder / name, mmap_mode="r") for name in (WINDOWS, OWNERS, TEACHERS))
            recordings, lines = load_json(folder / RECORDINGS), (folder / PARCELS).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise DatasetError(f"{folder} is not a complete public corpus ({error}); download it again.") from error
        parcels, problem = windows.shape[1] if windows.ndim == 3 else 0, ""
        names = [line.strip() for line in lines if line.strip()]
        if not isinstance(recordings, list) or not all(isinstance(name, str) for name in recordings):
            problem = f"{RECORDINGS} is not a list of names"
        elif not parcels or owners.shape != (len(windows),):
            problem = f"{WINDOWS} has the shape {windows.shape} and {OWNERS} {owners.shape}"
        elif teachers.shape != (len(recordings), edge_count(parcels)):
            problem = f"{TEACHERS} has the shape {teachers.shape} for {len(recordings)} recordings of {parcels} parcels"
        elif not (len(owners) and 0 <= int(owners.min()) <= int(owners.max()) < len(recordings)):
            problem = f"{OWNERS} points outside {RECORDINGS}"
        elif not len(names) == len(set(names)) == parcels:
            problem = f"{PARCELS} has {len(set(names))} different names for {parcels} parcels"
        if problem:
            raise DatasetError(f"The files of {folder} do not fit each other: {problem}. Download or correct them.")
        return cls(folder, windows, owners, teachers, recordings, names)

    def digest(self) -> str:
        """Digest of all names and owners, and of a sample of windows and teachers (the rest is too large)."""
        digest = hashlib.sha256(json.dumps([self.recordings, self.parcels]).encode())
        digest.update(np.ascontiguousarray(self.owners).tobytes())
        for array in (self.windows, self.teachers):
            digest.update(str(array.shape).encode())
            for row in np.linspace(0, len(array) - 1, min(SAMPLE, len(array))).astype(int):
                digest.update(np.ascontiguousarray(array[row]).tobytes())
        return digest.hexdigest()

    def prove(self) -> None:
        """Compare the stored teacher of the recordings with most windows with FC^alpha of these."""
        owners = np.asarray(self.owners)
        for recording in np.argsort(-np.bincount(owners), kind="stable")[:3]:
            name, series = self.recordings[recording], [self.windows[i].T for i in np.flatnonzero(owners == recording)]
            try:
                again = teacher_vector_and_rank(np.concatenate(series), ALPHA_STAR)[0]
            except ParcelError as error:
                raise DatasetError(f"{name} in {self.folder} has missing or constant parcels ({error}).") from error
            agreement = float(again @ normalise_rows(self.teachers[recording][None])[0])
            if not agreement > AGREEMENT:
                raise DatasetError(
                    f"The windows of {name} in {self.folder} are not those that its teacher was computed from "
                    f"(correlation {agreement:.2f}, expected {AGREEMENT} or more): {WINDOWS} must be windows x parcels "
                    f"x volumes, in the order of {OWNERS}. Download or write the corpus again."
                )

    def table(self, counts: Indices) -> pd.DataFrame:
        """One row per recording, with as many windows as `counts` says; what the files do not tell is n/a."""
        path, names = self.folder / LICENCES, self.recordings
        licences = load_json(path) if path.is_file() else {}
        dataset = [name.split("/")[0] for name in names]
        stem = pd.Series([name.rsplit("/", 1)[-1] for name in names])
        return pd.DataFrame(
            {
                "id": names,
                "dataset": dataset,
                "subject": [match[1] if (match := re.search(r"/(?:sub-)?([^/]+)/", name)) else name for name in names],
                "session": stem.str.extract(r"_ses-([a-zA-Z0-9]+)")[0].fillna("n/a"),
                "licence": [str(licences.get(name, "n/a")) for name in dataset],
                "TR": np.nan,
                "T": counts * self.windows.shape[2],
                **dict.fromkeys(("family", *MADE), "n/a"),
            }
        )
