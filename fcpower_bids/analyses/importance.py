"""Which edges and pairs of networks the predictions rest on (Haufe transform)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.analyses.features import Representation
from fcpower_bids.analyses.study import Study
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.edges import edge_names, rebuild_matrix
from fcpower_bids.core.regression.kernels import PANEL, FeatureSource
from fcpower_bids.core.regression.krr import fit_in_sample
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.probe import standard_kernel
from fcpower_bids.records import Blocks, Table, tabulate
from fcpower_bids.schema import TABLES


def haufe_transform(features: ArrayLike, predictions: ArrayLike, masks: ArrayLike) -> FloatArray:
    """Mean over folds of cov(X, yhat) (E[, q]) (Haufe 2014); X (n, E), yhat (F, n[, q]), trained on masks (F, n)."""
    masks = np.atleast_2d(np.asarray(masks, dtype=bool))
    predictions = np.asarray(predictions, dtype=np.float64)
    features = np.asarray(features, dtype=np.float64)
    weights = np.zeros(predictions.shape[1:])
    for mask, fold in zip(masks, predictions, strict=True):
        weights[mask] += (fold[mask] - fold[mask].mean(axis=0)) / ((mask.sum() - 1) * len(masks))
    return features.T @ weights


def network_importance(edges: ArrayLike, networks: Sequence[str]) -> tuple[list[str], FloatArray]:
    """Networks and means (N, N) of edges (E,) between or within them; NaN in those of one parcel."""
    names = list(dict.fromkeys(networks))
    matrix = rebuild_matrix(np.asarray(edges, dtype=np.float64), diagonal=np.nan, weighted=False)
    belongs = np.array([[network == name for network in networks] for name in names], dtype=np.float64)
    known = np.isfinite(matrix)
    sums, counts = (belongs @ values @ belongs.T for values in (np.where(known, matrix, 0), known.astype(np.float64)))
    return names, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


MOST_ROWS = 5_000_000
"""Above so many rows the table of edges is left out; that of the networks is always there."""

IMPORTANCE_FACTS = {
    "Method": (
        "Haufe et al. 2014 (doi:10.1016/j.neuroimage.2013.10.067): covariance of each edge with the in-sample "
        "predictions of the training people, averaged over the outer folds of the first repeat. Positive where a "
        "stronger edge goes with a higher prediction."
    )
}


class EdgeImportance:
    """Collects the importance of the edges of one representation after the other."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.edges: list[tuple[dict[str, str], FloatArray]] = []
        self.networks: list[dict[str, Any]] = []

    def add(self, representation: Representation, result: NestedResult) -> None:
        """Compute the importance of every edge for every target; nothing where features are not edges."""
        if not representation.is_edges:
            return
        study, cohort, features = self.study, self.study.cohort, representation.features()
        folds, everyone = study.first_repeat, np.arange(len(study.people.names))
        # Targets as each fold of the first repeat defines them, (F, n, m), and whose train it.
        targets = np.stack([study.columns(fold.train) if callable(study.columns) else study.columns for fold in folds])
        masks = np.stack([np.isin(everyone, fold.train) for fold in folds])[:, :, None] & ~np.isnan(targets)
        kernel = None
        if representation.kernel == "correlation":
            kernel = representation.similarity()
        elif study.preset.fit_transforms_on == "cohort":
            kernel = standard_kernel(features, everyone, everyone)
        fitted = self._fit(kernel, features, targets, masks, result.chosen[: len(masks)])
        for j, target in enumerate(study.targets):
            panels = (features[:, at : at + PANEL] for at in range(0, features.shape[1], PANEL))
            values = np.concatenate([haufe_transform(panel, fitted[:, :, j], masks[:, :, j]) for panel in panels])
            values = values / representation.weight
            keys = {"target": target.name, "representation": representation.name}
            self.edges.append((keys, values))
            names, of_pairs = network_importance(values, cohort.networks)
            for a, b in zip(*np.triu_indices(len(names)), strict=True):
                pair = {"network_a": names[a], "network_b": names[b]}
                self.networks.append({**keys, **pair, "importance": float(of_pairs[a, b])})

    def tables(self, facts: Mapping[str, Any]) -> dict[str, Table]:
        """Return ``importance_edges`` and ``importance_networks``."""
        tables, n_rows = {}, sum(len(values) for _, values in self.edges)
        if 0 < n_rows <= MOST_ROWS:
            tables["importance_edges"] = Table(Blocks(self._rows, n_rows), TABLES["importance_edges"], facts)
        else:
            too_many = f"More than {MOST_ROWS} rows; ask for fewer targets."
            facts = {**facts, "EdgesLeftOut": too_many if n_rows else "No kernel ridge on edges as they are."}
        return tables | tabulate(facts, importance_networks=self.networks)

    def _rows(self) -> Iterator[pd.DataFrame]:
        names = np.array(edge_names(self.study.cohort.parcels), dtype=object)
        for keys, values in self.edges:
            yield pd.DataFrame({**keys, "parcel_a": names[:, 0], "parcel_b": names[:, 1], "importance": values})

    def _fit(
        self,
        kernel: FloatArray | None,
        features: FeatureSource,
        targets: FloatArray,
        masks: NDArray[np.bool_],
        chosen: FloatArray,
    ) -> FloatArray:
        """In-sample predictions (F, n, m) by a kernel of everyone, or on features that are z-scored in every fold."""
        fitted = np.zeros(targets.shape)
        if kernel is not None:
            for penalty in np.unique(chosen):  # all fits with one penalty share an inverse
                i, j = np.nonzero(chosen == penalty)
                sides = targets[i, :, j].T, masks[i, :, j].T, self.study.preset.intercept
                fitted[i, :, j] = fit_in_sample(kernel, float(penalty), *sides).T
            return fitted
        for i, j in np.ndindex(chosen.shape):
            train = np.flatnonzero(masks[i, :, j])
            gram, everyone = standard_kernel(features, train, train), np.ones((train.size, 1), dtype=bool)
            predicted = fit_in_sample(gram, float(chosen[i, j]), targets[i, train, j : j + 1], everyone, True)
            fitted[i, train, j] = predicted[:, 0]
        return fitted
