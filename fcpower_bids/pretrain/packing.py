"""Build or enlarge a corpus pack; a run that was killed goes on from where it last wrote."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome import ParcelError, standardise
from fcpower_bids.encoders.checkpoints import digest_facts
from fcpower_bids.errors import DatasetError, RecordingError, Unfit, UsageError
from fcpower_bids.parallel import map_tasks
from fcpower_bids.pretrain import corpus as stored
from fcpower_bids.pretrain.corpus import (
    DIGESTS,
    FACTS,
    FORMAT,
    KERNEL,
    KNOWN,
    PLACES,
    SERIES,
    TABLE,
    UNTOLD,
    VECTORS,
    teacher_vector_and_rank,
)
from fcpower_bids.store import digest_of, sweep, write_text

logger = logging.getLogger(__name__)
Source = tuple[Mapping[str, Any], Callable[[], ArrayLike]]
"""What is known of a recording (``problem``: why it is not to be used, if so), and its series (T, P)."""
WAITING = 1 << 26
"""Bytes of series and vectors from which they are written: a killed run does that much again."""
AT_ONCE = 256
"""Recordings that are prepared before the disk has taken them, at most: it bounds memory."""
Arrays = tuple[NDArray[np.float16], NDArray[np.float32]]
"""Z-scored series (T, P) and teacher vector (P (P - 1) / 2,) of a recording."""


class Prepared(NamedTuple):
    """One recording, ready to be stored, or why it cannot be."""

    metadata: Mapping[str, Any]
    problem: str = ""  # why it is left out, or nothing
    row: Mapping[str, Any] = {}  # of what was read
    arrays: Arrays | None = None  # None where its content is known


def prepare(source: tuple[Source, str | None], alpha: float) -> Prepared:
    """Read, standardise and decompose one recording, unless its digest is the known one. Raises RecordingError."""
    (metadata, load), known = source
    if metadata.get("problem"):
        return Prepared(metadata, metadata["problem"])
    series, names = np.asarray(load()), metadata["parcel_names"]
    if series.ndim != 2 or series.shape[1] != len(names):
        raise RecordingError(f"{metadata['id']} has series of shape {series.shape} for {len(names)} parcels.")
    time = float(metadata["repetition_time"])
    digest = hashlib.sha256(np.ascontiguousarray(series, np.float64).tobytes())
    digest.update(json.dumps([metadata["id"], time]).encode())
    if (sha256 := digest.hexdigest()) == known:
        return Prepared(metadata)
    try:
        z = standardise(series).astype(np.float16)
        vector, rank = teacher_vector_and_rank(series, alpha)
    except ParcelError as error:
        named = ", ".join(str(names[i]) for i in error.parcels[:10])
        return Prepared(metadata, f"missing or constant parcels: {named}")
    except Unfit:
        return Prepared(metadata, "all its edges are alike")
    arrays = (z, vector.astype(np.float32))
    row = {"sha256": sha256, "stored": stored.digest_stored(*arrays), "TR": time, "T": len(z), "rank": rank}
    return Prepared(metadata, row=row, arrays=arrays)


def pack_corpus(
    recordings: Iterable[Source],
    folder: Path,
    alpha: float = ALPHA_STAR,
    *,
    atlas: str = "n/a",
    there: Collection[str] = (),
) -> pd.DataFrame:
    """Add recordings to a corpus pack; what is already in it (by content) is passed over.

    `there`: ids of all that the outputs hold, where others that came from the same outputs are to leave the pack.
    """
    sources = list(recordings)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)  # of a run that was killed
    pack = _Pack(folder, alpha, atlas)
    pack.admit(sources)
    if there:
        pack.forget(sources, there)
    known = {name: row["sha256"] for name, row in pack.rows.items()}
    fresh = [(source, known.get(source[0]["id"])) for source in pack.fresh(sources)]
    with tqdm(total=len(fresh), desc="packing", disable=None, unit="recording") as bar:
        for start in range(0, len(fresh), AT_ONCE):
            for recording in map_tasks(partial(prepare, alpha=alpha), fresh[start : start + AT_ONCE]):
                pack.add(recording)
                bar.update()
    pack.flush()
    return pack.finish()


class _Pack:
    """The pack while it is being written: a row of every recording, and series and vectors that wait to be appended."""

    def __init__(self, folder: Path, alpha: float, atlas: str) -> None:
        self.folder = folder
        self.rows: dict[str, dict[str, Any]] = {}
        self.families: dict[tuple[str, str], str] = {}  # by dataset and subject, where known
        self.waiting: list[Arrays] = []
        self.excluded: list[tuple[str, str]] = []
        self.replaced = 0
        self.known: dict[str, Any] = {}  # facts of the pack that is there
        self.facts: dict[str, Any] = {"format": FORMAT, "alpha": alpha, "atlas": atlas, "parcel_names": None}
        self.facts |= {SERIES: 0, VECTORS: 0}  # their rows, of which none is ever written again
        if not (folder / FACTS).exists():
            return
        try:
            self.known = facts = stored.read_facts(folder)
            if "files" in facts and facts["files"][TABLE] != digest_of(folder / TABLE):
                raise ValueError(f"{TABLE} is not as it was packed: its checksum differs")
            table = stored.read_table(folder) if (folder / TABLE).is_file() else None
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"The corpus in {folder} is damaged ({error}). Remove this folder and run the same command again, "
                "which packs anew."
            ) from error
        if facts["alpha"] != alpha:
            raise DatasetError(f"{folder} was packed with alpha {facts['alpha']:g}, not {alpha:g}; use another folder.")
        if "n/a" not in (atlas, facts["atlas"]) and atlas != facts["atlas"]:
            raise DatasetError(f"{folder} was packed with {facts['atlas']}, not {atlas}; give another --corpus.")
        self.facts |= {name: facts[name] for name in ("parcel_names", SERIES, VECTORS)}
        self.facts["atlas"] = facts["atlas"] if atlas == "n/a" else atlas
        if table is not None:
            self.rows = {str(row["id"]): row for row in table.to_dict("records")}  # type: ignore[misc]
            for row in self.rows.values():
                if row["family"] != "n/a":
                    self.families[row["dataset"], row["subject"]] = row["family"]

    def admit(self, sources: Sequence[Source]) -> None:
        """Refuse other parcels, and two datasets of one name, before anything is written."""
        for metadata, _ in sources:
            parcels = self.facts["parcel_names"] or []
            names = list(map(str, metadata["parcel_names"] or parcels))  # none: it is not to be used
            if names != parcels and parcels:
                differing = ", ".join(sorted(set(names) ^ set(parcels))[:5]) or "order or number"
                raise DatasetError(
                    f"{metadata['id']} does not have the {len(parcels)} parcels of the corpus in their "
                    f"order ({differing}); one pack holds one parcellation: give another --corpus."
                )
            self.facts["parcel_names"] = names or None
            text, known = self._text(metadata), self.rows.get(metadata["id"], {})
            elsewhere = "n/a" not in (places := {known.get("place", "n/a"), text["place"]}) and len(places) > 1
            if elsewhere and known["source"] != text["source"]:
                raise UsageError(
                    f"{self.folder} holds {text['id']} from other outputs, and another file under this name. If these "
                    "are two datasets, give this one a DatasetDOI or a Name of its own; if one "
                    "was processed anew, remove the corpus and pack again."
                )

    def _text(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        """What the table says of a recording; of the family, unless it is known now, what it said before."""
        text = {key: str(metadata.get(key) or "n/a") for key in KNOWN}
        family = self.families.get((metadata["dataset"], metadata["subject"]))
        return text if family is None or "family" in metadata else text | {"family": family}

    def forget(self, sources: Sequence[Source], there: Collection[str]) -> None:
        """Leave out what came from these outputs and is not there any more, also where their dataset was renamed."""
        places = {(facts["dataset"], facts["place"]) for facts, _ in sources}
        files = {(facts["id"].partition("/")[2], facts["place"], facts["source"]) for facts, _ in sources}
        for name, row in self.rows.items():
            if row["source"] != "n/a" and (name.partition("/")[2], row["place"], row["source"]) in files:
                places.add((row["dataset"], row["place"]))
        gone = [
            name for name, row in self.rows.items() if (row["dataset"], row["place"]) in places and name not in there
        ]
        for name in gone:
            del self.rows[name]
        if gone:
            logger.warning(
                "%d recordings are not there any more, so nothing trains on them: %s. Their series stay in the files "
                "of the corpus; where they must not, remove its folder and pack again.",
                *(len(gone), gone[0]),
            )

    def fresh(self, sources: Iterable[Source]) -> Iterator[Source]:
        """Pass over unchanged files; their declarations may have changed."""
        for metadata, load in sources:
            row, text, time = self.rows.get(metadata["id"]), self._text(metadata), metadata["repetition_time"]
            is_known = row and row["source"] == text["source"] != "n/a"
            if row and is_known and np.array_equal(row["TR"], time, equal_nan=True):
                row |= text
            else:
                yield metadata, load

    def add(self, prepared: Prepared) -> None:
        """Take one recording, unless it is known."""
        name = prepared.metadata["id"]
        if prepared.problem:
            self.excluded.append((name, prepared.problem))
            logger.warning("%s is left out of the corpus: %s.", name, prepared.problem)
            self.rows.pop(name, None)  # a former version of it does not stay
            return
        text = self._text(prepared.metadata)
        if prepared.arrays is None:
            self.rows[name] |= text
            return
        self.replaced += name in self.rows
        places = {"offset": self.facts[SERIES], "position": self.facts[VECTORS]}
        self.rows[name] = {**text, **prepared.row, **places}
        self.waiting.append(prepared.arrays)
        self.facts |= {SERIES: self.facts[SERIES] + prepared.row["T"], VECTORS: self.facts[VECTORS] + 1}
        if sum(series.nbytes + vector.nbytes for series, vector in self.waiting) > WAITING:
            self.flush()

    def flush(self) -> None:
        """Append what waits; a run that is killed after this goes on from here."""
        if not self.waiting:
            return
        series, vectors = [one for one, _ in self.waiting], [one[None] for _, one in self.waiting]
        stored.append(self.folder / SERIES, series, self.facts[SERIES] - sum(map(len, series)))
        stored.append(self.folder / VECTORS, vectors, self.facts[VECTORS] - len(vectors))
        self.waiting = []
        self._write_table()

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        facts = {**facts, stored.PROOF: digest_facts(facts, stored.PROOF)}
        write_text(self.folder / FACTS, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    def _write_table(self) -> pd.DataFrame:
        """Write the table, and facts without a digest of the contents: the pack is not complete yet."""
        self._write_facts(self.facts)
        table = pd.DataFrame(list(self.rows.values()), columns=[*KNOWN, *DIGESTS, "TR", *PLACES])
        table = table.sort_values("offset", kind="stable", ignore_index=True)
        write_text(self.folder / TABLE, table.to_csv(sep="\t", index=False, lineterminator="\n"))
        return table

    def finish(self) -> pd.DataFrame:
        """Write kernel, table and ``pack.json`` with the digest that says that it is complete. Raises DatasetError."""
        if self.rows or self.excluded:
            excluded = pd.DataFrame(self.excluded, columns=["id", "reason"])
            write_text(self.folder / "excluded.tsv", excluded.to_csv(sep="\t", index=False, lineterminator="\n"))
        if not self.rows and self.excluded:
            name, problem = self.excluded[0]
            problem = f"{name} because {problem.rstrip('.')}"
            raise DatasetError(f"All {len(self.excluded)} recordings were left out of the corpus, {problem}.")
        if not self.rows:
            raise DatasetError("There is no recording to pack; run the participant level first.")
        if self.replaced:
            logger.warning("Recordings replaced, because their series changed: %d.", self.replaced)
        table, path = self._write_table(), self.folder / KERNEL
        described = table[[name for name in (*KNOWN, "sha256") if name not in UNTOLD]].to_numpy().tolist()
        sha256 = hashlib.sha256(json.dumps([self.facts, described]).encode()).hexdigest()
        if sha256 == self.known.get("sha256") == stored.kernel_corpus(path):
            kernel = self.known["files"][KERNEL]  # not that of the file now, so that a change is found later
        else:
            rows = table["position"].to_numpy(dtype=np.intp)
            stored.write_kernel(path, sha256, self.folder / VECTORS, rows)
            kernel = digest_of(path)
        files = {KERNEL: kernel, TABLE: digest_of(self.folder / TABLE)}
        self._write_facts({**self.facts, "sha256": sha256, "files": files})
        return table
