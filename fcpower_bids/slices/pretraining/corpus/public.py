"""The public layout of a corpus: read as a pack is, and written from one."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome.connectivity import ParcelError
from fcpower_bids.encoders.checkpoints import fetch, resolved
from fcpower_bids.errors import DatasetError
from fcpower_bids.slices.pretraining.corpus.opened import Corpus, Indices, write_arrays
from fcpower_bids.slices.pretraining.corpus.pack import KERNEL, MADE, SITE, Pack, load_corpus, stored_vector
from fcpower_bids.slices.pretraining.corpus.teacher import kernel_corpus, teacher_kernel, teacher_vector, unit_vectors
from fcpower_bids.store import load_json, replace_folder, write_text

WINDOWS, OWNERS, TEACHERS = "windows.npy", "window_to_recording.npy", "teachers.npy"
RECORDINGS, LICENCES, FACTS = "recordings.json", "licenses.json", "corpus.json"
AGREEMENT = 0.3
"""Least correlation of the teacher with FC^alpha of the stored windows of a recording: about 0 when scrambled."""
SAMPLE = 64
BLOCK = 1024
"""Windows that are copied to a device at a time."""


@dataclass(frozen=True, kw_only=True)
class WindowCorpus(Corpus):
    """Windows that were cut once, read from disk as they are drawn."""

    path: Path  # of the windows
    shape: tuple[int, int, int]  # (W, P, L)
    order: Indices  # (W,): windows sorted by recording
    first: Indices  # (N,): where the windows of each recording begin in `order`

    @property
    def n_bytes(self) -> int:
        """Size of all windows."""
        return 4 * math.prod(self.shape)

    def _shifts(self, length: int) -> int:
        return max(self.shape[2] - length + 1, 0)

    def places(self, length: int) -> Indices:
        """Stored windows, times the places of a shorter one in each."""
        counts = np.diff(np.append(self.first, len(self.order)))
        return counts * self._shifts(length)

    def windows_apart(self, length: int) -> Indices:
        """Stored windows, which share no volume, and what fits into each."""
        return np.diff(np.append(self.first, len(self.order))) * (self.shape[2] // length)

    def _nth(self, numbers: Indices, length: int) -> Indices:
        which, part = np.divmod(numbers, self.shape[2] // length)
        return which * self._shifts(length) + part * length

    def _load(self, device: torch.device) -> Tensor:
        whole = torch.empty(self.shape, dtype=torch.float32, device=device)
        windows = np.load(self.path, mmap_mode="r")
        for start in range(0, self.shape[0], BLOCK):
            whole[start : start + BLOCK].copy_(torch.from_numpy(np.array(windows[start : start + BLOCK], np.float32)))
        return whole

    def _index(self, rows: Indices, places: Indices, length: int) -> Indices:
        which, shift = np.divmod(places, self._shifts(length))
        return np.stack([rows, self.order[self.first[rows] + which], shift])

    def _read(self, index: Indices, length: int, pinned: bool) -> Tensor:
        out = torch.empty(index.shape[1], length, self.shape[1], pin_memory=pinned)
        windows = np.load(self.path, mmap_mode="r")
        for member in np.argsort(index[1]):
            _, number, shift = index[:, member]
            out[member] = torch.from_numpy(np.array(windows[number, :, shift : shift + length], np.float32).T)
        return out

    def _gather(self, resident: Tensor, index: Tensor, length: int) -> Tensor:
        times = index[2][:, None] + torch.arange(length, device=resident.device)
        return resident[index[1][:, None], :, times]


def is_public(folder: Path) -> bool:
    """Whether a folder holds a corpus in the public layout."""
    return (folder / WINDOWS).is_file()


def open_corpus(folder: Path, output: Path, roi_labels: Sequence[str] = ()) -> Corpus:
    """Open our pack, or a corpus in the public layout."""
    if not is_public(folder):
        return load_corpus(folder)
    arrays = _Arrays.read(folder)
    with safe_open(output / KERNEL, "pt") as file:
        kernel = file.get_tensor("kernel")
    owners = np.asarray(arrays.owners, dtype=np.intp)
    order = np.argsort(owners, kind="stable")
    return WindowCorpus(
        table=_table(folder, arrays),
        parcel_names=_parcel_names(folder, arrays, tuple(roi_labels)),
        alpha=arrays.alpha,
        sha256=arrays.digest(),
        kernel=kernel,
        atlas=str(arrays.facts.get("atlas", "n/a")),
        revision=resolved(folder, None) or "n/a",
        path=folder / WINDOWS,
        shape=arrays.windows.shape,
        order=order,
        first=np.searchsorted(owners[order], np.arange(len(arrays.recordings))),
    )


def prepare_corpus(folder: Path, output: Path) -> None:
    """Check a corpus in the public layout, and compute its teacher kernel once; nothing to do for a pack."""
    if not is_public(folder):
        return
    arrays = _Arrays.read(folder)
    digest = arrays.digest()
    if kernel_corpus(output / KERNEL) == digest:
        return
    arrays.prove()
    teachers = arrays.teachers
    kernel = teacher_kernel(lambda start, stop: teachers[start:stop], len(teachers))
    output.mkdir(parents=True, exist_ok=True)
    write_arrays({"kernel": kernel}, output / KERNEL, {"corpus_sha256": digest})


def fetch_corpus(name: str) -> Path:
    """Download a corpus from the hub (26 GB), or find it in the hub's cache, and return its folder."""
    return fetch(name, "dataset", [WINDOWS, OWNERS, TEACHERS, RECORDINGS, LICENCES, FACTS])


@dataclass(frozen=True)
class _Arrays:
    """The files of a folder, memory-mapped; their shapes fit each other."""

    folder: Path
    windows: NDArray[np.float32]
    owners: NDArray[np.integer]
    teachers: NDArray[np.float32]
    recordings: list[str]
    facts: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> _Arrays:
        try:
            arrays = (np.load(folder / name, mmap_mode="r") for name in (WINDOWS, OWNERS, TEACHERS))
            windows, owners, teachers = arrays
            recordings = load_json(folder / RECORDINGS)
            has_facts = (folder / FACTS).is_file()
            facts = load_json(folder / FACTS) if has_facts else {}
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
        """Say what is wrong with shapes and names, or nothing."""
        if not isinstance(self.recordings, list) or not all(isinstance(name, str) for name in self.recordings):
            return f"{RECORDINGS} is not a list of names"
        n, parcels = len(self.recordings), self.windows.shape[1] if self.windows.ndim == 3 else 0
        if not parcels or self.owners.shape != (len(self.windows),):
            return f"{WINDOWS} has the shape {self.windows.shape} and {OWNERS} {self.owners.shape}"
        if self.teachers.shape != (n, parcels * (parcels - 1) // 2):
            return f"{TEACHERS} has the shape {self.teachers.shape} for {n} recordings of {parcels} parcels"
        if len(self.owners) and not 0 <= int(self.owners.min()) <= int(self.owners.max()) < n:
            return f"{OWNERS} points outside {RECORDINGS}"
        return _wrong_facts(self.facts, n)

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
            if not agreement > AGREEMENT:
                raise DatasetError(
                    f"The windows of {self.recordings[recording]} in {self.folder} are not those that its teacher was "
                    f"computed from (correlation {agreement:.2f}, expected {AGREEMENT} or more): {WINDOWS} must be "
                    f"windows x parcels x volumes, in the order of {OWNERS}. Download or write the corpus again."
                )


def _wrong_facts(facts: Any, n: int) -> str:
    """Say what is wrong with ``corpus.json``, or nothing."""
    if not isinstance(facts, dict):
        return f"{FACTS} is not an object"
    alpha = facts.get("alpha", ALPHA_STAR)
    if not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        return f"{FACTS} has the alpha {alpha!r}"
    kinds: dict[str, Any] = {"repetition_times": (int, float), "roi_labels": str}
    kinds |= dict.fromkeys(("families", SITE, *MADE), str)
    for name, kind in kinds.items():
        values = facts.get(name) or []
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            return f"{name} in {FACTS} must be a list of {'numbers' if name == 'repetition_times' else 'texts'}"
        if values and name != "roi_labels" and len(values) != n:
            return f"{FACTS} has {len(values)} {name} for {n} recordings"
    if bad := [time for time in facts.get("repetition_times") or [] if not 0 < time < math.inf]:
        return f"{FACTS} has a repetition time of {bad[0]} s"
    return ""


def _table(folder: Path, arrays: _Arrays) -> pd.DataFrame:
    path = folder / LICENCES
    licences = load_json(path) if path.is_file() else {}
    dataset = [name.split("/")[0] for name in arrays.recordings]
    counts = np.bincount(np.asarray(arrays.owners), minlength=len(arrays.recordings))
    stem = pd.Series([name.rsplit("/", 1)[-1] for name in arrays.recordings])
    person = [match[1] if (match := re.search(r"/(?:sub-)?([^/]+)/", name)) else name for name in arrays.recordings]
    return pd.DataFrame(
        {
            "id": arrays.recordings,
            "dataset": dataset,
            "subject": person,
            "session": stem.str.extract(r"_ses-([a-zA-Z0-9]+)")[0].fillna("n/a"),
            "family": arrays.facts.get("families") or ["n/a"] * len(dataset),
            "licence": [str(licences.get(name, "n/a")) for name in dataset],
            "TR": arrays.facts.get("repetition_times") or [np.nan] * len(dataset),
            "T": counts * arrays.windows.shape[2],
            **{name: arrays.facts.get(name) or ["n/a"] * len(dataset) for name in (SITE, *MADE)},
        }
    )


def _parcel_names(folder: Path, arrays: _Arrays, given: tuple[str, ...]) -> tuple[str, ...]:
    """Names from the user, else from the corpus; without names no other data can be matched to the model."""
    names = given or tuple(arrays.facts.get("roi_labels", ()))
    if not names:
        raise DatasetError(
            f"{folder} does not name its parcels, and inputs are matched to a model by name: give their names in the "
            "order of the corpus, one per line, with roi_labels, a FILE."
        )
    if len(names) != arrays.windows.shape[1] or len(set(names)) != len(names):
        raise DatasetError(
            f"{folder} has {arrays.windows.shape[1]} parcels and {len(set(names))} different names were given; name "
            "each parcel once."
        )
    return names


def write_public(pack: Path, folder: Path, window: int = 80) -> int:
    """Write a pack in the public layout, its other facts in ``corpus.json``; whole windows. Raises DatasetError."""
    corpus = load_corpus(pack)
    counts = corpus.table["T"].to_numpy(dtype=np.intp) // window
    rows = np.flatnonzero(counts)
    if not len(rows):
        raise DatasetError(f"No recording of {pack} has {window} volumes; give a shorter window.")
    counts, table = counts[rows], corpus.table.iloc[rows]

    def write(target: Path) -> None:
        _write_windows(corpus, rows, counts, target / WINDOWS, window)
        n_edges = len(corpus.parcel_names) * (len(corpus.parcel_names) - 1) // 2
        teachers = np.lib.format.open_memmap(target / TEACHERS, "w+", np.float32, (len(table), n_edges))
        for i, (_, row) in enumerate(table.iterrows()):
            teachers[i] = stored_vector(pack, row)
        teachers.flush()
        np.save(target / OWNERS, np.repeat(np.arange(len(rows)), counts).astype(np.int32))
        _write_json(target / RECORDINGS, [_name(row) for _, row in table.iterrows()])
        _write_json(target / LICENCES, dict(zip(table["dataset"], table["licence"], strict=True)))
        facts = {"roi_labels": corpus.parcel_names, "alpha": corpus.alpha, "atlas": corpus.atlas}
        facts |= {"families": table["family"].tolist(), **{name: table[name].tolist() for name in (SITE, *MADE)}}
        facts |= {"repetition_times": table["TR"].tolist()} if table["TR"].notna().all() else {}
        _write_json(target / FACTS, facts)

    folder.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(folder, write)
    return int(counts.sum())


def _write_windows(corpus: Pack, rows: Indices, counts: Indices, path: Path, window: int) -> None:
    shape = (int(counts.sum()), len(corpus.parcel_names), window)
    array = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    at = 0
    for row, count in zip(rows, counts, strict=True):
        cut = corpus.windows(np.full(count, row), np.arange(count) * window, window)
        array[at : at + count] = cut.transpose(1, 2).numpy()
        at += count
    array.flush()


def _name(row: pd.Series[Any]) -> str:
    """DATASET/sub-LABEL/NAME, whatever the recording is called in the pack."""
    return f"{row['dataset']}/sub-{row['subject']}/{str(row['id']).rsplit('/', 1)[-1]}"


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
