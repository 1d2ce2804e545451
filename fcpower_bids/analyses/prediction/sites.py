"""The predictions site by site, within sites, and over sites that may differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.engine.study import Study
from fcpower_bids.core.inference.sites import random_effects, site_scores, weighted_score
from fcpower_bids.records import Table
from fcpower_bids.schema import TABLES

SITE, WITHIN, RANDOM = "site", "within sites", "random effects"

PREDICTION_SITES = TABLES["prediction_sites"]


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
    frame = pd.DataFrame(rows, columns=list(PREDICTION_SITES.columns))
    facts = {"SiteColumn": study.settings.site_column, "HoldOutSites": study.protocol.held_out is not None}
    return {PREDICTION_SITES.name: Table(frame, PREDICTION_SITES, facts | study.protocol.facts(study.targets))}


def scores_within_sites(tables: Mapping[str, Table]) -> dict[tuple[str, str], dict[str, float]]:
    """``r_within_mean`` or ``auc_within_mean`` of every target and representation."""
    frame = tables[PREDICTION_SITES.name].frame
    rows = frame[frame["over"] == WITHIN].to_dict("records")
    return {(row["target"], row["representation"]): {f"{row['score']}_within_mean": row["value"]} for row in rows}


def _describe(predictions: pd.DataFrame, sites: pd.Series, score: str) -> list[dict[str, Any]]:
    """One row per site, and two over all."""
    name = "pearson" if score == "r" else "auc"
    each = pd.concat(
        [
            pd.DataFrame(site_scores(part["observed"], part["predicted"], sites[part.index], name, part["fold"]))
            for _, part in predictions.groupby("repeat")
        ]
    )
    means = each.groupby("site", sort=True).mean().reset_index()
    sizes, values = means["n_compared"].to_numpy(), means["score"].to_numpy()
    empty = {"site": None, "ci_low": np.nan, "ci_high": np.nan, "mae": np.nan, "bias": np.nan}
    rows = [
        empty
        | {
            "over": SITE,
            "site": row["site"],
            "n_people": int(row["n"]),
            "n_compared": row["n_compared"],
            "value": row["score"],
        }
        | ({"mae": row["mae"], "bias": row["bias"]} if score == "r" else {})  # classes are coded, not measured
        for row in means.to_dict("records")
    ]
    together = empty | {"n_people": int(means["n"].sum()), "n_compared": sizes.sum()}
    rows.append(together | {"over": WITHIN, "value": weighted_score(values, sizes, fisher=score == "r")})
    if score == "r":
        mean, low, high = random_effects(values, sizes)
        rows.append(together | {"over": RANDOM, "value": mean, "ci_low": low, "ci_high": high})
    return rows
