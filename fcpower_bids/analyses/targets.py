"""Who takes part in a prediction, with which covariates, and what is predicted of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.features import scans_by_person, scans_without_features
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.data_checks import group_share
from fcpower_bids.core.targets import (
    TargetBuilder,
    composite_target,
    fixed_target,
    join_targets,
    residual_target,
)
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.records import SITE, Cohort, site_in
from fcpower_bids.settings import Group
from fcpower_bids.settings.options import HOLD_OUT, PERMUTE

AMOUNTS = {
    "minutes": "minutes of cleaned series",
    "degrees_of_freedom": "degrees of freedom of the series",
    "scans": "number of scans",
    "mean_fd": "mean FD",
}
"""Covariates that no table has to hold: they are known from the scans."""


@dataclass(frozen=True, eq=False)
class People:
    """Everyone whose features and covariates are known, in the order of their names."""

    names: tuple[str, ...]  # ``participant_id`` of n people
    scans: tuple[Rows, ...]  # rows of the cohort's scans of each person
    phenotypes: pd.DataFrame  # their rows
    families: NDArray[np.str_] | None  # (n,); None where no column is named
    sites: NDArray[np.str_] | None  # the same
    covariates: FloatArray  # (n, c): numbers, and one indicator per further class of a text column
    facts: Mapping[str, Any]  # who was left out and why, for the sidecar

    def among(self, names: Iterable[str]) -> People:
        """Those of some names. Raises Unfit: nobody is left."""
        there = set(names)
        rows = [row for row, name in enumerate(self.names) if name in there]
        if not rows:
            raise Unfit("Nobody who has scans, phenotypes and covariates is in the folds of --folds-file.")
        absent = [name for name in self.names if name not in there]
        return replace(
            self,
            names=tuple(self.names[row] for row in rows),
            scans=tuple(self.scans[row] for row in rows),
            phenotypes=self.phenotypes.iloc[rows],
            families=None if self.families is None else self.families[rows],
            sites=None if self.sites is None else self.sites[rows],
            covariates=self.covariates[rows],
            facts={**self.facts, **({"PeopleWithoutFolds": absent} if absent else {})},
        )


def choose_people(cohort: Cohort, settings: Group, representations: Sequence[str], covariates: Sequence[str]) -> People:
    """Choose the people that every representation can describe, for the same folds. Raises NotInCohort, Unfit."""
    usable = ~scans_without_features(cohort, representations)
    scans = scans_by_person(cohort.scans, usable)
    everyone = sorted(set(cohort.scans["participant_id"].astype(str)))
    table = cohort.phenotypes_of(np.flatnonzero(usable))
    table = table.set_axis(table.index.astype(str))
    numbers = covariate_columns(table, cohort.scans[usable], covariates, (settings.site_column,))
    complete = set(numbers.index[numbers.notna().all(axis=1)])
    left_out = {
        "PeopleWithoutPhenotypes": [name for name in everyone if name not in table.index],
        "PeopleWithoutEmbedding": [name for name in everyone if name not in scans],
        "PeopleWithoutCovariates": [name for name in everyone if name in scans and name in {*table.index} - complete],
    }
    names = [name for name in everyone if name in scans and name in complete]
    if table.empty:
        raise NotInCohort("There are no phenotypes to predict; name their tables with --phenotypes.")
    there = [name for name in everyone if name in scans and name in numbers.index]
    if there and (unknown := numbers.columns[numbers.loc[there].isna().all()].tolist()):
        raise Unfit(
            f"The covariate '{unknown[0]}' is known of nobody here. Give it with the scans, or name --covariates "
            "without it."
        )
    if not names:
        raise Unfit("No person has scans, phenotypes and covariates; check participant_id in the phenotype tables.")
    table, numbers = table.loc[names], numbers.loc[names]
    return People(
        names=tuple(names),
        scans=tuple(scans[name] for name in names),
        phenotypes=table,
        families=join_families(labels_of(table, settings.family_column, "family"), names, cohort.alike),
        sites=labels_of(table, settings.site_column, "site"),
        covariates=numbers.to_numpy(dtype=float).reshape(len(names), -1),
        facts={key: value for key, value in left_out.items() if value},
    )


def person_amounts(scans: pd.DataFrame) -> pd.DataFrame:
    """How much of everyone was scanned and how they moved: `AMOUNTS` by person; what is not known is NaN."""
    scans = scans.assign(participant_id=scans["participant_id"].astype(str))
    groups = scans.groupby("participant_id")
    amounts = pd.DataFrame({"scans": groups.size().astype(float), "mean_fd": groups["mean_fd"].mean()})
    for name, column, unit in (("minutes", "seconds", 60), ("degrees_of_freedom", "degrees_of_freedom", 1)):
        # the sum of those that are known is not that of all
        amounts[name] = (groups[column].sum() / unit).where(groups[column].count() == groups.size())
    return amounts[list(AMOUNTS)]


def join_families(
    families: NDArray[np.str_] | None, names: Sequence[str], alike: Sequence[tuple[str, str]]
) -> NDArray[np.str_] | None:
    """Make one family of people who seem to share a scan, and of their families; shape (n,), None without any."""
    place = {name: row for row, name in enumerate(names)}
    pairs = [(place[first], place[other]) for first, other in alike if first in place and other in place]
    if not pairs:
        return families
    joined = np.array(names, dtype=str) if families is None else families.copy()
    for first, other in pairs:
        joined[joined == joined[other]] = joined[first]
    return joined


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of the phenotype tables; an `Unfit` lists those that are there."""
    if name not in table.columns:
        known = ", ".join(map(str, table.columns)) or "none"
        raise Unfit(f"There is no column '{name}' in the phenotype tables. Columns: {known}.")
    return table[name]


def labels_of(table: pd.DataFrame, column: str | None, kind: str) -> NDArray[np.str_] | None:
    """Return the families or sites of a column, shape (n,); None without one. An `Unfit` names who has none."""
    if column is None:
        return None
    labels = column_of(table, column)
    missing = labels.isna() | labels.astype(str).str.strip().isin(["", "n/a"])
    if missing.any():
        raise Unfit(f"{labels.index[missing][0]} has no {kind} in the column '{column}'; give one or exclude.")
    return labels.astype(str).to_numpy(dtype=str)


def covariate_columns(
    table: pd.DataFrame, scans: pd.DataFrame, names: Sequence[str], classes: Collection[str | None]
) -> pd.DataFrame:
    """Numeric columns; text, and what is named as classes, becomes indicators of all classes but the first."""
    columns = []
    for name in names:
        if name in AMOUNTS and name not in table.columns:
            columns.append(person_amounts(scans)[[name]].reindex(table.index))
            continue
        values = column_of(table, name)
        numbers = pd.to_numeric(values, errors="coerce")
        if name not in classes and numbers.notna().sum() == values.notna().sum():
            columns.append(numbers.astype(float).to_frame())
        else:
            indicators = pd.get_dummies(values, prefix=name, drop_first=True, dtype=float)
            columns.append(indicators.where(values.notna(), np.nan))
    return pd.concat(columns, axis=1) if columns else pd.DataFrame(index=table.index)


Targets = Mapping[str, FloatArray]
EVERYONE = slice(None)
SIGNIFICANT = 0.005
"""For all tests of one kind together, so that a sound cohort is seldom accused."""
SITES = re.compile(
    r"(study_?|acq(uisition)?_?|scan(ning)?_?)?(site|batch|cent(er|re)|scanner|magnet|manufacturer|device_?serial_?number)"
    r"(_?(id|name|no|nr|number|code|label))?\d?",
    re.IGNORECASE,
)
UNKNOWN = "n/a"
"""Site of people whose site is not known: they change places among themselves."""
REMEMBERED = 2**26
"""Numbers of targets that are kept, over all folds in which they are built: 537 MB."""


@dataclass(frozen=True, eq=False)
class Target:
    """One thing to predict."""

    name: str  # column, or name of the composite
    measures: FloatArray  # (n, q): the column (q = 1), or those of the composite; NaN where missing
    positive: str | None = None  # the class that is coded as 1, for a target of two classes

    @property
    def is_binary(self) -> bool:
        """Whether the target is one of two classes."""
        return self.positive is not None

    @property
    def known(self) -> NDArray[np.bool_]:
        """Who has the target, shape (n,)."""
        return np.asarray(~np.isnan(self.measures).any(axis=1))

    def build(self, order: Rows | slice = EVERYONE) -> TargetBuilder:
        """Return the target as built in a fold, for people in their own or in a permuted order."""
        measures = self.measures[order]
        return composite_target(measures) if measures.shape[1] > 1 else fixed_target(measures)


def choose_targets(
    table: pd.DataFrame, settings: Group, defaults: Sequence[str] | None = None, covariates: Sequence[str] = ()
) -> list[Target]:
    """Read the targets asked for, else all numeric columns that vary, and composites. Raises NotInCohort, Unfit."""
    composites = []
    for name, columns in settings.composites.items():
        measures = [column_of(table, column) for column in columns]
        if still := next((column.name for column in measures if column.nunique() < 2), None):
            raise Unfit(f"The column '{still}' of the composite '{name}' does not vary among those who take part.")
        values = [column.to_numpy(dtype=float, na_value=np.nan) for column in measures]
        composites.append(Target(name, np.column_stack(values)))
    names = list(settings.target_columns)
    if not names and not composites:
        spoken_for = {*covariates, settings.family_column, settings.site_column}
        numeric = [str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
        candidates = numeric if defaults is None else defaults
        names = [name for name in candidates if name not in spoken_for and table[name].nunique() > 1]
    made_of = {name: settings.made_of(name) for name in (*names, *settings.composites)}
    for name, column in ((name, column) for name, columns in made_of.items() for column in sorted(columns)):
        if column in covariates:  # one that was named is refused before
            what = f"'{name}' is" if name == column else f"'{name}' is made of '{column}', which is"
            raise Unfit(
                f"{what} a covariate of --preset {settings.preset}, so it is no target there. Name other "
                "--covariates, another preset, or leave this target out."
            )
    targets = [_read_target(table, name) for name in dict.fromkeys(names)]
    if not targets and not composites:
        raise NotInCohort("There is no phenotype to predict; name columns with --targets.")
    return targets + composites


def join_target_builders(
    targets: Sequence[Target], covariates: FloatArray, orders: Sequence[Rows | slice] = (EVERYONE,)
) -> FloatArray | TargetBuilder:
    """Targets (n, B m) side by side for `nested.nested_cv`, without what the covariates (n, c) explain."""
    bare = not covariates.shape[1]
    if bare and all(target.measures.shape[1] == 1 for target in targets):
        return np.hstack([target.measures[order] for order in orders for target in targets])
    built = [(target.build(order), covariates[order]) for order in orders for target in targets]
    return join_targets([build if bare else residual_target(build, given) for build, given in built])


def build_once(targets: FloatArray | TargetBuilder) -> FloatArray | TargetBuilder:
    """Let targets be built once per training set however many regressions are fitted to them, up to `REMEMBERED`."""
    if not callable(targets):
        return targets
    build = targets
    known: dict[bytes, FloatArray] = {}

    def remember(train: Rows) -> FloatArray:
        key = train.tobytes()
        if key in known:
            return known[key]
        built = build(train)
        if (len(known) + 1) * built.size <= REMEMBERED:
            known[key] = built
        return built

    return remember


def _read_target(table: pd.DataFrame, name: str) -> Target:
    column = column_of(table, name)
    classes = sorted(column.dropna().unique().tolist())
    if not classes:
        raise Unfit(f"The target '{name}' is missing for everyone who takes part.")
    if len(classes) == 1:
        raise Unfit(f"The target '{name}' is constant ({classes[0]}): there is nothing to predict.")
    if len(classes) == 2:
        encoded = (column == classes[1]).astype(float).where(column.notna()).to_numpy()
        return Target(name, encoded[:, None], str(classes[1]))
    return Target(name, column.to_numpy(dtype=float, na_value=np.nan)[:, None])


@dataclass(frozen=True)
class SiteShare:
    """A target that goes with a column of sites."""

    target: str  # or a part of a composite
    column: str
    share: float  # share of the variance between the sites
    n_sites: int


def site_columns(table: pd.DataFrame, settings: Group) -> list[str]:
    """Columns of sites: the one that is named, else those whose name and number of values say so."""
    if settings.site_column:
        return [settings.site_column] if settings.site_column in table else []
    return [str(name) for name in table if SITES.fullmatch(str(name)) and 1 < table[name].nunique() <= len(table) / 2]


def site_labels(table: pd.DataFrame, column: str) -> NDArray[np.str_]:
    """The sites of a column, shape (n,); `UNKNOWN` where there is none."""
    values = table[column]
    if column == SITE:  # people without phenotypes, too, have that of their output folder
        values = values.where(values.notna(), [site_in(str(person)) for person in table.index])
    return values.astype(str).where(values.notna(), UNKNOWN).to_numpy(dtype=str)


def held_out_column(folds: pd.DataFrame | None, table: pd.DataFrame, columns: Sequence[str]) -> str | None:
    """The first column no site of which is on both sides of a fold of a file."""
    if folds is None:
        return None
    for column in columns:
        sites = dict(zip(table.index, site_labels(table, column).tolist(), strict=True))
        labelled = folds.assign(site=folds["participant_id"].map(sites)).dropna(subset="site")
        sides = labelled[labelled["role"] != "excluded"].groupby(["repeat", "fold", "site"])["role"].nunique()
        if len(sides) and (sides == 1).all():
            return column
    return None


def find_site_shares(table: pd.DataFrame, targets: Targets, settings: Group) -> tuple[SiteShare, ...]:
    """Targets whose variance lies between sites by more than chance; all tests together keep the level."""
    shares, columns = [], site_columns(table, settings)
    for column in columns:
        known = table[column].notna().to_numpy()
        sites = table[column].astype(str).to_numpy()[known]
        for name, values in ((name, values[known]) for name, values in targets.items() if name != column):
            tested = group_share(values, sites)
            if tested.p < SIGNIFICANT / (len(targets) * len(columns)):
                shares.append(SiteShare(name, column, tested.size, len(np.unique(sites))))
    return tuple(shares)


def read_targets(table: pd.DataFrame, cohort: Cohort, settings: Group) -> dict[str, FloatArray]:
    """Values of every target by its name, and of every part of a composite; nothing where they cannot be used."""
    try:
        targets = choose_targets(table, settings, cohort.targets or None, settings.covariates)
    except Unfit:  # the analysis that needs them says it
        return {}
    whole = {target.name: target.measures[:, 0] for target in targets if target.measures.shape[1] == 1}
    parts = sorted({name for names in settings.composites.values() for name in names})
    numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in parts if name in table}
    return whole | {name: column.to_numpy(dtype=float, na_value=np.nan) for name, column in numbers.items()}


def describe_handling(column: str, held_out: str | None, settings: Group) -> str:
    """How choices, or the folds of a file, deal with a column of sites, one sentence; empty where they do not."""
    named = column == settings.site_column
    if column == held_out:
        return "No fold of the file splits a site, and scores and tests are of people within a site."
    if named and settings.sites == HOLD_OUT:
        return "The sites are held out in turn, and scores and tests are of people within a site."
    if column in settings.covariates:
        return "The site is among the covariates, so its means are taken off in every fold."
    if named and settings.sites != PERMUTE:
        return "ComBat takes the site from the features in every fold, and permutations stay within the sites."
    if named:
        return "Permutations stay within the sites, and the score within sites is reported."
    return ""
