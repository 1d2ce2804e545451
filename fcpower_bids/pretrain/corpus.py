"""A corpus that is open for training, the teacher of its recordings, and our own pack of whole recordings.

A recording is one stretch of volumes or some of one length; a window begins wherever it fits into a stretch. The files
of a pack are compared with their digests when it is opened.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
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
from fcpower_bids.encoders.checkpoints import resolved
from fcpower_bids.errors import DatasetError, FcPowerError
from fcpower_bids.parallel import begin_worker
from fcpower_bids.store import atomic, digest_of, load_json, stored_path

Indices = NDArray[np.intp]
KERNEL, TABLE, FACTS = "teacher_kernel.safetensors", "recordings.tsv", "pack.json"
FORMAT = 2
"""Of the files of a pack. Format 1 (which states none) could hold scrambled series and is never read."""
PLACES = ("shard", "position", "offset", "T", "rank")
"""Columns of whole numbers."""
MADE = ("citation", "band")
"""Columns for the card of a model: whose data it is, and its pass-band."""
UNTOLD = ("source", "place", *MADE)
"""Columns on which no digest depends: they say where a recording lies, or what its series shows."""
TEXT_COLUMNS = ("id", "dataset", "subject", "session", "family", "licence", "sha256", *UNTOLD)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Recordings that are open for training."""

    # one row per recording: ``id, dataset, subject, session, family, licence, TR, T`` and `MADE`
    table: pd.DataFrame
    parcel_names: tuple[str, ...]
    alpha: float  # exponent of the teacher
    sha256: str  # digest of the contents
    kernel: Tensor  # (N, N), on the device
    first: Indices  # (N,): the first of the stretches of each recording
    count: Indices  # (N,): how many
    volumes: Indices  # (N,): the volumes of each
    # from stretches (B,), volumes in them (B,) and a length to windows (B, length, P) on the device
    cut: Callable[[Indices, Indices, int], Tensor]
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
        return self.cut(self.first[rows] + which, start, length).float()

    def kernel_of(self, rows: Indices) -> Tensor:
        """Teacher kernel (B, B) of these recordings."""
        index = torch.from_numpy(np.asarray(rows)).to(self.kernel.device)
        return self.kernel[index][:, index]


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy from the host without making it wait for what the device is still doing."""
    cuda = torch.device(device).type == "cuda"
    return tensor.pin_memory().to(device, non_blocking=True) if cuda else tensor.to(device)


def read_tensor(path: Path, name: str) -> Tensor:
    """Read one tensor of a ``.safetensors`` file."""
    with safe_open(path, "pt") as file:
        tensor: Tensor = file.get_tensor(name)
    return tensor


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
    return unit_vectors(vector[None])[0], rank(eigenvalues)


def unit_vectors(vectors: ArrayLike) -> FloatArray:
    """Undo the rounding of storage: teacher vectors, one per row, centred and of unit norm in double precision."""
    z = np.array(vectors, dtype=np.float64)
    z -= z.mean(axis=1, keepdims=True)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return z


def teacher_kernel(
    block: Callable[[int, int], ArrayLike], n: int, size: int = 1024, n_processes: int = 1
) -> NDArray[np.float32]:
    """K = Z Z' (n, n), products in double precision; a process has two blocks of `size` vectors in memory at a time."""
    K, starts = np.empty((n, n), np.float32), range(0, n, size)
    n_processes = min(n_processes, len(starts))
    with ExitStack() as opened:
        each: Callable[..., Iterable[NDArray[np.float32]]] = map
        if n_processes > 1:
            pool = ProcessPoolExecutor(n_processes, get_context("forkserver"), initializer=begin_worker)
            each = opened.enter_context(pool).map
        rows = each(partial(_kernel_rows, block, n, size), starts)
        for start, part in zip(starts, tqdm(rows, "teacher kernel", len(starts), disable=None, delay=3), strict=True):
            K[start : start + size, start:] = part
            K[start:, start : start + size] = part.T
    np.fill_diagonal(K, 1.0)
    return K


def _kernel_rows(block: Callable[[int, int], ArrayLike], n: int, size: int, start: int) -> NDArray[np.float32]:
    """Rows of the kernel from the diagonal on."""
    ends = [(first, min(first + size, n)) for first in range(start, n, size)]
    rows = unit_vectors(block(*ends[0]))
    parts = [rows @ rows.T, *(rows @ unit_vectors(block(*others)).T for others in ends[1:])]
    return np.hstack([part.astype(np.float32) for part in parts])


def write_kernel(
    path: Path, corpus_sha256: str, block: Callable[[int, int], ArrayLike], n: int, n_processes: int = 1
) -> None:
    """Compute and store the kernel of n recordings; `block` gives their vectors between two numbers."""
    kernel = teacher_kernel(block, n, n_processes=n_processes)
    write_arrays({"kernel": kernel}, path, {"corpus_sha256": corpus_sha256})


def kernel_corpus(path: Path) -> str | None:
    """Digest of the corpus that a stored kernel was computed for."""
    try:
        with safe_open(path, "np") as file:
            return (file.metadata() or {}).get("corpus_sha256")
    except (OSError, SafetensorError):
        return None


def write_arrays(arrays: Mapping[str, NDArray[Any]], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write arrays as one ``.safetensors`` file, in one step, and only if they read back as they were given."""
    with atomic(path) as part:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, part, metadata)
        with safe_open(part, "np") as file:
            wrong = [name for name, array in arrays.items() if not np.array_equal(file.get_tensor(name), array)]
        if wrong:
            raise FcPowerError(
                f"{path} does not read back as it was written ({', '.join(wrong)}): the disk or this program is at "
                "fault, not the recordings. Nothing was added; try another disk, and report it if it happens again."
            )


# --- Our own pack ---------------------------------------------------------------------------------------------------


def shard_file(folder: Path, kind: str, shard: int) -> Path:
    """File of one shard: ``series`` (sum of T, P) float16, or of the ``teacher`` ``vectors`` (n, P (P - 1) / 2)."""
    return folder / f"{kind}-{int(shard):05d}.safetensors"


def open_pack(folder: Path, device: torch.device | str = "cpu") -> Corpus:
    """Open a corpus pack. Raises DatasetError."""
    try:
        facts = read_facts(folder)
        for name, digest in facts.get("files", {}).items():
            path = stored_path(folder, name)
            if not path.is_file() or digest_of(path) != digest:
                raise DatasetError(
                    f"{path} is not as it was packed (its checksum differs): it was changed or damaged, or the folder "
                    f"was not copied whole. Copy it again, or remove {folder} and run the same command again, which "
                    "packs anew."
                )
        if "sha256" not in facts or "files" not in facts:
            raise DatasetError(f"The packing of {folder} was interrupted; run the pretrain level again, which goes on.")
        table, kernel = read_table(folder), read_tensor(folder / KERNEL, "kernel")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DatasetError(
            f"{folder} is not a complete corpus pack ({error}); remove it and pack the corpus again."
        ) from error
    parcels = len(facts["parcel_names"])
    shards, offsets = (table[name].to_numpy(dtype=np.intp) for name in ("shard", "offset"))
    files = [shard_file(folder, "series", shard) for shard in range(facts["n_shards"])]

    def read(stretches: Indices, starts: Indices, length: int) -> Tensor:
        out = torch.empty(len(starts), length, parcels, dtype=torch.float16)
        for shard in np.unique(shards[stretches]):
            with safe_open(files[shard], "np") as file:
                series = file.get_slice("series")
                for member in np.flatnonzero(shards[stretches] == shard):
                    at = int(offsets[stretches[member]] + starts[member])
                    out[member] = torch.from_numpy(series[at : at + length])
        return to_device(out, device)

    return Corpus(
        table=table,
        parcel_names=tuple(facts["parcel_names"]),
        alpha=facts["alpha"],
        sha256=facts["sha256"],
        kernel=kernel.to(device),
        first=np.arange(len(table)),
        count=np.ones(len(table), np.intp),
        volumes=table["T"].to_numpy(dtype=np.intp),
        cut=read,
        atlas=facts["atlas"],
    )


def read_facts(folder: Path) -> dict[str, Any]:
    """Read ``pack.json``. Raises OSError, ValueError."""
    facts = load_json(folder / FACTS)
    if not isinstance(facts, dict):
        raise ValueError(f"{FACTS} holds no object")
    if facts.get("format") != FORMAT:
        raise ValueError(f"{FACTS} is of another format than {FORMAT}")
    if facts.get("pack_sha256") != facts_digest(facts):
        raise ValueError(f"{FACTS} is not as it was written: its checksum differs")
    return facts


def facts_digest(facts: Mapping[str, Any]) -> str:
    """SHA-256 of the entries of ``pack.json``, without that which holds it."""
    others = {key: value for key, value in facts.items() if key != "pack_sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def read_table(folder: Path) -> pd.DataFrame:
    """Read ``recordings.tsv`` of a pack. Raises ValueError."""
    types = dict.fromkeys(TEXT_COLUMNS, str)
    table = pd.read_csv(folder / TABLE, sep="\t", dtype=types, keep_default_na=False, na_values={"TR": [""]})
    return table.astype(dict.fromkeys(PLACES, int))


def stored_vectors(folder: Path, table: pd.DataFrame, start: int, stop: int) -> NDArray[np.float32]:
    """Teacher vectors of some rows of the table, as they are stored."""
    return np.stack([stored_vector(folder, row) for _, row in table.iloc[start:stop].iterrows()])


def stored_vector(folder: Path, row: pd.Series[Any]) -> NDArray[np.float32]:
    """Teacher vector of one row of the table, as it is stored."""
    position = int(row["position"])
    with safe_open(shard_file(folder, "teacher", row["shard"]), "np") as file:
        vectors: NDArray[np.float32] = file.get_slice("vectors")[position : position + 1]
    return vectors[0]


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


def prepare_corpus(folder: Path, output: Path, n_processes: int = 1) -> None:
    """Check a corpus in the public layout, and compute its teacher kernel once; nothing to do for a pack."""
    if not is_public(folder):
        return
    arrays = _Arrays.read(folder)
    digest = arrays.digest()
    if kernel_corpus(output / KERNEL) == digest:
        return
    arrays.prove()
    n, path = len(arrays.teachers), folder / TEACHERS
    write_kernel(output / KERNEL, digest, partial(_stored_rows, path), n, n_processes)


def _stored_rows(path: Path, start: int, stop: int) -> NDArray[np.float32]:
    return np.asarray(np.load(path, mmap_mode="r")[start:stop])


def open_corpus(folder: Path, output: Path, device: torch.device | str = "cpu") -> Corpus:
    """Open our pack, or a corpus in the public layout whose kernel is in `output`. Raises DatasetError."""
    if not is_public(folder):
        return open_pack(folder, device)
    arrays = _Arrays.read(folder)
    owners, n = np.asarray(arrays.owners, dtype=np.intp), len(arrays.recordings)
    order, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=n)
    _, parcels, volumes = arrays.windows.shape

    def cut(stretches: Indices, starts: Indices, length: int) -> Tensor:
        out = torch.empty(len(starts), length, parcels)
        windows = np.load(folder / WINDOWS, mmap_mode="r")  # mapped no longer than this, else its pages stay in memory
        for member in np.argsort(order[stretches]):
            window = windows[order[stretches[member]], :, starts[member] : starts[member] + length]
            out[member] = torch.from_numpy(np.array(window, np.float32).T)
        return to_device(out, device)

    return Corpus(
        table=arrays.table(counts),
        parcel_names=tuple(arrays.parcels),
        alpha=ALPHA_STAR,
        sha256=arrays.digest(),
        kernel=read_tensor(output / KERNEL, "kernel").to(device),
        first=np.cumsum(counts) - counts,
        count=counts,
        volumes=np.full(n, volumes),
        cut=cut,
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
            agreement = float(again @ unit_vectors(self.teachers[recording][None])[0])
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
