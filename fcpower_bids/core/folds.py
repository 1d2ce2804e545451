"""Outer and inner folds: families never split, sites held out in turn, and the splits of CBIG's MATLAB code."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.core.arrays import Rows
from fcpower_bids.errors import Unfit


@dataclass(frozen=True, eq=False)
class Fold:
    """One outer fold: training rows, test rows, and inner folds of the training rows."""

    repeat: int  # which repeat, from 0
    fold: int  # which fold of it, from 0
    train: Rows  # row numbers; who is in neither takes no part (relatives of a test person at another site)
    test: Rows
    inner: tuple[Rows, ...]  # validation rows of each inner fold; together they are the training rows


def family_numbers(families: ArrayLike | None, n: int) -> Rows:
    """Number the families of n rows from 0 in sorted order; without families everyone is their own."""
    if families is None:
        return np.arange(n, dtype=np.intp)
    names = np.asarray(families)
    if names.shape != (n,):
        raise ValueError(f"There must be one family per row: {n} rows, families of shape {names.shape}.")
    unnamed = np.flatnonzero((names != names) | np.isin(names.astype(str), ("", "n/a", "nan", "None", "<NA>")))
    if unnamed.size:
        raise Unfit(f"Row {unnamed[0]} has no family; give people without relatives a family of their own.")
    return np.unique(names, return_inverse=True)[1].astype(np.intp)


def deal_families(
    families: Rows, n_folds: int, rng: np.random.Generator, strata: NDArray[np.intp] | None = None
) -> Rows:
    """Deal whole families (n,) into folds of nearly equal size: in random order, large ones first, to the smallest.

    With strata (n,), sites or classes from 0, a family goes where its strata are rarest instead, so that each is spread
    evenly. Returns the fold (n,) of each row. Raises Unfit: there are fewer families than folds, or one is larger than
    a fold.
    """
    _, members, sizes = np.unique(families, return_inverse=True, return_counts=True)
    if sizes.size < 2:
        raise Unfit("All people are of one family, so no split keeps families whole; check the family column.")
    if n_folds < 2 or sizes.size < n_folds:
        raise Unfit(
            f"{sizes.size} people or families cannot be dealt into {n_folds} folds; use 2 to {sizes.size} folds."
        )
    if sizes.max() > families.size / n_folds:
        raise Unfit(
            f"A family of {sizes.max()} is larger than one of {n_folds} folds of {families.size} people; "
            "use fewer folds or check the family column."
        )
    order = rng.permutation(sizes.size)
    order = order[np.argsort(-sizes[order], kind="stable")]
    if strata is not None:
        return _deal_evenly(members, order, n_folds, strata)[members]
    fold_of_family = np.empty(sizes.size, dtype=np.intp)
    filling = [(0, fold) for fold in range(n_folds)]
    for family in order:
        size, fold = filling[0]
        fold_of_family[family] = fold
        heapq.heapreplace(filling, (size + int(sizes[family]), fold))
    return fold_of_family[members]


def _deal_evenly(members: Rows, order: Rows, n_folds: int, strata: Rows) -> Rows:
    """Fold of each family: where its strata are rarest, relative to their size, then where there are fewest people."""
    composition = np.zeros((order.size, int(strata.max()) + 1))
    np.add.at(composition, (members, strata), 1)
    # Stratum by stratum single people fill the folds in turn, so that neither strata nor folds differ by more than one.
    order = order[np.lexsort((composition.argmax(axis=1)[order], -composition.sum(axis=1)[order]))]
    weights = 1 / np.maximum(composition.sum(axis=0), 1)
    filled, fold_of_family = np.zeros((n_folds, weights.size)), np.empty(order.size, dtype=np.intp)
    for family in order:
        counts = composition[family]
        fold = np.lexsort((filled.sum(axis=1), (filled @ (counts * weights)).round(9)))[0]
        fold_of_family[family] = fold
        filled[fold] += counts
    return fold_of_family


def replicated_folds(
    n: int,
    n_folds: int = 10,
    n_inner: int = 5,
    n_repeats: int = 20,
    seed: int = 0,
    families: ArrayLike | None = None,
    strata: NDArray[np.intp] | None = None,
) -> tuple[Fold, ...]:
    """Repeat a K-fold split with other random assignments, families whole in the outer and the inner loop.

    Source: the paper, Appendix "Evaluation protocols" (20 x 10 outer folds, 5 inner). Each repeat and each inner split
    has its own random stream, so more repeats leave the earlier ones as they are. Ordered by repeat and fold. Raises
    Unfit.
    """
    family = family_numbers(families, n)
    folds = []
    for repeat in range(n_repeats):
        labels = deal_families(family, n_folds, np.random.default_rng((seed, repeat)), strata)
        for fold in range(n_folds):
            train, test = np.flatnonzero(labels != fold), np.flatnonzero(labels == fold)
            inner = inner_folds(train, family, n_inner, (seed, repeat, fold + 1), strata)
            folds.append(Fold(repeat, fold, train, test, inner))
    return tuple(folds)


def leave_one_site_out(
    sites: ArrayLike,
    n_inner: int = 5,
    n_repeats: int = 1,
    seed: int = 0,
    families: ArrayLike | None = None,
    inner_by_site: bool = False,
) -> tuple[Fold, ...]:
    """Hold out each site (n,) in turn, by name; relatives of a test person at other sites leave the training rows.

    The inner folds are random, families whole, or with `inner_by_site`, which needs three sites, the others in turn
    where no family is at two of these.
    Repeats have the same test sets and differ in the inner folds only, so they are no independent evidence. Raises
    Unfit.
    """
    site = family_numbers(sites, np.asarray(sites).size)
    family = family_numbers(families, site.size)
    n_sites = int(site.max()) + 1
    if n_sites < (3 if inner_by_site else 2):
        raise Unfit(f"{n_sites} site(s) are too few to hold out one in turn in every loop; use K-fold instead.")
    folds = []
    for repeat in range(n_repeats):
        for fold in range(n_sites):
            test = np.flatnonzero(site == fold)
            train = np.flatnonzero((site != fold) & ~np.isin(family, family[test]))
            if np.unique(family[train]).size < max(n_inner, 2) <= np.unique(family[site != fold]).size:
                raise Unfit(
                    f"With site {np.unique(np.asarray(sites))[fold]} held out {train.size} people are left to "
                    "train, since the others have its family labels. Where equal labels are different families, write "
                    "the site into them."
                )
            if inner_by_site and len({*zip(family[train], site[train], strict=True)}) == np.unique(family[train]).size:
                inner = partition(train, site[train])
            else:
                inner = inner_folds(train, family, n_inner, (seed, repeat, fold + 1))
            folds.append(Fold(repeat, fold, train, test, inner))
    return tuple(folds)


def cbig_folds(
    subjects: Sequence[str],
    n_folds: int = 10,
    n_inner: int = 10,
    seeds: Sequence[int] = tuple(range(1, 61)),
    families: Sequence[str] | None = None,
) -> tuple[Fold, ...]:
    """Splits of CBIG's kernel-ridge workflow, equal to those that MATLAB draws from the same seeds.

    Families (or subjects), sorted as strings and permuted by ``rng(seed); randperm``, are dealt to fold 1..K in turn,
    past folds that have ``ceil(n / K)`` people. The inner folds do not know families (CBIG_cross_validation_data_split
    and CBIG_KRR_innerloop_cv, as used by Ooi et al. 2022, doi:10.1016/j.neuroimage.2022.119636).
    """
    n = len(subjects)
    family = np.unique(np.asarray(families if families is not None else subjects, dtype=str), return_inverse=True)[1]
    sizes, full, folds = np.bincount(family), -(-n // n_folds), []
    for repeat, seed in enumerate(seeds):
        fold, filled, fold_of_family = -1, np.zeros(n_folds, dtype=np.intp), np.empty(sizes.size, dtype=np.intp)
        for chosen in np.argsort(np.random.RandomState(seed).random_sample(sizes.size), kind="stable"):
            fold = (fold + 1) % n_folds
            while filled[fold] >= full:
                fold = (fold + 1) % n_folds
            fold_of_family[chosen] = fold
            filled[fold] += sizes[chosen]
        labels = fold_of_family[family]
        for fold in range(n_folds):
            train, test = np.flatnonzero(labels != fold), np.flatnonzero(labels == fold)
            folds.append(Fold(repeat, fold, train, test, matlab_inner_folds(train, n_inner)))
    if any(fold.test.size == 0 for fold in folds):
        raise Unfit(f"{n} people in {family.max() + 1} families leave one of {n_folds} folds empty.")
    return tuple(folds)


def matlab_inner_folds(train: Rows, n_inner: int) -> tuple[Rows, ...]:
    """``rng(1); cvpartition(n, 'kfold', k)`` of MATLAB on training rows in the order in which they are given."""
    stream = np.random.RandomState(1).random_sample(train.size)
    return partition(train, (np.arange(train.size) % n_inner)[np.argsort(stream, kind="stable")])


def check_folds(folds: Sequence[Fold], n: int) -> None:
    """Raise a ValueError unless every fold keeps test, training and inner rows apart and inside ``range(n)``."""
    if not folds:
        raise ValueError("There are no folds to evaluate.")
    for fold in folds:
        name = f"Repeat {fold.repeat}, fold {fold.fold}"
        rows = np.concatenate([fold.train, fold.test])
        if fold.train.size == 0 or fold.test.size == 0 or rows.min() < 0 or rows.max() >= n:
            raise ValueError(f"{name} has no training or test rows, or rows outside the {n} of the cohort.")
        if np.unique(rows).size != rows.size:
            raise ValueError(f"{name} has a row twice among its training and test rows.")
        inner = np.concatenate(fold.inner) if fold.inner else np.empty(0, np.intp)
        if len(fold.inner) < 2 or not np.array_equal(np.sort(inner), np.sort(fold.train)):
            raise ValueError(f"{name}: the inner folds must divide the training rows into two parts or more.")


def inner_folds(
    train: Rows, family: Rows, n_inner: int, seed: tuple[int, ...], strata: NDArray[np.intp] | None = None
) -> tuple[Rows, ...]:
    """Divide training rows at random into inner folds, families whole; `family` and `strata` are those of all rows."""
    labels = None if strata is None else strata[train]
    try:
        return partition(train, deal_families(family[train], n_inner, np.random.default_rng(seed), labels))
    except Unfit as problem:
        raise Unfit(f"In the inner loop (inner_folds): {problem}") from None


def partition(rows: Rows, labels: Rows) -> tuple[Rows, ...]:
    """Rows by label, in the order of the labels."""
    return tuple(rows[labels == label] for label in np.unique(labels))


@dataclass(frozen=True)
class PredictionPreset:
    """Every choice of a nested cross-validation, recorded in the sidecar of its results."""

    name: str  # name of the protocol
    splits: str  # "random" (`folds.replicated_folds`) or "matlab" (`folds.cbig_folds`)
    n_repeats: int
    n_folds: int  # outer folds
    n_inner: int  # inner folds
    penalties: tuple[float, ...]  # the grid
    selection: str  # selection score of the penalty (`scores.selection_scores`)
    intercept: bool  # whether there is an unpenalised intercept
    # "composite" (first principal component of the measures, in the fold) or "measures" (each one by itself)
    target: str
    covariates: tuple[str, ...]  # regressed from the target on the training rows
    # whether these are multiples of the kernel's mean diagonal, in a grid that goes on where the best lies at its edge
    # (`core.krr`)
    relative_penalties: bool = False
    # whether the inner folds hold out sites where the outer ones do: the penalty is chosen for a new site
    inner_by_site: bool = False
    # people that tangent references and PCA are fitted to: "cohort" (everyone) or "fold" (training people)
    fit_transforms_on: str = "cohort"
    permuted: bool = False  # whether predictions are tested against permuted targets without being asked to


PAPER = PredictionPreset(
    name="paper",
    splits="random",
    n_repeats=20,
    n_folds=10,
    n_inner=5,
    penalties=(1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3),
    selection="pooled_pearson",
    intercept=True,
    target="composite",
    covariates=(),
)
"""The paper's Appendix "Evaluation protocols". It does not name the selection score; pooled MSE gives r 0.04 lower."""

RECOMMENDED = replace(
    PAPER,
    name="recommended",
    relative_penalties=True,
    inner_by_site=True,
    fit_transforms_on="fold",
    permuted=True,
)
"""The paper's folds, without what was found wanting: penalties without a scale, and fits that saw the test people."""

CBIG = PredictionPreset(
    name="cbig",
    splits="matlab",
    n_repeats=60,
    n_folds=10,
    n_inner=10,
    penalties=(
        *(0.0, 0.00001, 0.0001, 0.001, 0.004, 0.007, 0.01, 0.04, 0.07, 0.1, 0.4, 0.7),
        *(1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 10.0, 15.0, 20.0),
    ),
    selection="mean_predictive_cod",
    intercept=True,
    target="measures",
    covariates=("age", "sex"),
)
"""CBIG's kernel ridge regression workflow as Ooi et al. 2022 ran it (doi:10.1016/j.neuroimage.2022.119636)."""
PRESETS = {preset.name: preset for preset in (RECOMMENDED, PAPER, CBIG)}
