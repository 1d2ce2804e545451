"""Filters of the eigenvalues that are learned on training people, by steps of the spectrum or smooth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.evaluate import cross_validate
from fcpower_bids.analyses.features import PowerFamily
from fcpower_bids.analyses.study import Study
from fcpower_bids.analyses.targets import join_target_builders
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.connectome import in_range, power_weights
from fcpower_bids.core.krr import kernel_ridge
from fcpower_bids.core.nested import NestedResult, merge_folds, merge_targets
from fcpower_bids.errors import Unfit
from fcpower_bids.parallel import track
from fcpower_bids.resources import available_bytes

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating]
PANEL_BYTES = 4e8
"""Memory for the edges that are multiplied at a time."""


@dataclass(frozen=True, eq=False)
class FilterGrams:
    """Inner products of the centred edges of all pairs of people, for every pair of B basis filters."""

    # (B (B + 1) / 2, n (n + 1) / 2): upper triangles; a pair of different filters holds its Gram matrix plus its
    # transpose
    packed: Floats
    n_people: int
    n_filters: int

    @staticmethod
    def check_memory(what: str, n_people: int, n_filters: int, dtype: type[np.floating]) -> None:
        """Refuse more numbers than the memory that was given holds. Raises Unfit."""
        numbers = n_filters * (n_filters + 1) // 2 * n_people * (n_people + 1) // 2
        if (needed := numbers * np.dtype(dtype).itemsize) > available_bytes():
            raise Unfit(
                f"{what} filters would need {needed / 1e9:.1f} GB for {n_people} people next to their eigenvectors, "
                f"and the limit is {available_bytes() / 1e9:.1f} GB; give more memory (--mem-mb), or use fewer people."
            )

    def kernel(self, coefficients: FloatArray) -> FloatArray:
        """Correlation kernel (n, n) of the filter with coefficients c (B,)."""
        first, second = np.triu_indices(self.n_filters)
        rows, columns = np.triu_indices(self.n_people)
        products = (coefficients[first] * coefficients[second]).astype(self.packed.dtype)
        gram = np.empty((self.n_people, self.n_people))
        gram[rows, columns] = products @ self.packed
        gram[columns, rows] = gram[rows, columns]
        norms = np.sqrt(np.diag(gram))
        kernel = gram / np.outer(norms, norms)
        np.fill_diagonal(kernel, 1.0)
        return kernel


def filter_grams(
    eigenvectors: Callable[[], Iterable[FloatArray]],
    weights: FloatArray,
    dtype: type[np.floating] = np.float64,
    panel_bytes: float = PANEL_BYTES,
) -> FilterGrams:
    """Multiply the edges of everyone under every basis filter. Shapes and units: weights (n, B, P).

    Of some rows of the connectomes at a time, A A' of every filter and A B' + B A' of every two are added, both with
    one triangle to compute. With s = ||A|| / ||B|| the latter is ((A + s B) (A + s B)' - A A') / s - s B B': half the
    work of a product, and the rounding of what is taken off is that of the larger of the two.
    """
    n, n_filters, n_parcels = weights.shape
    packed = np.zeros((n_filters * (n_filters + 1) // 2, n * (n + 1) // 2), dtype)
    pairs = list(zip(*np.triu_indices(n_filters), strict=True))
    totals, upper = np.zeros((n_filters, n)), np.triu_indices(n)
    height = max(1, int(panel_bytes / (n_filters * n * n_parcels * np.dtype(dtype).itemsize)))
    for start in range(0, n_parcels - 1, height):
        stop = min(start + height, n_parcels - 1)
        edges = np.arange(start + 1, n_parcels) > np.arange(start, stop)[:, None]
        panel = np.empty((n_filters, n, int(edges.sum())), dtype)
        for person, vectors in enumerate(eigenvectors()):
            left, right = vectors[start:stop].astype(dtype), vectors[start + 1 :].astype(dtype)
            for number, of_filter in enumerate(weights[person]):
                modes = np.flatnonzero(of_filter)
                scaled = left[:, modes] * of_filter[modes].astype(dtype)
                panel[number, person] = (scaled @ right[:, modes].T)[edges]
        totals += panel.sum(axis=2, dtype=float)
        grams = [block @ block.T for block in panel]
        sizes = [np.sqrt(np.trace(gram)) for gram in grams]
        for pair, (first, second) in enumerate(pairs):
            if first == second:
                packed[pair] += grams[first][upper]
            elif sizes[first] and sizes[second]:
                share = sizes[first] / sizes[second]
                sums = panel[first] + share * panel[second]
                packed[pair] += ((sums @ sums.T - grams[first]) / share - share * grams[second])[upper]
    for pair, (first, second) in enumerate(pairs):  # centre the edges of every person
        product = np.outer(totals[first], totals[second]) / (n_parcels * (n_parcels - 1) // 2)
        both = product if first == second else product + product.T
        packed[pair] -= both[upper].astype(dtype)
    return FilterGrams(packed, n, n_filters)


LIMIT = 5.0
"""Largest absolute correction, on the log scale."""


class Bins(NamedTuple):
    """Eigenvalues of n people in B bins of log lambda."""

    members: NDArray[np.intp]  # (n, P): bin of each, from 0 for the smallest; -1 outside the range of the matrix
    centres: FloatArray  # (B,): mean of ln lambda in each bin


def bin_eigenvalues(eigenvalues: FloatArray, n_bins: int, tolerance: float) -> Bins:
    """Sort eigenvalues (n, P) into bins with equally many each, over all people; no target takes part."""
    inside = np.stack([in_range(values, tolerance) for values in eigenvalues])
    logs = np.log(np.where(inside, eigenvalues, 1.0))
    edges = np.unique(np.quantile(logs[inside], np.linspace(0, 1, n_bins + 1)[1:-1]))
    members = np.where(inside, np.searchsorted(edges, logs, side="right"), -1)
    used, members[inside] = np.unique(members[inside], return_inverse=True)
    return Bins(members, np.array([logs[members == number].mean() for number in range(used.size)]))


def bin_weights(eigenvalues: FloatArray, bins: Bins, alpha: float, tolerance: float) -> FloatArray:
    """lambda^alpha of the modes of each bin and 0 elsewhere, shape (n, B, P): the basis of `filter_grams`."""
    weights = np.stack([power_weights(values, alpha, tolerance) for values in eigenvalues])
    inside = bins.members[:, None, :] == np.arange(bins.centres.size)[:, None]
    return np.where(inside, weights[:, None, :], 0.0)


class BinnedFilter:
    """One correction (B,) per bin: the parameters themselves."""

    def __init__(self, bins: Bins, seed: int = 0) -> None:
        self.start = np.zeros(bins.centres.size)

    def theta(self, parameters: Tensor) -> Tensor:
        """Corrections (B,) of the parameters."""
        return parameters


class NetworkFilter(BinnedFilter):
    """Corrections from a network of two hidden layers on the mean ln lambda of each bin; tanh, linear output.

    The output weights start at zero, so that learning starts at lambda^alpha.
    """

    def __init__(self, bins: Bins, seed: int = 0, width: int = 64) -> None:
        self.inputs = ((bins.centres - bins.centres.mean()) / (bins.centres.std() or 1.0))[:, None]
        self.shapes = ((1, width), (width,), (width, width), (width,), (width, 1), (1,))
        rng = np.random.default_rng(seed)
        drawn = [rng.standard_normal(shape) / np.sqrt(shape[0]) for shape in self.shapes]
        self.start = np.concatenate([*(array.ravel() for array in drawn[:4]), np.zeros(width + 1)])

    def theta(self, parameters: Tensor) -> Tensor:
        """Corrections (B,) of the parameters."""
        parts = parameters.split([int(np.prod(shape)) for shape in self.shapes])
        weights = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        first = (parameters.new_tensor(self.inputs) @ weights[0] + weights[1]).tanh()
        return ((first @ weights[2] + weights[3]).tanh() @ weights[4] + weights[5])[:, 0]


def inner_loss(kernel: Tensor, penalty: Tensor, target: Tensor, inner: Sequence[Rows]) -> Tensor:
    """Squared error of ridge predictions of each inner fold from the others, over the target's variance.

    Shapes and units: kernel (n, n), target (n,).
    """
    import torch  # large, and for the slow controls alone

    everyone, losses = np.concatenate(inner), []
    for rows in inner:
        train = np.setdiff1d(everyone, rows)
        penalised = kernel[np.ix_(train, train)] + penalty * torch.eye(train.size, dtype=kernel.dtype)
        mean = target[train].mean()
        dual = torch.cholesky_solve((target[train] - mean)[:, None], torch.linalg.cholesky(penalised))[:, 0]
        losses.append((kernel[np.ix_(rows, train)] @ dual + mean - target[rows]).square().sum())
    return torch.stack(losses).sum() / (everyone.size * target[everyone].var(correction=0))


def learn_filter(
    grams: FilterGrams, form: BinnedFilter, target: FloatArray, inner: Sequence[Rows], n_iterations: int = 30
) -> FloatArray:
    """Minimise `inner_loss` over the filter and the penalty, from lambda^alpha and penalty 1, by L-BFGS.

    Source: the paper, Appendix "Where the gain comes from", filters optimised on the prediction loss. Shapes and units:
    target (n,); returns (B,).
    """
    import torch
    from scipy import optimize  # takes a fifth of a second

    packed, values = torch.from_numpy(grams.packed), torch.tensor(target)
    first, second = np.triu_indices(grams.n_filters)
    place = np.zeros((grams.n_people, grams.n_people), dtype=np.intp)  # of each pair of people among the packed
    place[np.triu_indices(grams.n_people)] = np.arange(packed.shape[1])
    place = np.maximum(place, place.T)

    def corrections(parameters: Tensor) -> Tensor:
        return LIMIT * torch.tanh(form.theta(parameters) / LIMIT)

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        free = torch.tensor(point, requires_grad=True)
        coefficients = corrections(free[:-1]).exp()
        gram = ((coefficients[first] * coefficients[second]) @ packed)[place]
        norms = gram.diagonal().sqrt()
        loss = inner_loss(gram / norms[:, None] / norms, free[-1].exp(), values, inner)
        (slope,) = torch.autograd.grad(loss, free)
        return loss.item(), slope.numpy()

    bounds, most = [(None, None)] * form.start.size + [(np.log(1e-3), np.log(1e3))], {"maxiter": n_iterations}
    start = np.append(form.start, 0.0)
    result = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=most)
    return np.asarray(corrections(torch.from_numpy(result.x[:-1])).numpy())


N_BINS = 30
"""Bins of the paper's binned filter."""
N_ITERATIONS = 30
"""Steps of the optimiser per fold and target."""
FORMS = {"learned_bins": BinnedFilter, "learned_network": NetworkFilter}


class LearnedFilters:
    """Shared by all folds and targets: bins of the eigenvalues and the inner products of their modes. Raises Unfit."""

    def __init__(self, study: Study, family: PowerFamily) -> None:
        FilterGrams.check_memory("Learned", len(study.people.names), N_BINS, np.float64)
        if family.spectra is None:
            raise Unfit("Learned filters need the eigenvectors of everyone in memory; give more of it (--mem-mb).")
        values, vectors = family.spectra
        self.study, self.bins = study, bin_eigenvalues(values, N_BINS, family.tolerance)
        basis = bin_weights(values, self.bins, study.settings.method.alpha, family.tolerance)
        self.grams = filter_grams(lambda: vectors, basis)

    def validate(self, name: str) -> NestedResult:
        """Cross-validate one of `FORMS`: filter and penalty see the training people of the outer fold alone."""
        study = self.study
        built = join_target_builders(study.targets, study.people.covariates)
        parts = []
        for fold in track(study.folds, name.replace("_", " "), study.settings):
            targets = built(fold.train) if callable(built) else built
            results = []
            for target in targets.T.copy():
                known = np.isfinite(target)
                inner = [rows[known[rows]] for rows in fold.inner if known[rows].any()]
                form = FORMS[name](self.bins, study.settings.method.random_seed)
                theta = learn_filter(self.grams, form, target, inner, N_ITERATIONS)
                solver = kernel_ridge(self.grams.kernel(np.exp(theta)), study.preset)
                results.append(cross_validate(solver, study, columns=target[:, None], folds=[fold]))
            parts.append(merge_targets(results))
        return merge_folds(parts)
