"""Columns of the learning curves, and what a reader has to know about them."""

from __future__ import annotations

from fcpower_bids.analyses.comparisons import COMPARISON_COLUMNS

CELL_COLUMNS = {
    "n_people": "Training people of each fold, before those without the target are left out",
    "minutes": "Cleaned minutes from the start of each scan; for full scans their median",
    "part": "first: the first minutes; full: all of each scan",
}
CURVE_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "What predicts it",
    **CELL_COLUMNS,
    "repeat": "Repetition of the cross-validation, from 0",
    "fold": "Fold of the repetition, from 0",
    "n_train": "People who train, with a known target",
    "n_test": "People who are tested, with a known target; the same for every cell",
    "penalty": "Ridge penalty that the inner folds selected",
    "at_grid_edge": "Whether that is the smallest or the largest of the grid",
}
GAIN_COLUMNS = {
    "target": COMPARISON_COLUMNS["target"],
    **CELL_COLUMNS,
    **{name: text for name, text in COMPARISON_COLUMNS.items() if name != "target"},
    "sd_difference": "Standard deviation of the paired differences over folds",
    "folds_won": "Folds in which the representation is better than the reference",
}
LAW_COLUMNS = {
    "target": "Phenotype or composite that is predicted",
    "representation": "What predicts it",
    "w0": "Correlation at infinitely many people and minutes",
    "w1": "Training people that halve the squared correlation even with endless scans",
    "w2": "The same in people times minutes",
    "se_w0": "Standard error of w0, see Caveats; n/a where a parameter is at its limit",
    "se_w1": "Standard error of w1, see Caveats",
    "se_w2": "Standard error of w2, see Caveats",
    "rmse": "Root mean squared difference between law and mean correlations of the cells",
    "at_bound": "Whether a parameter lies at the limit of its range, so that the data do not determine it",
    "n_cells": "Cells that entered",
}
LAW_CAVEATS = [
    "r = w0 / sqrt(1 + w1/N + w2/(N T)), N training people, T minutes (Ooi et al. 2025, "
    "doi:10.1038/s41586-025-09250-1), by least squares on the mean per-fold correlation of each cell.",
    "The cells share people and folds, so they are not independent: the standard errors are too small.",
    "Beyond the largest N and T of the table the law is an extrapolation.",
    "Minutes from the start of a scan differ from minutes over several days, and people here are of one study.",
    "Where at_bound is true, or w1 and w2 have large errors, the grid does not tell people from minutes.",
]
SIZE_FACTS = {
    "SizeRule": (
        "Training people are left out inside the outer folds, the test people stay the same in every cell; the first n "
        "of one random order per fold train, drawn from the seed, the repeat and the fold, so sizes are nested. The "
        "paper's grids instead draw a subsample and cross-validate within it, which also shrinks the test sets."
    ),
    "GainRule": (
        "Corrected resampled t-test on per-fold scores with n_test/n_train of the cell: few training people and large "
        "test sets make it conservative. p_greater is one-sided; cells are not corrected for each other."
    ),
}
IDENTIFICATION_CURVE_COLUMNS = {
    "representation": "What identifies",
    "n_people": "People of the subset",
    "minutes": CELL_COLUMNS["minutes"],
    "part": CELL_COLUMNS["part"],
    "draw": "Random subset of people, from 0; the same for every representation and length",
    "accuracy": "Share of the searches that find the own person among the people of the subset",
    "chance": "Expected accuracy of guessing",
}
IDENTIFICATION_GAIN_COLUMNS = {
    "n_people": "People of each subset",
    "minutes": CELL_COLUMNS["minutes"],
    "part": CELL_COLUMNS["part"],
    "representation": "The one whose accuracy comes first in the difference",
    "reference": "The one whose accuracy is subtracted",
    "mean_difference": "Mean difference of accuracy over the subsets",
    "sd_difference": "Standard deviation over the subsets, which share people",
    "ci_low": "Lower 95 % limit over resampled people",
    "ci_high": "Upper 95 % limit over resampled people",
    "p_greater": "p of the representation being better, over resampled people",
    "n_draws": "Distinct subsets of people",
}
IDENTIFICATION_CURVE_FACTS = {
    "Rule": (
        "Every scan looks for the most similar scan (Pearson correlation of the features) of the other session among "
        "the people of the subset who have both. Subsets are drawn from the seed; all people are one subset."
    ),
    "GainRule": (
        "People are the unit: the difference of each person's searches is averaged over the subsets that hold them, "
        "and people are resampled; p_greater = (1 + resamples of at most 0) / (1 + resamples). A t-test over subsets "
        "that share people, as in the paper, takes the same people for new evidence."
    ),
}
