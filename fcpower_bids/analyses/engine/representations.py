"""Representations of people: FC, FC^alpha, other transforms of FC, and embeddings, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.connectomes import (
    AveragedEdges,
    PowerFamily,
    combine_scans,
    precision,
    similarity,
)
from fcpower_bids.analyses.engine.series import series_features
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.regression.kernels import FeatureSource
from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.ondisk import make_room
from fcpower_bids.records import Cohort
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Analysis
from fcpower_bids.transforms import TRANSFORMS
from fcpower_bids.transforms.connectomes import make_transform
from fcpower_bids.transforms.contract import Transform

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


def expand_names(cohort: Cohort, settings: Analysis) -> tuple[str, ...]:
    """Names of the representations; ``embedding`` stands for that of every encoder. Raises UsageError, Unfit."""
    names: list[str] = []
    for name in settings.representations:
        names += _expand(name, cohort)
    return tuple(dict.fromkeys(names))


def _expand(name: str, cohort: Cohort) -> list[str]:
    kind, _, encoder = name.partition(":")
    if kind != EMBEDDING:
        return [_check_name(name)]
    if not cohort.embeddings or (encoder and encoder not in cohort.embeddings):
        known = ", ".join(cohort.embeddings) or "none"
        raise Unfit(
            f"There are no embeddings for '{name}' (encoders of the cohort: {known}); "
            "run the participant level with --encoder first, or change --representations."
        )
    return [f"{EMBEDDING}:{each}" for each in ([encoder] if encoder else cohort.embeddings)]


def encoder_of(name: str) -> str:
    """Label of the encoder whose embedding a representation is, else nothing."""
    kind, _, label = name.partition(":")
    return label if kind == EMBEDDING else ""


def _check_name(name: str) -> str:
    if name in (FC, FC_POWER):
        return name
    usable = [each for each, one in TRANSFORMS.items() if one.stateless]
    if name not in usable:
        why = "is fitted on a group" if name in TRANSFORMS else "does not exist"
        raise UsageError(
            f"The representation '{name}' {why}. Choose from: {', '.join((FC, FC_POWER, EMBEDDING, *usable))}."
        )
    return name


def scans_without_features(cohort: Cohort, names: Sequence[str]) -> NDArray[np.bool_]:
    """Which scans lack an embedding that is asked for, shape (n_scans,)."""
    lacking = np.zeros(len(cohort.scans), dtype=bool)
    for label in {encoder_of(name) for name in names} - {""}:
        lacking |= ~np.isfinite(cohort.embeddings[label]).all(axis=1)
    return lacking


def build_representations(
    cohort: Cohort, groups: Sequence[Rows], names: Sequence[str], settings: Analysis
) -> Iterator[Representation]:
    """Prepare representations of units, each given by its rows of scans, one at a time: their features are large."""
    connectivity = combine_scans(cohort, groups, settings)
    return (_build(name, cohort, connectivity, settings) for name in names)


def _build(name: str, cohort: Cohort, connectivity: AveragedEdges, settings: Analysis) -> Representation:
    kind, _, encoder = name.partition(":")
    if kind == EMBEDDING:
        embeddings = np.asarray(cohort.embeddings[encoder], dtype=float)
        means = np.stack([embeddings[group].mean(axis=0) for group in connectivity.groups])
        return Representation(name, "linear", lambda: means, is_edges=False)
    if name == FC:
        return Representation(name, settings.kernel, lambda: connectivity)
    if name == FC_POWER:
        family = PowerFamily(connectivity, settings)
        return Representation(name, settings.kernel, lambda: family.features(settings.alpha), weight=2.0**0.5)
    return _transformed(name, cohort, connectivity, settings)


def _transformed(name: str, cohort: Cohort, connectivity: AveragedEdges, settings: Analysis) -> Representation:
    """Features of a transform of the connectomes, or of the series that the participant level wrote."""
    transform = make_transform(name, settings)
    of_series = transform.needs == "series"
    return Representation(
        name,
        settings.kernel,
        lambda: (
            series_features(cohort, connectivity.groups, transform, settings)
            if of_series
            else transform_features(transform, connectivity)
        ),
        is_edges=not transform.diagonal,
        weight=2.0**0.5,
    )


def transform_features(transform: Transform, connectivity: AveragedEdges) -> FeatureSource:
    """Edges (n, E) of the transformed FC of every unit times sqrt(2), and its diagonal where that says something."""
    (n, n_edges), n_parcels = connectivity.shape, (1 + math.isqrt(1 + 8 * connectivity.shape[1])) // 2
    rows = make_room((n, n_edges + n_parcels * transform.diagonal), precision(connectivity.shape))
    for unit in range(n):
        matrix = transform.transform([connectivity.connectome(unit)])[0]
        rows[unit] = np.hstack([vectorise_edges(matrix), np.diag(matrix)[: n_parcels * transform.diagonal]])
    return rows
