"""The public layout of a corpus: windows cut once, in memory-mapped arrays; it is read as it is."""

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
from torch import Tensor

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome.connectivity import ParcelError
from fcpower_bids.core.connectome.edges import edge_count
from fcpower_bids.encoders.checkpoints import resolved
from fcpower_bids.errors import DatasetError
from fcpower_bids.pretrain import corpus as ours
from fcpower_bids.pretrain.corpus import KERNEL, MADE, Corpus, Indices
from fcpower_bids.store import load_json

WINDOWS, OWNERS, TEACHERS = "windows.npy", "window_to_recording.npy", "teachers.npy"
RECORDINGS, LICENCES, FACTS = "recordings.json", "licenses.json", "corpus.json"
FILES = (WINDOWS, OWNERS, TEACHERS, RECORDINGS, LICENCES, FACTS)
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
    if ours.kernel_corpus(output / KERNEL) == digest:
        return
    arrays.prove()
    ours.write_kernel(output / KERNEL, digest, lambda start, stop: arrays.teachers[start:stop], len(arrays.teachers))


def open_corpus(
    folder: Path, output: Path, roi_labels: Sequence[str] = (), device: torch.device | str = "cpu"
) -> Corpus:
    """Open our pack, or a corpus in the public layout whose kernel is in `output`. Raises DatasetError."""
    if not is_public(folder):
        return ours.open_pack(folder, device)
    arrays = _Arrays.read(folder)
    owners, n = np.asarray(arrays.owners, dtype=np.intp), len(arrays.recordings)
    order, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=n)
    _, parcels, volumes = arrays.windows.shape
    # Names from the user, else from the corpus; without names no other data can be matched to the model.
    names = tuple(roi_labels) or tuple(arrays.facts.get("roi_labels", ()))
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
        return ours.to_device(out, device)

    return Corpus(
        table=arrays.table(counts),
        parcel_names=names,
        alpha=arrays.alpha,
        sha256=arrays.digest(),
        kernel=ours.read_tensor(output / KERNEL, "kernel").to(device),
        first=np.cumsum(counts) - counts,
        count=counts,
        volumes=np.full(n, volumes),
        cut=cut,
        atlas=str(arrays.facts.get("atlas", "n/a")),
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
    facts: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> _Arrays:
        try:
            windows, owners, teachers = (np.load(folder / name, mmap_mode="r") for name in (WINDOWS, OWNERS, TEACHERS))
            facts = load_json(folder / FACTS) if (folder / FACTS).is_file() else {}
            found = cls(folder, windows, owners, teachers, load_json(folder / RECORDINGS), facts)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{folder} is not a complete public corpus ({error}); download it again.") from error
        if problem := found._misfit():
            raise DatasetError(f"The files of {folder} do not fit each other: {problem}. Download the corpus again.")
        return found

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
        for name, kind in (kinds | dict.fromkeys(("families", "site", *MADE), str)).items():
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
                again = ours.teacher_vector(series, self.alpha)
            except ParcelError as error:
                raise DatasetError(
                    f"{self.recordings[recording]} in {self.folder} has missing or constant parcels ({error})."
                ) from error
            agreement = float(again @ ours.unit_vectors(self.teachers[recording][None])[0])
            if not agreement > AGREEMENT:
                raise DatasetError(
                    f"The windows of {self.recordings[recording]} in {self.folder} are not those that its teacher was "
                    f"computed from (correlation {agreement:.2f}, expected {AGREEMENT} or more): {WINDOWS} must be "
                    f"windows x parcels x volumes, in the order of {OWNERS}. Download or write the corpus again."
                )

    def table(self, counts: Indices) -> pd.DataFrame:
        """One row per recording, with as many windows as `counts` says."""
        path, facts, names = self.folder / LICENCES, self.facts, self.recordings
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
                "T": counts * self.windows.shape[2],
                **{name: facts.get(name) or unknown for name in ("site", *MADE)},
            }
        )
