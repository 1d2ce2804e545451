"""Columns that the tables of several analyses share: what is predicted by what, on which fold, how well, tested how."""

from __future__ import annotations

from fcpower_bids.schema import Column, Columns, TableSpec, join_columns, pick_columns

KEY_COLUMNS: Columns = join_columns(
    Column.text("target", "Phenotype or composite that is predicted", "Target"),
    Column.text("representation", "Features that predict it", "Representation"),
    Column.number("repeat", "Repetition of the cross-validation, from 0"),
    Column.number("fold", "Fold of the repetition, from 0"),
)
PARCEL_COLUMNS: Columns = join_columns(
    Column.text("parcel", "Parcel", "Parcel"),
    Column.text("network", "Its network", "Network"),
    Column.number("x", "Where its centre is, to the right, in mm of the template", optional=True),
    Column.number("y", "The same to the front", optional=True),
    Column.number("z", "The same upwards", optional=True),
)
IDENTIFIES = Column.text("representation", "Features that identify", "Representation")
FIT_COLUMNS: Columns = join_columns(
    Column.number("n_train", "People who train, with a known target", digits=0),
    Column.number("n_test", "People who are tested, with a known target", digits=0),
    Column.number("penalty", "Ridge penalty that the inner folds selected"),
    Column.flag("at_grid_edge", "Whether the best may lie outside what was searched: it is the first or last penalty"),
)
SCORE_COLUMNS: Columns = join_columns(
    Column.number("r", "Pearson correlation of observed and predicted values of the test people", "r"),
    Column.number("cod", "Coefficient of determination about the mean of the test people", "COD"),
    Column.number(
        "predictive_cod", "Coefficient of determination about the mean of the training people", "Predictive COD"
    ),
    Column.number("mae", "Mean absolute error, in the unit of the target", "MAE"),
    Column.number("mae_norm", "Mean absolute error over the standard deviation of the training people"),
    Column.number("mse", "Mean squared error, in the squared unit of the target", "MSE"),
    Column.number("mse_norm", "Mean squared error over the variance of the training people"),
    Column.number(
        "auc",
        "Area under the ROC curve, for targets of two classes; with covariates among people of the same ones (overlap "
        "weights)",
        "AUC",
    ),
    Column.number(
        "balanced_accuracy", "Mean of sensitivity and specificity, for targets of two classes", "Balanced accuracy"
    ),
)
FOLD_COLUMNS: Columns = join_columns(KEY_COLUMNS, FIT_COLUMNS, SCORE_COLUMNS)
FOLD = tuple(KEY_COLUMNS)
"""Keys of a table with one row per target, entry and fold."""

POOLED_COLUMNS: Columns = join_columns(pick_columns(KEY_COLUMNS, FOLD[:3]), SCORE_COLUMNS)
PERSON = Column.text("participant_id", "Person", "Person")
PERSON_COLUMNS: Columns = join_columns(
    PERSON,
    KEY_COLUMNS,
    Column.number(
        "observed",
        "Target as the fold defines it: residual of the covariates (of a class: minus its "
        "probability given them), composite, or class 0/1",
    ),
    Column.number("predicted", "Prediction by a model that has seen neither this person nor their family"),
)
LENGTH_COLUMNS: Columns = join_columns(
    Column.number("minutes", "Cleaned minutes from the start of each scan; for full scans their median", "Minutes", 2),
    Column.text("part", "first: the first minutes; full: all of each scan"),
)

COMPARISON_COLUMNS: Columns = join_columns(
    KEY_COLUMNS["target"],
    Column.text("representation", "The one whose score comes first in the difference", "Representation"),
    Column.text("reference", "The one whose score is subtracted", "Against"),
    Column.text("score", "auc for targets of two classes, r for others; per fold", "Score"),
    Column.number("mean_difference", "Mean over the distinct folds", "Difference"),
    Column.number("ci_low", "Lower 95 % confidence limit", "95 % from"),
    Column.number("ci_high", "Upper 95 % confidence limit", "to"),
    Column.number("t", "Corrected resampled t (Nadeau and Bengio 2003)", "t", 2),
    Column.number("df", "Degrees of freedom: distinct folds minus 1", "df", 0),
    Column.p("p_two_sided", "p of a difference", "p"),
    Column.p("p_greater", "p of the representation being better than the reference", "p (better)"),
    Column.p("p_less", "p of the representation being worse than the reference", "p (worse)"),
    Column.p("p_holm", "p_two_sided after Holm's correction over the pairs of the target", "p (Holm)"),
    Column.number("n_folds", "Folds", "Folds", 0),
    Column.number("n_distinct", "Distinct test sets, which is what counts as evidence", "Distinct folds", 0),
    Column.number("n_skipped", "Folds in which a score is not defined", "Skipped folds", 0),
)
SPREAD_COLUMNS: Columns = join_columns(
    Column.number("sd_difference", "Standard deviation of the paired differences over folds", "SD"),
    Column.number("folds_won", "Folds in which the representation is better than the reference", "Folds won", 0),
)

SCORED, REFUSED = "scored", "refused"
TESTS = ("mean_difference", "ci_low", "ci_high", "t", "df", "p_two_sided", "p_greater", "p_less", "p_holm")
SCREEN_COLUMNS: Columns = join_columns(
    Column.text("status", f"{SCORED}, or {REFUSED} where this cohort does not allow the row"),
    Column.text("reason", "Why it was refused", "Why not"),
    Column.text("score", "auc for targets of two classes, r for others", "Score"),
    Column.number("n_folds", "Folds", "Folds", 0),
    Column.number(
        "n_scored",
        "Folds in which the score is defined: a prediction that is the same for everyone has no correlation",
        "Scored folds",
        0,
    ),
    Column.number("fold_mean", "Mean of the score over folds", "Mean of folds"),
    Column.number("fold_sd", "Standard deviation over folds", "SD"),
    Column.number(
        "pooled_mean", "Score of all out-of-fold predictions of a repeat together, mean over repeats", "All predictions"
    ),
    Column.number("pooled_sd", "Its standard deviation over repeats", "SD"),
    Column.number(
        "share_at_grid_edge",
        "Share of folds whose penalty is the first or last that was searched",
        "Penalty at edge",
        2,
    ),
    Column.text("reference", "The row that is subtracted in the differences", "Against"),
    pick_columns(COMPARISON_COLUMNS, TESTS[:-1]),
    Column.p(
        "p_holm",
        "p_two_sided after Holm's correction over the rows of the target that ask the same question",
        "p (Holm)",
    ),
    COMPARISON_COLUMNS["n_distinct"],
)


def declare_screen(name: str, meaning: str, columns: Columns) -> tuple[TableSpec, TableSpec]:
    """Declare the two tables of a screen: a row per target and entry, and the folds behind it."""
    keys = pick_columns(KEY_COLUMNS, ("target", "representation"))
    folds = join_columns(FOLD_COLUMNS, Column.text("representation", "Row of the summary", "Representation"))
    return (
        TableSpec(name, meaning, join_columns(keys, columns, SCREEN_COLUMNS), ("target", "representation")),
        TableSpec(
            f"{name}_folds",
            "The scores behind it, one row per fold.",
            folds,
            FOLD,
        ),
    )


ALIKE: Columns = join_columns(
    Column.number("similarity", "Pearson correlation of the edges of FC^0.35", "Similarity", digits=2),
    Column.number(
        "score",
        "Double-centred similarity in robust standard deviations of the pairs of different people",
        "Robust z",
        digits=1,
    ),
)
"""How much alike two scans are."""
