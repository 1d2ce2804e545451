"""Build or enlarge a corpus pack from the participant level's series; a killed run goes on with its next recording."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.connectome import ParcelError, standardise
from fcpower_bids.errors import DAMAGED_ARRAY, DatasetError, RecordingError, Unfit, UsageError
from fcpower_bids.parallel import begin_worker
from fcpower_bids.pretrain import corpus as stored
from fcpower_bids.pretrain.corpus import FACTS, FORMAT, KERNEL, TABLE, TEXT_COLUMNS, UNTOLD, teacher_vector_and_rank
from fcpower_bids.schema import EXACT, SERIES_VOLUMES
from fcpower_bids.store import digest_of, load_json, sweep, write_text

logger = logging.getLogger(__name__)
Source = tuple[Mapping[str, Any], Callable[[], ArrayLike]]
"""What is known of a recording, and its series (T, P)."""
SHARD_VOLUMES = 1 << 20
"""Timepoints per shard file: 0.94 GB of series at 450 parcels."""
SHARD_RECORDINGS = 1024
"""Recordings per shard file: 0.41 GB of teacher vectors at 450 parcels."""
AHEAD = 4
"""Recordings per process that may wait for the one before them: bounds memory."""
SUFFIX = "_stat-mean_timeseries"
WITHIN = "within"
"""Place of the outputs that hold the corpus."""
FEWEST_VOLUMES = 3
"""With fewer there is no correlation."""


# --- Series of the participant level --------------------------------------------------------------------------------


def find_series(
    paths: Mapping[Path, str],
    folder: Path,
    dataset: str,
    corpus: Path,
    *,
    terms: Mapping[str, str],
    families: Mapping[str, str] | None = None,
) -> Iterator[Source]:
    """Yield series of an output folder for `pack_corpus`, each with the reason against it, if any. Raises DatasetError.

    What is not to be used need not be there: it leaves a corpus that has it. Without families those of the corpus stay.
    """
    # of a corpus within the outputs its own place: both may be moved together
    inside = corpus.resolve().is_relative_to(folder.resolve())
    place = WITHIN if inside else hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    for path, reason in sorted(paths.items()):
        facts: dict[str, Any] = (
            {"repetition_time": math.nan, "source": "n/a", "parcel_names": None} if reason else _describe(path)
        )
        volumes = facts.pop("volumes", None)
        entities = dict(re.findall(r"(?:^|_)([a-zA-Z]+)-([a-zA-Z0-9+]+)(?=_)", path.name))
        person = entities["sub"]
        facts |= {"id": f"{dataset}/{path.stem.removesuffix(SUFFIX)}", "dataset": dataset, "subject": person}
        facts |= {"session": entities.get("ses"), "place": place, **terms}
        facts |= {} if families is None else {"family": families.get(person)}
        yield facts, partial(_refuse, reason) if reason else partial(read_series, path, volumes)


def _refuse(reason: str) -> np.ndarray:
    raise Unfit(reason)


def _describe(path: Path) -> dict[str, Any]:
    """Facts of a series: what its JSON states (repetition time NaN where none), its parcels, its size and time."""
    try:
        sidecar: dict[str, Any] = load_json(path.with_suffix(".json"))
        time = float(sidecar.get("RepetitionTime", math.nan))
        if not (0 < time < math.inf or "RepetitionTime" not in sidecar):
            raise ValueError(f"RepetitionTime {time}")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DatasetError(
            f"{path.with_suffix('.json')} does not give a RepetitionTime; run the participant level again."
        ) from error
    if path.suffix == ".tsv":
        names = pd.read_csv(path, sep="\t", nrows=0).columns.tolist()
    elif isinstance(sidecar.get("Columns"), list):
        names = list(map(str, sidecar["Columns"]))
    else:
        raise DatasetError(f"The JSON of {path} does not name its columns; run the participant level again.")
    volumes, filters = sidecar.get(SERIES_VOLUMES), sidecar.get("SoftwareFilters")
    band = filters.get("Butterworth") if isinstance(filters, Mapping) else None
    edges = [band.get(key) or "n/a" for key in ("HighPassHz", "LowPassHz")] if isinstance(band, Mapping) else []
    return {
        "repetition_time": time,
        "volumes": volumes if isinstance(volumes, (int, float)) else None,
        "parcel_names": names,
        "source": f"{path.stat().st_size} {path.stat().st_mtime_ns}",
        "band": " ".join(map(str, edges)),
    }


def read_series(path: Path, volumes: float | None = None) -> NDArray[np.float64]:
    """Read a series: an array, or a table (header of parcel names, one row per volume, ``n/a`` for no data): (T, P)."""
    try:
        if path.suffix == ".npy":
            series = standardise(np.load(path, allow_pickle=False).astype(np.float64))
        else:
            series = pd.read_csv(path, sep="\t", na_values="n/a", **EXACT).to_numpy(dtype=np.float64)
    except (OSError, MemoryError, *DAMAGED_ARRAY) as error:
        raise RecordingError(f"{path} cannot be read ({error}); run the participant level on it again.") from error
    empty = np.isnan(series)
    if len(series) < FEWEST_VOLUMES or (empty.any(axis=0) & ~empty.all(axis=0)).any():
        raise RecordingError(f"{path} ends too early or has gaps; run the participant level on it again.")
    if volumes not in (None, len(series)):
        raise RecordingError(
            f"{path} has {len(series)} of the {volumes:g} volumes of its JSON; run the participant level on it again."
        )
    return series


# --- The pack -------------------------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    """One recording, ready to be stored, or why it cannot be."""

    metadata: Mapping[str, Any]
    sha256: str = ""  # digest of series, name and repetition time
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
        return Prepared(metadata, problem=str(error))
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
        yield from (prepare(source, alpha, known.get(source[0]["id"])) for source in sources)
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
    with tqdm(disable=None, desc="packing", unit="recording") as bar:
        for prepared in prepare_all(pack.fresh(sources), alpha, known, n_processes):
            pack.add(prepared)
            bar.update()
    pack.flush()
    return pack.finish(n_processes)


class _Pack:
    """The pack while it is being written: a row of every recording, and series and vectors that wait for a shard."""

    def __init__(self, folder: Path, alpha: float, atlas: str) -> None:
        self.folder, self.alpha, self.atlas = folder, alpha, atlas
        self.parcel_names: tuple[str, ...] | None = None
        self.rows: dict[str, dict[str, Any]] = {}
        self.families: dict[tuple[str, str], str] = {}  # by dataset and subject, where known
        self.waiting: dict[str, tuple[NDArray[np.float16], NDArray[np.float32]]] = {}
        self.excluded: list[tuple[str, str]] = []
        self.sha256, self.shard, self.replaced = "", 0, 0
        self.digests: dict[str, str] = {}
        if not (folder / FACTS).exists():
            return
        try:
            facts = stored.read_facts(folder)
            self.digests = facts.get("files", {})
            if TABLE in self.digests and self.digests[TABLE] != digest_of(folder / TABLE):
                raise ValueError(f"{TABLE} is not as it was packed: its checksum differs")
            table = stored.read_table(folder) if (folder / TABLE).is_file() else None
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"The corpus in {folder} is damaged ({error}). Remove this folder and run the same command again, "
                "which packs anew."
            ) from error
        if facts["alpha"] != alpha:
            raise DatasetError(f"{folder} was packed with alpha {facts['alpha']:g}, not {alpha:g}; use another folder.")
        self.parcel_names, self.sha256 = tuple(facts["parcel_names"]), facts.get("sha256", "")
        if "n/a" not in (atlas, facts["atlas"]) and atlas != facts["atlas"]:
            raise DatasetError(f"{folder} was packed with {facts['atlas']}, not {atlas}; give another --corpus.")
        self.atlas = facts["atlas"] if atlas == "n/a" else atlas
        if table is not None:
            self.rows = {str(row["id"]): row for row in table.to_dict("records")}  # type: ignore[misc]
            for row in self.rows.values():
                if row["family"] != "n/a":
                    self.families[row["dataset"], row["subject"]] = row["family"]
            self.shard = int(table["shard"].max()) + 1

    def admit(self, sources: Sequence[Source]) -> None:
        """Refuse other parcels, and two datasets of one name, before anything is written."""
        for metadata, _ in sources:
            names = tuple(map(str, metadata["parcel_names"] or self.parcel_names or ()))  # none: it is not to be used
            self.parcel_names = self.parcel_names or names or None
            if names != (self.parcel_names or ()):
                differing = ", ".join(sorted(set(names) ^ set(self.parcel_names or ()))[:5]) or "order or number"
                raise DatasetError(
                    f"{metadata['id']} does not have the {len(self.parcel_names or ())} parcels of the corpus in their "
                    f"order ({differing}); one pack holds one parcellation: give another --corpus."
                )
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
        text = {key: str(metadata.get(key) or "n/a") for key in TEXT_COLUMNS}
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
            row, text = self.rows.get(metadata["id"]), self._text(metadata)
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
            self.waiting.pop(name, None)
            return
        text = self._text(prepared.metadata) | {"sha256": prepared.sha256}
        if prepared.series is None or prepared.vector is None:
            self.rows[name].update(text)
            return
        self.replaced += name in self.rows
        row: dict[str, Any] = {**text, "TR": float(prepared.metadata["repetition_time"])}
        row |= {"T": len(prepared.series), "rank": prepared.rank}
        self.rows[name], self.waiting[name] = row, (prepared.series, prepared.vector)
        volumes = sum(len(series) for series, _ in self.waiting.values())
        if len(self.waiting) >= SHARD_RECORDINGS or volumes >= SHARD_VOLUMES:
            self.flush()

    def flush(self) -> None:
        """Write the waiting recordings as one shard; a run that is killed after this goes on from here."""
        if not self.waiting:
            return
        series, vectors = zip(*self.waiting.values(), strict=True)
        stored.write_arrays({"vectors": np.stack(vectors)}, stored.shard_file(self.folder, "teacher", self.shard))
        stored.write_arrays({"series": np.concatenate(series)}, stored.shard_file(self.folder, "series", self.shard))
        offsets = np.cumsum([0, *map(len, series)]).tolist()
        for position, name in enumerate(self.waiting):
            self.rows[name] |= {"shard": self.shard, "position": position, "offset": offsets[position]}
        self.shard, self.waiting = self.shard + 1, {}
        self._write_table()

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"format": FORMAT, "alpha": self.alpha, "atlas": self.atlas}
        return facts | {"parcel_names": self.parcel_names, "n_shards": self.shard, "n_recordings": len(self.rows)}

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        facts = {**facts, "pack_sha256": stored.facts_digest(facts)}
        write_text(self.folder / FACTS, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    def _write_table(self) -> pd.DataFrame:
        """Write the table, and facts without a digest of the contents: the pack is not complete yet."""
        self._write_facts(self._facts())
        columns = [*TEXT_COLUMNS, "TR", "T", "shard", "position", "offset", "rank"]
        table = pd.DataFrame(list(self.rows.values()), columns=columns)
        table = table.sort_values(["shard", "position"], kind="stable", ignore_index=True)
        write_text(self.folder / TABLE, table.to_csv(sep="\t", index=False, lineterminator="\n"))
        return table

    def finish(self, n_processes: int) -> pd.DataFrame:
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
        table, facts = self._write_table(), self._facts()
        described = table[[name for name in TEXT_COLUMNS if name not in UNTOLD]].to_numpy().tolist()
        facts["sha256"] = hashlib.sha256(json.dumps([facts, described]).encode()).hexdigest()
        kernel = self.folder / KERNEL
        if not facts["sha256"] == self.sha256 == stored.kernel_corpus(kernel):
            self.digests.pop(KERNEL, None)
            block = partial(stored.stored_vectors, self.folder, table)
            stored.write_kernel(kernel, facts["sha256"], block, len(table), n_processes)
        kinds = ("series", "teacher")
        files = [
            *(stored.shard_file(self.folder, kind, shard) for shard in range(self.shard) for kind in kinds),
            kernel,
        ]
        # Files that were not written anew keep their digests, so that a change is found later.
        digests = {path.name: self.digests.get(path.name) or digest_of(path) for path in files}
        self._write_facts(facts | {"files": digests | {TABLE: digest_of(self.folder / TABLE)}})
        return table
