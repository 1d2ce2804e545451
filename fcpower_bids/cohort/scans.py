"""Scans: all included runs of one person in one session, their connectome, embeddings and series."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.cohort.inclusion import EMBEDDING, NO_SESSION, RECORDING, Connectome, Exclusion, Run, name_some
from fcpower_bids.core.connectome import covered_parcels
from fcpower_bids.core.edges import edge_count, rebuild_connectome, vectorise_edges
from fcpower_bids.core.series import SAME_TIME
from fcpower_bids.encoders.checkpoints import SEEN, STATE, TRAINED, UNKNOWN
from fcpower_bids.errors import DatasetError, Unfit, UsageError
from fcpower_bids.imaging.atlas_files import network_of
from fcpower_bids.outputs.dataset import TIMESERIES, describe_without_folders
from fcpower_bids.outputs.tables import (
    MISSING,
    SERIES_END,
    column_names,
    read_array,
    read_connectome,
    read_json,
    read_matrix,
    read_table,
    refuse_pipe,
    series_file,
)
from fcpower_bids.outputs.tables import read_series as read_whole
from fcpower_bids.parallel import map_tasks, track
from fcpower_bids.records import PLACE
from fcpower_bids.resources import given_bytes, machine_bytes
from fcpower_bids.schema import TABLES, table_fault
from fcpower_bids.settings import Settings

MOST_LACKING = 0.5
"""Share of the parcels of all that a connectome must have to be of the same parcellation."""
MOST_OTHERS = 0.25
"""Share of scans of other parcels above which they are not left out one by one: two kinds were put together."""
ROUNDING = 1e-8
"""Largest asymmetry of a matrix of another program, or excess over 1."""


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of n connectomes of P parcels."""

    parcels: tuple[str, ...]  # names of the P parcels
    # (n or more, P (P - 1) / 2): Pearson correlations, NaN where a parcel is not covered; rows after the n are void
    array: NDArray[np.floating]
    missing: NDArray[np.bool_]  # (n, P): parcels that are not covered
    # of length n: equal for connectomes that are equal to the bit, and for files that hold the same
    digests: tuple[str, ...]
    contents: tuple[str, ...]
    # files that were asked for and are no connectomes, and why; they are not among the n
    unreadable: Mapping[Path, str] = field(default_factory=dict)


_Row = tuple[np.ndarray, tuple[str, ...], str]
"""Edges of a connectome, its parcels, and the digest of the series that it was computed from; empty without one."""


def read_edges(paths: Sequence[Path], settings: Settings) -> Edges:
    """Read connectomes. Raises DatasetError, UsageError: they need more than the memory that is given."""
    parcels, others = parcels_of_all(dict(zip(paths, map(_names, paths), strict=True)))
    unreadable, digests, contents = dict(others), list[str](), list[str]()
    shape = len(paths), edge_count(len(parcels))
    if (needed := 8 * shape[0] * shape[1]) > min(given_bytes(), machine_bytes()):
        raise UsageError(
            f"{shape[0]:,} connectomes of {len(parcels)} parcels need {needed / 1e9:.2g} GB of memory: give more "
            "(--mem-mb, or another machine), or choose an atlas of fewer parcels."
        )
    array, missing = np.empty(shape), np.zeros((len(paths), len(parcels)), dtype=bool)
    read = map_tasks(_try_read, paths)
    for path, row in zip(paths, track(read, "connectomes", settings, len(paths)), strict=True):
        if isinstance(row, str) or path in others:
            unreadable[path] = row if isinstance(row, str) else others[path]
            continue
        (edges, names, of_series), place = row, len(digests)
        if names != parcels:  # among the edges of all parcels, NaN where it lacks one
            where = [parcels.index(name) for name in names]
            matrix = np.full((len(parcels), len(parcels)), np.nan)
            matrix[np.ix_(where, where)] = rebuild_connectome(edges)
            edges = vectorise_edges(matrix, weighted=False)
        array[place] = edges
        if np.isnan(edges).any():
            missing[place] = np.isnan(np.diag(rebuild_connectome(edges)))
        digests.append(hashlib.blake2b(edges.data, digest_size=16).hexdigest())
        contents.append(of_series or digests[-1])
    if not digests:
        raise DatasetError(next(iter(unreadable.values())))
    return Edges(parcels, array, missing[: len(digests)], tuple(digests), tuple(contents), unreadable)


def _try_read(path: Path) -> _Row | str:
    try:
        refuse_pipe(path)
        if path.stem.endswith(SERIES_END):
            stored = np.ascontiguousarray(read_array(path))
            return *_row_of(path, *read_connectome(path)), hashlib.blake2b(stored.data, digest_size=16).hexdigest()
        array = path.with_suffix(".npy")  # the numbers of the table, which takes ten times as long to read
        return *(_row_of_edges(path, array) if array.is_file() else _row_of(path, *read_matrix(path))), ""
    except DatasetError as error:
        return str(error)


def _row_of(path: Path, matrix: np.ndarray, parcels: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    if matrix.shape != (len(parcels), len(parcels)):
        raise _unusable(path, f"It has {len(matrix)} rows for {len(parcels)} parcels")
    try:
        covered = covered_parcels(matrix)
    except Unfit as error:
        raise _unusable(path, str(error)) from error
    known = matrix[np.ix_(covered, covered)]
    if np.abs(known - known.T).max() > ROUNDING or np.abs(known).max() > 1 + ROUNDING:
        raise _unusable(path, "It is not symmetric, or has values outside -1 to 1")
    return vectorise_edges(matrix, weighted=False), tuple(parcels)


def _row_of_edges(path: Path, array: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Take the array in the place of the table, unless one of them has changed since."""
    edges, first = read_array(array), np.empty(0)
    if array == path:
        parcels = column_names(path)
    else:
        with path.open(encoding="utf-8") as file:
            parcels, cells = (file.readline().rstrip("\n").split("\t")[1:] for _ in range(2))
        with suppress(ValueError):
            first = np.array([float(cell.replace(MISSING, "nan")) for cell in cells])
    if edges.shape != (edge_count(len(parcels)),):
        raise _unusable(path, f"{array.name} has {edges.size} edges for {len(parcels)} parcels")
    if array != path and not _same(edges[: len(parcels) - 1], first[1:]):
        raise _unusable(path, f"{array.name} is not of it")
    if array.stat().st_mtime_ns < path.stat().st_mtime_ns:  # a copy may be so, too
        row = _row_of(path, *read_matrix(path))
        if not _same(edges, row[0]):
            raise _unusable(path, f"{array.name} is not of it")
        return row
    if np.isfinite(edges).all() and np.abs(edges).max(initial=0) <= 1 + ROUNDING:
        return edges, tuple(parcels)
    return _row_of(path, rebuild_connectome(edges), parcels)


def _same(edges: np.ndarray, other: np.ndarray) -> bool:
    return edges.shape == other.shape and np.allclose(edges, other, rtol=0, atol=ROUNDING, equal_nan=True)


def _unusable(path: Path, reason: str) -> DatasetError:
    return DatasetError(
        f"{path} is no connectome. {reason.rstrip('.')}. Remove it and run the participant level again."
    )


def _names(path: Path) -> tuple[str, ...]:
    """Parcels of a connectome by its header; nothing where that cannot be read, which is said when it is parsed."""
    try:
        return tuple(column_names(path))
    except (DatasetError, OSError):
        return ()


def parcels_of_all(named: Mapping[Path, tuple[str, ...]]) -> tuple[tuple[str, ...], dict[Path, str]]:
    """Return the list of parcels that most scans have or are a part of, and why the others are not.

    What a scan lacks of the list has no value there, and its order is free. Another kind has other names, less than
    `MOST_LACKING` of them, or names that are places. Raises DatasetError: more than `MOST_OTHERS` are of other kinds.
    """
    counts = Counter(filter(None, named.values()))

    def is_part(names: tuple[str, ...], whole: tuple[str, ...]) -> bool:
        by_name = not all(map(PLACE.fullmatch, names))
        return names == whole or (by_name and set(names) <= set(whole) and len(names) > MOST_LACKING * len(whole))

    def parts(whole: tuple[str, ...]) -> tuple[int, int]:
        return sum(number for names, number in counts.items() if is_part(names, whole)), len(whole)

    whole, others = max(counts, key=parts, default=()), dict[Path, str]()
    for path, names in named.items():
        if names and not is_part(names, whole):
            other = [name for name in names if name not in set(whole)][:3]
            how = f"the others lack {', '.join(other)}" if other else "which are lacking cannot be told"
            others[path] = f"its parcels are others: it has {len(names)}, the others have {len(whole)}, and {how}"
    if len(others) > MOST_OTHERS * len(named):
        path, reason = next(iter(others.items()))
        raise DatasetError(
            f"The parcels differ between people: {path.name}: {reason}. Run the participant level for all with one "
            "atlas, or leave one kind out with --exclude-file."
        )
    return whole, others


Scan = tuple[Run, ...]


def group_scans(runs: Sequence[Run], rows: list[Exclusion]) -> list[Scan]:
    """Group runs by person and session; a scan whose runs have different repetition times gets a row instead."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.connectome.participant, run.connectome.session), []).append(run)
    scans: list[Scan] = []
    for (participant, session), members in groups.items():
        times = sorted({run.quality.repetition_time for run in members if math.isfinite(run.quality.repetition_time)})
        if times and times[-1] - times[0] > SAME_TIME * times[0]:
            listed = ", ".join(f"{seconds:g} s" for seconds in times)
            reason = f"its runs have the repetition times {listed}; reject some in exclude.tsv"
            rows.append(Exclusion(participant, session, RECORDING, reason))
        else:
            scans.append(tuple(members))
    return scans


SCANS, DEGREES = TABLES["scans"], "degrees_of_freedom"


def tabulate_scans(scans: Sequence[Scan]) -> pd.DataFrame:
    """Return one row per scan; motion is averaged over runs by their length."""
    rows = []
    for scan in scans:
        runs = [run.quality for run in scan]
        motion, volumes = (np.array([getattr(quality, name) for quality in runs]) for name in ("mean_fd", "volumes"))
        known = np.isfinite(volumes).all()
        row: dict[str, Any] = {"participant_id": scan[0].connectome.participant, "session": scan[0].connectome.session}
        row |= {
            name: float(sum(getattr(quality, name) for quality in runs)) for name in ("seconds", "volumes", DEGREES)
        }
        row |= {"mean_fd": float(motion @ volumes / volumes.sum() if known else motion.mean()), "n_runs": len(scan)}
        rows.append(row)
    return pd.DataFrame(rows)


def assemble_edges(
    scans: Sequence[Scan], edges: Edges, kept: NDArray[np.bool_], settings: Settings
) -> NDArray[np.floating]:
    """Return the edges (n, E) of the scans among the kept parcels (P,). Raises DatasetError."""
    places = [run.place for scan in scans for run in scan]
    if kept.all() and len(places) == len(scans) and places == list(range(len(edges.array))):
        return edges.array
    among_kept = np.flatnonzero(vectorise_edges(np.outer(kept, kept).astype(float), weighted=False))
    assembled = np.empty((len(scans), among_kept.size))
    for row, scan in enumerate(track(scans, "scans", settings, len(scans))):
        assembled[row] = combine_edges(scan, edges)[among_kept]
    return assembled


def combine_edges(scan: Scan, edges: Edges) -> np.ndarray:
    """Edges of a scan (P (P - 1) / 2,), of its z-scored runs put end to end. Raises DatasetError."""
    rows = edges.array[[run.place for run in scan]]
    return rows[0] if len(scan) == 1 else np.asarray(run_weights(scan) @ rows)


def run_weights(scan: Scan) -> NDArray[np.float64]:
    """Return the weights (runs,) with which FC of z-scored runs add up to that of all, put end to end.

    Raises DatasetError.
    """
    if len(scan) == 1:
        return np.ones(1)
    # Other programs may not state volumes: seconds are taken.
    volumes, seconds = (np.array([getattr(run.quality, name) for run in scan]) for name in ("volumes", "seconds"))
    weights = seconds if np.isnan(volumes).any() else volumes - 1
    if not (weights > 0).all():
        raise DatasetError(
            f"{scan[0].connectome.recording} and the other runs of its session have no known length. Run the "
            "participant level again, state minutes in the list of another program's files, or reject some in "
            "exclude.tsv."
        )
    return weights / weights.sum()


# --- Embeddings, series and parcels ---------------------------------------------------------------------------------


IDENTITY = ("sha256", "aux_sha256", "weights", "seed", "read", "protocol")
"""Facts of a sidecar that must agree, with the atlas, for embeddings to be comparable; ``weights`` only where there is
no sha256."""


OWN_ATLAS = "OfTheAtlasOfTheCohort"
Embeddings = dict[str, NDArray[np.float64]]


def read_embeddings(
    scans: Sequence[Scan],
) -> tuple[Embeddings, dict[str, dict[str, Any]], list[Exclusion], list[str]]:
    """Read the embeddings of all encoders, averaged over the runs of a scan that have one. Raises DatasetError.

    Returns vectors (n, d), what the first sidecar of each says, who has none, and notes. Who was in the training of an
    encoder has none of it: what it scores there is no score of new people.
    """
    embeddings, about, rows, notes = Embeddings(), dict[str, dict[str, Any]](), list[Exclusion](), list[str]()
    for label in sorted({label for scan in scans for run in scan for label in run.connectome.encoders}):
        vectors, states, first = list[NDArray[np.float64] | None](), dict[str, set[str]](), dict[str, Path]()
        for scan in scans:
            runs = [run.connectome for run in scan if label in run.connectome.encoders]
            vector, fault = _embed(runs, label)
            sidecars = {run: run.embedding(label).with_suffix(".json") for run in runs}
            stated, whose = set[str](), scan[0].connectome
            for run, path in ((run, path) for run, path in sidecars.items() if path.is_file()):
                facts = read_json(path)
                stated.add(str(facts.get(STATE, UNKNOWN)))
                known = {key: facts.get(key) for key in IDENTITY} | {"of": facts.get("Atlas", {}).get("Name")}
                if known["sha256"]:
                    del known["weights"]  # the same weights may lie in different places
                first.setdefault(repr(known), path)
                about.setdefault(label, {**facts, OWN_ATLAS: dict(run.embeddings)[label] == run.atlas})
            if vector is not None or TRAINED in stated:
                states.setdefault(whose.participant, set()).update(stated or {UNKNOWN})
            if vector is None:
                rows.append(Exclusion(whose.participant, whose.session, EMBEDDING, f"no embedding '{label}'{fault}"))
            vectors.append(vector)
        for number, whose in enumerate(scan[0].connectome for scan in scans):
            if vectors[number] is not None and TRAINED in states[whose.participant]:  # by any of the person's scans
                vectors[number] = None
                rows.append(Exclusion(whose.participant, whose.session, EMBEDDING, SEEN.format(label)))
        notes += describe_training(label, states)
        counts = [sum(label in run.connectome.encoders for run in scan) for scan in scans]
        of_some = [scan[0].connectome for scan, number in zip(scans, counts, strict=True) if 0 < number < len(scan)]
        notes += [
            f"Of {len(of_some)} scans the embedding '{label}' is that of some runs alone ({whose.participant})."
            for whose in of_some[:1]
        ]
        if len(first) > 1:
            earlier, other, *_ = first.values()
            raise DatasetError(f"{earlier} and {other} are of different weights or were read differently. {_AGAIN}")
        sizes = sorted({len(vector) for vector in vectors if vector is not None})
        if len(sizes) > 1:
            raise DatasetError(f"The embeddings '{label}' have {' and '.join(map(str, sizes))} dimensions. {_AGAIN}")
        empty = np.full(sizes[0] if sizes else 1, np.nan)
        embeddings[label] = np.stack([empty if vector is None else vector for vector in vectors])
        there = embeddings[label][np.isfinite(embeddings[label]).all(axis=1)]
        if len(there) > 1 and np.ptp(there, axis=0).max() <= ROUNDING * np.abs(there).max():
            embeddings[label][:] = np.nan
            reason = f"the embedding '{label}' is the same for everyone, and left out"
            rows.append(Exclusion(NO_SESSION, NO_SESSION, EMBEDDING, reason))
    return embeddings, about, rows, notes


def describe_training(label: str, states: Mapping[str, set[str]]) -> Iterator[str]:
    """Say who was in the training of an encoder, by the states of everyone who has its embedding."""
    if trained := sorted(person for person, stated in states.items() if TRAINED in stated):
        yield (
            f"The encoder of the embedding '{label}' was trained on {len(trained)} of the {len(states)} people who "
            f"have one ({name_some(trained)}): they are left out of whatever is compared with it."
        )
    if any(UNKNOWN in stated for stated in states.values()):
        yield (
            f"The encoder of the embedding '{label}' does not say which people it was trained on: if these are among "
            "them, its scores are not what new people would get."
        )


_AGAIN = "Run the participant level for all with the same --encoder, --encoder-weights and encoder_read."


def _embed(runs: Sequence[Connectome], label: str) -> tuple[NDArray[np.float64] | None, str]:
    """Return the embedding of a scan, or none and what is wrong with that of a run."""
    paths = [connectome.embedding(label) for connectome in runs]
    if any(connectome.is_embedding_outdated(label) for connectome in runs):
        return None, ": its series has been cleaned otherwise since; run the participant level again with --encoder"
    try:
        vectors = [read_matrix(path)[0].mean(axis=0) for path in paths]
    except DatasetError as error:
        return None, f": {describe_without_folders(str(error), [str(path.parent) for path in paths])}"
    if any(np.ptp(vector) == 0 for vector in vectors):
        return None, ": it is one number throughout; run the participant level again with --encoder"
    if len({len(vector) for vector in vectors}) > 1:
        raise DatasetError(f"The embeddings '{label}' of {runs[0].participant} differ in size. {_AGAIN}")
    return (np.mean(vectors, axis=0) if vectors else None), ""


def series_of(
    scans: Sequence[Scan], parcels: Sequence[str]
) -> tuple[tuple[Callable[[], list[np.ndarray]], ...], list[str]]:
    """Return one function per scan that reads its series, and a note; none where a scan has no series."""
    paths = [tuple(series_file(run.connectome.beside(TIMESERIES)) for run in scan) for scan in scans]
    lacking = [path for of_scan in paths for path in of_scan if not path.is_file()]
    if lacking:
        note = (
            f"Analyses of scan length are not possible: {len(lacking)} series are not there, such as {lacking[0].name}."
        )
        return (), [note]
    return tuple(partial(read_series, of_scan, parcels=tuple(parcels)) for of_scan in paths), []


def read_series(paths: Sequence[Path], parcels: Sequence[str], may_lack: bool = False) -> list[np.ndarray]:
    """Read the cleaned series of the runs of one scan, NaN for a parcel it may lack: (T, P). Raises DatasetError."""
    series = []
    for path in paths:
        values, names = read_whole(path)
        place = {name: column for column, name in enumerate(names)}
        lacking = [name for name in parcels if name not in place]
        if lacking and not may_lack:
            raise DatasetError(f"{path} has no parcel {lacking[0]}. Run the participant level again.")
        values = np.column_stack([values, np.full(len(values), np.nan)])  # the last, for what is lacking
        series.append(values[:, [place.get(name, -1) for name in parcels]])
    return series


class ParcelFacts(NamedTuple):
    """Table of the P parcels of a cohort, from the copy of the atlas."""

    networks: tuple[str, ...]  # ``n/a`` where it says nothing
    centroids: NDArray[np.float64] | None = None  # (P, 3), or None: in mm; None where no parcel has a place
    notes: tuple[str, ...] = ()  # unknown facts


def read_parcel_facts(output_dir: Path, connectome: Connectome, parcels: Sequence[str]) -> ParcelFacts:
    """Return networks and places of the parcels from the copy of the atlas; without one, networks by their names.

    The copy may have been damaged since. Raises DatasetError.
    """
    template = f"tpl-{connectome.space}"
    path = output_dir / "sourcedata" / "atlases" / template / f"{template}_{connectome.atlas_name}_dseg.tsv"
    if not path.is_file():
        networks = tuple(map(network_of, parcels))
        unknown = f"The networks of the parcels are not known: {path.relative_to(output_dir)} is not there."
        return ParcelFacts(networks, notes=(unknown,) if {*networks} == {"n/a"} else ())
    fault = table_fault(path)
    try:
        table = pd.DataFrame() if fault else read_table(path)
        table = table.set_index(table["name"].astype(str)).reindex(list(parcels))
        networks = tuple(table["network"].fillna("n/a").astype(str))
        placed = {*"xyz"} <= set(table.columns) and not table["x"].isna().all()
        return ParcelFacts(networks, table[list("xyz")].to_numpy(dtype=float) if placed else None)
    except (KeyError, ValueError) as error:
        known = f"has no column {error}" if isinstance(error, KeyError) else f"cannot be used ({error})"
        reason = fault.partition(":")[0] if fault else known
        raise DatasetError(
            f"The atlas table {path} {reason}. Remove it and run the participant level again."
        ) from error
