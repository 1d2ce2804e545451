"""A study: preset, people, targets, and what all representations of a prediction share.

That is outer and inner folds, who may change places, and the unit of every test; nothing else draws them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.analyses.features import (
    Representation,
    build_representations,
    describe_combination,
    describe_precision,
    expand_names,
)
from fcpower_bids.analyses.targets import (
    People,
    SiteShare,
    Target,
    build_once,
    choose_people,
    choose_targets,
    column_of,
    find_site_shares,
    held_out_column,
    join_families,
    join_target_builders,
    read_targets,
    site_columns,
    site_labels,
)
from fcpower_bids.core.arrays import FloatArray, Labels, Rows
from fcpower_bids.core.folds import (
    PRESETS,
    Fold,
    PredictionPreset,
    cbig_folds,
    deal_families,
    family_numbers,
    inner_folds,
    leave_one_site_out,
    matlab_inner_folds,
    partition,
    replicated_folds,
)
from fcpower_bids.core.targets import TargetBuilder, leave_nothing, permuted_rows
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from fcpower_bids.settings.options import HOLD_OUT, PERMUTE

FEWEST_PEOPLE = 30
"""Fewer people are described, and predicted only where targets are named."""
SHARING = " (people who seem to share a scan are one)", "the people who seem to share a scan"


@dataclass(frozen=True, eq=False)
class Study:
    """Everything that the representations of one prediction share."""

    cohort: Cohort
    settings: Settings
    preset: PredictionPreset  # with the user's repeats, folds and covariates in the place of the published ones
    people: People
    targets: list[Target]
    exchange: Exchange  # who may change places
    folds: tuple[Fold, ...]
    held_out: str | None  # the column of sites no one of which both trains and tests in any fold

    @property
    def scored_within(self) -> Labels | None:
        """The sites within which people are scored, shape (n,): those held out, whose level no model can know."""
        return None if self.held_out is None else self.exchange.columns[self.held_out]

    def sites_of(self, target: str) -> Labels | None:
        """The sites that the predictions of a target are reported for, shape (n,)."""
        return self.exchange.sites_of(target) if self.scored_within is None else self.scored_within

    def site_facts(self) -> dict[str, Any]:
        """Describe the sites for a sidecar."""
        if self.held_out is not None:
            return {"SitesHeldOut": self.held_out}
        return self.exchange.facts([target.name for target in self.targets], self.preset.covariates)

    def divide(self, rows: Rows) -> list[Rows]:
        """Divide people into as many parts as there are inner folds, families whole, for a model of all of them."""
        families = family_numbers(self.people.families, len(self.people.names))[rows]
        rng = np.random.default_rng(self.settings.method.random_seed)
        labels = deal_families(families, self.preset.n_inner, rng)
        return [rows[labels == part] for part in range(self.preset.n_inner)]

    def within(self, subsamples: Sequence[Rows]) -> Study:
        """The study with folds within subsamples of people, families whole; the repeat is the number of the subsample.

        Source: the paper, Figure "duration" a, Tables "grid", "gridfull". Raises Unfit.
        """
        preset, folds = self.preset, list[Fold]()
        families = family_numbers(self.people.families, len(self.people.names))
        for number, people in enumerate(subsamples):
            rows, seed = np.sort(people), self.settings.method.random_seed
            try:
                drawn = replicated_folds(len(rows), preset.n_folds, preset.n_inner, 1, seed, families[rows])
            except ValueError as error:
                raise Unfit(f"A subsample of {len(rows)} people cannot be divided. {error}") from error
            for fold in drawn:
                inner = tuple(rows[part] for part in fold.inner)
                folds.append(Fold(number, fold.fold, rows[fold.train], rows[fold.test], inner))
        return dataclasses.replace(self, folds=tuple(folds))

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
        group = self.settings.group
        brought = group.folds_file
        unused: tuple[str, ...] = ("n_folds", "n_inner", "splits") if group.sites == HOLD_OUT or brought else ()
        unused += ("n_repeats",) if brought else ()
        how = "each site held out in turn" if group.sites == HOLD_OUT else "K-fold"
        sizes, sites = {len(fold.inner) for fold in self.folds}, self.scored_within
        by_site = sites is not None and all(
            sum(len(set(sites[rows])) for rows in fold.inner) == len(set(sites[fold.train])) for fold in self.folds
        )
        between = " to ".join(map(str, sorted({min(sizes), max(sizes)})))
        inner = {"InnerFolds": between, "InnerFoldsHoldOutSites": by_site}
        return {
            "Preset": {name: value for name, value in dataclasses.asdict(self.preset).items() if name not in unused},
            "Folds": f"those of {brought.name}" if brought else how,
            **(inner if unused else {}),
            "Stratified": group.stratify,
            "Kernel": f"{group.kernel}; linear on z-scored features for embeddings",
            "Precision": describe_precision((len(self.people.names), self.cohort.edges.shape[1])),
            "PositiveClasses": {target.name: target.positive for target in self.targets if target.is_binary},
            **self.site_facts(),
            **describe_people(self.cohort, self.people, self.settings),
        }


def describe_people(cohort: Cohort, people: People, settings: Settings) -> dict[str, Any]:
    """Describe, for a sidecar, who takes part and what they are described by."""
    return {
        "FamilyColumn": settings.group.family_column,
        "SiteColumn": settings.group.site_column,
        "NumberOfPeople": len(people.names),
        "Alpha": settings.method.alpha,
        "FeaturesOfAPerson": describe_combination(settings.group.representations),
        **people.facts,
        **({"CohortNotes": list(cohort.notes)} if cohort.notes else {}),
    }


def changes_features(sites: str) -> bool:
    """Whether this choice of ``--sites`` takes site effects from the features."""
    return sites not in (PERMUTE, HOLD_OUT)


def open_study(cohort: Cohort, settings: Settings, harmonises: bool = False) -> Study:
    """Choose people, targets and folds. `harmonises`: whether site effects can be taken from features. Raises Unfit."""
    group = settings.group
    if changes_features(group.sites) and not harmonises:
        raise Unfit(
            f"--sites {group.sites} takes the sites from the features of the prediction alone. Leave this out, "
            "or choose another --sites."
        )
    preset = resolve_preset(settings)
    if group.stratify and (group.sites == HOLD_OUT or preset.splits != "random" or cohort.folds is not None):
        raise Unfit(
            "stratify spreads people over random folds; it does not go with sites that are held out, the folds of "
            "CBIG, or folds from a file."
        )
    if group.sites == HOLD_OUT and group.site_column in preset.covariates:
        raise Unfit(
            f"'{group.site_column}' is a covariate, and --sites hold-out tests sites that no coefficient was fitted "
            "to. Leave it out of --covariates."
        )
    names = expand_names(cohort, settings)
    people = choose_people(cohort, settings.group, names, preset.covariates)
    if cohort.folds is not None:  # who is in none takes no part
        people = people.among(cohort.folds["participant_id"])
    if not group.targets and len(people.names) < FEWEST_PEOPLE:
        n = len(people.names)
        raise NotInCohort(
            f"{n} {'person is' if n == 1 else 'people are'} too few to see by themselves what can be predicted; below "
            f"{FEWEST_PEOPLE} name --targets to have them predicted."
        )
    targets = choose_targets(people.phenotypes, settings.group, cohort.targets or None, preset.covariates)
    exchange = plan_exchange(cohort, people, settings)
    if cohort.folds is None:
        folds = _draw_folds(people, settings, preset, targets)
        held_out = group.site_column if group.sites == HOLD_OUT else None
    else:
        held_out = held_out_column(cohort.folds, people.phenotypes, list(exchange.columns))
        sites = None if held_out is None or not preset.inner_by_site else exchange.columns[held_out]
        folds = _brought_folds(cohort, people, preset, settings.method.random_seed, sites)
    for target in targets:
        known = target.known
        for fold in folds:
            if sum(known[rows].any() for rows in fold.inner) < 2:
                fewer = "use fewer folds, or " * (group.sites != HOLD_OUT and cohort.folds is None)
                raise Unfit(
                    f"The target '{target.name}' is known for only {known[fold.train].sum()} of the people that train "
                    f"fold {fold.fold + 1}, too few or of one site; {fewer}leave this target out."
                )
        train = min((fold.train[known[fold.train]] for fold in folds), key=len)
        if people.covariates.shape[1] and leave_nothing(target.measures, people.covariates, train):
            raise Unfit(
                f"The covariates explain the target '{target.name}' completely, at least in the {len(train)} people "
                "that train one of the folds, so nothing is left to predict. Name fewer --covariates, or leave this "
                "target out."
            )
    return Study(cohort, settings, preset, people, targets, exchange, folds, held_out)


def resolve_preset(settings: Settings) -> PredictionPreset:
    """Return the published protocol with the numbers that the user changed."""
    group = settings.group
    preset, once = PRESETS[group.preset], int(group.sites == HOLD_OUT)
    given = {"n_repeats": group.repeats or once, "n_folds": group.folds, "n_inner": group.inner_folds}
    given |= {name: getattr(group, name) for name in ("covariates", "penalties", "selection", "fit_transforms_on")}
    relative = preset.relative_penalties and not group.penalties
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value}
    return dataclasses.replace(preset, relative_penalties=relative, **chosen)


# --- Who changes places ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exchange:
    """Blocks within which people are exchanged where a target depends on nothing."""

    people: People
    settings: Settings
    # (n,): site of everyone by column: the one that is named, else those that are recognised by their names
    columns: Mapping[str, Labels]
    site_shares: tuple[SiteShare, ...]  # targets that go with such a column

    def shares(self, target: str) -> list[SiteShare]:
        """The columns of sites that a target, or a part of it, goes with, the strongest first."""
        names = {target, *self.settings.group.composites.get(target, ())}
        return sorted((share for share in self.site_shares if share.target in names), key=lambda share: -share.share)

    def sites_of(self, target: str) -> Labels | None:
        """The sites within which a target is permuted: those named, else those that it goes with, shape (n,)."""
        if self.people.sites is not None:
            return self.people.sites
        columns = [self.columns[column] for column in dict.fromkeys(share.column for share in self.shares(target))]
        return np.array(["/".join(labels) for labels in zip(*columns, strict=True)]) if columns else None

    def variance_groups(self, target: Target) -> Labels:
        """Groups that may be spread differently, shape (n,): the sites, and the classes of a target of two."""
        sites, n = self.sites_of(target.name), len(self.people.names)
        labels = np.full(n, "all") if sites is None else sites
        if target.is_binary:
            labels = np.array(
                [f"{label}/{value:g}" for label, value in zip(labels, target.measures[:, 0], strict=True)]
            )
        return labels

    def orders(self, target: Target, number: int) -> Rows:
        """Draw orders of the people who have a target, shape (number, n): families whole, everyone at their site."""
        labels = self.people.families, self.sites_of(target.name)
        blocks = (None if column is None else column[target.known] for column in labels)
        return permuted_rows(int(target.known.sum()), number, self.settings.method.random_seed, *blocks)

    def facts(self, targets: Sequence[str], covariates: Sequence[str]) -> dict[str, Any]:
        """Describe, for a sidecar, the targets that go with a site that is no covariate."""
        explained = {}
        for target in targets:
            shares = [share for share in self.shares(target) if share.column not in covariates]
            if shares:
                columns, most = [share.column for share in shares], shares[0]
                explained[target] = {"Columns": columns, "Share": most.share}
        return {"TargetsThatGoWithSites": explained} if explained else {}


def plan_exchange(cohort: Cohort, people: People, settings: Settings) -> Exchange:
    """Find the sites within which people change places, as the check of the cohort finds them."""
    table = cohort.phenotypes.set_axis(cohort.phenotypes.index.astype(str))
    columns = {name: site_labels(people.phenotypes, name) for name in site_columns(table, settings.group)}
    shares = find_site_shares(table, read_targets(table, cohort, settings.group), settings.group) if columns else ()
    return Exchange(people, settings, columns, shares)


class ScanBlocks(NamedTuple):
    """Blocks of people whose scans are compared with each other."""

    # (N,): site of each scan, by the column that is named, else those that are recognised by their names
    sites: Labels | None
    families: Mapping[str, str] | None  # of every person
    columns: Sequence[str]  # those of the sites

    def facts(self) -> dict[str, Any]:
        """Describe them for a sidecar."""
        sites = {"SiteColumns": list(self.columns)} if self.columns else {}
        return sites | ({} if self.families is None else {"Unit": "family"})


def plan_scan_blocks(cohort: Cohort, persons: NDArray[Any], settings: Settings) -> ScanBlocks:
    """Find sites and families of scans (N,); a person without phenotypes is a family, of a site not known."""
    group = settings.group
    table = cohort.phenotypes.set_axis(cohort.phenotypes.index.astype(str))
    columns = site_columns(table, group) if group.site_column is None else [group.site_column]
    table = table.reindex(persons)
    labels = [site_labels(column_of(table, column).to_frame(), column) for column in columns]
    families = None
    if group.family_column is not None:
        column = column_of(table, group.family_column)
        families = column.astype(str).where(column.notna(), persons).to_numpy(dtype=str)
    families = join_families(families, persons.tolist(), cohort.alike)
    return ScanBlocks(
        np.array(["/".join(parts) for parts in zip(*labels, strict=True)], dtype=str) if labels else None,
        None if families is None else dict(zip(persons.tolist(), families.tolist(), strict=True)),
        columns,
    )


# --- Folds ----------------------------------------------------------------------------------------------------------


def _draw_folds(
    people: People, settings: Settings, preset: PredictionPreset, targets: Sequence[Target]
) -> tuple[Fold, ...]:
    """Draw the folds: random, those of MATLAB, or the sites in turn; families are never split."""
    n, families, seed = len(people.names), people.families, settings.method.random_seed
    strata = None
    # strata: combinations of site and of the classes of every target of two; an unknown class is one too
    if settings.group.stratify:
        labels = [] if people.sites is None else [people.sites]
        labels += [target.measures[:, 0].astype(str) for target in targets if target.is_binary]
        if not labels:
            raise Unfit("stratify needs a --site-column, or a target of two classes.")
        strata = np.unique(np.column_stack(labels), axis=0, return_inverse=True)[1].ravel().astype(np.intp)
    if settings.group.sites == HOLD_OUT:
        if people.sites is None:
            raise Unfit("Holding out sites needs their column; give --site-column.")
        by_site = preset.inner_by_site and len(set(people.sites.tolist())) > 2
        return leave_one_site_out(people.sites, preset.n_inner, preset.n_repeats, seed, families, by_site)
    _check_size(people, settings, preset)
    if preset.splits == "random":
        return replicated_folds(n, preset.n_folds, preset.n_inner, preset.n_repeats, seed, families, strata)
    listed = None if families is None else families.tolist()
    return cbig_folds(people.names, preset.n_folds, preset.n_inner, tuple(range(1, preset.n_repeats + 1)), listed)


def _check_size(people: People, settings: Settings, preset: PredictionPreset) -> None:
    # the folds of a preset are a default: the other analyses go on
    few = Unfit if settings.group.folds else NotInCohort
    n, n_folds = len(people.names), preset.n_folds
    sizes = np.bincount(family_numbers(people.families, n))
    declared = people.families is None or settings.group.family_column
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


def _brought_folds(
    cohort: Cohort, people: People, preset: PredictionPreset, seed: int, sites: Labels | None
) -> tuple[Fold, ...]:
    """Take the folds of a file, without the people who cannot take part. Raises Unfit.

    Inner folds are those of the file, where it names them (-1 for none), else those of the preset.
    """
    place = {name: row for row, name in enumerate(people.names)}
    family = family_numbers(people.families, len(people.names))
    brought = cohort.folds
    assert brought is not None
    rows = brought.assign(row=brought["participant_id"].map(place)).dropna(subset="row").astype({"row": int})
    folds = list[Fold]()
    for repeat, (_, one_repeat) in enumerate(rows.groupby("repeat", sort=False)):
        for number, (of_fold, part) in enumerate(one_repeat.groupby("fold", sort=False)):
            test = part.loc[part["role"] == "test", "row"].to_numpy(dtype=np.intp)
            training = part.loc[part["role"] == "train"]
            listed, named = (training[name].to_numpy(dtype=np.intp) for name in ("row", "inner_fold"))
            if not test.size or listed.size < 2 * preset.n_inner:
                raise Unfit(
                    f"Fold {of_fold} tests {test.size} and trains on {listed.size} of the people who can take part; it "
                    f"needs one to test and {2 * preset.n_inner} to train."
                )
            if (shared := np.intersect1d(family[test], family[listed])).size:
                first, second = (people.names[side[family[side] == shared[0]][0]] for side in (test, listed))
                raise Unfit(
                    f"{first} is tested in fold {of_fold} and {second} trains there, though they are of one family, or "
                    "seem to share a scan. Correct the file, or exclude one of them."
                )
            train = np.sort(listed)
            if (named >= 0).all() and np.unique(named).size > 1:
                inner = partition(train, named[np.argsort(listed)])
            elif preset.splits == "matlab":
                inner = matlab_inner_folds(listed, preset.n_inner)
            elif sites is not None and np.unique(sites[train]).size > 1:
                inner = partition(train, np.unique(sites[train], return_inverse=True)[1])
            else:
                inner = inner_folds(train, family, preset.n_inner, (seed, repeat, number + 1))
            folds.append(Fold(repeat, number, train, np.sort(test), inner))
    return tuple(folds)
