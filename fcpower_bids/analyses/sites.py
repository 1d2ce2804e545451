"""Sites: their effects taken from the features (ComBat), and scores by site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import make_solver
from fcpower_bids.analyses.features import Representation
from fcpower_bids.analyses.study import Study, changes_features
from fcpower_bids.core.arrays import FloatArray, Labels, Rows
from fcpower_bids.core.kernels import PANEL, FeatureSource
from fcpower_bids.core.krr import Regression
from fcpower_bids.core.scores import site_scores, weighted_score
from fcpower_bids.records import Table, tabulate

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


class HarmonisedFeatures:
    """Features (n, E) of people without the effect of their site (n,), adjusted as they are read.

    ComBat (Johnson et al. 2007), estimated on training people; nothing is adjusted where not two sites are estimated.
    """

    def __init__(self, features: FeatureSource, sites: Labels, train: Rows) -> None:
        self.features, self.sites = features, sites
        self.shape: tuple[int, ...] = features.shape
        names, counts = np.unique(sites[train], return_counts=True)
        names = names[counts >= SMALLEST_SITE]
        names, n_features = names if len(names) > 1 else names[:0], features.shape[1]
        rows = train[np.isin(sites[train], names)]
        members = (sites[rows][:, None] == names).astype(float)
        # (E,): mean over sites, weighted by people, and standard deviation within them; (k, E): shift and variance of
        # each site in units of these
        mean, scale = np.zeros(n_features), np.ones(n_features)
        shift, spread = np.zeros((len(names), n_features)), np.ones((len(names), n_features))
        for at in range(0, n_features if len(names) else 0, PANEL):
            columns = slice(at, at + PANEL)
            block = np.asarray(features[:, columns], dtype=float)[rows]
            means = np.asarray(np.linalg.lstsq(members, block, rcond=None)[0], dtype=np.float64)
            sd = np.sqrt(np.mean((block - members @ means) ** 2, axis=0))
            sd[sd <= 1e-12 * np.abs(block).max(axis=0, initial=0.0)] = 0.0  # a constant feature stays
            mean[columns], scale[columns] = members.mean(axis=0) @ means, sd
            about = block - mean[columns]
            standard = np.divide(about, sd, out=np.zeros_like(about), where=sd > 0)
            shift[:, columns] = members.T @ standard / members.sum(axis=0)[:, None]
            residual = standard - members @ shift[:, columns]
            spread[:, columns] = members.T @ residual**2 / (members.sum(axis=0) - 1)[:, None]
        variance = np.where(spread > 0, spread, 1.0)
        if n_features > 1 and len(names):  # priors are shared by the features of a site
            fits = map(_shrink_site, shift, spread, members.sum(axis=0))
            shift, variance = (np.stack(values) for values in zip(*fits, strict=True))
        self.names, self.mean, self.scale, self.shift, self.spread = names, mean, scale, shift, np.sqrt(variance)

    def __getitem__(self, key: Any) -> FloatArray:
        """Return a block (rows, columns) given by two slices, or rows given by one; unknown sites stay as they are."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        adjusted, sites = np.array(self.features[rows, columns], dtype=float), self.sites[rows]
        known = np.flatnonzero(np.isin(sites, self.names))
        if known.size:
            place, level = np.searchsorted(self.names, sites[known]), self.mean[columns]
            moved = adjusted[known] - level - self.scale[columns] * self.shift[place, columns]
            adjusted[known] = moved / self.spread[place, columns] + level
        return adjusted


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


def harmonisation_facts(study: Study) -> dict[str, Any]:
    """Say, for a sidecar, what was done, and which people are tested in a fold that cannot adjust them."""
    rows: set[int] = set()
    sites = np.asarray(study.people.sites)
    for fold in study.folds:
        for target in study.targets:
            names, counts = np.unique(sites[fold.train[target.known[fold.train]]], return_counts=True)
            known = names[counts >= SMALLEST_SITE]
            rows |= set((fold.test if len(known) < 2 else fold.test[~np.isin(sites[fold.test], known)]).tolist())
    unadjusted = sorted(study.people.names[row] for row in rows)
    return {"Harmonisation": {"Method": RULE, "PeopleTestedUnadjusted": unadjusted}}


def make_solvers(
    representations: Iterable[Representation], study: Study, sites: str
) -> Iterator[tuple[Representation, Regression]]:
    """Yield the regression on every representation, one in memory at a time; ComBat is fitted anew in every fold."""
    labels = study.people.sites
    for representation in representations:
        if changes_features(sites):
            assert labels is not None
            features = representation.features
            representation.fitted = lambda train, features=features: HarmonisedFeatures(  # type: ignore[misc]
                features(), labels, train
            )
        yield representation, make_solver(representation, study.preset)


def tabulate_sites(study: Study, predictions: Iterable[pd.DataFrame]) -> dict[str, Table]:
    """Return ``prediction_sites``; nothing where no site is named and no target goes with one."""
    binary = {target.name for target in study.targets if target.is_binary}
    rows: list[dict[str, Any]] = []
    for part in predictions:
        target, name = part[["target", "representation"]].iloc[0]
        sites = study.sites_of(target)
        if sites is None:
            continue
        of_people = dict(zip(study.people.names, sites.tolist(), strict=True))
        score = "auc" if target in binary else "r"
        about = {"target": target, "representation": name, "score": score}
        rows += [about | row for row in _describe(part, part["participant_id"].map(of_people), score)]
    if not rows:
        return {}
    facts = {"SiteColumn": study.settings.group.site_column, "HoldOutSites": study.held_out is not None}
    return tabulate(facts | study.site_facts(), prediction_sites=rows)


def scores_within_sites(tables: Mapping[str, Table]) -> dict[tuple[str, str], dict[str, float]]:
    """``r_within_mean`` or ``auc_within_mean`` of every target and representation."""
    frame = tables["prediction_sites"].frame
    rows = frame[frame["over"] == WITHIN].to_dict("records")
    return {(row["target"], row["representation"]): {f"{row['score']}_within_mean": row["value"]} for row in rows}


def _describe(predictions: pd.DataFrame, sites: pd.Series, score: str) -> list[dict[str, Any]]:
    """One row per site, and one over all."""
    name, parts = "pearson" if score == "r" else "auc", [part for _, part in predictions.groupby("repeat")]
    columns = [(part["observed"], part["predicted"], sites[part.index], name, part["fold"]) for part in parts]
    by_repeat = pd.concat([pd.DataFrame(site_scores(*cell)) for cell in columns])
    means = by_repeat.groupby("site", sort=True).mean().reset_index()
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
