"""Options of the group level."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.settings.options import HOLD_OUT as HOLD_OUT
from fcpower_bids.settings.options import PERMUTE, Choices, asks, refines


@dataclass(frozen=True)
class GroupLevel(Choices):
    """Phenotypes, folds, analyses, and who takes part."""

    targets: tuple[str, ...] = asks(
        (),
        "columns to predict; hcp58: those of Ooi et al. 2022; NAME=COLUMN,COLUMN,...: first component [all numeric "
        "columns of --phenotypes]",
    )
    covariates: tuple[str, ...] = asks((), "columns regressed from the targets, and in the model of edges")
    phenotypes: tuple[Path, ...] = refines((), "phenotype tables [participants.tsv and phenotype/*.tsv]")
    missing_values: tuple[str, ...] = refines((), "values that mean missing: -1 or age=0", in_file=True)
    family_column: str | None = asks(None, "column whose equal values never span a split")
    site_column: str | None = asks(None, "column of sites; see --sites")
    sites: str = asks(
        PERMUTE,
        "permute targets within sites, hold sites out in turn, or take them from the features (ComBat)",
        choices=(PERMUTE, HOLD_OUT, "combat"),
    )
    stratify: bool = refines(False, "spread sites and classes evenly over folds; families stay whole", in_file=True)
    representations: tuple[str, ...] = refines(("fc", "fc_power"), "features of people: fc fc_power embedding")
    analyses: tuple[str, ...] = refines(
        (), "analyses, or 'all' [prediction fingerprinting qc_fc, as the cohort allows]"
    )
    alpha_selection: str | None = refines(
        None,
        "choose the exponent as '--alpha grid' does; --alpha is then for all else",
        choices=("grid", "nested", "align"),
        in_file=True,
    )
    kernel: str = refines("correlation", "kernel of the regression", choices=("correlation", "linear"))
    preset: str = asks(
        "recommended",
        "cross-validation; 'paper' without --analyses asks for all of them",
        choices=("recommended", "paper", "cbig"),
    )
    repeats: int | None = refines(None, "repetitions of the outer folds [preset]")
    folds: int | None = refines(None, "outer folds [preset]")
    inner_folds: int | None = refines(None, "inner folds [preset]", in_file=True)
    folds_file: Path | None = asks(None, "a folds.tsv, or a table of people with a column of folds per repeat")
    penalties: tuple[float, ...] = refines((), "ridge penalties, as they are [preset]", in_file=True)
    selection: str | None = refines(
        None,
        "score of the inner folds that selects the penalty [preset]",
        choices=(
            "pooled_pearson",
            "mean_pearson",
            "pooled_mse",
            "mean_mse",
            "pooled_predictive_cod",
            "mean_predictive_cod",
        ),
        in_file=True,
    )
    fit_transforms_on: str | None = refines(
        None,
        "people that z-scores, PCA and tangent references are fitted to [preset]",
        choices=("cohort", "fold"),
        in_file=True,
    )
    permutations: int | None = refines(
        None,
        "of each prediction [up to 1000, at a third of its cost; none with other presets] and of edges [1000]",
    )
    exclude_file: Path | None = asks(None, "TSV of what to leave out [OUTPUT_DIR/exclude.tsv]")
    max_mean_fd: float | None = asks(None, "leave out recordings with a higher mean FD (mm)")
    equal_minutes: bool = asks(False, "cut every scan to the length of the shortest")
    drop_parcels_missing_in: float = refines(0.1, "drop parcels that a larger share of people lacks", in_file=True)
    drop_people_missing: float = asks(0.1, "leave out people who lack a larger share of parcels", in_file=True)
    check: bool = refines(False, "only look for what would mislead (group/check.tsv)", in_file=True)
    save_models: bool = refines(False, "also write models for 'fcpower_bids predict'")
    accept_no_skill: bool = refines(False, "write also models that do no better than a guess", in_file=True)
    scan_minutes: tuple[float, ...] = refines(
        (), "learning_curves: lengths of scan [doubling from 1.2]", reader="learning_curves", in_file=True
    )
    sample_sizes: tuple[int, ...] = refines(
        (), "learning_curves: numbers of people [25 50 100 150 ...]", reader="learning_curves", in_file=True
    )
    subsamples: bool = refines(
        False,
        "learning_curves: cross-validate within random subsamples of people, not with fewer who train",
        reader="learning_curves",
        in_file=True,
    )
    nbs_threshold: float | None = refines(
        None, "edges: |t| above which edges form networks [that of p = 0.001]", reader="edges", in_file=True
    )
    slow_controls: bool = refines(
        False,
        "spectral_controls: also filters learned in the folds",
        reader="spectral_controls",
        in_file=True,
    )

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Targets that are columns."""
        return tuple(item for item in self.targets if not is_composite(item))

    @property
    def composites(self) -> dict[str, tuple[str, ...]]:
        """Columns of each composite by its name: targets of the form ``NAME=COLUMN,COLUMN,...``."""
        pairs = (item.partition("=") for item in self.targets if is_composite(item))
        return {name.strip(): tuple(part.strip() for part in parts.split(",")) for name, _, parts in pairs}


def is_composite(target: str) -> bool:
    """Whether a target is of the form ``NAME=COLUMN,COLUMN,...``; a column may have one of the signs in its name."""
    return "," in target.partition("=")[2]
