"""Where the gain of FC^alpha comes from: the same eigenvectors under other eigenvalues, other kernels, other bases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg

from fcpower_bids.analyses.evaluate import RULE, Screen, compare, cross_validate, make_solver
from fcpower_bids.analyses.features import (
    FC,
    FC_POWER,
    PowerFamily,
    Representation,
    combine_scans,
    precision,
    similarity,
)
from fcpower_bids.analyses.learned_filters import (
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
from fcpower_bids.core.connectome import in_range, power_weights, regularise, spectral_map
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.core.kernels import FeatureSource, linear_kernel
from fcpower_bids.core.krr import Regression, kernel_ridge
from fcpower_bids.core.nested import NestedResult
from fcpower_bids.errors import Unfit
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort, Looked, Table, tabulate
from fcpower_bids.resources import available_bytes
from fcpower_bids.settings import Settings
from fcpower_bids.transforms.connectomes import recording_transform

Filter = Callable[[FloatArray, float], FloatArray]
"""From eigenvalues (P,) in descending order and the tolerance to weights (P,); a mode of weight 0 is left out."""
TOP, MIDDLE, TAIL = (10.0, 1.0), 0.01, (0.5, 0.05)
"""The paper's hand-set profile: first and last weight of the top modes, of the middle, of the tail."""
N_PROFILE = 20
"""Modes at the top of the profile; the paper does not say how many make up its tail, ours has as many."""
CLIP = 5.0
"""Largest eigenvalue after clipping (the paper)."""
N_KNOTS = 8
"""Of a random filter, evenly spaced in log lambda; the filter is linear in between."""
RANDOM_RANGE = 1e-2, 1e2
"""Weights of the random filters at the knots."""
DOT_PRODUCTS = ("pearson", "cosine", "centred_dot", "raw_dot")
METRICS = ("euclidean", "power_euclidean", "log_euclidean", "cholesky", "log_cholesky")
"""Metrics: the Frobenius distance between images of the two matrices."""
SINGLE_MODES = (1, 4, 10, 20, 50)
TOP_MODES = (1, 5, 20, 40, 100)
SHARED_COMPONENTS = (20, 50, 100, 200, 300, 900)
N_RANDOM_FILTERS = 100
EMBEDDING_SIZE = 512
"""Features of the random embedding that identifies people; the paper does not say how many."""
ROUNDING = 1e-9
"""Range of predictions, over the standard deviation of the training targets, that is rounding."""

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


def analyse_controls(cohort: Cohort, settings: Settings) -> Looked:
    """Predict from filtered spectra, other kernels, a shared basis and features that merely identify people.

    Source: the paper, Table "top-k eigenvectors" and Appendix "Where the gain comes from". Raises Unfit.
    """
    if settings.group.kernel != "correlation":
        raise Unfit("The spectral controls are those of the correlation kernel; leave out --kernel.")
    if settings.group.slow_controls and find_spec("torch") is None:
        raise Unfit("The learned filters of slow_controls need torch: install fcpower_bids[encoder], or leave it out.")
    study = open_study(cohort, settings.changed(representations=(FC, FC_POWER)))
    yield {}
    screen, controls = Screen(study, FC_POWER), Controls(study)
    for name, make, about in track(controls.rows(), "spectral controls", settings):
        screen.add(name, make, **about)
    tables = screen.tables("spectral_controls", FACTS, question="control")
    yield tables | tabulate_matched(study, tables["spectral_controls_folds"].frame, controls.family.n_parcels)


Row = tuple[str, NestedResult | Callable[[], NestedResult | Regression], dict[str, Any]]
"""Name of an entry, its predictions or what makes them, and the columns that describe it."""


class Controls:
    """The controls in the order of the table, from one eigendecomposition per person."""

    def __init__(self, study: Study) -> None:
        self.study, self.alpha = study, study.settings.method.alpha
        self.connectivity = combine_scans(study.cohort, study.people.scans)
        self.family = PowerFamily(self.connectivity, study.settings, keep=True)

    def rows(self) -> Iterator[Row]:
        """Yield every entry; what is large is made when its entries are asked for."""
        yield from self.whole()
        yield from self._filtered()
        yield from self._random_filters()
        learned = cache(lambda: LearnedFilters(self.study, self.family))
        for name in FORMS if self.study.settings.group.slow_controls else ():
            about: dict[str, Any] = {"control": "learned_filter", "weighting": "other"}
            yield name, lambda name=name: learned().validate(name), about  # type: ignore[misc]
        features = self.family.features(self.alpha)
        for name in DOT_PRODUCTS:
            make = self._regress(partial(dot_kernel, name, features))
            yield f"kernel_{name}", make, {"control": "kernel", "weighting": "power"}
        scores = principal_scores(linear_kernel(features, dtype=precision(features.shape)))
        del features, make  # the others need much memory of their own
        for metric in METRICS:
            squared = partial(squared_distances, metric, self.family, self.study.settings)
            make = self._regress(lambda squared=squared: rbf_kernel(squared()))  # type: ignore[misc]
            yield f"rbf_{metric}", make, {"control": "rbf", "weighting": "n/a"}
        for number in (number for number in SHARED_COMPONENTS if number <= scores.shape[1]):
            about = {"control": "shared_basis", "weighting": "power", "number": number}
            yield (name := f"shared_{number}"), self._correlate(name, partial(np.asarray, scores[:, :number])), about
        yield from self.identity()

    def whole(self) -> Iterator[Row]:
        """FC^alpha and FC. A refusal is raised: without these two there is nothing to control."""
        powers = partial(self.family.features, self.alpha)
        for name, weighting, compute in ((FC_POWER, "power", powers), (FC, "raw", lambda: self.connectivity)):
            result = cross_validate(self._correlate(name, compute)(), self.study, name)
            yield name, result, {"control": "whole", "weighting": weighting, "number": self.family.n_parcels}

    def _filtered(self) -> Iterator[Row]:
        """Single modes, leading modes, and filters that are the same for everyone."""
        n, family = self.family.n_parcels, self.family
        single = ((f"mode_{k}", "mode", "power", k - 1, k, self.alpha) for k in SINGLE_MODES if k <= n)
        powers = (("raw", 1.0), ("power", self.alpha))
        top = ((f"top_{k}_{word}", "top_modes", word, 0, k, a) for k in TOP_MODES if k < n for word, a in powers)
        for name, control, weighting, first, last, alpha in (*single, *top):
            make = self._correlate(name, partial(filtered_features, family, modes(first, last, alpha)))
            yield name, make, {"control": control, "weighting": weighting, "number": last}
        for name, weigh in (("profile", profile), ("clipped", clipped)):
            make = self._correlate(name, partial(filtered_features, family, weigh))
            yield name, make, {"control": "filter", "weighting": "other"}

    def _random_filters(self) -> Iterator[Row]:
        about = {"control": "random_filter", "weighting": "other"}
        try:
            FilterGrams.check_memory("Random", len(self.study.people.names), N_KNOTS, np.float32)
        except Unfit as error:
            yield "random_filters", partial(_refuse, error), about
            return
        basis = knot_weights(self.family.eigenvalues, self.family.tolerance)
        # Every panel needs all eigenvectors: where these are not kept, few and large panels.
        most = PANEL_BYTES if self.family.spectra is not None else available_bytes()
        grams = filter_grams(lambda: (vectors for _, vectors in self.family.each_spectrum()), basis, np.float32, most)
        drawn = random_heights(N_RANDOM_FILTERS, self.study.settings.method.random_seed)
        for number, (monotone, heights) in enumerate(drawn, start=1):
            make = self._regress(partial(grams.kernel, heights))
            yield f"random_{number}", make, {**about, "number": number, "monotone": monotone}

    def identity(self) -> Iterator[Row]:
        """Features that merely identify people."""
        n, rng = len(self.study.people.names), np.random.default_rng(self.study.settings.method.random_seed)
        for name, features in (("one_hot", np.eye(n)), ("random_embedding", rng.standard_normal((n, EMBEDDING_SIZE)))):
            solver = self._correlate(name, partial(np.asarray, features))()
            result, predicted = cross_validate(solver, self.study, name), []
            for values, train in zip(result.predicted, result.train, strict=True):  # rounding alone has no correlation
                flat = np.ptp(values, axis=0) <= ROUNDING * train.std
                predicted.append(np.where(flat, values.mean(axis=0), values))
            result = dataclasses.replace(result, predicted=tuple(predicted))
            yield name, result, {"control": "identity", "weighting": "n/a"}

    def _correlate(self, name: str, compute: Callable[[], Any]) -> Callable[[], Regression]:
        return lambda: make_solver(Representation(name, "correlation", compute), self.study.preset)

    def _regress(self, compute: Callable[[], FloatArray]) -> Callable[[], Regression]:
        return lambda: kernel_ridge(compute(), self.study.preset)


def _refuse(error: Unfit) -> NestedResult:
    raise error


def principal_scores(gram: FloatArray) -> FloatArray:
    """Scores (n, k) of all principal components from the inner products (n, n) of features that are not centred."""
    centred = gram - gram.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    values, vectors = linalg.eigh((centred + centred.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > 1e-10 * values[0]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def tabulate_matched(study: Study, folds: pd.DataFrame, n_parcels: int) -> dict[str, Table]:
    """Test flattened against raw eigenvalues at equal numbers of modes (the paper, Table "top-k eigenvectors")."""
    pairs = {(f"top_{number}_power", f"top_{number}_raw"): number for number in TOP_MODES if number > 1}
    pairs = {pair: number for pair, number in pairs.items() if set(pair) <= set(folds["representation"])}
    pairs[FC_POWER, FC] = n_parcels
    tests = compare(folds, study, pairs)
    tests["number"] = [pairs[pair] for pair in zip(tests["representation"], tests["reference"], strict=True)]
    frame = tests.sort_values(["target", "number"], kind="stable", ignore_index=True)
    return tabulate({"Comparisons": RULE}, spectral_matched=frame)


# --- Filters of the eigenvalues ---------------------------------------------------------------------------------------


def filtered_features(family: PowerFamily, weigh: Filter) -> NDArray[np.floating]:
    """Edges of V diag(weights) V' times sqrt(2) of everyone, shape (n, E)."""
    dtype = precision(family.connectivity.shape)
    features = np.empty(family.connectivity.shape, dtype)
    for unit, (values, vectors) in enumerate(family.each_spectrum()):
        weights = weigh(values, family.tolerance).astype(dtype)
        kept = weights != 0
        chosen = (vectors if kept.all() else vectors[:, kept]).astype(dtype, copy=False)
        features[unit] = vectorise_edges(spectral_map(chosen, weights[kept]))
    return features


def modes(first: int, last: int, alpha: float) -> Filter:
    """lambda^alpha of some modes, counted from 0, and nothing else."""

    def weigh(values: FloatArray, tolerance: float) -> FloatArray:
        weights = power_weights(values, alpha, tolerance)
        weights[:first] = weights[last:] = 0
        return weights

    return weigh


def logarithm(floor: float | None = None, shrinkage: float | None = None) -> Filter:
    """Logarithm of all eigenvalues, made full rank as in `regularise`, which refuses where that fails."""
    return lambda values, tolerance: np.log(regularise(values, floor, shrinkage, tolerance))


def profile(values: FloatArray, tolerance: float) -> FloatArray:
    """Return the same weights for everyone: top from 10 down to 1, middle 0.01, tail from 0.5 to 0.05."""
    n_modes = int(in_range(values, tolerance).sum())
    n_end = min(N_PROFILE, n_modes // 2)
    weights = np.zeros(values.size)
    weights[:n_modes] = MIDDLE
    weights[n_modes - n_end : n_modes] = np.linspace(*TAIL, n_end)
    weights[:n_end] = np.linspace(*TOP, n_end)
    return weights


def clipped(values: FloatArray, tolerance: float) -> FloatArray:
    """Eigenvalues above 5 become 5."""
    return np.minimum(power_weights(values, 1.0, tolerance), CLIP)


def knot_weights(eigenvalues: FloatArray, tolerance: float) -> FloatArray:
    """Basis of the random filters: functions of log lambda that are 1 at their knot and fall to 0 at the next ones.

    Shapes and units: eigenvalues (n, P); returns (n, N_KNOTS, P).
    """
    inside = np.stack([in_range(values, tolerance) for values in eigenvalues])
    logs = np.log(np.where(inside, eigenvalues, 1.0))
    knots = np.linspace(logs[inside].min(), logs[inside].max(), N_KNOTS)
    weights = np.stack([np.interp(logs, knots, peak) for peak in np.eye(N_KNOTS)], axis=1)
    return np.where(inside[:, None, :], weights, 0.0)


def random_heights(number: int, seed: int) -> Iterator[tuple[bool, FloatArray]]:
    """Draw random filters by their log-uniform weights (N_KNOTS,) at the knots, every second one monotone."""
    rng = np.random.default_rng(seed)
    lowest, highest = np.log(RANDOM_RANGE)
    for index in range(number):
        heights = np.exp(rng.uniform(lowest, highest, N_KNOTS))
        yield index % 2 == 0, np.sort(heights) if index % 2 == 0 else heights


# --- Further kernels -------------------------------------------------------------------------------------------------


def dot_kernel(name: str, features: FeatureSource) -> FloatArray:
    """Kernel (n, n) of features (n, E) by one of `DOT_PRODUCTS`.

    The two that are not normalised per person are divided by their mean diagonal, so that one grid of penalties suits
    all four.
    """
    if name == "pearson":
        return similarity(features)
    gram = linear_kernel(features, dtype=precision(features.shape))
    if name == "cosine":
        norms = np.sqrt(np.diag(gram))
        return gram / np.outer(norms, norms)
    if name == "centred_dot":
        sums = np.array([np.asarray(features[row : row + 1]).sum(dtype=float) for row in range(len(gram))])
        gram -= np.outer(sums, sums) / features.shape[1]
    return gram / np.diag(gram).mean()


def rbf_kernel(squared: FloatArray) -> FloatArray:
    """exp(-d^2 / (2 s^2)) of squared distances (n, n), with s the median distance between two people."""
    median = float(np.median(squared[np.triu_indices(len(squared), 1)]))
    if not median > 0:
        raise Unfit("Most connectomes are the same, so distances between them say nothing.")
    return np.asarray(np.exp(-squared / (2 * median)))


def squared_distances(metric: str, family: PowerFamily, settings: Settings) -> FloatArray:
    """Squared distances (n, n) between the connectomes of all pairs under one of `METRICS`. Raises Unfit."""
    (n, n_edges), remedy = family.connectivity.shape, settings.method.full_rank_remedy
    embedded: FloatArray = np.empty((n, n_edges + family.n_parcels))
    images: Iterator[FloatArray]
    if metric in ("power_euclidean", "log_euclidean"):
        power = metric == "power_euclidean"
        weigh = modes(0, family.n_parcels, settings.method.alpha) if power else logarithm(*remedy.values())
        images = (spectral_map(vectors, weigh(values, family.tolerance)) for values, vectors in family.each_spectrum())
    else:
        images = map(family.connectivity.connectome, range(n))
        if metric != "euclidean":
            factor = recording_transform(metric, remedy)
            images = (factor.transform(image) for image in images)
    weighted = "cholesky" not in metric  # a triangular factor has each entry once
    for unit, matrix in enumerate(track(images, f"{metric} distances", settings, n)):
        embedded[unit] = np.concatenate([vectorise_edges(matrix, weighted=weighted), np.diag(matrix)])
    gram = linear_kernel(embedded)
    sizes = np.diag(gram)
    squared = np.maximum(sizes[:, None] + sizes - 2 * gram, 0.0)
    np.fill_diagonal(squared, 0.0)
    return squared
