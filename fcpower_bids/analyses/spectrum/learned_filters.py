"""Filters that are learned from the training people of every fold, for every target by itself."""

from __future__ import annotations

import numpy as np

from fcpower_bids.analyses.engine.connectomes import PowerFamily
from fcpower_bids.analyses.engine.cross_validation import join_targets_of, merge_results, run_nested_cv
from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.analyses.engine.targets import join_target_builders
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.filters.filter_grams import FilterGrams, filter_grams
from fcpower_bids.core.filters.learned_filter import (
    BinnedFilter,
    Bins,
    NetworkFilter,
    bin_eigenvalues,
    bin_weights,
    learn_filter,
)
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.core.regression.penalties import regress_on_kernel
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track
from fcpower_bids.resources import room

N_BINS = 30
"""Bins of the paper's binned filter."""

N_ITERATIONS = 30
"""Steps of the optimiser per fold and target."""

FORMS = {"learned_bins": BinnedFilter, "learned_network": NetworkFilter}


class LearnedFilters:
    """What all folds and targets share: bins of the eigenvalues and the inner products of their modes.

    Parameters
    ----------
    study : Study
    family : PowerFamily
        With eigendecompositions that were kept.

    Raises
    ------
    Unfit
        The cohort is too large for memory.
    """

    def __init__(self, study: Study, family: PowerFamily) -> None:
        n = len(study.people.names)
        needed = 8 * FilterGrams.size(n, N_BINS)
        if family.spectra is None or needed > room():
            raise Unfit(
                f"Learned filters would need {needed / 1e9:.1f} GB for {n} people beside their eigenvectors, and the "
                f"limit is {room() / 1e9:.1f} GB; give more memory (--mem-mb), or use fewer people."
            )
        self.study = study
        values, vectors = family.spectra
        self.bins: Bins = bin_eigenvalues(values, N_BINS, family.tolerance)
        self.grams = filter_grams(
            lambda: vectors, bin_weights(values, self.bins, study.settings.alpha, family.tolerance)
        )

    def validate(self, name: str) -> NestedResult:
        """Cross-validate one of `FORMS`: filter and penalty see the training people of the outer fold alone."""
        study = self.study
        built = join_target_builders(study.targets, study.people.covariates)
        parts = []
        for fold in track(study.folds, name.replace("_", " "), study.settings):
            targets = built(fold.train) if callable(built) else built
            parts.append(
                join_targets_of([self._validate_one(name, fold, targets[:, [j]]) for j in range(targets.shape[1])])
            )
        return merge_results(parts)

    def _validate_one(self, name: str, fold: Fold, target: FloatArray) -> NestedResult:
        known = np.isfinite(target[:, 0])
        inner = [rows[known[rows]] for rows in fold.inner if known[rows].any()]
        form = FORMS[name](self.bins) if name != "learned_network" else self._network()
        theta = learn_filter(self.grams, form, target[:, 0], inner, N_ITERATIONS)
        solver = regress_on_kernel(self.grams.kernel(np.exp(theta)), self.study.preset)
        return run_nested_cv(solver, target, [fold], self.study.preset)

    def _network(self) -> NetworkFilter:
        return NetworkFilter(self.bins, seed=self.study.settings.random_seed)
