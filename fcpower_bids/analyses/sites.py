"""Sites: their effects taken from the features (ComBat), and scores by site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.analyses.features import Representation
from fcpower_bids.analyses.study import Study
from fcpower_bids.core.arrays import FloatArray, Labels, Rows
from fcpower_bids.core.regression.kernels import PANEL, FeatureSource
from fcpower_bids.core.regression.krr import Regression
from fcpower_bids.core.regression.scores import site_scores, weighted_score
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Table, tabulate
from fcpower_bids.settings import GroupLevel
from fcpower_bids.settings.group import HOLD_OUT, PERMUTE

SMALLEST_SITE = 3
"""Training people below which the spread of a site is not estimated: its people stay as they are."""

TOLERANCE, MOST_STEPS = 1e-10, 1000
"""Relative change of the estimates at which the empirical Bayes iteration ends, and its last step."""


RULE = (
    "ComBat (Johnson et al. 2007, parametric empirical Bayes) of every feature, estimated on the training people of "
    "each fold whose target is known and applied to everyone; the inner folds share it. People of a site with fewer "
    f"than {SMALLEST_SITE} training people are not adjusted, and none is where fewer than two sites are left."
)
SITE, WITHIN = "site", "within sites"


@dataclass(frozen=True, eq=False)
class Combat:
    """Site effects of E features, as estimated on some people."""

    # (k,): the sites that were estimated; k is 0 where there were not two of them, and nothing is adjusted then
    sites: Labels
    # mean, scale: (E,): mean over sites, weighted by people, and standard deviation within sites
    mean: FloatArray
    scale: FloatArray
    slopes: FloatArray  # (c, E): of what is kept
    # shift, spread: (k, E): shift of each site in units of the scale, and its standard deviation over the scale
    shift: FloatArray
    spread: FloatArray

    def apply(self, block: FloatArray, sites: Labels, kept: FloatArray, columns: slice) -> FloatArray:
        """Adjust some columns of features, shape (n, p), of people of known sites; the others stay as they are."""
        rows = np.flatnonzero(np.isin(sites, self.sites))  # others stay as they are
        adjusted = np.array(block, dtype=float)
        if not rows.size:
            return adjusted
        place = np.searchsorted(self.sites, sites[rows])
        level = self.mean[columns] + kept[rows] @ self.slopes[:, columns]
        scale = self.scale[columns]
        moved = adjusted[rows] - level - scale * self.shift[place, columns]
        adjusted[rows] = moved / self.spread[place, columns] + level
        return adjusted


class HarmonisedFeatures:
    """Features (n, E) of people without the estimated effect of their site (n,), adjusted as they are read."""

    def __init__(self, features: FeatureSource, combat: Combat, sites: Labels, kept: FloatArray) -> None:
        self.features, self.combat, self.sites, self.kept = features, combat, sites, kept
        self.shape: tuple[int, ...] = features.shape

    def __getitem__(self, key: Any) -> FloatArray:
        """Return a block (rows, columns) given by two slices, or rows given by one."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        block = np.asarray(self.features[rows, columns], dtype=float)
        return self.combat.apply(block, self.sites[rows], self.kept[rows], columns)


def fit_combat(features: FeatureSource, sites: Labels, kept: FloatArray, train: Rows) -> Combat:
    """ComBat (Johnson et al. 2007) of (n, E), sites (n,), by training people; ``kept`` (n, c) stays. Raises Unfit."""
    names, counts = np.unique(sites[train], return_counts=True)
    names = names[counts >= SMALLEST_SITE]
    names, n_features, n_kept = names if len(names) > 1 else names[:0], features.shape[1], kept.shape[1]
    rows = train[np.isin(sites[train], names)]
    members = (sites[rows][:, None] == names).astype(float)
    design = np.hstack([members, kept[rows]])
    if len(names) and np.linalg.matrix_rank(design) < design.shape[1]:
        raise Unfit("The columns that harmonisation is to keep are confounded with the sites; keep fewer columns.")
    mean, scale = np.zeros(n_features), np.ones(n_features)
    slopes = np.zeros((n_kept, n_features))
    shift, spread = np.zeros((len(names), n_features)), np.ones((len(names), n_features))
    for at in range(0, n_features if len(names) else 0, PANEL):
        columns = slice(at, at + PANEL)
        block = np.asarray(features[:, columns], dtype=float)[rows]
        mean[columns], scale[columns], slopes[:, columns], standard = _standardise(block, design, len(names))
        shift[:, columns] = members.T @ standard / members.sum(axis=0)[:, None]
        residual = standard - members @ shift[:, columns]
        spread[:, columns] = members.T @ residual**2 / (members.sum(axis=0) - 1)[:, None]
    variance = np.where(spread > 0, spread, 1.0)
    if n_features > 1 and len(names):  # priors are shared by the features of a site
        each = map(_shrink_site, shift, spread, members.sum(axis=0))
        shift, variance = (np.stack(own) for own in zip(*each, strict=True))
    return Combat(names, mean, scale, slopes, shift, np.sqrt(variance))


def _standardise(
    block: FloatArray, design: FloatArray, n_sites: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean, scale and slopes of some features of the training people, and these features about them."""
    coefficients: FloatArray = np.asarray(np.linalg.lstsq(design, block, rcond=None)[0], dtype=np.float64)
    mean: FloatArray = design[:, :n_sites].mean(axis=0) @ coefficients[:n_sites]
    scale = np.sqrt(np.mean((block - design @ coefficients) ** 2, axis=0))
    scale[scale <= 1e-12 * np.abs(block).max(axis=0, initial=0.0)] = 0.0  # a constant feature stays
    slopes = coefficients[n_sites:]
    about = block - mean - design[:, n_sites:] @ slopes
    standard: FloatArray = np.divide(about, scale, out=np.zeros_like(about), where=scale > 0)
    return mean, scale, slopes, standard


def _shrink_site(shift: FloatArray, variance: FloatArray, n: float) -> tuple[FloatArray, FloatArray]:
    """Solve Johnson's equations for one site: a normal prior of the shift, an inverse gamma one of the variance."""
    centre, width = shift.mean(), shift.var(ddof=1)
    level, differs = variance.mean(), variance.var(ddof=1)
    if width == 0 or differs == 0:
        return shift, np.where(variance > 0, variance, 1.0)
    a = (2 * differs + level**2) / differs
    b = (level * differs + level**3) / differs
    mean, spread = shift, np.where(variance > 0, variance, level)
    for _ in range(MOST_STEPS):
        new = (width * n * shift + spread * centre) / (width * n + spread)
        squares = (n - 1) * variance + n * (shift - new) ** 2
        wider = (0.5 * squares + b) / (n / 2 + a - 1)
        change = max(np.abs(new - mean).max(), np.abs(wider / spread - 1).max())
        mean, spread = new, wider
        if change <= TOLERANCE:
            break
    return mean, spread


def check_harmonisation(settings: GroupLevel) -> None:
    """Refuse a harmonisation that lacks sites. Raises Unfit."""
    if settings.site_column is None:
        raise Unfit("Harmonisation needs the column of sites; give --site-column.")


def harmonise(representation: Representation, study: Study) -> Representation:
    """Give predictors features without site effects, fitted in every fold: a pass over features and a kernel each."""
    sites = study.people.sites
    if sites is None:
        raise ValueError("Harmonisation was asked for without sites.")

    kept = np.empty((len(sites), 0))  # the effect of no column on the features is kept

    def fitted(train: Rows) -> FeatureSource:
        features = representation.features()
        return HarmonisedFeatures(features, fit_combat(features, sites, kept, train), sites, kept)

    representation.fitted = fitted
    return representation


def harmonisation_facts(study: Study) -> dict[str, Any]:
    """Say, for a sidecar, what was done, and which people were left as they were."""
    return {"Harmonisation": {"Method": RULE, "PeopleTestedUnadjusted": people_unadjusted(study)}}


def people_unadjusted(study: Study) -> list[str]:
    """Names of the people who are tested in a fold that cannot adjust them, for one of the targets."""
    found: set[int] = set()
    sites = np.asarray(study.people.sites)
    for fold in study.folds:
        for target in study.targets:
            names, counts = np.unique(sites[fold.train[target.known[fold.train]]], return_counts=True)
            known = names[counts >= SMALLEST_SITE]
            found |= set((fold.test if len(known) < 2 else fold.test[~np.isin(sites[fold.test], known)]).tolist())
    return sorted(study.people.names[row] for row in found)


def changes_features(sites: str) -> bool:
    """Whether this choice of ``--sites`` takes site effects from the features."""
    return sites not in (PERMUTE, HOLD_OUT)


def make_solvers(
    representations: Iterable[Representation], study: Study, sites: str
) -> Iterator[tuple[Representation, Regression]]:
    """Yield the regression on every representation, one in memory at a time."""
    for representation in representations:
        if changes_features(sites):
            harmonise(representation, study)
        yield representation, make_solver(representation, study.preset)


def tabulate_sites(study: Study, predictions: Iterable[pd.DataFrame]) -> dict[str, Table]:
    """Return ``prediction_sites``; nothing where no site is named and no target goes with one."""
    binary = {target.name for target in study.targets if target.is_binary}
    rows: list[dict[str, Any]] = []
    for part in predictions:
        target, name = part[["target", "representation"]].iloc[0]
        sites = study.protocol.sites_of(target)
        if sites is None:
            continue
        of_people = dict(zip(study.people.names, sites.tolist(), strict=True))
        score = "auc" if target in binary else "r"
        about = {"target": target, "representation": name, "score": score}
        rows += [about | row for row in _describe(part, part["participant_id"].map(of_people), score)]
    if not rows:
        return {}
    facts = {"SiteColumn": study.settings.site_column, "HoldOutSites": study.protocol.held_out is not None}
    return tabulate(facts | study.protocol.facts(study.targets), prediction_sites=rows)


def scores_within_sites(tables: Mapping[str, Table]) -> dict[tuple[str, str], dict[str, float]]:
    """``r_within_mean`` or ``auc_within_mean`` of every target and representation."""
    frame = tables["prediction_sites"].frame
    rows = frame[frame["over"] == WITHIN].to_dict("records")
    return {(row["target"], row["representation"]): {f"{row['score']}_within_mean": row["value"]} for row in rows}


def _describe(predictions: pd.DataFrame, sites: pd.Series, score: str) -> list[dict[str, Any]]:
    """One row per site, and one over all."""
    name = "pearson" if score == "r" else "auc"
    each = pd.concat(
        [
            pd.DataFrame(site_scores(part["observed"], part["predicted"], sites[part.index], name, part["fold"]))
            for _, part in predictions.groupby("repeat")
        ]
    )
    means = each.groupby("site", sort=True).mean().reset_index()
    sizes, values = means["n_compared"].to_numpy(), means["score"].to_numpy()
    empty = {"site": None, "mae": np.nan, "bias": np.nan}
    rows = []
    for row in means.to_dict("records"):
        about = {"over": SITE, "site": row["site"], "n_people": int(row["n"]), "n_compared": row["n_compared"]}
        measured = {"mae": row["mae"], "bias": row["bias"]} if score == "r" else {}  # classes are coded
        rows.append(empty | about | {"value": row["score"]} | measured)
    together = empty | {"n_people": int(means["n"].sum()), "n_compared": sizes.sum()}
    rows.append(together | {"over": WITHIN, "value": weighted_score(values, sizes, fisher=score == "r")})
    return rows
