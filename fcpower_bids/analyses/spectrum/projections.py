"""FC among a few directions of the parcels that a group shares: those that keep most co-skewness, or most variance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.connectomes import AveragedEdges, precision
from fcpower_bids.analyses.engine.series import has_series
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.connectome.connectivity import standardise
from fcpower_bids.core.connectome.edges import edge_count, rebuild_matrix, vectorise_edges
from fcpower_bids.core.connectome.projections import coskewness_gram, leading_directions, project_connectivity
from fcpower_bids.core.regression.folds import Rows
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track

COSKEWNESS, POPULATION_PCA = "coskewness", "population_pca"
SHARE = 0.75
"""Directions over parcels; the source is silent, so it is ours."""

PROJECTIONS = {
    COSKEWNESS: "FC among the directions that best keep co-skewness (arXiv:2606.04010), three quarters of the parcels",
    POPULATION_PCA: "FC among as many principal directions of the mean FC, the control of co-skewness",
}
"""Rows of the screen, in words."""


class Projections:
    """Features of the rows of `PROJECTIONS`.

    Parameters
    ----------
    study : Study
        People and series.
    connectivity : AveragedEdges
        FC of the people.
    """

    def __init__(self, study: Study, connectivity: AveragedEdges) -> None:
        self.study, self.connectivity = study, connectivity
        self.n_parcels = len(study.cohort.parcels)
        self._grams: NDArray[np.floating] | None = None

    def features(self, name: str, train: Rows | None = None) -> NDArray[np.floating]:
        """Edges of FC among the directions of some people, by default all, shape (n, k (k - 1) / 2), times sqrt(2).

        Raises
        ------
        Unfit
            Co-skewness is asked for and there are no series.
        """
        n = self.connectivity.shape[0]
        rows = np.arange(n) if train is None else train
        directions = leading_directions(self._mean(name, rows), max(3, round(SHARE * self.n_parcels)))
        out = np.empty((n, edge_count(directions.shape[1])), precision((n, edge_count(directions.shape[1]))))
        for unit in range(n):
            out[unit] = vectorise_edges(project_connectivity(self.connectivity.connectome(unit), directions))
        return out

    def _mean(self, name: str, rows: Rows) -> NDArray[np.float64]:
        if name == POPULATION_PCA:
            edges = sum(self.connectivity[int(row)] for row in rows) / len(rows)
            return np.asarray(rebuild_matrix(np.asarray(edges), diagonal=1.0, weighted=False), dtype=float)
        if self._grams is None:
            self._grams = self._coskewness()
        mean = np.zeros((self.n_parcels, self.n_parcels))
        mean[np.triu_indices(self.n_parcels)] = self._grams[rows].mean(axis=0, dtype=float)
        return mean + np.triu(mean, 1).T

    def _coskewness(self) -> NDArray[np.floating]:
        """Upper triangles of everyone's Gram matrix, mean over their scans; runs are z-scored and put end to end."""
        cohort, groups = self.study.cohort, self.connectivity.groups
        if not has_series(cohort):
            raise Unfit("This needs the series of every scan, which this cohort does not have.")
        upper = np.triu_indices(self.n_parcels)
        shape = (len(groups), len(upper[0]))
        grams = np.zeros(shape, precision(shape))
        for unit, scans in enumerate(track(groups, "co-skewness of the series", self.study.settings)):
            for scan in scans:
                series = np.concatenate([standardise(run) for run in cohort.series[scan]()])
                grams[unit] += coskewness_gram(series)[upper] / len(scans)
        return grams
