"""Protocols of the prediction: the recommended one, that of the paper, and that of CBIG (Ooi et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class PredictionPreset:
    """Every choice of a nested cross-validation, recorded in the sidecar of its results."""

    name: str  # name of the protocol
    splits: str  # "random" (`folds.replicated_folds`) or "matlab" (`folds.cbig_folds`)
    # n_repeats, n_folds, n_inner: repeats, outer folds and inner folds
    n_repeats: int
    n_folds: int
    n_inner: int
    penalties: tuple[float, ...]  # the grid
    selection: str  # selection score of the penalty (`scores.selection_scores`)
    intercept: bool  # whether there is an unpenalised intercept
    # "composite" (first principal component of the measures, in the fold) or "measures" (each one by itself)
    target: str
    covariates: tuple[str, ...]  # regressed from the target on the training rows
    # whether these are multiples of the kernel's mean diagonal, in a grid that goes on where the best lies at its edge
    # (`core.regression.penalties`)
    relative_penalties: bool = False
    # whether the inner folds hold out sites where the outer ones do: the penalty is chosen for a new site
    inner_by_site: bool = False
    # people that tangent references and PCA are fitted to: "cohort" (everyone) or "fold" (training people)
    fit_transforms_on: str = "cohort"
    # how recordings of a person become one connectome: "concat" (that of the z-scored series put end to end) or
    # "average" (mean Fisher z)
    combination: str = "average"
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
    combination="concat",
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
