"""What the group level asks of a cohort."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class GroupLevel(Choices):
    """Phenotypes, folds, analyses, and who takes part."""

    targets: tuple[str, ...] = option((), "group", "phenotypes to predict [all numeric columns of --phenotypes]")
    composite: tuple[str, ...] = option((), "group", "NAME=COLUMN,COLUMN,...: first component, fitted in the fold")
    covariates: tuple[str, ...] = option(
        (), "group", "columns regressed from the targets in the fold; part of the model of edges"
    )
    phenotypes: tuple[Path, ...] = option((), "group", "phenotype tables [participants.tsv and phenotype/*.tsv]")
    missing_values: tuple[str, ...] = option((), "group", "phenotype values that mean missing: -1 or age=0")
    min_matched: float = option(0.5, "group", "stop where a smaller share of the people have scans and phenotypes")
    check: bool = option(False, "group", "only look for what would mislead (group/check.tsv), then stop")
    family_column: str | None = option(None, "group", "column whose equal values never span a split")
    site_column: str | None = option(None, "group", "column of sites; with --hold-out-sites each is held out in turn")
    harmonise: str = option(
        "none", "group", "prediction: take site effects from the features, in the fold", choices=("none", "combat")
    )
    harmonise_keep: tuple[str, ...] = option((), "group", "columns whose effect on the features ComBat keeps: age sex")
    stratify: bool = option(False, "group", "spread sites and classes evenly over the folds; families stay whole")
    hold_out_sites: bool = option(False, "group", "folds are the sites")
    representations: tuple[str, ...] = option(("fc", "fc_power"), "group", "what predicts: fc fc_power embedding")
    predictors: tuple[str, ...] = option(("kernel_ridge",), "group", "prediction: what predicts from them")
    analyses: tuple[str, ...] = option(
        (), "group", "analyses, 'all' for every one [prediction fingerprinting qc_fc, as far as the cohort allows]"
    )
    alpha_selection: str | None = option(
        None,
        "group",
        "choose the exponent on this cohort, as '--alpha grid' does; --alpha is then that of all else",
        choices=("grid", "nested", "align"),
    )
    kernel: str = option("correlation", "group", "kernel of the regression", choices=("correlation", "linear"))
    preset: str = option(
        "recommended",
        "group",
        "protocol of the cross-validation; '--preset paper' without --analyses also asks for all of them",
        choices=("recommended", "paper", "cbig"),
    )
    repeats: int | None = option(None, "group", "repetitions of the outer folds [preset]")
    folds: int | None = option(None, "group", "outer folds [preset]")
    inner_folds: int | None = option(None, "group", "inner folds [preset]")
    folds_file: Path | None = option(
        None, "group", "folds to use: a folds.tsv, or a table with a row per person and a column of folds per repeat"
    )
    test_people: Path | None = option(None, "group", "table of the people who are tested once, by all others")
    accept_pair: tuple[str, ...] = option(
        (), "group", "two people who look like one scan and may be on both sides of a split all the same: A B"
    )
    predictions_per: str = option(
        "auto",
        "group",
        "rows of the table of predictions: one per person and repeat (predictions), or per person with the mean over "
        "repeats (prediction_means); auto: per repeat up to 2,000,000 rows",
        choices=("auto", "repeat", "person"),
    )
    penalties: tuple[float, ...] = option((), "group", "ridge penalties, as they are, in the place of the preset's")
    selection: str | None = option(
        None,
        "group",
        "score of the inner folds that selects the penalty [preset]",
        choices=(
            "pooled_pearson",
            "mean_pearson",
            "pooled_mse",
            "mean_mse",
            "pooled_predictive_cod",
            "mean_predictive_cod",
        ),
    )
    fit_transforms_on: str | None = option(
        None, "group", "people that PCA and tangent references are fitted to [preset]", choices=("cohort", "fold")
    )
    scan_minutes: tuple[float, ...] = option(
        (), "group", "learning_curves: lengths of scan [doubling from 1.2]", reader="learning_curves"
    )
    sample_sizes: tuple[int, ...] = option(
        (), "group", "learning_curves: numbers of people [25 50 100 150 ...]", reader="learning_curves"
    )
    learned_filters: bool = option(
        False, "group", "spectral_controls: also learn filters inside the folds (slow)", reader="spectral_controls"
    )
    permutations: int | None = option(
        None,
        "group",
        "permutations for the null of each prediction [as many as cost a third of it, up to 1000; none with the other "
        "presets], and of edges [1000]",
    )
    save_models: bool = option(False, "group", "also write a model per target that 'fcpower_bids predict' applies")
    exclude_file: Path | None = option(
        None, "group", "TSV of recordings or participants to leave out, with reasons [OUTPUT_DIR/exclude.tsv]"
    )
    max_mean_fd: float | None = option(None, "group", "leave out recordings with a higher mean FD in mm")
    first_session: bool = option(
        False, "group", "of everybody the first session alone (that is left, by the order of the labels)"
    )
    separate_tasks: bool = option(
        False, "group", "parcellation_sweep: each task of --task-id describes people by itself, as each atlas does"
    )
    equal_minutes: bool = option(
        False, "group", "cut every scan to the length of the shortest one, and compute FC again from the stored series"
    )
    drop_parcels_missing_in: float = option(0.1, "group", "drop parcels that a larger share of people lacks")
    drop_people_missing: float = option(0.1, "group", "leave out people who lack a larger share of parcels")
