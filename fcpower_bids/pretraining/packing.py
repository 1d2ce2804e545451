"""Build or enlarge a corpus pack from recordings: only contents that are new are processed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from fcpower_bids.core.connectome.connectivity import ParcelError, standardise
from fcpower_bids.core.connectome.spectrum import ALPHA_STAR
from fcpower_bids.errors import DatasetError, RecordingError
from fcpower_bids.pretraining.corpus import FORMAT, KERNEL, TEXT_COLUMNS, read_table, refuse_leakage
from fcpower_bids.pretraining.shards import series_file, teacher_file, write_arrays
from fcpower_bids.pretraining.teacher import teacher_kernel, teacher_vector_and_rank
from fcpower_bids.store import write_text

COLUMNS = (*TEXT_COLUMNS, "TR", "T", "shard", "position", "offset", "rank")
logger = logging.getLogger(__name__)

SHARD_VOLUMES = 1 << 20
"""Timepoints per shard file: 0.94 GB of series at 450 parcels."""
SHARD_RECORDINGS = 1024
"""Recordings per shard file: 0.41 GB of teacher vectors at 450 parcels."""

Source = tuple[Mapping[str, Any], Callable[[], ArrayLike]]


def pack_corpus(
    recordings: Iterable[Source],
    folder: Path,
    alpha: float = ALPHA_STAR,
    *,
    atlas: str = "n/a",
    evaluation: Iterable[str] = (),
) -> pd.DataFrame:
    """Add recordings to a corpus pack; what is already in it (by content) is passed over.

    A recording with NaN or constant parcels is left out with a warning and listed in ``excluded.tsv``.

    Parameters
    ----------
    recordings : iterable of (dict, callable)
        The callable returns the cleaned series (T, P). The dict has ``id, dataset, subject, parcel_names,
        repetition_time`` and optionally ``session, family, licence``.
        A recording whose ``id`` is known but whose content changed replaces the old one.
    folder : Path
        The pack; made if it does not exist.
    alpha : float
        Exponent of the teacher FC^alpha, one per pack.
    atlas : str
        Name of the parcellation, for the card of models trained on the pack.
    evaluation : iterable of str
        ``dataset`` or ``dataset/subject`` that must not be in the corpus.

    Returns
    -------
    DataFrame
        One row per recording of the pack.

    Raises
    ------
    DatasetError
        The pack has another alpha, or no recording can be packed.
    RecordingError
        A recording has other parcels than the pack.
    UsageError
        A recording belongs to the evaluation set.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pack = _Pack(folder, alpha, atlas)
    for metadata, load in recordings:
        pack.add(metadata, np.asarray(load()))
    pack.flush()
    if pack.table.empty:
        raise DatasetError("There is no recording to pack; run the participant level first.")
    refuse_leakage(pack.table, evaluation)
    pack.finish()
    return pack.table


class _Pack:
    """The pack while it is being written: the table so far and the recordings waiting for a shard."""

    def __init__(self, folder: Path, alpha: float, atlas: str) -> None:
        self.folder, self.alpha, self.atlas = folder, alpha, atlas
        self.parcel_names: tuple[str, ...] | None = None
        self.table = pd.DataFrame(columns=list(COLUMNS))
        self.waiting: list[tuple[dict[str, Any], NDArray[np.float16], NDArray[np.float32]]] = []
        self.excluded: list[tuple[str, str]] = []
        self.shard = 0
        self.sha256 = ""
        if (folder / "pack.json").exists():
            self._resume()
        self.known = set(self.table["sha256"])

    def _resume(self) -> None:
        facts = json.loads((self.folder / "pack.json").read_text(encoding="utf-8"))
        if facts.get("format") != FORMAT:
            self._discard(facts)
            return
        if facts["alpha"] != self.alpha:
            raise DatasetError(
                f"{self.folder} was packed with alpha {facts['alpha']:g}, not {self.alpha:g}; use another folder."
            )
        self.parcel_names, self.shard, self.sha256 = tuple(facts["parcel_names"]), facts["n_shards"], facts["sha256"]
        self.atlas = facts["atlas"] if self.atlas == "n/a" else self.atlas
        self.table = read_table(self.folder)

    def _discard(self, facts: Mapping[str, Any]) -> None:
        """Remove a pack of another format: what it holds cannot be trusted."""
        logger.warning(
            "%s was packed in format %s, and this version writes format %d (the series of older packs are scrambled): "
            "it is made anew. Train its encoders again; recordings of other outputs have to be packed again from them.",
            *(self.folder, facts.get("format", 1), FORMAT),
        )
        for file in (self.folder / "pack.json", self.folder / KERNEL, self.folder / "recordings.tsv"):
            file.unlink(missing_ok=True)
        for kind in ("series", "teacher"):
            for file in self.folder.glob(f"{kind}-*.safetensors"):
                file.unlink()

    def add(self, metadata: Mapping[str, Any], series: NDArray[Any]) -> None:
        """Take one recording, unless its content is known."""
        self._check_parcels(metadata, series)
        digest = hashlib.sha256(np.ascontiguousarray(series, np.float64).tobytes())
        digest.update(json.dumps([metadata["id"], float(metadata["repetition_time"])]).encode())
        if digest.hexdigest() in self.known:
            return
        try:
            z = standardise(series)
            vector, rank = teacher_vector_and_rank(series, self.alpha)
        except ParcelError as error:
            names = ", ".join(str(metadata["parcel_names"][i]) for i in error.parcels[:10])
            self.excluded.append((metadata["id"], f"missing or constant parcels: {names}"))
            logger.warning("%s is left out of the corpus: missing or constant parcels (%s).", metadata["id"], names)
            return
        self.known.add(digest.hexdigest())
        self.table = self.table[self.table["id"] != metadata["id"]]
        row = self._row(metadata, len(series)) | {"sha256": digest.hexdigest(), "rank": rank}
        self.waiting.append((row, z.astype(np.float16), vector.astype(np.float32)))
        if len(self.waiting) >= SHARD_RECORDINGS or row["offset"] + row["T"] >= SHARD_VOLUMES:
            self.flush()

    def _check_parcels(self, metadata: Mapping[str, Any], series: NDArray[Any]) -> None:
        names = tuple(str(name) for name in metadata["parcel_names"])
        self.parcel_names = self.parcel_names or names
        if names != self.parcel_names or series.ndim != 2 or series.shape[1] != len(names):
            differing = ", ".join(sorted(set(names) ^ set(self.parcel_names))[:5]) or "order or number"
            raise RecordingError(
                f"{metadata['id']} does not have the {len(self.parcel_names)} parcels of the corpus in their order "
                f"({differing}); one pack holds one parcellation."
            )

    def _row(self, metadata: Mapping[str, Any], length: int) -> dict[str, Any]:
        text = {key: str(metadata.get(key) or "n/a") for key in TEXT_COLUMNS}
        return {
            **text,
            "TR": float(metadata["repetition_time"]),
            "T": length,
            "shard": self.shard,
            "position": len(self.waiting),
            "offset": sum(row["T"] for row, _, _ in self.waiting),
        }

    def flush(self) -> None:
        """Write the waiting recordings as one shard."""
        if not self.waiting:
            return
        rows, series, vectors = zip(*self.waiting, strict=True)
        write_arrays({"vectors": np.stack(vectors)}, teacher_file(self.folder, self.shard))
        write_arrays({"series": np.concatenate(series)}, series_file(self.folder, self.shard))
        fresh = pd.DataFrame(list(rows), columns=list(COLUMNS))
        self.table = fresh if self.table.empty else pd.concat([self.table, fresh])
        self.waiting = []
        self.shard += 1

    def finish(self) -> None:
        """Write kernel, table and, last, pack.json; whatever interrupts it, a later run completes the pack."""
        self.table = self.table.sort_values(["shard", "position"], ignore_index=True)
        excluded = pd.DataFrame(self.excluded, columns=["id", "reason"])
        write_text(self.folder / "excluded.tsv", excluded.to_csv(sep="\t", index=False, lineterminator="\n"))
        facts: dict[str, Any] = {
            "format": FORMAT,
            "alpha": self.alpha,
            "atlas": self.atlas,
            "parcel_names": self.parcel_names,
        }
        facts |= {"n_shards": self.shard, "n_recordings": len(self.table)}
        facts["sha256"] = hashlib.sha256(json.dumps([facts, self.table["sha256"].tolist()]).encode()).hexdigest()
        if facts["sha256"] == self.sha256 and _kernel_of(self.folder) == self.sha256:
            return
        kernel = teacher_kernel(self._vectors, len(self.table))
        write_arrays({"kernel": kernel}, self.folder / KERNEL, {"corpus_sha256": facts["sha256"]})
        write_text(self.folder / "recordings.tsv", self.table.to_csv(sep="\t", index=False, lineterminator="\n"))
        write_text(self.folder / "pack.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    def _vectors(self, start: int, stop: int) -> NDArray[np.float32]:
        parts = []
        for _, rows in self.table.iloc[start:stop].groupby("shard"):
            with safe_open(teacher_file(self.folder, int(rows["shard"].iloc[0])), "np") as file:
                first, last = int(rows["position"].min()), int(rows["position"].max())
                parts.append(file.get_slice("vectors")[first : last + 1][rows["position"].to_numpy() - first])
        return np.concatenate(parts)


def _kernel_of(folder: Path) -> str | None:
    """Digest of the corpus that the stored kernel was computed for."""
    try:
        with safe_open(folder / KERNEL, "np") as file:
            return str((file.metadata() or {}).get("corpus_sha256"))
    except (OSError, SafetensorError):
        return None
