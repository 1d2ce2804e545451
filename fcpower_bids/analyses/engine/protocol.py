"""The protocol of a prediction: preset, people, targets and the folds that all representations share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.engine.connectomes import tell_combination, tell_precision
from fcpower_bids.analyses.engine.people import People, choose_people
from fcpower_bids.analyses.engine.representations import Representation, build_representations, expand_names
from fcpower_bids.analyses.engine.targets import Target, build_once, choose_targets, join_target_builders
from fcpower_bids.core.regression.dense import HOST, dense
from fcpower_bids.core.regression.folds import (
    Fold,
    Rows,
    cbig_folds,
    family_numbers,
    inner_folds,
    leave_one_site_out,
    replicated_folds,
)
from fcpower_bids.core.regression.presets import PRESETS, PredictionPreset
from fcpower_bids.core.regression.targets import TargetBuilder, leave_nothing
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.predictors import NYSTROEM
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis

FloatArray = NDArray[np.float64]
SHARING = " (people who seem to share a scan are one)", "the people who seem to share a scan"


@dataclass(frozen=True, eq=False)
class Study:
    """Everything that the representations of one prediction share.

    Attributes
    ----------
    cohort : Cohort
    settings : Analysis
    preset : PredictionPreset
        With the user's repeats, folds and covariates in the place of the published ones.
    people : People
    targets : list of Target
    folds : tuple of Fold
    """

    cohort: Cohort
    settings: Analysis
    preset: PredictionPreset
    people: People
    targets: list[Target]
    folds: tuple[Fold, ...]

    @cached_property
    def columns(self) -> FloatArray | TargetBuilder:
        """All targets side by side, without what the covariates explain: `targets.join_target_builders`."""
        return build_once(join_target_builders(self.targets, self.people.covariates))

    def representations(self, cohort: Cohort | None = None) -> Iterator[Representation]:
        """What is asked for, one at a time; of another cohort with the same scans if one is given."""
        chosen = cohort or self.cohort
        return build_representations(chosen, self.people.scans, expand_names(chosen, self.settings), self.settings)

    @property
    def first_repeat(self) -> tuple[Fold, ...]:
        """The folds of one repeat."""
        return tuple(fold for fold in self.folds if fold.repeat == 0)

    def facts(self) -> dict[str, Any]:
        """Describe the protocol for a sidecar."""
        brought = self.settings.folds_file or self.settings.test_people
        unused: tuple[str, ...] = ("n_folds", "splits") if self.settings.hold_out_sites or brought else ()
        if NYSTROEM not in self.settings.predictors:
            unused += ("landmarks", "seed")
        how = "each site held out in turn" if self.settings.hold_out_sites else "K-fold"
        return {
            "Preset": {name: value for name, value in dataclasses.asdict(self.preset).items() if name not in unused},
            "Folds": f"those of {brought.name}" if brought else how,
            "FamilyColumn": self.settings.family_column,
            "SiteColumn": self.settings.site_column,
            "Stratified": self.settings.stratify,
            "NumberOfPeople": len(self.people.names),
            "Alpha": self.settings.alpha,
            "Kernel": f"{self.settings.kernel}; linear on z-scored features for embeddings",
            "FeaturesOfAPerson": tell_combination(self.settings),
            "Precision": tell_precision((len(self.people.names), self.cohort.edges.shape[1])),
            "PositiveClasses": {each.name: each.positive for each in self.targets if each.is_binary},
            **({"Solver": dense().name} if dense() is not HOST else {}),
            **self.people.facts,
            **_notes(self.cohort),
        }


def open_study(cohort: Cohort, settings: Analysis) -> Study:
    """Choose people, targets and folds.

    Raises
    ------
    Unfit
        Unknown columns, targets without variation, too few people or a family too large for the folds.
    """
    preset = resolve_preset(settings)
    if settings.stratify and (settings.hold_out_sites or preset.splits != "random" or cohort.folds is not None):
        raise Unfit(
            "--stratify spreads people over random folds; it does not go with sites that are held out, the folds of "
            "CBIG, or folds from a file."
        )
    names = expand_names(cohort, settings)
    people = choose_people(cohort, settings, names, preset.covariates)
    targets = choose_targets(people.phenotypes, settings, cohort.targets or None, preset.covariates)
    folds = (
        draw_folds(people, settings, preset, targets)
        if cohort.folds is None
        else take_folds(cohort.folds, people, settings, preset)
    )
    for target in targets:
        _check_known(target, folds)
        _check_left(target, people.covariates, folds)
    return Study(cohort, settings, preset, people, targets, folds)


def resolve_preset(settings: Analysis) -> PredictionPreset:
    """Return the published protocol with the numbers that the user changed."""
    preset = PRESETS[settings.preset]
    return dataclasses.replace(
        preset,
        n_repeats=settings.repeats or (1 if settings.hold_out_sites else preset.n_repeats),
        n_folds=settings.folds or preset.n_folds,
        n_inner=settings.inner_folds or preset.n_inner,
        covariates=settings.covariates or preset.covariates,
        penalties=settings.penalties or preset.penalties,
        relative_penalties=preset.relative_penalties and not settings.penalties,
        selection=settings.selection or preset.selection,
        group_fit=settings.group_fit or preset.group_fit,
        landmarks=settings.landmarks,
        seed=settings.random_seed,
    )


def draw_folds(
    people: People, settings: Analysis, preset: PredictionPreset, targets: Sequence[Target] = ()
) -> tuple[Fold, ...]:
    """Draw the folds: random, those of MATLAB, or the sites in turn; families are never split.

    Raises
    ------
    Unfit
        Too few people, families or sites, or a family larger than a fold.
    """
    n, families, seed = len(people.names), people.families, settings.random_seed
    strata = _strata(people, targets) if settings.stratify else None
    if settings.hold_out_sites:
        if people.sites is None:
            raise Unfit("Holding out sites needs their column; give --site-column.")
        by_site = preset.inner_by_site and len(set(people.sites.tolist())) > 2
        return leave_one_site_out(people.sites, preset.n_inner, preset.n_repeats, seed, families, by_site)
    _check_size(people, settings, preset)
    if preset.splits == "random":
        return replicated_folds(n, preset.n_folds, preset.n_inner, preset.n_repeats, seed, families, strata)
    listed = None if families is None else families.tolist()
    return cbig_folds(people.names, preset.n_folds, preset.n_inner, tuple(range(1, preset.n_repeats + 1)), listed)


def _check_size(people: People, settings: Analysis, preset: PredictionPreset) -> None:
    """Refuse fewer people or families than folds, and a family that is larger than a fold."""
    few = Unfit if settings.folds else NotInCohort  # nobody chose the folds of a preset: the others go on
    n, n_folds = len(people.names), preset.n_folds
    sizes = np.bincount(family_numbers(people.families, n))
    declared = people.families is None or settings.family_column
    alike, check = ("", "--family-column") if declared else SHARING
    if n > 1 == sizes.size:
        raise few(f"All people are of one family{alike}, so no split keeps families whole; check {check}.")
    for count, what in ((n, "people"), (sizes.size, f"families{alike}")):
        if count < n_folds:
            raise few(f"{count} {what} are fewer than {n_folds} folds; use --folds {max(count // 2, 2)} or fewer.")
    largest = int(sizes.max())
    if largest > (n / n_folds if preset.splits == "random" else -(-n // n_folds)):
        remedy = f"use --folds {n // largest} or fewer, or check" if n >= 2 * largest else "check"
        raise few(f"A family of {largest} is larger than one of {n_folds} folds of {n} people; {remedy} {check}.")


def _strata(people: People, targets: Sequence[Target]) -> NDArray[np.intp]:
    """Number the combinations of site and of the classes of every target of two; an unknown class is one too."""
    labels = [] if people.sites is None else [people.sites]
    labels += [each.measures[:, 0].astype(str) for each in targets if each.is_binary]
    if not labels:
        raise Unfit("--stratify needs a --site-column, or a target of two classes.")
    return np.unique(np.column_stack(labels), axis=0, return_inverse=True)[1].ravel().astype(np.intp)


def take_folds(brought: pd.DataFrame, people: People, settings: Analysis, preset: PredictionPreset) -> tuple[Fold, ...]:
    """Take folds that were brought, without the people who cannot take part; draw the inner folds that they lack.

    Raises
    ------
    Unfit
        A fold has nobody to test or too few to train, or a family on both sides.
    """
    place = {name: row for row, name in enumerate(people.names)}
    rows = brought.assign(row=brought["participant_id"].map(place)).dropna(subset="row").astype({"row": int})
    family, folds = family_numbers(people.families, len(place)), []
    for repeat, (_, of_repeat) in enumerate(rows.sort_values("row").groupby("repeat", sort=False)):
        for number, (label, one) in enumerate(of_repeat.groupby("fold")):
            test = one.loc[one["role"] == "test", "row"].to_numpy(dtype=np.intp)
            training = one.loc[one["role"] == "train"]
            train, inner = training["row"].to_numpy(dtype=np.intp), training["inner_fold"].to_numpy()
            _check_fold(str(label), test, train, family, people, preset)
            if (inner >= 0).all() and np.unique(inner).size > 1:
                own = tuple(train[inner == each] for each in np.unique(inner))
            else:
                own = inner_folds(train, family, preset.n_inner, (settings.random_seed, repeat, number + 1))
            folds.append(Fold(repeat, number, train, test, own))
    return tuple(folds)


def _check_fold(label: str, test: Rows, train: Rows, family: Rows, people: People, preset: PredictionPreset) -> None:
    if not test.size or train.size < 2 * preset.n_inner:
        raise Unfit(
            f"Fold {label} tests {test.size} and trains on {train.size} of the people who can take part; it needs one "
            f"to test and {2 * preset.n_inner} to train."
        )
    shared = np.intersect1d(family[test], family[train])
    if shared.size:
        one, other = (people.names[side[np.isin(family[side], shared)][0]] for side in (test, train))
        raise Unfit(
            f"{one} is tested in fold {label} and {other} trains there, though they are of one family or seem to share "
            "a scan. Correct the file, or exclude one of them."
        )


def _check_known(target: Target, folds: tuple[Fold, ...]) -> None:
    known = target.known
    for fold in folds:
        if sum(known[rows].any() for rows in fold.inner) < 2:
            raise Unfit(
                f"The target '{target.name}' is known for only {known[fold.train].sum()} of the people that train "
                f"fold {fold.fold + 1}; use fewer folds, or leave this target out."
            )


def _check_left(target: Target, covariates: FloatArray, folds: tuple[Fold, ...]) -> None:
    if not covariates.shape[1]:
        return
    train = min((fold.train[target.known[fold.train]] for fold in folds), key=len)
    if leave_nothing(target.measures, covariates, train):
        raise Unfit(
            f"The covariates explain the target '{target.name}' completely, at least in the {len(train)} people that "
            "train one of the folds, so nothing is left to predict. Name fewer --covariates, or leave this target out."
        )


def _notes(cohort: Cohort) -> Mapping[str, Any]:
    return {"CohortNotes": list(cohort.notes)} if cohort.notes else {}
