"""A study: preset, people, targets and the protocol that all representations of a prediction share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fcpower_bids.analyses.features import (
    Representation,
    build_representations,
    describe_combination,
    describe_precision,
    expand_names,
)
from fcpower_bids.analyses.protocol import Protocol, plan_protocol
from fcpower_bids.analyses.targets import (
    People,
    Target,
    build_once,
    choose_people,
    choose_targets,
    join_target_builders,
)
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.regression.folds import Fold
from fcpower_bids.core.regression.presets import PRESETS, PredictionPreset
from fcpower_bids.core.regression.targets import TargetBuilder, leave_nothing
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Analysis
from fcpower_bids.settings.group import HOLD_OUT

FEWEST_PEOPLE = 30
"""Fewer people are described, and predicted only where targets are named."""


@dataclass(frozen=True, eq=False)
class Study:
    """Everything that the representations of one prediction share."""

    cohort: Cohort
    settings: Analysis
    preset: PredictionPreset  # with the user's repeats, folds and covariates in the place of the published ones
    people: People
    targets: list[Target]
    protocol: Protocol  # folds, permutations, and the unit of every test

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The folds of the protocol."""
        return self.protocol.folds

    def on_folds(self, folds: tuple[Fold, ...]) -> Study:
        """The same study on other folds."""
        return dataclasses.replace(self, protocol=dataclasses.replace(self.protocol, folds=folds))

    @cached_property
    def columns(self) -> FloatArray | TargetBuilder:
        """All targets side by side, without what the covariates explain: `targets.join_target_builders`."""
        return build_once(join_target_builders(self.targets, self.people.covariates))

    def representations(self, cohort: Cohort | None = None) -> Iterator[Representation]:
        """Requested representations, one at a time; of another cohort with the same scans if one is given."""
        chosen = cohort or self.cohort
        return build_representations(chosen, self.people.scans, expand_names(chosen, self.settings), self.settings)

    @property
    def first_repeat(self) -> tuple[Fold, ...]:
        """The folds of one repeat."""
        return tuple(fold for fold in self.folds if fold.repeat == 0)

    def facts(self) -> dict[str, Any]:
        """Describe the protocol for a sidecar."""
        brought = self.settings.folds_file
        unused: tuple[str, ...] = ("n_folds", "n_inner", "splits") if self.settings.sites == HOLD_OUT or brought else ()
        unused += ("n_repeats",) if brought else ()
        how = "each site held out in turn" if self.settings.sites == HOLD_OUT else "K-fold"
        return {
            "Preset": {name: value for name, value in dataclasses.asdict(self.preset).items() if name not in unused},
            "Folds": f"those of {brought.name}" if brought else how,
            **(self.protocol.describe_inner() if unused else {}),
            "FamilyColumn": self.settings.family_column,
            "SiteColumn": self.settings.site_column,
            "Stratified": self.settings.stratify,
            "NumberOfPeople": len(self.people.names),
            "Alpha": self.settings.alpha,
            "Kernel": f"{self.settings.kernel}; linear on z-scored features for embeddings",
            "FeaturesOfAPerson": describe_combination(self.settings),
            "Precision": describe_precision((len(self.people.names), self.cohort.edges.shape[1])),
            "PositiveClasses": {each.name: each.positive for each in self.targets if each.is_binary},
            **self.protocol.facts(self.targets),
            **self.people.facts,
            **({"CohortNotes": list(self.cohort.notes)} if self.cohort.notes else {}),
        }


def open_study(cohort: Cohort, settings: Analysis) -> Study:
    """Choose people, targets and folds. Raises Unfit."""
    preset = resolve_preset(settings)
    if settings.stratify and (settings.sites == HOLD_OUT or preset.splits != "random" or cohort.folds is not None):
        raise Unfit(
            "stratify spreads people over random folds; it does not go with sites that are held out, the folds of "
            "CBIG, or folds from a file."
        )
    names = expand_names(cohort, settings)
    people = choose_people(cohort, settings, names, preset.covariates)
    if not settings.targets and len(people.names) < FEWEST_PEOPLE:
        n = len(people.names)
        raise NotInCohort(
            f"{n} {'person is' if n == 1 else 'people are'} too few to see by themselves what can be predicted; below "
            f"{FEWEST_PEOPLE} name --targets to have them predicted."
        )
    targets = choose_targets(people.phenotypes, settings, cohort.targets or None, preset.covariates)
    protocol = plan_protocol(cohort, people, settings, preset, targets)
    for target in targets:
        known = target.known
        for fold in protocol.folds:
            if sum(known[rows].any() for rows in fold.inner) < 2:
                raise Unfit(
                    f"The target '{target.name}' is known for only {known[fold.train].sum()} of the people that train "
                    f"fold {fold.fold + 1}; use fewer folds, or leave this target out."
                )
        _check_left(target, people.covariates, protocol.folds)
    return Study(cohort, settings, preset, people, targets, protocol)


def resolve_preset(settings: Analysis) -> PredictionPreset:
    """Return the published protocol with the numbers that the user changed."""
    preset = PRESETS[settings.preset]
    return dataclasses.replace(
        preset,
        n_repeats=settings.repeats or (1 if settings.sites == HOLD_OUT else preset.n_repeats),
        n_folds=settings.folds or preset.n_folds,
        n_inner=settings.inner_folds or preset.n_inner,
        covariates=settings.covariates or preset.covariates,
        penalties=settings.penalties or preset.penalties,
        relative_penalties=preset.relative_penalties and not settings.penalties,
        selection=settings.selection or preset.selection,
        fit_transforms_on=settings.fit_transforms_on or preset.fit_transforms_on,
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
