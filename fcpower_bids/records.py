"""The nouns: frozen, without input or output; nipype caches by their representation, so fields are plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fcpower_bids.schema import TABLES, TableSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

PLACE = re.compile(r"parcel\d{4,}")
"""What a parcel without a name is called, by its place: of such parcels it cannot be told which are lacking."""
Entities = tuple[tuple[str, str], ...]
"""In the order of the specification: ``(("sub", "01"), ("task", "rest"))``."""


def join(entities: Entities) -> str:
    """Return entities as they stand in a file name: ``sub-01_ses-a_task-rest_space-...``."""
    return "_".join(f"{key}-{value}" for key, value in entities)


CALLED = ("age", "sex", "gender")
"""Columns that are known of most people, in lower case."""
SITE = "site"
"""The column of the sites where several output folders are read."""


def site_in(person: str) -> str | None:
    """Return the site that the name of a person has; None where there is one output folder."""
    site, plus, _ = person.removeprefix("sub-").partition("+")
    return site if plus else None


class Named:
    """What is called by its entities."""

    entities: Entities

    @property
    def name(self) -> str:
        """The entities in one string, as in file names."""
        return join(self.entities)


def space_of(labels: Mapping[str, str]) -> str | None:
    """Return the space that entities declare: ``MNI152NLin6Asym``, or ``MNIInfant_cohort-3`` for a template of ages."""
    space = labels.get("space") or labels.get("tpl")
    return f"{space}_cohort-{labels['cohort']}" if space and "cohort" in labels else space


def label_order(label: str) -> list[str | int]:
    """Key that sorts labels of people, sessions and folds: numbers in them by their size, 2 before 10."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", label))]


def is_in_space(labels: Mapping[str, str], wanted: str) -> bool:
    """Whether entities are of a space in fMRIPrep's words, ``NAME[:cohort-N][:res-N][:den-N]``.

    A template without its cohort means all of them; ``res-native`` says nothing.
    """
    space, *modifiers = wanted.replace("_cohort-", ":cohort-").split(":")
    if (labels.get("space") or labels.get("tpl") or "scanner") != space:
        return False
    pairs = [modifier.partition("-")[::2] for modifier in modifiers]
    return all(value == "native" or value_of(key, labels.get(key, "")) == value_of(key, value) for key, value in pairs)


INDEX_KEYS = frozenset({"run", "echo", "flip", "inv", "split", "chunk", "res", "den", "cohort"})
"""Entities whose value may be a number, so that 1 and 01 are the same."""


def value_of(key: str, label: str) -> str:
    """Value that a label of an entity stands for: a number has no leading zeros."""
    return str(int(label)) if key in INDEX_KEYS and label.isdecimal() else label


@dataclass(frozen=True)
class Recording(Named):
    """One BOLD recording as fMRIPrep wrote it, with the files that belong to it."""

    bold: Path  # the preprocessed series: 4-D NIfTI or CIFTI ``dtseries``
    entities: Entities  # every entity of the source file name except ``desc``, in the order of the specification
    repetition_time: float  # seconds between volumes
    mask: Path | None = None  # brain mask on the grid of the recording (NIfTI only)
    confounds: Path | None = None  # the confounds table of fMRIPrep
    confounds_metadata: Path | None = None  # its JSON (components and their explained variance)
    volumes: int = 0  # of the series; 0 where unknown

    @property
    def space(self) -> str:
        """The template space of the series, as in :func:`space_of`."""
        return space_of(dict(self.entities)) or "unknown"

    @property
    def is_cifti(self) -> bool:
        """Whether the series is a CIFTI ``dtseries``."""
        return self.bold.name.endswith(".dtseries.nii")


@dataclass(frozen=True)
class Atlas(Named):
    """A parcellation in one space: label image, and one name, network and hemisphere per parcel."""

    # entities of output names, e.g. ``(("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400"))``.
    entities: Entities
    image: Path  # label image: 3-D NIfTI of integers, or CIFTI ``dlabel``
    space: str  # template space of the label image
    labels: tuple[int, ...]  # integer in the image of each parcel, in the order of the outputs
    # names, networks, hemispheres: one per parcel; "n/a" where the source says nothing. Names are unique.
    names: tuple[str, ...]
    networks: tuple[str, ...]
    hemispheres: tuple[str, ...]
    source: str = "n/a"  # where it came from, in words (TemplateFlow file, user's path, merged parts)
    licence: str = "n/a"  # licence as stated by the source, or "n/a"
    citation: str = "n/a"  # citation, or "n/a"

    @property
    def is_cifti(self) -> bool:
        """Whether the label image is a CIFTI ``dlabel``."""
        return self.image.name.endswith(".dlabel.nii")

    @property
    def n_parcels(self) -> int:
        """Number of parcels."""
        return len(self.labels)


@dataclass(frozen=True)
class Output:
    """The part of an output's name that distinguishes it from others of its recording."""

    suffix: str  # BIDS suffix (``timeseries``, ``relmat``, ``eigenvalues``, ...)
    entities: Entities = ()  # entities added to those of the source (``stat``, ``desc``, ...)
    extension: str = ".tsv"  # with the dot


@dataclass(frozen=True, eq=False)
class Cleaning:
    """Treatment of the volumes of one recording; the same for every atlas."""

    kept: np.ndarray  # (T,): volumes of the file that are in the cleaned series
    # framewise_displacement, dvars: (T,): motion in mm and change of signal per volume; NaN where unknown
    framewise_displacement: np.ndarray
    dvars: np.ndarray
    design: np.ndarray  # (T, K): confounds regressed, before filtering; NaN in dropped volumes
    design_names: tuple[str, ...]  # their names
    dropped_confounds: tuple[str, ...]  # constant confounds left out of the regression
    n_dummy: int  # volumes dropped at the start
    # degrees_of_freedom, n_regressors: left after censoring, filter and regression; rank of the regression
    degrees_of_freedom: float
    n_regressors: int
    repetition_time: float  # seconds
    head_radius: float | None = None  # of the displacement, mm; None where this is that of the confounds table
    excluded: str = ""  # why the recording does not pass the quality limits; empty when it does
    notes: tuple[str, ...] = ()  # notes about the confounds and the series
    # (T,), or None: volumes left out because they cannot be signal; None where not examined
    stray: np.ndarray | None = None
    plausibility: Mapping[str, Any] = field(default_factory=dict)  # figures of that for the quality table, by column

    @property
    def seconds_kept(self) -> float:
        """Seconds of the cleaned series."""
        return float(self.kept.sum() * self.repetition_time)


class Slices(NamedTuple):
    """Axial slices of a recording, the person's left on the left, the front of the head on top."""

    volume: np.ndarray  # (n, rows, columns): one volume, in the units of the file; NaN where it is not finite
    brain: np.ndarray  # (n, rows, columns): inside the brain mask
    parcels: np.ndarray  # (n, rows, columns): parcel of each voxel, 1 to P; 0 for none
    template: np.ndarray  # (n, rows, columns): 1 in the brain of the template, 2 in its white matter; 0 if unknown
    z: np.ndarray  # (n,): height of each slice in mm
    dice: np.ndarray  # (): Dice coefficient of brain mask and template; NaN if unknown


@dataclass(frozen=True, eq=False)
class ParcelSeries:
    """One recording seen through one atlas."""

    coverage: np.ndarray  # (P,): share of each parcel's voxels with signal
    raw: np.ndarray  # (T, P): parcel means of every volume of the file
    # (T_kept, P): cleaned and z-scored; NaN columns for uncovered parcels; no rows for an excluded recording
    clean: np.ndarray
    connectivity: np.ndarray  # (P, P): Pearson FC; empty until computed
    # covered parcels without any variance, before or after cleaning; they are NaN like uncovered ones
    flat: tuple[int, ...] = ()
    stray: tuple[int, ...] = ()  # covered parcels whose series cannot be signal; they are NaN too
    slices: Slices | None = None  # slices for the page; None for surfaces and oblique grids


@dataclass(frozen=True, eq=False)
class Cohort:
    """The scans and people of a group analysis; made from files by ``derivatives.cohort``, or from anyone's arrays."""

    # one row per scan, in the order of ``edges``: ``participant_id``, ``session`` (``n/a`` when there is none),
    # ``seconds``, ``volumes``, ``degrees_of_freedom``, ``mean_fd``, ``n_runs``. A scan is all included runs of one
    # person in one session, put end to end.
    scans: pd.DataFrame
    # (n_scans, P(P-1)/2): Pearson correlations without weights, upper triangle row by row (``numpy.triu_indices(P,
    # 1)``)
    edges: np.ndarray
    # parcels, networks: names of the P parcels and of their networks
    parcels: tuple[str, ...]
    networks: tuple[str, ...]
    # one row per person, indexed by ``participant_id``; columns as the tables have them; missing values are NaN
    phenotypes: pd.DataFrame
    # left out: ``participant_id``, ``session``, ``what`` (recording, person, parcel, value), ``reason``
    excluded: pd.DataFrame
    # the phenotypes of people at some of their sessions, which tables may state apart; None where they have one each
    phenotypes_at: Callable[[Mapping[str, Sequence[str]]], pd.DataFrame] | None = None
    # (n_scans, d): by encoder; a scan without one is a row of NaN
    embeddings: Mapping[str, np.ndarray] = field(default_factory=dict)
    # per scan, digests of what the files of its runs hold: the edges follow from them; empty for a cohort of arrays
    contents: tuple[tuple[str, ...], ...] = ()
    paths: tuple[tuple[Path, ...], ...] = ()  # per scan, the FC of its runs; empty for a cohort of arrays
    # series, repetition_times: per scan, a function that returns its cleaned runs as a list of arrays (T, P), and
    # seconds between volumes; from files, it takes other ``parcels`` by name, which it ``may_lack``
    series: tuple[Callable[..., list[np.ndarray]], ...] = ()
    # parcels of the files, before any was left out: what encoders read; empty for a cohort of arrays
    all_parcels: tuple[str, ...] = ()
    repetition_times: tuple[float, ...] = ()
    # columns of ``phenotypes`` to predict: those named, else the numeric ones of the phenotype tables
    targets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # notes for a reader of the results: choices made by default, coding of text
    # encoders, embedding_facts: by the names of ``embeddings``: ``(series (T, P), seconds between volumes) -> (d,)``,
    # to embed shorter scans; and what their sidecars say
    encoders: Mapping[str, Callable[[np.ndarray, float], np.ndarray]] = field(default_factory=dict)
    embedding_facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # (P, 3), or None: where the parcels are, in mm; rows of NaN for parcels without voxels, None where nothing is known
    centroids: np.ndarray | None = None
    # people with scans (``scanned``), in the phenotype tables (``phenotypes``) and in both (``matched``)
    joined: Mapping[str, int] = field(default_factory=dict)
    alike: tuple[tuple[str, str], ...] = ()  # people who seem to share a scan: they never span a split
    # folds that the user brings: ``repeat``, ``fold``, ``participant_id``, ``role`` (test, train, excluded),
    # ``inner_fold`` (-1 where it is to be drawn)
    folds: pd.DataFrame | None = None
    atlas: str = ""  # name of the parcellation, as files have it; empty where there are no files
    reference: np.ndarray | None = None  # (P(P-1)/2,): mean FC of other people, of ``tangent_reference``
    # how the series were cleaned, by their sidecars; empty where these do not say it
    cleaning: Mapping[str, Any] = field(default_factory=dict)

    def phenotypes_of(self, rows: np.ndarray) -> pd.DataFrame:
        """The phenotypes as they are where some of the scans alone are used, by their rows."""
        if self.phenotypes_at is None or len(rows) == len(self.scans):
            return self.phenotypes
        import pandas as pd  # who has a cohort has loaded it; records are read without it

        sessions = self.scans.iloc[rows].groupby("participant_id", sort=False)["session"].agg(list).to_dict()
        known = self.phenotypes_at({str(person): list(map(str, labels)) for person, labels in sessions.items()})
        others = self.phenotypes.drop(index=known.index, errors="ignore")
        return pd.concat([known, others]).reindex(index=self.phenotypes.index, columns=self.phenotypes.columns)

    def keep(self, rows: np.ndarray) -> Cohort:
        """The same people's tables with some of the scans, by their rows."""
        if len(rows) == len(self.scans):
            return self
        return replace(
            self,
            scans=self.scans.iloc[rows].reset_index(drop=True),
            phenotypes=self.phenotypes_of(rows),
            edges=self.edges[rows],
            embeddings={name: vectors[rows] for name, vectors in self.embeddings.items()},
            contents=tuple(self.contents[row] for row in rows) if self.contents else (),
            paths=tuple(self.paths[row] for row in rows) if self.paths else (),
            series=tuple(self.series[row] for row in rows) if self.series else (),
            repetition_times=tuple(self.repetition_times[row] for row in rows) if self.repetition_times else (),
        )


@dataclass(frozen=True)
class Blocks:
    """Rows that are made when they are written, block by block: together they would fill the memory."""

    # returns an iterator over frames with the same columns; it may be asked again
    make: Callable[[], Iterable[pd.DataFrame]]
    n_rows: int  # of all blocks together


@dataclass(frozen=True, eq=False)
class Table:
    """A result of a group analysis: a long table with one row per fold, scan or pair."""

    rows: pd.DataFrame | Blocks  # the rows; their columns are keys of the declaration
    spec: TableSpec  # the declaration: name, meaning, columns
    # further entries of the sidecar: protocol, seeds, rules, warnings
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """An undeclared column is a slip of ours."""
        self.spec.check(self.columns)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.rows.n_rows if isinstance(self.rows, Blocks) else len(self.rows)

    @property
    def frame(self) -> pd.DataFrame:
        """All rows at once."""
        if not isinstance(self.rows, Blocks):
            return self.rows
        from pandas import concat  # the nouns are loaded before it

        return concat(list(self.blocks()), ignore_index=True)

    def blocks(self) -> Iterator[pd.DataFrame]:
        """Yield the rows block by block."""
        yield from self.rows.make() if isinstance(self.rows, Blocks) else (self.rows,)

    @cached_property
    def columns(self) -> list[str]:
        """The columns of the rows."""
        return list(map(str, next(self.blocks()).columns))


def tabulate(facts: Mapping[str, Any], **tables: pd.DataFrame | Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """Make tables of rows by their names, with the declared columns in their order and one sidecar."""
    from pandas import DataFrame

    frames = {name: DataFrame(rows, columns=list(TABLES[name].columns)) for name, rows in tables.items()}
    return {name: Table(frame, TABLES[name], facts) for name, frame in frames.items()}


Looked = Iterator[dict[str, Table]]
"""What an analysis yields: nothing, where its first look ends, then its tables."""
