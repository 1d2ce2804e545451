"""The tables of all targets: scores, paired differences, reliability."""

from __future__ import annotations

from collections.abc import Iterator

from fcpower_bids.reports.group_tables import Grid, GroupTables, make_grid, number_cell, p_cell, text_cell


def prediction_grids(tables: GroupTables) -> tuple[Grid, ...]:
    """Return the tables that are there."""
    return (_summary_grid(tables), *_comparison_grids(tables), *reliability_grid(tables, "reliability"))


def _summary_grid(tables: GroupTables) -> Grid:
    summary = tables.titled(tables.rows("prediction_summary"))
    order = {target: i for i, target in enumerate(dict.fromkeys(summary["target"]))}
    summary = summary.dropna(axis=1, how="all").sort_values("target", key=lambda name: name.map(order), kind="stable")
    return make_grid(
        summary,
        [
            ("target", "Target", text_cell),
            ("representation", "Representation", text_cell),
            ("n_folds", "Folds", number_cell(0)),
            ("r_fold_mean", "Mean r of folds", number_cell(3)),
            ("r_fold_sd", "SD", number_cell(3)),
            ("r_pooled_mean", "r of all predictions", number_cell(3)),
            ("predictive_cod_pooled_mean", "Predictive COD", number_cell(3)),
            ("mae_pooled_mean", "MAE", number_cell(3)),
            ("auc_fold_mean", "Mean AUC of folds", number_cell(3)),
            ("auc_pooled_mean", "AUC of all predictions", number_cell(3)),
            ("balanced_accuracy_pooled_mean", "Balanced accuracy", number_cell(3)),
            ("p_permutation", "p (permutation)", p_cell),
            ("share_at_grid_edge", "Penalty at edge", number_cell(2)),
        ],
        "All targets",
        "COD is 1 for perfect predictions, 0 for predicting the mean of the training people, and negative for worse.",
        tables.links("prediction_summary", "prediction", "prediction_pooled", "null", "folds"),
    )


def _comparison_grids(tables: GroupTables) -> Iterator[Grid]:
    comparisons = tables.frame("comparisons")
    if comparisons is None:
        return
    yield make_grid(
        tables.titled(comparisons),
        [
            ("target", "Target", text_cell),
            ("representation", "Representation", text_cell),
            ("reference", "Against", text_cell),
            ("mean_difference", "Difference", number_cell(3)),
            ("ci_low", "95 % from", number_cell(3)),
            ("ci_high", "to", number_cell(3)),
            ("t", "t", number_cell(2)),
            ("df", "df", number_cell(0)),
            ("p_two_sided", "p", p_cell),
            ("p_holm", "p (Holm)", p_cell),
            ("n_distinct", "Distinct folds", number_cell(0)),
        ],
        "Paired differences",
        str(tables.facts("comparisons").get("Rule", "Corrected resampled t-test on shared folds.")),
        tables.links("comparisons", "prediction"),
    )


def reliability_grid(tables: GroupTables, name: str) -> Iterator[Grid]:
    """Return the table ``name`` of reliabilities if it is there."""
    reliability = tables.frame(name)
    if reliability is None:
        return
    yield make_grid(
        tables.titled(reliability),
        [
            ("target", "Target", text_cell),
            ("representation", "Representation", text_cell),
            ("over", "Halves of", text_cell),
            ("rho", "Agreement", number_cell(3)),
            ("reliability", "Reliability", number_cell(3)),
            ("r", "r", number_cell(3)),
            ("ceiling", "Ceiling of r", number_cell(3)),
        ],
        "Reliability of the predictions",
        str(tables.facts(name).get("Rule", "")),
        tables.links(name),
    )
