"""A corpus that is opened to be read: our own pack of whole recordings, or the public layout of windows cut once.

In both a recording is one stretch of volumes or some of one length; a window begins wherever it fits into a stretch. A
pack is proven when it is opened: its files are as they were written, and its teacher follows from its series.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome.connectivity import ParcelError
from fcpower_bids.core.connectome.edges import edge_count
from fcpower_bids.encoders.checkpoints import resolved
from fcpower_bids.encoders.training_people import part_signatures
from fcpower_bids.errors import DatasetError
from fcpower_bids.pretrain.teacher import (
    kernel_corpus,
    stored_teacher,
    teacher_kernel,
    teacher_vector,
    unit_vectors,
    write_arrays,
)
from fcpower_bids.store import digest_of, load_json, stored_path

Indices = NDArray[np.intp]

BLOCK = 256
"""Windows in memory at a time."""
KERNEL, TABLE = "teacher_kernel.safetensors", "recordings.tsv"
FORMAT = 2
"""Of the files of a pack. Format 1 (which states none) could hold scrambled series and is never read."""
PLACES = ("shard", "position", "offset", "T", "rank")
"""Columns of whole numbers."""
DIGESTS, OWN_DIGEST = "files", "pack_sha256"
"""Entries of ``pack.json``: digest of each other file of a complete pack, and that of its own other entries."""
SITE = "site"
"""Column that digests depend on where any site is known: packs without sites have the digests of earlier versions."""
MADE = ("citation", "space", "cleaning", "band")
"""Columns for the card of a model: whose data it is, and how the series was made."""
UNTOLD = ("source", "place", *MADE)
"""Columns on which no digest depends: they say where a recording lies, or what its series shows."""
TEXT_COLUMNS = ("id", "dataset", "subject", "session", "family", "licence", "sha256", *UNTOLD, SITE)
KINDS: dict[str, Any] = {DIGESTS: dict, "alpha": (int, float), "parcel_names": list, "atlas": str}
KINDS |= {"sha256": str, "n_shards": int}
"""Types of the entries of ``pack.json``."""
INCOMPLETE = "{} is not a complete corpus pack ({}); remove it and pack the corpus again."
AGREEMENT, KERNEL_TOLERANCE = 0.7, 1e-3
"""Least correlation of a recomputed with the stored teacher vector: real packs have .99, scrambled ones about 0."""

WINDOWS, OWNERS, TEACHERS = "windows.npy", "window_to_recording.npy", "teachers.npy"
RECORDINGS, LICENCES, FACTS = "recordings.json", "licenses.json", "corpus.json"
AGREEMENT_OF_WINDOWS = 0.3
"""The same of the teacher with FC^alpha of the stored windows of a recording."""
SAMPLE = 64


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Recordings that are open for training."""

    # one row per recording: ``id, dataset, subject, session, family, site, licence, TR, T`` and `MADE`
    table: pd.DataFrame
    parcel_names: tuple[str, ...]
    alpha: float  # exponent of the teacher
    sha256: str  # digest of the contents
    kernel: Tensor  # (N, N), on the device
    # first, count, volumes: (N,): the first of the stretches of each recording, how many, and the volumes of each
    first: Indices
    count: Indices
    volumes: Indices
    # from stretches (B,), volumes in them (B,) and a length to windows (B, length, P) on the device
    cut: Callable[[Indices, Indices, int], Tensor]
    atlas: str = "n/a"
    revision: str = "n/a"  # commit, of a corpus from the hub

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

    def places(self, length: int) -> Indices:
        """Windows of this length that can be cut out of each recording, shape (N,)."""
        return self.count * np.maximum(self.volumes - length + 1, 0)

    def windows_apart(self, length: int) -> Indices:
        """Windows of this length in each recording that share no volume, shape (N,)."""
        return self.count * (self.volumes // length)

    def windows(self, rows: Indices, places: Indices, length: int) -> Tensor:
        """Cut one window out of each of B recordings: (B, length, P) float32 on the device. Rows (B,), places (B,)."""
        which, start = np.divmod(places, np.maximum(self.volumes[rows] - length + 1, 1))
        return self.cut(self.first[rows] + which, start, length).float()

    def kernel_of(self, rows: Indices) -> Tensor:
        """Teacher kernel (B, B) of these recordings."""
        index = torch.from_numpy(np.asarray(rows)).to(self.kernel.device)
        return self.kernel[index][:, index]

    def signatures(self, rows: Indices, length: int) -> tuple[list[str], Indices]:
        """Signatures of all parts of these recordings (`encoders.training_people`), and the recording of each."""
        apart, within = self.windows_apart(length)[rows], np.maximum(self.volumes // length, 1)
        owners, numbers = np.repeat(rows, apart), np.concatenate([np.arange(0), *map(np.arange, apart)])
        which, part = np.divmod(numbers, within[owners])
        places = which * np.maximum(self.volumes[owners] - length + 1, 1) + part * length
        found: list[str] = []
        for i in (slice(first, first + BLOCK) for first in range(0, len(owners), BLOCK)):
            found += part_signatures(self.windows(owners[i], places[i], length).cpu().numpy())
        return found, owners[: len(found)]


def is_public(folder: Path) -> bool:
    """Whether a folder holds a corpus in the public layout."""
    return (folder / WINDOWS).is_file()


def open_corpus(
    folder: Path, output: Path, roi_labels: Sequence[str] = (), device: torch.device | str = "cpu"
) -> Corpus:
    """Open our pack, or a corpus in the public layout whose kernel is in `output`. Raises DatasetError."""
    return _open_public(folder, output, roi_labels, device) if is_public(folder) else open_pack(folder, device)


# --- Our own pack ---------------------------------------------------------------------------------------------------


def series_file(folder: Path, shard: int) -> Path:
    """Series of one shard: ``series`` (sum of T, P) float16."""
    return folder / f"series-{int(shard):05d}.safetensors"


def teacher_file(folder: Path, shard: int) -> Path:
    """Teacher vectors of one shard: ``vectors`` (n, P (P - 1) / 2) float32."""
    return folder / f"teacher-{int(shard):05d}.safetensors"


def open_pack(folder: Path, device: torch.device | str = "cpu") -> Corpus:
    """Open a corpus pack. Raises DatasetError."""
    try:
        digests = read_facts(folder).get(DIGESTS, {})  # packs of earlier versions state none
    except (OSError, ValueError) as error:
        raise DatasetError(INCOMPLETE.format(folder, error)) from error
    for name, digest in digests.items():
        path = stored_path(folder, name)
        if not path.is_file() or digest_of(path) != digest:
            raise DatasetError(
                f"{path} is not as it was packed (its checksum differs): it was changed or damaged, or the folder was "
                f"not copied whole. Copy it again, or remove {folder} and run the same command again, which packs anew."
            )
    facts, table, kernel, sizes = _read_pack(folder)
    _prove_pack(folder, table, facts["alpha"], kernel.numpy())
    begins = np.cumsum([0, *(volumes for volumes, _ in sizes)])
    shards, offsets = (table[name].to_numpy(dtype=np.intp) for name in ("shard", "offset"))

    def read(stretches: Indices, starts: Indices, length: int) -> Tensor:
        out = torch.empty(len(starts), length, len(facts["parcel_names"]), dtype=torch.float16)
        for shard in np.unique(shards[stretches]):
            with safe_open(series_file(folder, shard), "np") as file:
                series = file.get_slice("series")
                for member in np.flatnonzero(shards[stretches] == shard):
                    at = int(offsets[stretches[member]] + starts[member])
                    out[member] = torch.from_numpy(series[at : at + length])
        return _to_device(out, device)

    cut = read
    if int(begins[-1]) * len(facts["parcel_names"]) * 2 <= _room(device):
        whole = torch.cat([_tensor(series_file(folder, shard), "series").to(device) for shard in range(len(sizes))])

        def gather(stretches: Indices, starts: Indices, length: int) -> Tensor:
            at = torch.from_numpy(begins[shards[stretches]] + offsets[stretches] + starts)
            return whole[_to_device(at, device)[:, None] + torch.arange(length, device=device)]

        cut = gather
    return Corpus(
        table=table,
        parcel_names=tuple(facts["parcel_names"]),
        alpha=facts["alpha"],
        sha256=facts["sha256"],
        kernel=kernel.to(device),
        first=np.arange(len(table)),
        count=np.ones(len(table), np.intp),
        volumes=table["T"].to_numpy(dtype=np.intp),
        cut=cut,
        atlas=facts.get("atlas", "n/a"),
    )


def _tensor(path: Path, name: str) -> Tensor:
    with safe_open(path, "pt") as file:
        found: Tensor = file.get_tensor(name)
    return found


def _to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy from the host without making it wait for what the device is still doing."""
    cuda = torch.device(device).type == "cuda"
    return tensor.pin_memory().to(device, non_blocking=True) if cuda else tensor.to(device)


def _room(device: torch.device | str) -> int:
    """Half of the free memory of a GPU: all windows are held there where they fit."""
    return torch.cuda.mem_get_info(device)[0] // 2 if torch.device(device).type == "cuda" else 0


def _read_pack(folder: Path) -> tuple[dict[str, Any], pd.DataFrame, Tensor, list[tuple[int, int]]]:
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
        table, kernel = read_table(folder), _tensor(folder / KERNEL, "kernel")
        sizes, parcels = [], len(facts["parcel_names"])
        for shard in range(facts["n_shards"]):
            with safe_open(series_file(folder, shard), "np") as file:
                volumes, wide = file.get_slice("series").get_shape()
            with safe_open(teacher_file(folder, shard), "np") as file:
                vectors, edges = file.get_slice("vectors").get_shape()
            if wide != parcels or edges != edge_count(parcels):
                raise ValueError(f"shard {shard} is not of {parcels} parcels")
            sizes.append((volumes, vectors))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DatasetError(INCOMPLETE.format(folder, error)) from error
    if kernel_corpus(folder / KERNEL) != facts["sha256"] or kernel.shape != (len(table), len(table)):
        raise DatasetError(f"The teacher kernel in {folder} belongs to other recordings; pack the corpus again.")
    volumes, vectors = np.array([*sizes, (0, 0)])[table["shard"].clip(-1, len(sizes)).mod(len(sizes) + 1)].T
    whole = (table["offset"] >= 0) & (table["T"] > 0) & (table["offset"] + table["T"] <= volumes)
    whole &= (table["position"] >= 0) & (table["position"] < vectors)
    if not whole.all():
        raise DatasetError(
            f"{folder}/recordings.tsv places {table['id'][~whole].iloc[0]} where no shard has it; remove {folder} and "
            "pack the corpus again."
        )
    return facts, table, kernel, sizes


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


def _prove_pack(folder: Path, table: pd.DataFrame, alpha: float, kernel: NDArray[np.float32]) -> None:
    """Recompute teacher vectors of a few recordings from their stored series; compare them and the kernel."""
    rows = np.array(sorted({*table.groupby("shard").head(1).index, 0, len(table) // 2, len(table) - 1}))
    vectors = []
    for index in rows:
        row = table.loc[index]
        vectors.append(unit_vectors(stored_vector(folder, row)[None])[0])
        with safe_open(series_file(folder, row["shard"]), "np") as file:
            series = file.get_slice("series")[int(row["offset"]) : int(row["offset"]) + int(row["T"])]
        agreement = float(stored_teacher(series, alpha, int(row["rank"])) @ vectors[-1])
        if not agreement > AGREEMENT:
            raise DatasetError(
                f"The series of {row['id']} in {series_file(folder, row['shard'])} are not those that its teacher was "
                f"computed from (correlation {agreement:.2f}, expected {AGREEMENT} or more): the file was changed or "
                f"damaged. Remove the folder {folder} and run the same command again, which packs anew."
            )
    Z = np.array(vectors)
    if np.abs(Z @ Z.T - kernel[np.ix_(rows, rows)]).max() > KERNEL_TOLERANCE:
        raise DatasetError(
            f"The teacher kernel in {folder} is not that of its teacher vectors: a file was changed or damaged. "
            "Remove the folder and run the same command again, which packs anew."
        )


def stored_vector(folder: Path, row: pd.Series[Any]) -> NDArray[np.float32]:
    """Teacher vector of one row of the table, as it is stored."""
    position = int(row["position"])
    with safe_open(teacher_file(folder, row["shard"]), "np") as file:
        vectors: NDArray[np.float32] = file.get_slice("vectors")[position : position + 1]
    return vectors[0]


# --- The public layout ----------------------------------------------------------------------------------------------


FILES = (WINDOWS, OWNERS, TEACHERS, RECORDINGS, LICENCES, FACTS)


def prepare_corpus(folder: Path, output: Path) -> None:
    """Check a corpus in the public layout, and compute its teacher kernel once; nothing to do for a pack."""
    if not is_public(folder):
        return
    arrays = _Arrays.read(folder)
    digest = arrays.digest()
    if kernel_corpus(output / KERNEL) == digest:
        return
    arrays.prove()
    kernel = teacher_kernel(lambda start, stop: arrays.teachers[start:stop], len(arrays.teachers))
    output.mkdir(parents=True, exist_ok=True)
    write_arrays({"kernel": kernel}, output / KERNEL, {"corpus_sha256": digest})


def _open_public(folder: Path, output: Path, given: Sequence[str], device: torch.device | str) -> Corpus:
    arrays = _Arrays.read(folder)
    owners, n = np.asarray(arrays.owners, dtype=np.intp), len(arrays.recordings)
    order, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=n)
    _, parcels, volumes = arrays.windows.shape
    # Names from the user, else from the corpus; without names no other data can be matched to the model.
    names = tuple(given) or tuple(arrays.facts.get("roi_labels", ()))
    if not names:
        raise DatasetError(
            f"{folder} does not name its parcels, and inputs are matched to a model by name: give their names in the "
            "order of the corpus, one per line, with roi_labels, a FILE."
        )
    if len(names) != parcels or len(set(names)) != len(names):
        raise DatasetError(
            f"{folder} has {parcels} parcels and {len(set(names))} different names were given; name each parcel once."
        )

    def cut(stretches: Indices, starts: Indices, length: int) -> Tensor:
        out = torch.empty(len(starts), length, parcels)
        windows = np.load(folder / WINDOWS, mmap_mode="r")  # mapped no longer than this, else its pages stay in memory
        for member in np.argsort(order[stretches]):
            window = windows[order[stretches[member]], :, starts[member] : starts[member] + length]
            out[member] = torch.from_numpy(np.array(window, np.float32).T)
        return _to_device(out, device)

    return Corpus(
        table=_public_table(folder, arrays, counts),
        parcel_names=names,
        alpha=arrays.alpha,
        sha256=arrays.digest(),
        kernel=_tensor(output / KERNEL, "kernel").to(device),
        first=np.cumsum(counts) - counts,
        count=counts,
        volumes=np.full(n, volumes),
        cut=cut,
        atlas=str(arrays.facts.get("atlas", "n/a")),
        revision=resolved(folder, None) or "n/a",
    )


def _public_table(folder: Path, arrays: _Arrays, counts: Indices) -> pd.DataFrame:
    path, facts, names = folder / LICENCES, arrays.facts, arrays.recordings
    licences = load_json(path) if path.is_file() else {}
    dataset, unknown = [name.split("/")[0] for name in names], ["n/a"] * len(names)
    stem = pd.Series([name.rsplit("/", 1)[-1] for name in names])
    return pd.DataFrame(
        {
            "id": names,
            "dataset": dataset,
            "subject": [match[1] if (match := re.search(r"/(?:sub-)?([^/]+)/", name)) else name for name in names],
            "session": stem.str.extract(r"_ses-([a-zA-Z0-9]+)")[0].fillna("n/a"),
            "family": facts.get("families") or unknown,
            "licence": [str(licences.get(name, "n/a")) for name in dataset],
            "TR": facts.get("repetition_times") or [np.nan] * len(names),
            "T": counts * arrays.windows.shape[2],
            **{name: facts.get(name) or unknown for name in (SITE, *MADE)},
        }
    )


@dataclass(frozen=True)
class _Arrays:
    """The files of a folder, memory-mapped; their shapes fit each other."""

    folder: Path
    windows: NDArray[np.float32]  # (W, P, L)
    owners: NDArray[np.integer]  # (W,)
    teachers: NDArray[np.float32]  # (N, P (P - 1) / 2)
    recordings: list[str]
    facts: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> _Arrays:
        try:
            windows, owners, teachers = (np.load(folder / name, mmap_mode="r") for name in (WINDOWS, OWNERS, TEACHERS))
            recordings = load_json(folder / RECORDINGS)
            facts = load_json(folder / FACTS) if (folder / FACTS).is_file() else {}
        except (OSError, ValueError) as error:
            raise DatasetError(f"{folder} is not a complete public corpus ({error}); download it again.") from error
        out = cls(folder, windows, owners, teachers, recordings, facts)
        if problem := out._misfit():
            raise DatasetError(f"The files of {folder} do not fit each other: {problem}. Download the corpus again.")
        return out

    @property
    def alpha(self) -> float:
        return float(self.facts.get("alpha", ALPHA_STAR))

    def _misfit(self) -> str:
        """Say what is wrong with shapes, names and facts, or nothing."""
        if not isinstance(self.recordings, list) or not all(isinstance(name, str) for name in self.recordings):
            return f"{RECORDINGS} is not a list of names"
        n, parcels = len(self.recordings), self.windows.shape[1] if self.windows.ndim == 3 else 0
        if not parcels or self.owners.shape != (len(self.windows),):
            return f"{WINDOWS} has the shape {self.windows.shape} and {OWNERS} {self.owners.shape}"
        if self.teachers.shape != (n, edge_count(parcels)):
            return f"{TEACHERS} has the shape {self.teachers.shape} for {n} recordings of {parcels} parcels"
        if len(self.owners) and not 0 <= int(self.owners.min()) <= int(self.owners.max()) < n:
            return f"{OWNERS} points outside {RECORDINGS}"
        if not isinstance(self.facts, dict):
            return f"{FACTS} is not an object"
        alpha = self.facts.get("alpha", ALPHA_STAR)
        if not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
            return f"{FACTS} has the alpha {alpha!r}"
        kinds: dict[str, Any] = {"repetition_times": (int, float), "roi_labels": str}
        for name, kind in (kinds | dict.fromkeys(("families", SITE, *MADE), str)).items():
            values = self.facts.get(name) or []
            if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
                return f"{name} in {FACTS} must be a list of {'numbers' if name == 'repetition_times' else 'texts'}"
            if values and name != "roi_labels" and len(values) != n:
                return f"{FACTS} has {len(values)} {name} for {n} recordings"
        if bad := [time for time in self.facts.get("repetition_times") or [] if not 0 < time < math.inf]:
            return f"{FACTS} has a repetition time of {bad[0]} s"
        return ""

    def digest(self) -> str:
        """Digest of all names and owners, and of a sample of windows and teachers (the rest is too large)."""
        digest = hashlib.sha256(json.dumps([self.recordings, dict(self.facts)]).encode())
        digest.update(np.ascontiguousarray(self.owners).tobytes())
        for array in (self.windows, self.teachers):
            digest.update(str(array.shape).encode())
            for row in np.linspace(0, len(array) - 1, min(SAMPLE, len(array))).astype(int):
                digest.update(np.ascontiguousarray(array[row]).tobytes())
        return digest.hexdigest()

    def prove(self) -> None:
        """Compare the stored teacher of a few recordings with FC^alpha of their windows."""
        owners = np.asarray(self.owners)
        counts = np.bincount(owners, minlength=len(self.recordings))
        for recording in np.argsort(-counts, kind="stable")[:3]:
            series = np.concatenate([self.windows[i].T for i in np.flatnonzero(owners == recording)])
            try:
                again = teacher_vector(series, self.alpha)
            except ParcelError as error:
                raise DatasetError(
                    f"{self.recordings[recording]} in {self.folder} has missing or constant parcels ({error})."
                ) from error
            agreement = float(again @ unit_vectors(self.teachers[recording][None])[0])
            if not agreement > AGREEMENT_OF_WINDOWS:
                raise DatasetError(
                    f"The windows of {self.recordings[recording]} in {self.folder} are not those that its teacher was "
                    f"computed from (correlation {agreement:.2f}, expected {AGREEMENT_OF_WINDOWS} or more): {WINDOWS} "
                    f"must be windows x parcels x volumes, in the order of {OWNERS}. Download or write the corpus "
                    "again."
                )
