"""Build or enlarge a corpus pack from new contents, first files below ``parts``, so that a killed run goes on."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from tqdm import tqdm

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome.connectivity import ParcelError, standardise
from fcpower_bids.errors import DatasetError, RecordingError, Unfit, UsageError
from fcpower_bids.pretrain.corpus import (
    DIGESTS,
    FACTS,
    FORMAT,
    KERNEL,
    LICENCES,
    MADE,
    OWN_DIGEST,
    OWNERS,
    RECORDINGS,
    SITE,
    TABLE,
    TEACHERS,
    TEXT_COLUMNS,
    UNTOLD,
    WINDOWS,
    Corpus,
    Indices,
    check_table,
    facts_digest,
    open_pack,
    read_facts,
    read_table,
    series_file,
    stored_vector,
    teacher_file,
)
from fcpower_bids.pretrain.teacher import kernel_corpus, teacher_vector_and_rank, write_arrays, write_kernel
from fcpower_bids.store import digest_of, leftovers, parse_json, replace_folder, sweep, write_text
from fcpower_bids.workers import begin_worker

COLUMNS = (*TEXT_COLUMNS, "TR", "T", "shard", "position", "offset", "rank")
logger = logging.getLogger(__name__)

SHARD_VOLUMES = 1 << 20
"""Timepoints per shard file: 0.94 GB of series at 450 parcels."""
SHARD_RECORDINGS = 1024
"""Recordings per shard file: 0.41 GB of teacher vectors at 450 parcels."""


Source = tuple[Mapping[str, Any], Callable[[], ArrayLike]]
AHEAD = 4
"""Recordings per process that may wait for the one before them: bounds memory."""


@dataclass(frozen=True)
class Prepared:
    """One recording, ready to be stored, or why it cannot be."""

    metadata: Mapping[str, Any]
    sha256: str  # digest of series, name and repetition time
    rank: int = 0  # of FC
    series: NDArray[np.float16] | None = None  # (T, P): z-scored; empty where it is known already or left out
    vector: NDArray[np.float32] | None = None  # (P (P - 1) / 2,)
    problem: str = ""  # why it is left out, or nothing


def prepare(source: Source, alpha: float, known: str | None = None) -> Prepared:
    """Read, standardise and decompose one recording, unless its content is known. Raises RecordingError."""
    metadata, load = source
    try:
        series = np.asarray(load())
    except Unfit as error:  # by its status it is not to be used
        return Prepared(metadata, "", problem=str(error))
    names = metadata["parcel_names"]
    if series.ndim != 2 or series.shape[1] != len(names):
        raise RecordingError(f"{metadata['id']} has series of shape {series.shape} for {len(names)} parcels.")
    digest = hashlib.sha256(np.ascontiguousarray(series, np.float64).tobytes())
    digest.update(json.dumps([metadata["id"], float(metadata["repetition_time"])]).encode())
    sha256 = digest.hexdigest()
    if sha256 == known:
        return Prepared(metadata, sha256)
    try:
        z = standardise(series)
        vector, rank = teacher_vector_and_rank(series, alpha)
    except ParcelError as error:
        named = ", ".join(str(names[i]) for i in error.parcels[:10])
        return Prepared(metadata, sha256, problem=f"missing or constant parcels: {named}")
    return Prepared(metadata, sha256, rank, z.astype(np.float16), vector.astype(np.float32))


def prepare_all(
    sources: Iterable[Source], alpha: float, known: Mapping[str, str], n_processes: int
) -> Iterator[Prepared]:
    """Prepare recordings in processes of their own; they come back in their order."""
    if n_processes == 1:
        for source in sources:
            yield prepare(source, alpha, known.get(source[0]["id"]))
        return
    with ProcessPoolExecutor(n_processes, get_context("forkserver"), initializer=begin_worker) as pool:
        waiting: deque[Future[Prepared]] = deque()
        for source in sources:
            waiting.append(pool.submit(prepare, source, alpha, known.get(source[0]["id"])))
            if len(waiting) > AHEAD * n_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def pack_corpus(
    recordings: Iterable[Source],
    folder: Path,
    alpha: float = ALPHA_STAR,
    *,
    atlas: str = "n/a",
    n_processes: int = 1,
) -> pd.DataFrame:
    """Add recordings to a corpus pack; what is already in it (by content) is passed over."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, folder / "parts"):
        sweep(place / name for name in leftovers(place))  # of a run that was killed
    sources = list(recordings)
    pack = _Pack(folder, alpha, atlas)
    pack.check(sources)
    with tqdm(disable=None, desc="packing", unit="recording") as bar:
        for prepared in prepare_all(pack.fresh(sources), alpha, pack.known, n_processes):
            pack.add(prepared)
            bar.update()
    pack.flush()
    if not pack.rows:
        raise DatasetError(pack.why_empty())
    return pack.finish()


class _Pack:
    """The pack while it is being written: the rows so far and the recordings waiting for a shard."""

    def __init__(self, folder: Path, alpha: float, atlas: str) -> None:
        self.folder, self.alpha, self.atlas = folder, alpha, atlas
        self.parcel_names: tuple[str, ...] | None = None
        self.rows: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, Part] = {}
        self.excluded: list[tuple[str, str]] = []
        self.sha256, self.shard, self.replaced = "", 0, 0
        self.digests: dict[str, str] = {}
        if (folder / "pack.json").exists():
            self._resume()

    @property
    def known(self) -> dict[str, str]:
        """Digest of every recording that is stored or waits, by its id."""
        waiting = {name: part.row["sha256"] for name, part in self.waiting.items()}
        return {name: row["sha256"] for name, row in self.rows.items()} | waiting

    def _resume(self) -> None:
        try:
            facts = read_facts(self.folder)
            ours = facts.get("format") == FORMAT
            if ours:
                check_table(self.folder, facts)
            table = read_table(self.folder) if ours and (self.folder / "recordings.tsv").is_file() else None
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"The corpus in {self.folder} is damaged ({error}). Remove this folder and run the same command again, "
                "which packs anew."
            ) from error
        if not ours:
            self._discard(facts)
            return
        if facts["alpha"] != self.alpha:
            raise DatasetError(
                f"{self.folder} was packed with alpha {facts['alpha']:g}, not {self.alpha:g}; use another folder."
            )
        self.parcel_names, self.sha256 = tuple(facts["parcel_names"]), facts.get("sha256", "")
        self.digests = facts.get(DIGESTS, {})
        self.atlas = facts["atlas"] if self.atlas == "n/a" else self.atlas
        if table is not None:
            self.rows = {str(row["id"]): row for row in table.to_dict("records")}  # type: ignore[misc]
            self.shard = int(table["shard"].max()) + 1

    def _discard(self, facts: Mapping[str, Any]) -> None:
        """Remove a pack of another format: its content cannot be trusted."""
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

    def check(self, sources: Sequence[Source]) -> None:
        """Refuse other parcels before anything is written; take over parts."""
        for metadata, _ in sources:
            if metadata["parcel_names"] is not None:  # else it is not to be used
                self._check_parcels(metadata)
        names = json.dumps(self.parcel_names)
        self.parts = Parts(self.folder / "parts", alpha=repr(self.alpha), parcel_names=names)
        found = self.parts.recover({row["sha256"] for row in self.rows.values()})
        if found:
            logger.warning("%d recordings of an interrupted run are taken over.", len(found))
        self.waiting = {part.row["id"]: part for part in found}
        for metadata, _ in sources:
            self._refuse_another(_text(metadata))

    def _refuse_another(self, text: Mapping[str, str]) -> None:
        """Refuse to replace a recording by one of other outputs: two datasets would have one name."""
        known = self._row(text["id"])
        if not known or "n/a" in (known.get("place", "n/a"), text["place"]):
            return
        if known["place"] != text["place"] and known["source"] != text["source"]:
            raise UsageError(
                f"{self.folder} holds {text['id']} from other outputs, and another file under this name. If these are "
                "two datasets, name this one (dataset_name in a file); if one was processed anew, remove the "
                "corpus and pack again."
            )

    def _check_parcels(self, metadata: Mapping[str, Any]) -> None:
        names = tuple(str(name) for name in metadata["parcel_names"])
        self.parcel_names = self.parcel_names or names
        if names != self.parcel_names:
            differing = ", ".join(sorted(set(names) ^ set(self.parcel_names))[:5]) or "order or number"
            raise RecordingError(
                f"{metadata['id']} does not have the {len(self.parcel_names)} parcels of the corpus in their order "
                f"({differing}); one pack holds one parcellation."
            )

    def _row(self, name: str) -> dict[str, Any] | None:
        return self.waiting[name].row if name in self.waiting else self.rows.get(name)

    def fresh(self, sources: Iterable[Source]) -> Iterator[Source]:
        """Pass over unchanged files; their declarations may have changed."""
        for metadata, load in sources:
            row, text = self._row(metadata["id"]), _text(metadata)
            times = [row["TR"] if row else np.nan, metadata["repetition_time"]]
            same = row and row["source"] == text["source"] and (times[0] == times[1] or np.isnan(times).all())
            if row and same and text["source"] != "n/a":
                row |= text | {"sha256": row["sha256"]}
                continue
            yield metadata, load

    def add(self, prepared: Prepared) -> None:
        """Take one recording, unless it is known."""
        name = prepared.metadata["id"]
        if prepared.problem:
            self.excluded.append((name, prepared.problem))
            logger.warning("%s is left out of the corpus: %s.", name, prepared.problem)
            self.rows.pop(name, None)  # a former version of it does not stay
            if part := self.waiting.pop(name, None):
                self.parts.remove([part])
            return
        text = _text(prepared.metadata) | {"sha256": prepared.sha256}
        if prepared.series is None or prepared.vector is None:
            (self._row(name) or {}).update(text)
            return
        self.replaced += self._row(name) is not None
        row = {**text, "TR": float(prepared.metadata["repetition_time"])}
        row |= {"T": len(prepared.series), "rank": prepared.rank}
        self.waiting[name] = self.parts.write(row, prepared.series, prepared.vector)
        volumes = sum(part.row["T"] for part in self.waiting.values())
        if len(self.waiting) >= SHARD_RECORDINGS or volumes >= SHARD_VOLUMES:
            self.flush()

    def why_empty(self) -> str:
        """Say why there is no recording, and keep the reasons."""
        if not self.excluded:
            return "There is no recording to pack; run the participant level first."
        self._write_excluded()
        name, problem = self.excluded[0]
        return f"All {len(self.excluded)} recordings were left out of the corpus, {name} because {problem.rstrip('.')}."

    def _write_excluded(self) -> None:
        excluded = pd.DataFrame(self.excluded, columns=["id", "reason"])
        write_text(self.folder / "excluded.tsv", excluded.to_csv(sep="\t", index=False, lineterminator="\n"))

    def flush(self) -> None:
        """Write the waiting recordings as one shard; a run that is killed after this goes on from here."""
        if not self.waiting:
            return
        parts = list(self.waiting.values())
        write_arrays({"vectors": np.stack([part.vector for part in parts])}, teacher_file(self.folder, self.shard))
        write_arrays({"series": np.concatenate([part.series for part in parts])}, series_file(self.folder, self.shard))
        offset = 0
        for position, part in enumerate(parts):
            place = {"shard": self.shard, "position": position, "offset": offset}
            self.rows.pop(part.row["id"], None)
            self.rows[part.row["id"]] = part.row | place
            offset += part.row["T"]
        self.shard += 1
        self._write()
        self.parts.remove(parts)
        self.waiting = {}

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"format": FORMAT, "alpha": self.alpha, "atlas": self.atlas}
        return facts | {"parcel_names": self.parcel_names, "n_shards": self.shard, "n_recordings": len(self.rows)}

    def _table(self) -> pd.DataFrame:
        table = pd.DataFrame(list(self.rows.values()), columns=list(COLUMNS))
        return table.sort_values(["shard", "position"], kind="stable", ignore_index=True)

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        facts = {**facts, OWN_DIGEST: facts_digest(facts)}
        write_text(self.folder / "pack.json", json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    def _write(self) -> None:
        """Write the table, and facts without a digest of the contents: the pack is not complete yet."""
        self._write_facts(self._facts())
        text = self._table().to_csv(sep="\t", index=False, lineterminator="\n")
        write_text(self.folder / TABLE, text)

    def finish(self) -> pd.DataFrame:
        """Write kernel, table and pack.json with the digest that says that it is complete."""
        if self.replaced:
            logger.warning("Recordings replaced, because their series changed: %d.", self.replaced)
        table, facts = self._table(), self._facts()
        self._write_excluded()
        silent = UNTOLD if (table[SITE] != "n/a").any() else (*UNTOLD, SITE)
        said = table[[name for name in TEXT_COLUMNS if name not in silent]].to_numpy().tolist()
        facts["sha256"] = hashlib.sha256(json.dumps([facts, said]).encode()).hexdigest()
        if not facts["sha256"] == self.sha256 == kernel_corpus(self.folder / KERNEL):
            self.digests.pop(KERNEL, None)
            write_kernel(self.folder / KERNEL, facts["sha256"], table["sha256"].tolist(), self._vectors(table))
        self._write()
        shards = [place(self.folder, shard) for shard in range(self.shard) for place in (series_file, teacher_file)]
        # Files that were not written anew keep their digests, so that a change is found later.
        files = (*shards, self.folder / KERNEL)
        digests = {path.name: self.digests.get(path.name) or digest_of(path) for path in files}
        self._write_facts(facts | {DIGESTS: digests | {TABLE: digest_of(self.folder / TABLE)}})
        return table

    def _vectors(self, table: pd.DataFrame) -> Callable[[int, int], NDArray[np.float32]]:
        def block(start: int, stop: int) -> NDArray[np.float32]:
            parts = []
            for _, rows in table.iloc[start:stop].groupby("shard"):
                with safe_open(teacher_file(self.folder, int(rows["shard"].iloc[0])), "np") as file:
                    first, last = int(rows["position"].min()), int(rows["position"].max())
                    parts.append(file.get_slice("vectors")[first : last + 1][rows["position"].to_numpy() - first])
            return np.concatenate(parts)

        return block


def _text(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(metadata.get(key) or "n/a") for key in TEXT_COLUMNS}


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


# --- The public layout ---


def write_public(pack: Path, folder: Path, window: int = 80) -> int:
    """Write a pack in the public layout, its other facts in ``corpus.json``; whole windows. Raises DatasetError."""
    corpus = open_pack(pack)
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


def _write_windows(corpus: Corpus, rows: Indices, counts: Indices, path: Path, window: int) -> None:
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
