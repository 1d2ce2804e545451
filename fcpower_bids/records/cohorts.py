"""The nouns of the group level: a cohort, and a table that says something of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fcpower_bids.schema import Columns, TableSpec, pick_columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from fcpower_bids.ondisk import RowsOnDisk


@dataclass(frozen=True, eq=False)
class Cohort:
    """The scans and people of a group analysis; made from files by ``derivatives.cohort``, or from anyone's arrays.

    Attributes
    ----------
    scans : pandas.DataFrame
        One row per scan, in the order of ``edges``: ``participant_id``, ``session`` (``n/a`` when there is none),
        ``seconds``, ``volumes``, ``degrees_of_freedom``, ``mean_fd``, ``n_runs``, ``combination`` (how they were
        combined: ``none``, ``average``, ``concat``). A scan is all included runs of one person in one
        session, combined.
    edges : ndarray or rows on disk, shape (n_scans, P(P-1)/2)
        Pearson correlations without weights, upper triangle row by row (``numpy.triu_indices(P, 1)``). Indexed by rows
        and columns, they give arrays; on disk (`fcpower_bids.ondisk`) nothing more than these is read.
    parcels, networks : tuple of str
        Names of the P parcels and of their networks.
    phenotypes : pandas.DataFrame
        One row per person, indexed by ``participant_id``; columns as the tables have them; missing values are NaN.
    embeddings : mapping of str to ndarray, shape (n_scans, d)
        By encoder; a scan without one is a row of NaN.
    excluded : pandas.DataFrame
        Left out: ``participant_id``, ``session``, ``what`` (recording, person, parcel, value), ``reason``.
    series, repetition_times : tuple of callable, tuple of float
        Per scan, a function that returns its cleaned runs as a list of arrays (T, P), and seconds between volumes.
    targets : tuple of str
        Columns of ``phenotypes`` to predict: those named, else the numeric ones of the phenotype tables.
    notes : tuple of str
        Notes for a reader of the results: choices made by default, coding of text.
    encoders, embedding_facts : mapping of str to callable, mapping of str to mapping
        By the names of ``embeddings``: ``(series (T, P), seconds between volumes) -> (d,)``, to embed shorter scans;
        and what their sidecars say.
    refits : mapping of str to callable
        By the names of embeddings that are fed relative to a cohort: ``(training series) -> encoder`` as in `encoders`.
    seen : mapping of str to tuple of str
        By the names of ``embeddings``, per scan: whether the encoder was trained on it or its person (the keys of
        `fcpower_bids.encoders.training_people.SEEN`).
    centroids : ndarray, shape (P, 3), or None
        Where the parcels are, in mm; rows of NaN for parcels without voxels, None where nothing is known.
    joined : mapping of str to int
        People with scans (``scanned``), in the phenotype tables (``phenotypes``), in both (``matched``), and those of
        the latter whose names match only without leading zeros (``renamed``).
    alike : tuple of (str, str)
        People who seem to share a scan: they never span a split.
    atlas : str
        Name of the parcellation, as files have it; empty where there are no files.
    cleaning : mapping of str to Any
        How the series were cleaned, by their sidecars; empty where these do not say it.
    folds : pandas.DataFrame or None
        Folds that the user brings: ``repeat``, ``fold``, ``participant_id``, ``role`` (test, train, excluded),
        ``inner_fold`` (-1 where it is to be drawn).
    """

    scans: pd.DataFrame
    edges: np.ndarray | RowsOnDisk
    parcels: tuple[str, ...]
    networks: tuple[str, ...]
    phenotypes: pd.DataFrame
    excluded: pd.DataFrame
    embeddings: Mapping[str, np.ndarray] = field(default_factory=dict)
    series: tuple[Callable[[], list[np.ndarray]], ...] = ()
    repetition_times: tuple[float, ...] = ()
    targets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    encoders: Mapping[str, Callable[[np.ndarray, float], np.ndarray]] = field(default_factory=dict)
    embedding_facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    centroids: np.ndarray | None = None
    refits: Mapping[str, Callable[[Sequence[np.ndarray]], Callable[[np.ndarray, float], np.ndarray]]] = field(
        default_factory=dict
    )
    joined: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alike: tuple[tuple[str, str], ...] = ()
    folds: pd.DataFrame | None = None
    atlas: str = ""
    cleaning: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocks:
    """Rows that are made when they are written, block by block: together they would fill the memory.

    Attributes
    ----------
    make : callable
        Returns an iterator over frames with the same columns; it may be asked again.
    n_rows : int
        Of all blocks together.
    """

    make: Callable[[], Iterable[pd.DataFrame]]
    n_rows: int


@dataclass(frozen=True, eq=False)
class Table:
    """A result of a group analysis: a long table with one row per fold, scan or pair.

    Attributes
    ----------
    rows : pandas.DataFrame or Blocks
        The rows; their columns are keys of the declaration.
    spec : TableSpec
        The declaration: name, meaning, columns.
    facts : mapping of str to Any
        Further entries of the sidecar: protocol, seeds, rules, warnings.
    """

    rows: pd.DataFrame | Blocks
    spec: TableSpec
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """An undeclared column is a slip of ours."""
        self.spec.check(self._keys)

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

    @property
    def columns(self) -> Columns:
        """The declared columns that are in the rows."""
        return pick_columns(self.spec.columns, self._keys)

    @cached_property
    def _keys(self) -> list[str]:
        return list(map(str, next(self.blocks()).columns))
