"""Where the gain of FC^alpha comes from: the same eigenvectors under other eigenvalues, other kernels, other bases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import linalg

from fcpower_bids.analyses.evaluate import RULE, Screen, compare, cross_validate, make_solver
from fcpower_bids.analyses.features import FC, FC_POWER, PowerFamily, Representation, combine_scans, precision
from fcpower_bids.analyses.spectrum.filters import (
    DOT_PRODUCTS,
    EMBEDDED,
    METRICS,
    N_KNOTS,
    Filter,
    FilteredFamily,
    ambiguous_cuts,
    clipped,
    dot_kernel,
    knot_weights,
    leading_modes,
    profile,
    random_heights,
    rbf_kernel,
    single_mode,
    squared_distances,
)
from fcpower_bids.analyses.spectrum.learned_filters import (
    FORMS,
    N_BINS,
    N_ITERATIONS,
    PANEL_BYTES,
    FilterGrams,
    LearnedFilters,
    filter_grams,
)
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.kernels import linear_kernel
from fcpower_bids.core.regression.krr import Regression, kernel_ridge
from fcpower_bids.core.regression.nested import NestedResult
from fcpower_bids.errors import Unfit
from fcpower_bids.progress import track
from fcpower_bids.records import Cohort, Table
from fcpower_bids.resources import available_bytes
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Analysis

SINGLE_MODES = (1, 4, 10, 20, 50)
SHARED_COMPONENTS = (20, 50, 100, 200, 300, 900)
N_RANDOM_FILTERS = 100
EMBEDDING_SIZE = 512
"""Features of the random embedding that identifies people; the paper does not say how many."""

ROUNDING = 1e-9
"""Range of predictions, over the standard deviation of the training targets, that is rounding."""

MATCHED = TABLES["spectral_matched"]
FACTS = {
    "OursWhereThePaperIsSilent": (
        "The tail of the hand-set profile has as many modes as its top; random filters are piecewise linear in log "
        "lambda, with log-uniform weights between 0.01 and 100 at 8 knots, every second one sorted; the RBF kernel has "
        "the median distance as its width; dot products that are not normalised per person are divided by their mean "
        "diagonal; the shared basis is a PCA of FC^alpha of everyone, without any target; the random embedding has "
        f"{EMBEDDING_SIZE} features."
    ),
    "Identity": (
        "A one-hot identifier predicts the training mean for everyone: its correlation does not exist, n_scored is 0 "
        "and the paper writes 0.000. Pooled over folds such predictions correlate negatively with the target, because "
        "the training mean is low where the test mean is high."
    ),
    "LearnedFilters": (
        f"A correction of lambda^alpha, constant in each of {N_BINS} bins of the eigenvalues; one number per bin, or "
        f"a network of 64 x 64 units on the mean log lambda of the bin. {N_ITERATIONS} steps of L-BFGS on the inner "
        "squared error of the training people of each fold, per target; slow_controls asks for them."
    ),
}


def check_choices(cohort: Cohort, settings: Analysis) -> None:
    """Refuse another kernel, and what allows no prediction."""
    _open(cohort, settings)


def _open(cohort: Cohort, settings: Analysis) -> Study:
    if settings.kernel != "correlation":
        raise Unfit("The spectral controls are those of the correlation kernel; leave out --kernel.")
    return open_study(cohort, dataclasses.replace(settings, representations=(FC, FC_POWER)))


def analyse_controls(cohort: Cohort, settings: Analysis) -> dict[str, Table]:
    """Predict from filtered spectra, other kernels, a shared basis and features that merely identify people.

    Source: the paper, Table "top-k eigenvectors" and Appendix "Where the gain comes from". Raises Unfit.
    """
    study = _open(cohort, settings)
    controls = _Controls(study)
    for add in track(controls.groups(), "groups of controls", settings, len(controls.groups())):
        add()
    tables = controls.screen.tables("spectral_controls", FACTS | controls.notes(), question="control")
    matched = tabulate_matched(study, tables["spectral_controls_folds"].frame, controls.family.n_parcels)
    return tables | {MATCHED.name: matched}


class _Controls:
    """Scores the controls one after the other, from one eigendecomposition per person."""

    def __init__(self, study: Study) -> None:
        self.study, self.settings = study, study.settings
        self.screen = Screen(study, FC_POWER)
        self.connectivity = combine_scans(study.cohort, study.people.scans, study.settings)
        self.family = PowerFamily(self.connectivity, study.settings, keep=True)
        self.filtered = FilteredFamily(self.family)
        self.eigenvalues = self.filtered.eigenvalues()
        self._ambiguous: list[str] = []
        self._slow = study.settings.slow_controls

    def groups(self) -> list[Callable[[], None]]:
        """Return the groups of controls, in the order of the table."""
        always = [self._whole, self._modes, self._filters, self._random_filters]
        learned = [self._learned_filters] if self._slow else []
        return [*always, *learned, self._kernels, self._distances, self._shared_basis, self._identity]

    def notes(self) -> dict[str, Any]:
        """Notes for the sidecar."""
        if not self._ambiguous:
            return {}
        listed = ", ".join(self._ambiguous)
        return {
            "AmbiguousCuts": (
                f"In {listed} the cut falls inside a cluster of equal eigenvalues for some people (n_ambiguous), so "
                "which eigenvectors are taken there is decided by rounding."
            )
        }

    def _whole(self) -> None:
        n_parcels = self.family.n_parcels
        for name, alpha, weighting in ((FC_POWER, self.settings.alpha, "power"), (FC, 1.0, "raw")):
            compute = (lambda: self.connectivity) if alpha == 1.0 else partial(self.family.features, alpha)
            # A refusal is raised: without these two there is nothing to control.
            result = cross_validate(self._correlate(name, compute), self.study, name)
            self.screen.add(name, result, control="whole", weighting=weighting, number=n_parcels)

    def _modes(self) -> None:
        n_parcels, alpha = self.family.n_parcels, self.settings.alpha
        for position in (each for each in SINGLE_MODES if each <= n_parcels):
            about = {"control": "mode", "weighting": "power", "number": position}
            self._cut(f"mode_{position}", single_mode(position, alpha), (position - 1, position), about)
        for number in (each for each in TOP_MODES if each < n_parcels):
            for weighting, exponent in (("raw", 1.0), ("power", alpha)):
                about = {"control": "top_modes", "weighting": weighting, "number": number}
                self._cut(top_name(number, weighting), leading_modes(number, exponent), (number,), about)

    def _cut(self, name: str, weigh: Filter, cuts: tuple[int, ...], about: dict[str, Any]) -> None:
        count = ambiguous_cuts(self.eigenvalues, cuts, self.family.tolerance)
        if count:
            self._ambiguous.append(name)
        self._filter(name, weigh, **about, n_ambiguous=count)

    def _filters(self) -> None:
        self._filter("profile", profile, control="filter", weighting="other")
        self._filter("clipped", clipped, control="filter", weighting="other")

    def _random_filters(self) -> None:
        about = {"control": "random_filter", "weighting": "other"}
        needed = 4 * FilterGrams.size(len(self.eigenvalues), N_KNOTS)
        if needed > available_bytes():
            reason = (
                f"Random filters would need {needed / 1e9:.1f} GB, above {available_bytes() / 1e9:.1f}; give more "
                "memory (--mem-mb), or use fewer people."
            )
            self.screen.add("random_filters", partial(_refuse, reason), **about)
            return
        basis = knot_weights(self.eigenvalues, self.family.tolerance)
        # Every panel needs all eigenvectors: where these are not kept, few and large panels.
        most = PANEL_BYTES if self.family.spectra is not None else available_bytes()
        grams = filter_grams(lambda: (vectors for _, vectors in self.family.each_spectrum()), basis, np.float32, most)
        drawn = random_heights(N_RANDOM_FILTERS, self.settings.random_seed)
        for index, (monotone, heights) in enumerate(
            track(drawn, "random filters", self.settings, N_RANDOM_FILTERS), start=1
        ):
            make = partial(self._regress, partial(grams.kernel, heights))
            self.screen.add(f"random_{index}", make, **about, number=index, monotone=monotone)

    def _learned_filters(self) -> None:
        about = {"control": "learned_filter", "weighting": "other"}
        try:
            learned = LearnedFilters(self.study, self.family)
        except Unfit as error:
            for name in FORMS:
                self.screen.add(name, partial(_refuse, str(error)), **about)
            return
        for name in FORMS:
            self.screen.add(name, partial(learned.validate, name), **about)

    def _kernels(self) -> None:
        features = self.family.features(self.settings.alpha)
        for name in DOT_PRODUCTS:
            make = partial(self._regress, partial(dot_kernel, name, features))
            self.screen.add(f"kernel_{name}", make, control="kernel", weighting="power")

    def _distances(self) -> None:
        for metric in METRICS if self._slow else EMBEDDED:
            make = partial(self._regress, partial(self._rbf, metric))
            self.screen.add(f"rbf_{metric}", make, control="rbf", weighting="n/a")

    def _rbf(self, metric: str) -> FloatArray:
        return rbf_kernel(squared_distances(metric, self.family, self.settings))

    def _shared_basis(self) -> None:
        features = self.family.features(self.settings.alpha)
        scores = principal_scores(linear_kernel(features, dtype=precision(features.shape)))
        del features
        for number in (each for each in SHARED_COMPONENTS if each <= scores.shape[1]):
            make = partial(self._correlate, f"shared_{number}", partial(np.asarray, scores[:, :number]))
            self.screen.add(f"shared_{number}", make, control="shared_basis", weighting="power", number=number)

    def _identity(self) -> None:
        n, rng = len(self.study.people.names), np.random.default_rng(self.settings.random_seed)
        for name, features in (("one_hot", np.eye(n)), ("random_embedding", rng.standard_normal((n, EMBEDDING_SIZE)))):
            solver = self._correlate(name, partial(np.asarray, features))
            result = settle_constants(cross_validate(solver, self.study, name))
            self.screen.add(name, result, control="identity", weighting="n/a")

    def _filter(self, name: str, weigh: Filter, **about: Any) -> None:
        self.screen.add(name, partial(self._correlate, name, partial(self.filtered.features, weigh)), **about)

    def _correlate(self, name: str, compute: Callable[[], Any]) -> Regression:
        return make_solver(Representation(name, "correlation", compute), self.study.preset)

    def _regress(self, compute: Callable[[], FloatArray]) -> Regression:
        return kernel_ridge(compute(), self.study.preset)


def _refuse(reason: str) -> NestedResult:
    raise Unfit(reason)


def settle_constants(result: NestedResult) -> NestedResult:
    """Make predictions of a fold that differ by rounding alone the same, so that they have no correlation."""
    predicted = []
    for values, train in zip(result.predicted, result.train, strict=True):
        flat = np.ptp(values, axis=0) <= ROUNDING * train.std
        predicted.append(np.where(flat, values.mean(axis=0), values))
    return dataclasses.replace(result, predicted=tuple(predicted))


def principal_scores(gram: FloatArray) -> FloatArray:
    """Scores (n, k) of all principal components from the inner products (n, n) of features that are not centred."""
    centred = gram - gram.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    values, vectors = linalg.eigh((centred + centred.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > 1e-10 * values[0]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


TOP_MODES = (1, 5, 20, 40, 100)


def top_name(number: int, weighting: str) -> str:
    """Name of the entry with so many leading eigenvectors, ``raw`` or ``power`` weighted."""
    return f"top_{number}_{weighting}"


def tabulate_matched(study: Study, folds: pd.DataFrame, n_parcels: int) -> Table:
    """Test flattened against raw eigenvalues at equal numbers of leading eigenvectors.

    Source: the paper, Table "top-k eigenvectors".
    """
    pairs = {(top_name(number, "power"), top_name(number, "raw")): number for number in TOP_MODES if number > 1}
    pairs = {pair: number for pair, number in pairs.items() if set(pair) <= set(folds["representation"])}
    pairs[FC_POWER, FC] = n_parcels
    tests = compare(folds, study, pairs)
    tests["number"] = [pairs[pair] for pair in zip(tests["representation"], tests["reference"], strict=True)]
    frame = tests.sort_values(["target", "number"], kind="stable", ignore_index=True)
    return Table(frame.reindex(columns=list(MATCHED.columns)), MATCHED, {"Comparisons": RULE})
