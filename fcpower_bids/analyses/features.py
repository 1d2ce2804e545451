"""Features of people: their connectomes, FC^alpha and other transforms of these, and embeddings, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome import clip_tolerance, decompose_range, eigendecompose, standardise
from fcpower_bids.core.edges import edge_count, rebuild_matrix, vectorise_edges
from fcpower_bids.core.kernels import FeatureSource, correlation_kernel, power_features
from fcpower_bids.encoders.checkpoints import SEEN
from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.parallel import map_tasks, track
from fcpower_bids.records import Cohort
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Settings
from fcpower_bids.transforms.connectomes import TRANSFORMS, make_transform
from fcpower_bids.transforms.fitted import FittedTransform
from fcpower_bids.transforms.stateless import Transform

Spectrum = tuple[FloatArray, FloatArray]
"""Eigenvalues (P,) in descending order, and eigenvectors (P, P) in columns."""
_SHARED: ContextVar[tuple[FeatureSource | None, dict[bytes, Spectrum]]] = ContextVar("eigendecompositions of a command")
"""Edges (n_scans, E), and the spectra of scans, and of people with several, by scans and weights."""


@contextmanager
def sharing_spectra(edges: FeatureSource) -> Iterator[None]:
    """Decompose each connectome of a cohort once for all analyses, where the spectra fit in memory."""
    token = _SHARED.set((edges, {}))
    try:
        yield
    finally:
        _SHARED.reset(token)


def fits(n: int, n_parcels: int) -> bool:
    """Whether the spectra of n connectomes of P parcels fit into the memory of one large array."""
    return n * n_parcels * (n_parcels + 1) * 8 <= available_bytes()


ALPHA_GRID = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.65, 0.8, 1.0)
"""The paper's fine grid 0.10 to 0.50, continued to FC itself and towards the log-Euclidean limit: 13 exponents."""
BLOCK = 32
"""Connectomes that a process takes at a time."""


class AveragedEdges:
    """FC of each unit as a source of features: of several scans the mean, by the weight of each scan (n_scans,)."""

    def __init__(self, edges: FeatureSource, groups: Sequence[Rows], weights: FloatArray | None = None) -> None:
        self.edges = edges
        self.groups = tuple(np.asarray(group, dtype=np.intp) for group in groups)
        self.shape: tuple[int, ...] = (len(self.groups), edges.shape[1])
        self.dtype = np.dtype(getattr(edges, "dtype", np.float64))
        self._order = np.concatenate(self.groups)
        self._sizes = np.array([group.size for group in self.groups])
        self._weights = np.ones(self._order.size) if weights is None else weights[self._order]
        self._stops = np.cumsum(self._sizes)

    def __getitem__(self, key: Any) -> FloatArray:
        """Edges of one unit (an integer), or a block (rows, columns) given by two slices."""
        if isinstance(key, (int, np.integer)):
            return self[key : key + 1, :][0]
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        sizes, stops = self._sizes[rows], self._stops[rows]
        places = slice(stops[0] - sizes[0], stops[-1])
        order = self._order[places]
        scans = np.asarray(self.edges[order, columns], dtype=float)
        if (sizes == 1).all():
            return scans
        starts = np.cumsum(sizes) - sizes
        weights = self._weights[places]
        means = np.add.reduceat(weights[:, None] * scans, starts, axis=0) / np.add.reduceat(weights, starts)[:, None]
        means[sizes == 1] = scans[starts[sizes == 1]]  # untouched by the rounding of a weight
        return np.asarray(means)

    def key(self, unit: int) -> bytes:
        """Scans that make the FC of a unit, and where there are several their weights."""
        rows, stop = self.groups[unit].tobytes(), self._stops[unit]
        if self._sizes[unit] == 1:
            return rows
        return rows + self._weights[stop - self._sizes[unit] : stop].tobytes()

    def connectome(self, unit: int) -> FloatArray:
        """FC of one unit, shape (P, P)."""
        return np.asarray(rebuild_matrix(self[unit], diagonal=1.0, weighted=False), dtype=float)


def combine_scans(cohort: Cohort, groups: Sequence[Rows]) -> AveragedEdges:
    """FC of units of one scan or several, whose series are put end to end: T volumes weigh T - 1."""
    if all(len(group) == 1 for group in groups):
        return AveragedEdges(cohort.edges, groups)
    # Weight of each scan among those of its person: volumes less one for each run, or seconds; equal where unknown.
    weights = (cohort.scans["volumes"] - cohort.scans["n_runs"]).astype(float)
    for instead in (cohort.scans["seconds"].astype(float), 1.0):
        known = (weights > 0).groupby(cohort.scans["participant_id"].astype(str)).transform("all")
        weights = weights.where(known, instead)
    return AveragedEdges(cohort.edges, groups, weights.to_numpy())


COMBINATION = "connectivity of the z-scored series of all scans put end to end"
"""What describes a person with several scans, in the words of a sidecar."""


def describe_combination(names: Iterable[str]) -> str:
    """Say what describes a person with several scans under these representations, as a sidecar does."""
    of_series = {name for name, transform in TRANSFORMS.items() if transform.needs == "series"}
    apart = [name for name in names if name in of_series or name.startswith(EMBEDDING)]
    return COMBINATION + (f"; of {' and '.join(apart)} the mean over the scans" if apart else "")


class PowerFamily:
    """FC^alpha of every unit for any alpha, from one eigendecomposition each where these fit in memory."""

    def __init__(self, connectivity: AveragedEdges, settings: Settings, keep: bool = False) -> None:
        self.connectivity, self.settings = connectivity, settings
        self.tolerance = clip_tolerance(connectivity.dtype)
        n, n_edges = connectivity.shape
        self.n_parcels = (1 + math.isqrt(1 + 8 * n_edges)) // 2
        # eigenvalues (n, P), and of each unit the eigenvectors (P, P); None where they do not fit or are not to be kept
        self.spectra: tuple[FloatArray, list[FloatArray]] | None = None
        edges, known = _SHARED.get((None, {}))
        known = known if edges is connectivity.edges else {}
        if (keep or edges is connectivity.edges) and fits(n, self.n_parcels):
            keys = [connectivity.key(unit) for unit in range(n)]
            lacking = [unit for unit, key in enumerate(keys) if key not in known]
            known |= zip([keys[unit] for unit in lacking], self._decompose(lacking), strict=True)
            if sum(array.nbytes for spectrum in known.values() for array in spectrum) > available_bytes():
                for key in known.keys() - set(keys):  # what is not asked for goes if memory is short
                    del known[key]
            values, vectors = zip(*(known[key] for key in keys), strict=True)
            self.spectra = np.stack(values), list(vectors)

    @cached_property
    def eigenvalues(self) -> FloatArray:
        """Of every unit, shape (n, P)."""
        return self.spectra[0] if self.spectra is not None else np.stack([values for values, _ in self.each_spectrum()])

    def each_spectrum(self) -> Iterator[Spectrum]:
        """Eigenvalues and eigenvectors of each unit, one after the other."""
        yield from (
            zip(*self.spectra, strict=True) if self.spectra else self._decompose(range(self.connectivity.shape[0]))
        )

    def _decompose(self, units: Sequence[int]) -> Iterator[Spectrum]:
        for _, spectra in self._each_block(_decompose, units):
            yield from spectra

    def features(self, alpha: float) -> FeatureSource:
        """Edges of FC^alpha times sqrt(2), shape (n, E)."""
        shape = self.connectivity.shape[0], edge_count(self.n_parcels)
        out = np.empty(shape, precision(self.connectivity.shape))
        if self.spectra is not None:
            return power_features(*self.spectra, alpha, self.tolerance, out)
        to_power = partial(_raise, alpha=alpha, tolerance=self.tolerance)
        for units, block in self._each_block(to_power, range(shape[0])):
            out[units[0] : units[-1] + 1] = block
        return out

    def _each_block(self, function: Callable[..., Any], units: Sequence[int]) -> Iterator[tuple[Sequence[int], Any]]:
        """Apply a function to the connectomes of a few units at a time."""
        blocks = [units[start : start + BLOCK] for start in range(0, len(units), BLOCK)]
        results = map_tasks(partial(function, self.connectivity), blocks)
        yield from zip(track(blocks, "eigendecompositions", self.settings), results, strict=True)


def _decompose(connectivity: AveragedEdges, units: Sequence[int]) -> list[Spectrum]:
    # One layout of the eigenvectors, whoever decomposes and keeps them: products then have the same last bit.
    return [
        (values, np.ascontiguousarray(vectors))
        for values, vectors in (eigendecompose(connectivity.connectome(unit)) for unit in units)
    ]


def _raise(connectivity: AveragedEdges, units: Sequence[int], alpha: float, tolerance: float) -> FloatArray:
    features = np.empty((len(units), connectivity.shape[1]))
    for row, unit in enumerate(units):
        values, vectors = decompose_range(connectivity.connectome(unit))
        power_features(values[None], [np.ascontiguousarray(vectors)], alpha, tolerance, features[row : row + 1])
    return features


def precision(shape: tuple[int, ...]) -> type[np.floating]:
    """Precision in which features of this shape are kept: double where that fits into the memory that was given."""
    return np.float64 if shape[0] * shape[1] * 8 <= available_bytes() else np.float32


def describe_precision(shape: tuple[int, ...]) -> str:
    """Say, for a sidecar, in which precision features of this shape were kept and multiplied."""
    if precision(shape) == np.float64:
        return "double"
    return "features and their products single, sums double: kernels differ from double precision by less than 1e-6"


def similarity(features: FeatureSource) -> FloatArray:
    """Pearson correlation between the features of all pairs; products in single precision for a very large cohort."""
    return correlation_kernel(features, dtype=precision(features.shape))


Part = Callable[[int, float], slice]
"""From the number of volumes and the repetition time in seconds to the volumes that are wanted."""
Runs = Callable[[], list[NDArray[Any]]]


def has_series(cohort: Cohort) -> bool:
    """Whether every scan of the cohort comes with its series."""
    return bool(len(cohort.scans)) and len(cohort.series) == len(cohort.scans) == len(cohort.repetition_times)


def join_runs(runs: Runs) -> FloatArray:
    """Read the runs of a scan, end to end: shape (T, P)."""
    return np.concatenate([np.asarray(run, dtype=float) for run in runs()])


def join_whole(cohort: Cohort, scan: Any) -> FloatArray:
    """Read the runs of a scan, end to end, with all parcels of the files, as encoders read them: shape (T, P)."""
    runs = cohort.series[scan]
    return join_runs(partial(runs, parcels=cohort.all_parcels, may_lack=True) if cohort.all_parcels else runs)


FC, FC_POWER, EMBEDDING = "fc", "fc_power", "embedding"


class Representation:
    """One way to describe people or scans by features; `fitted` gives those that are fitted to training people."""

    def __init__(
        self, name: str, kernel: str, compute: Callable[[], FeatureSource], is_edges: bool = True, weight: float = 1.0
    ) -> None:
        self.name, self.kernel, self.is_edges, self.weight = name, kernel, is_edges, weight
        self.fitted: Callable[[Rows], FeatureSource] | None = None
        self._compute = compute
        self._features: FeatureSource | None = None
        self._similarity: FloatArray | None = None

    def features(self) -> FeatureSource:
        """Features (n, d); computed again each time only where they do not fit in memory."""
        if self._features is not None:
            return self._features
        features = self._compute()
        if getattr(features, "nbytes", 0) <= available_bytes():
            self._features = features
        return features

    def similarity(self) -> FloatArray:
        """Pearson correlation between the features of all pairs, shape (n, n)."""
        if self._similarity is None:
            self._similarity = similarity(self.features())
        return self._similarity


def expand_names(cohort: Cohort, settings: Settings) -> tuple[str, ...]:
    """Names of the representations; ``embedding`` stands for that of every encoder. Raises UsageError, Unfit.

    Embeddings that nobody has, as of an encoder that says the same of everyone, are left out beside others; those of an
    encoder that was trained on everybody are refused.
    """
    names: list[str] = []
    useful = [label for label, vectors in cohort.embeddings.items() if np.isfinite(vectors).any()]
    for name in settings.group.representations:
        kind, _, encoder = name.partition(":")
        if kind != EMBEDDING:
            usable = [FC, FC_POWER, EMBEDDING, *TRANSFORMS]
            if name not in usable:
                raise UsageError(f"There is no representation '{name}'. Choose from: {', '.join(usable)}.")
            names.append(name)
            continue
        chosen = [label for label in useful if encoder in ("", label)]
        reasons = set(cohort.excluded["reason"])
        trained = [label for label in cohort.embeddings if encoder in ("", label) and SEEN.format(label) in reasons]
        if trained and not chosen:
            raise Unfit(
                f"The encoder of the embedding '{trained[0]}' was trained on everyone here who has one, so "
                "nothing can be said of new people: take another dataset, or leave the embedding out."
            )
        is_there = encoder in cohort.embeddings if encoder else bool(cohort.embeddings)
        if not chosen and not (is_there and len(settings.group.representations) > 1):
            known = ", ".join(useful) or "none"
            raise Unfit(
                f"There are no embeddings for '{name}' (encoders of the cohort: {known}); "
                "run the participant level with --encoder first, or change --representations."
            )
        names += [f"{EMBEDDING}:{label}" for label in chosen]
    return tuple(dict.fromkeys(names))


def encoder_of(name: str) -> str:
    """Label of the encoder whose embedding a representation is, else nothing."""
    kind, _, label = name.partition(":")
    return label if kind == EMBEDDING else ""


def scans_without_features(cohort: Cohort, names: Sequence[str]) -> NDArray[np.bool_]:
    """Which scans lack an embedding that is asked for, shape (n_scans,)."""
    lacking = np.zeros(len(cohort.scans), dtype=bool)
    for label in {encoder_of(name) for name in names} - {""}:
        lacking |= ~np.isfinite(cohort.embeddings[label]).all(axis=1)
    return lacking


def scans_by_person(scans: pd.DataFrame, usable: NDArray[np.bool_]) -> dict[str, Rows]:
    """Rows of the usable scans of everyone who has one, people in the order of their names."""
    people = scans["participant_id"].astype(str).reset_index(drop=True)[usable]
    return {str(name): np.asarray(people.index[rows]) for name, rows in sorted(people.groupby(people).indices.items())}


def build_representations(
    cohort: Cohort, groups: Sequence[Rows], names: Sequence[str], settings: Settings
) -> Iterator[Representation]:
    """Prepare representations of units, each given by its rows of scans, one at a time: their features are large."""
    connectivity = combine_scans(cohort, groups)

    def build(name: str) -> Representation:
        if encoder := encoder_of(name):
            embeddings = np.asarray(cohort.embeddings[encoder], dtype=float)
            means = np.stack([embeddings[group].mean(axis=0) for group in connectivity.groups])
            return Representation(name, "linear", lambda: means, is_edges=False)
        if name == FC:
            return Representation(name, settings.group.kernel, lambda: connectivity)
        if name == FC_POWER:
            family = PowerFamily(connectivity, settings)
            return Representation(
                name, settings.group.kernel, lambda: family.features(settings.method.alpha), weight=2.0**0.5
            )
        transform = make_transform(name, settings.method)
        of_series = cohort if transform.needs == "series" else None
        compute = partial(transform_features, transform, connectivity, settings, of_series)
        return Representation(name, settings.group.kernel, compute, is_edges=not transform.diagonal, weight=2.0**0.5)

    return map(build, names)


def transform_features(
    transform: Transform | FittedTransform,
    connectivity: AveragedEdges,
    settings: Settings,
    of_series: Cohort | None = None,
) -> FeatureSource:
    """Edges (n, E) of the transformed FC of every unit times sqrt(2), and its diagonal where that says something.

    `of_series`: a transform of the series, runs put end to end; its mean over the scans of a unit. Raises Unfit.
    """
    if of_series is not None and not has_series(of_series):
        raise Unfit("This needs the series of every scan, which this cohort does not have.")
    (n, n_edges), n_parcels = connectivity.shape, (1 + math.isqrt(1 + 8 * connectivity.shape[1])) // 2
    rows = np.zeros((n, n_edges + n_parcels * transform.diagonal), precision(connectivity.shape))
    units = (
        track(connectivity.groups, f"{transform.name} of the series", settings) if of_series else connectivity.groups
    )
    for unit, scans in enumerate(units):
        if of_series is None:
            inputs = [connectivity.connectome(unit)]
        else:
            inputs = [np.concatenate([standardise(run) for run in of_series.series[scan]()]) for scan in scans]
        for each in inputs:
            matrix = transform.transform(each)
            diagonal = np.diag(matrix)[: n_parcels * transform.diagonal]
            rows[unit] += np.hstack([vectorise_edges(matrix), diagonal]) / len(inputs)
    return rows
