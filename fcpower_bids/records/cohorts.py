"""The nouns of the group level: a cohort, and a table that says something of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fcpower_bids.schema import TableSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from fcpower_bids.ondisk import RowsOnDisk


@dataclass(frozen=True, eq=False)
class Cohort:
    """The scans and people of a group analysis; made from files by ``derivatives.cohort``, or from anyone's arrays."""

    # one row per scan, in the order of ``edges``: ``participant_id``, ``session`` (``n/a`` when there is none),
    # ``seconds``, ``volumes``, ``degrees_of_freedom``, ``mean_fd``, ``n_runs``, ``combination`` (how they were
    # combined: ``none``, ``average``, ``concat``). A scan is all included runs of one person in one session, combined.
    scans: pd.DataFrame
    # (n_scans, P(P-1)/2): Pearson correlations without weights, upper triangle row by row (``numpy.triu_indices(P,
    # 1)``). Indexed by rows and columns, they give arrays; on disk (`fcpower_bids.ondisk`) nothing more than these is
    # read.
    edges: np.ndarray | RowsOnDisk
    # parcels, networks: names of the P parcels and of their networks
    parcels: tuple[str, ...]
    networks: tuple[str, ...]
    # one row per person, indexed by ``participant_id``; columns as the tables have them; missing values are NaN
    phenotypes: pd.DataFrame
    # left out: ``participant_id``, ``session``, ``what`` (recording, person, parcel, value), ``reason``
    excluded: pd.DataFrame
    # (n_scans, d): by encoder; a scan without one is a row of NaN
    embeddings: Mapping[str, np.ndarray] = field(default_factory=dict)
    # series, repetition_times: per scan, a function that returns its cleaned runs as a list of arrays (T, P), and
    # seconds between volumes
    series: tuple[Callable[[], list[np.ndarray]], ...] = ()
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
    # by the names of embeddings that are fed relative to a cohort: ``(training series) -> encoder`` as in `encoders`
    refits: Mapping[str, Callable[[Sequence[np.ndarray]], Callable[[np.ndarray, float], np.ndarray]]] = field(
        default_factory=dict
    )
    # people with scans (``scanned``), in the phenotype tables (``phenotypes``), in both (``matched``), and those of the
    # latter whose names match only without leading zeros (``renamed``)
    joined: Mapping[str, int] = field(default_factory=dict)
    # by the names of ``embeddings``, per scan: whether the encoder was trained on it or its person (the keys of
    # `fcpower_bids.encoders.training_people.SEEN`)
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alike: tuple[tuple[str, str], ...] = ()  # people who seem to share a scan: they never span a split
    # folds that the user brings: ``repeat``, ``fold``, ``participant_id``, ``role`` (test, train, excluded),
    # ``inner_fold`` (-1 where it is to be drawn)
    folds: pd.DataFrame | None = None
    atlas: str = ""  # name of the parcellation, as files have it; empty where there are no files
    # how the series were cleaned, by their sidecars; empty where these do not say it
    cleaning: Mapping[str, Any] = field(default_factory=dict)


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
