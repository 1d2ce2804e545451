"""Targets of a prediction: measures, composites and residuals, defined on the training rows of each fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.folds import family_numbers
from fcpower_bids.errors import Unfit

TargetBuilder = Callable[[Rows], FloatArray]
"""Given the training rows, the targets (n, m) of all rows, fitted on those rows alone."""
EXPLAINED = 1e-8
"""Length of residuals, as a share of that of the targets, which is rounding."""


def fit_composite(measures: FloatArray, train: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean and scale of measures (n, q), and loadings of their first component, on training rows that have all.

    The sign, which is arbitrary, must not differ between folds: the first measure that loads at least half as much as
    the strongest does so positively (a vote of all loadings is near zero where some fall as others rise). Raises Unfit.
    """
    rows = measures[train]
    rows = rows[~np.isnan(rows).any(axis=1)]
    if not len(rows):
        raise Unfit("No training person has all measures of the composite; leave out those that few people have.")
    mean = rows.mean(axis=0)
    centred = rows - mean
    scale = np.sqrt(np.mean(centred**2, axis=0))
    flat = scale <= 1e-12 * np.maximum(np.abs(mean), np.finfo(float).tiny)
    if flat.any():
        raise Unfit(
            f"Measure {1 + np.argmax(flat)} of the composite is constant among the {len(rows)} training people of a "
            "fold, such as those of the other sites; leave it out."
        )
    standard = centred / scale
    loadings = np.linalg.eigh(standard.T @ standard)[1][:, -1]
    size = np.abs(loadings)
    return mean, scale, loadings * np.sign(loadings[np.argmax(size >= size.max() / 2)])


def composite_target(measures: ArrayLike) -> TargetBuilder:
    """Target built in the fold: the composite of the measures (n, q), fitted on the training rows.

    Source: the paper, Section "Evaluation": the PCA that defines each composite is fit on training folds only.
    """
    values = np.asarray(measures, dtype=float)

    def build(train: Rows) -> FloatArray:
        mean, scale, loadings = fit_composite(values, train)
        return np.asarray(((values - mean) / scale) @ loadings)[:, None]  # NaN where a person lacks a measure

    return build


def fixed_target(values: ArrayLike) -> TargetBuilder:
    """Targets (n,) or (n, m) that do not depend on the fold, as a builder, to be joined or residualised."""
    columns = np.asarray(values, dtype=float)
    columns = columns[:, None] if columns.ndim == 1 else columns
    return lambda train: columns


def join_targets(builders: Sequence[TargetBuilder]) -> TargetBuilder:
    """Put the targets of several builders side by side."""
    return lambda train: np.hstack([build(train) for build in builders])


def residual_target(targets: TargetBuilder | ArrayLike, covariates: ArrayLike) -> TargetBuilder:
    """Targets minus what the covariates explain, fitted on the training rows: `remove_covariates`."""
    build = targets if callable(targets) else fixed_target(targets)
    return lambda train: remove_covariates(build(train), covariates, train)


def predict_known(targets: FloatArray, known: FloatArray, train: Rows, sites: ArrayLike | None = None) -> FloatArray:
    """Predict targets (n, m), missing in the same rows, from columns (n, c) by a regression on the training rows.

    Columns are taken into the range of the training rows, and the prediction is drawn towards the mean by the slope,
    between 0 and 1, of the targets on least-squares predictions of each training row from the others. With `sites`
    (n,), whose levels the other rows need not share, slopes are those within the sites of the training rows.
    """
    rows = train[np.isfinite(targets[train, 0])]
    labels = np.zeros(len(targets)) if sites is None else np.asarray(sites)
    within = np.unique(labels[rows], return_inverse=True)[1]
    sizes = np.bincount(within)

    def centre(values: FloatArray) -> FloatArray:
        means = np.stack([np.bincount(within, column) for column in values.T], axis=1) / sizes[:, None]
        return np.asarray(values - means[within])

    inside = np.clip(known, known[rows].min(axis=0), known[rows].max(axis=0))
    columns, values = centre(inside[rows]), centre(targets[rows])
    basis = linalg.orth(columns)
    spare = (1 - np.einsum("ij,ij->i", basis, basis) - 1 / sizes[within])[:, None]
    residuals = values - basis @ (basis.T @ values)
    left_out = centre(np.where(spare > EXPLAINED, values - residuals / np.maximum(spare, EXPLAINED), 0.0))
    size = (left_out**2).sum(axis=0)
    slope = np.divide((left_out * values).sum(axis=0), size, out=np.zeros_like(size), where=size > 0)
    mean = targets[rows].mean(axis=0)
    beyond = (inside - inside[rows].mean(axis=0)) @ np.linalg.lstsq(columns, values, rcond=None)[0]
    return np.asarray(mean + np.clip(slope, 0, 1) * beyond)


def remove_covariates(targets: ArrayLike, covariates: ArrayLike, train: Rows) -> FloatArray:
    """Residuals of targets (n, m) after a linear regression on covariates (n, c) and an intercept on the training rows.

    Each target is fitted on the training rows in which it is known; collinear columns do no harm. NaN where the target
    is missing. Raises ValueError: a covariate is missing.
    """
    y = np.asarray(targets, dtype=float)
    x = np.asarray(covariates, dtype=float).reshape(y.shape[0], -1)
    if not np.isfinite(x).all():
        raise ValueError(f"A covariate is missing in row {np.argmin(np.isfinite(x).all(axis=1))}; exclude that person.")
    design = np.column_stack([np.ones(x.shape[0]), x - x[train].mean(axis=0)])
    residuals = np.full_like(y, np.nan)
    unknown = np.isnan(y[train])
    if unknown.any():
        patterns, members = np.unique(unknown, axis=1, return_inverse=True)
    else:  # as a rule, and ten times faster
        patterns, members = unknown[:, :1], np.zeros(y.shape[1], dtype=np.intp)
    for number, missing in enumerate(patterns.T):
        columns, rows = members.ravel() == number, train[~missing]
        if not rows.size:
            continue
        coefficients = np.linalg.lstsq(design[rows], y[np.ix_(rows, columns)], rcond=None)[0]
        residuals[:, columns] = y[:, columns] - design @ coefficients
    return residuals


def leave_nothing(targets: ArrayLike, covariates: ArrayLike, train: Rows) -> bool:
    """Whether the covariates explain the targets (n, q) of the training rows, but for rounding.

    So they do, whatever the targets, where there are as many of them as training rows.
    """
    known = np.asarray(targets, dtype=float)[train]
    residuals = remove_covariates(targets, covariates, train)[train]
    lengths = [np.sqrt(np.nansum(values**2)) for values in (residuals, known - np.nanmean(known, axis=0))]
    return bool(lengths[0] <= EXPLAINED * lengths[1])


def permuted_rows(
    n: int, n_permutations: int, seed: int, families: ArrayLike | None = None, sites: ArrayLike | None = None
) -> Rows:
    """Row orders (n_permutations, n) for permutation tests; families (n,) are exchanged whole, with ones of their size.

    Members change places within their family too; with sites (n,) everyone within their site, and relatives at two
    sites are two families. Exchangeability blocks within and between, as in Winkler et al. 2015
    (doi:10.1016/j.neuroimage.2015.05.092). Targets with missing values: permute the people who have them.
    """
    rng = np.random.default_rng(seed)
    orders = np.empty((n_permutations, n), dtype=np.intp)
    for blocks in _exchangeable(n, families, sites):
        for order in orders:
            order[blocks] = rng.permuted(blocks[rng.permutation(len(blocks))], axis=1)
    return orders


def _exchangeable(n: int, families: ArrayLike | None, sites: ArrayLike | None) -> list[Rows]:
    """Rows of families of one size at one site, (families, size) each."""
    family = family_numbers(families, n)
    site = np.zeros(n, dtype=np.intp) if sites is None else np.unique(np.asarray(sites), return_inverse=True)[1]
    family = np.unique(family * (int(site.max()) + 1) + site, return_inverse=True)[1]
    sizes, site_of = np.bincount(family), np.zeros(int(family.max()) + 1, dtype=np.intp)
    site_of[family] = site
    by_family, blocks = np.argsort(family, kind="stable"), []
    for size, place in sorted(set(zip(sizes.tolist(), site_of.tolist(), strict=True))):
        alike = np.flatnonzero((sizes == size) & (site_of == place))
        blocks.append(by_family[np.isin(family[by_family], alike)].reshape(-1, size))
    return blocks
