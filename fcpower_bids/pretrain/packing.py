"""Make a corpus pack from the participant level's series; a killed run goes on with its next recording."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from fcpower_bids.errors import DAMAGED_ARRAY, DatasetError, RecordingError
from fcpower_bids.parallel import begin_worker
from fcpower_bids.pretrain import corpus as stored
from fcpower_bids.pretrain.corpus import FACTS, FORMAT, KERNEL, MADE, TABLE, TEXT_COLUMNS, teacher_vector_and_rank
from fcpower_bids.schema import EXACT, SERIES_VOLUMES
from fcpower_bids.store import digest_of, leftovers, load_json, sweep, write_text

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
FEWEST_VOLUMES = 3
"""With fewer there is no correlation."""


# --- Series of the participant level --------------------------------------------------------------------------------


def find_series(
    paths: Iterable[Path], dataset: str, terms: Mapping[str, str], families: Mapping[str, str]
) -> Iterator[Source]:
    """Yield series of an output folder for `pack_corpus`; `families` by label. Raises DatasetError."""
    for path in sorted(paths):
        facts = _describe(path)
        volumes = facts.pop("volumes")
        entities = dict(re.findall(r"(?:^|_)([a-zA-Z]+)-([a-zA-Z0-9+]+)(?=_)", path.name))
        facts |= {"id": identity(dataset, path), "dataset": dataset, "subject": entities["sub"], **terms}
        facts |= {"session": entities.get("ses"), "family": families.get(entities["sub"])}
        yield facts, partial(read_series, path, volumes)


def identity(dataset: str, path: Path) -> str:
    """What a recording is called in a corpus."""
    return f"{dataset}/{path.stem.removesuffix(SUFFIX)}"


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
    series: NDArray[np.float16] = np.empty((0, 0), np.float16)  # (T, P): z-scored; empty where it is left out
    vector: NDArray[np.float32] = np.empty(0, np.float32)  # (P (P - 1) / 2,)
    problem: str = ""  # why it is left out, or nothing


def prepare(source: Source, alpha: float) -> Prepared:
    """Read, standardise and decompose one recording. Raises RecordingError."""
    metadata, load = source
    series, names = np.asarray(load()), metadata["parcel_names"]
    if series.ndim != 2 or series.shape[1] != len(names):
        raise RecordingError(f"{metadata['id']} has series of shape {series.shape} for {len(names)} parcels.")
    digest = hashlib.sha256(np.ascontiguousarray(series, np.float64).tobytes())
    digest.update(json.dumps([metadata["id"], float(metadata["repetition_time"])]).encode())
    try:
        z = standardise(series)
        vector, rank = teacher_vector_and_rank(series, alpha)
    except ParcelError as error:
        named = ", ".join(str(names[i]) for i in error.parcels[:10])
        return Prepared(metadata, problem=f"missing or constant parcels: {named}")
    return Prepared(metadata, digest.hexdigest(), rank, z.astype(np.float16), vector.astype(np.float32))


def prepare_all(sources: Iterable[Source], alpha: float, n_processes: int) -> Iterator[Prepared]:
    """Prepare recordings in processes of their own; they come back in their order."""
    if n_processes == 1:
        yield from (prepare(source, alpha) for source in sources)
        return
    with ProcessPoolExecutor(n_processes, get_context("forkserver"), initializer=begin_worker) as pool:
        waiting: deque[Future[Prepared]] = deque()
        for source in sources:
            waiting.append(pool.submit(prepare, source, alpha))
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
    excluded: Iterable[tuple[str, str]] = (),
    shared: bool = False,
) -> pd.DataFrame:
    """Make a corpus of the recordings of a dataset, unless it is there as it would be made, and return its table.

    `excluded`: names of recordings that are not to be used, and why. In a `shared` corpus the recordings of other
    datasets stay. What is written as shards when a run is killed is kept if the same corpus is asked for again.
    """
    sources = list(recordings)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder / name for name in leftovers(folder))  # of a run that was killed
    pack = _Pack(folder, alpha, atlas, [facts for facts, _ in sources], shared)
    if pack.is_whole:
        return stored.read_table(folder)
    left = [source for source in sources if source[0]["id"] not in pack.rows]
    with tqdm(disable=None, desc="packing", unit="recording", total=len(left)) as bar:
        for prepared in prepare_all(left, alpha, n_processes):
            pack.add(prepared)
            bar.update()
    pack.flush()
    return pack.finish(n_processes, excluded)


class _Pack:
    """The pack while it is being written: a row of every recording, and series and vectors that wait for a shard."""

    def __init__(
        self, folder: Path, alpha: float, atlas: str, recordings: Sequence[Mapping[str, Any]], shared: bool
    ) -> None:
        self.folder, self.shard = folder, 0
        self.rows: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, tuple[NDArray[np.float16], NDArray[np.float32]]] = {}
        self.excluded: list[tuple[str, str]] = []
        names, datasets = list[str](), {str(facts["dataset"]) for facts in recordings}
        for facts in recordings:
            names = names or list(map(str, facts["parcel_names"]))
            self._refuse_other(facts["id"], list(map(str, facts["parcel_names"])), names)
        self.facts: dict[str, Any] = {"format": FORMAT, "alpha": alpha, "atlas": atlas, "parcel_names": names}
        made_of = json.dumps(
            [self.facts, [{**facts, "parcel_names": 0} for facts in recordings]], sort_keys=True, default=str
        )
        parts = dict.fromkeys(datasets, hashlib.sha256(made_of.encode()).hexdigest())
        before = self._read()
        there: dict[str, str] = before.get("parts", {})
        others = {name: part for name, part in there.items() if name not in datasets} if shared else {}
        if others and names:
            self._refuse_other(min(datasets), names, before["parcel_names"])
            for key, value in (("alpha", alpha), ("atlas", atlas)):
                if before[key] != value:
                    raise DatasetError(f"{folder} was packed with {before[key]}, not {value}; give another --corpus.")
        self.parts = others | parts
        self.is_whole = "files" in before and there == self.parts
        if self.is_whole:
            return
        finished = {name: part for name, part in self.parts.items() if there.get(name) == part}
        kept = finished.keys() | (datasets if before.get("making") == parts else set())
        self.facts |= {"parts": finished, "making": parts}  # until it is finished
        if before and (folder / TABLE).is_file():
            rows = stored.read_table(folder).to_dict("records")
            self.rows = {str(row["id"]): row for row in rows if row["dataset"] in kept}  # type: ignore[misc]
            for name in sorted({row["dataset"] for row in rows} - kept) if shared else ():
                logger.warning("The recordings of %s that were in %s have left it, to be packed anew.", name, folder)
        self._write_table()
        used = {row["shard"] for row in self.rows.values()}
        for path in [*folder.glob("series-*.safetensors"), *folder.glob("teacher-*.safetensors")]:
            if int(path.stem.partition("-")[2]) not in used:
                path.unlink()
        self.shard = max(used, default=-1) + 1

    def _read(self) -> dict[str, Any]:
        """What says what the folder holds; nothing where it holds nothing. Raises DatasetError."""
        if not (self.folder / FACTS).exists():
            return {}
        try:
            facts = stored.read_facts(self.folder)
            if facts.get("files", {}).get(TABLE, "") not in ("", digest_of(self.folder / TABLE)):
                raise ValueError(f"{TABLE} is not as it was packed: its checksum differs")
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"The corpus in {self.folder} is damaged ({error}). Remove this folder and run the same command again, "
                "which packs anew."
            ) from error
        return facts

    def _refuse_other(self, name: str, parcels: Sequence[str], wanted: Sequence[str]) -> None:
        if parcels != wanted:
            differing = ", ".join(sorted(set(parcels) ^ set(wanted))[:5]) or "order or number"
            raise DatasetError(
                f"{name} does not have the {len(wanted)} parcels of the corpus in their order ({differing}); one pack "
                "holds one parcellation: give another --corpus."
            )

    def add(self, prepared: Prepared) -> None:
        """Take one recording."""
        name = prepared.metadata["id"]
        if prepared.problem:
            self.excluded.append((name, prepared.problem))
            logger.warning("%s is left out of the corpus: %s.", name, prepared.problem)
            return
        self.rows[name] = {key: str(prepared.metadata.get(key) or "n/a") for key in TEXT_COLUMNS}
        self.rows[name] |= {"sha256": prepared.sha256, "TR": float(prepared.metadata["repetition_time"])}
        self.rows[name] |= {"T": len(prepared.series), "rank": prepared.rank}
        self.waiting[name] = prepared.series, prepared.vector
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

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        facts = {**facts, "pack_sha256": stored.facts_digest(facts)}
        write_text(self.folder / FACTS, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")

    def _write_table(self) -> pd.DataFrame:
        """Write the table, and facts without a digest of the contents: the pack is not complete yet."""
        self._write_facts(self.facts)
        columns = [*TEXT_COLUMNS, "TR", "T", "shard", "position", "offset", "rank"]
        table = pd.DataFrame(list(self.rows.values()), columns=columns)
        table = table.sort_values(["shard", "position"], kind="stable", ignore_index=True)
        write_text(self.folder / TABLE, table.to_csv(sep="\t", index=False, lineterminator="\n"))
        return table

    def finish(self, n_processes: int, excluded: Iterable[tuple[str, str]]) -> pd.DataFrame:
        """Write kernel, table and ``pack.json`` with the digest that says that it is complete. Raises DatasetError."""
        left_out = pd.DataFrame([*excluded, *self.excluded], columns=["id", "reason"])
        write_text(self.folder / "excluded.tsv", left_out.to_csv(sep="\t", index=False, lineterminator="\n"))
        if not self.rows and len(left_out):
            name, problem = left_out.iloc[0]
            problem = f"{name} because {problem.rstrip('.')}"
            raise DatasetError(f"All {len(left_out)} recordings were left out of the corpus, {problem}.")
        if not self.rows:
            raise DatasetError("There is no recording to pack; run the participant level first.")
        table = self._write_table()
        told = {key: value for key, value in self.facts.items() if key not in ("parts", "making")}
        described = table[[name for name in TEXT_COLUMNS if name not in MADE]].to_numpy().tolist()
        facts = {
            **told,
            "parts": self.parts,
            "sha256": hashlib.sha256(json.dumps([told, described]).encode()).hexdigest(),
        }
        block = partial(stored.stored_vectors, self.folder, table)
        stored.write_kernel(self.folder / KERNEL, facts["sha256"], block, len(table), n_processes)
        shards = ((kind, shard) for shard in sorted({*table["shard"]}) for kind in ("series", "teacher"))
        files = [*(stored.shard_file(self.folder, *shard) for shard in shards), self.folder / KERNEL]
        digests = {path.name: digest_of(path) for path in (*files, self.folder / TABLE)}
        self._write_facts(facts | {"files": digests})
        return table
