"""How well each phenotype is predicted: folds, scatter, importance; and within sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.features import FC
from fcpower_bids.analyses.sites import RANDOM, SITE, WITHIN
from fcpower_bids.reports.cohort.drawings import draw_folds, draw_scatter
from fcpower_bids.reports.cohort.edges import connections_panels, parcels_panels
from fcpower_bids.reports.cohort.findings import Finding, describe_finding, find_targets
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Cell,
    GroupTables,
    Section,
    by_representation,
    count,
    count_people,
    listed,
    missing,
    own_rows,
    percent,
    score_label,
    square,
)
from fcpower_bids.reports.kit.charts import short
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.page import Panel

MOST_TARGETS = 12
"""Targets that are drawn; of a longer list the best are, and all are in the tables."""
MOST_SCATTERS = 4
MOST_EDGES, LARGEST = 100, 2**26
"""Edges that are drawn, and bytes of the table beyond which none are: reading it would take longer than the page."""
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def prediction_chapter(tables: GroupTables) -> Iterator[Section]:
    """Yield one section with the tables of all targets, and one per target that is drawn."""
    findings = find_targets(tables)
    if not findings:
        return
    drawn = findings
    if len(findings) > MOST_TARGETS:
        scores = {finding.target: float(finding.summary[finding.leading].iloc[0]) for finding in findings}
        drawn = sorted(findings, key=lambda finding: (_last(finding.p), _last(-scores[finding.target])))[:MOST_TARGETS]
    said = list(_limits(tables.facts("prediction")))
    if len(drawn) < len(findings):
        said.append(f"{len(drawn)} of {len(findings)} targets are drawn: the lowest p, then the highest scores.")
    names = ("prediction_baselines", "comparisons", "reliability")
    summary = tables.titled(tables.rows("prediction_summary")).dropna(axis=1, how="all")
    order = {target: i for i, target in enumerate(dict.fromkeys(summary["target"]))}
    summary = summary.sort_values("target", key=lambda name: name.map(order), kind="stable")
    others = {name: tables.titled(tables.rows(name)).dropna(axis=1, how="all") for name in names}
    grids = [*tables.grid("prediction_summary", summary)]
    for name, rows in others.items():
        grids += tables.grid(name, rows)
    yield Section("prediction", "Prediction of phenotypes", tuple(said), (), tuple(grids))
    for number, finding in enumerate(drawn):
        panels = tuple(panel for make in PANELS for panel in make(finding, tables))
        sentences = tuple(describe_finding(finding, tables))
        yield Section(f"target-{number}", f"Prediction of {finding.target}", sentences, panels)


def _last(number: float) -> float:
    """What sorts a number that is not known behind all others."""
    return np.inf if missing(number) else number


def _limits(facts: Mapping[str, Any]) -> Iterator[str]:
    """What the folds and ComBat leave open; how they were made is in the methods text."""
    if not facts.get("FamilyColumn"):
        yield (
            "Relatives were not declared (--family-column); relatives on both sides of a split would raise the scores."
        )
    if pairs := facts.get("AcceptedPairs"):
        named = ", ".join(" and ".join(pair) for pair in pairs)
        yield f"Accepted by name though they look like one scan, and not kept together by the folds: {named}."
    if "Permutations" in facts:
        yield f"Permutations: {facts['Permutations']}"
    if "Harmonisation" not in facts:
        return
    if left := facts["Harmonisation"]["PeopleTestedUnadjusted"]:
        people = count_people(len(left))
        yield f"Tested without ComBat, from sites too small or unseen in training: {people}."
    if shared := facts.get("TargetsThatGoWithSites", {}):
        between = [f"{percent(about['Share'])} of the variance of {target}" for target, about in shared.items()]
        yield (
            f"ComBat does not keep the target: it takes what target and site share ({listed(between, 4)} "
            f"{'lies' if len(shared) == 1 else 'lie'} between sites), so that a lower score than without it does not "
            "show that the site had made the score."
        )


# The figures of a target


def _folds(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    parts = by_representation(tables.rows("prediction"), finding.target)
    scores = {tables.title(name): part[finding.score].to_numpy(dtype=float) for name, part in parts.items()}
    pooled = {tables.title(name): finding.pooled(name) for name in parts}
    known = {title: values for title, values in scores.items() if np.isfinite(values).any()}
    if scores:
        svg = draw_folds(scores, pooled, f"{finding.label} in the test people", finding.chance)
        said = "; ".join(f"{title} {np.nanmean(values):.2f}" for title, values in known.items())
        yield tables.panel("folds", svg, score=finding.label, said=said)


def _scatter(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    facts, pairs, said = tables.facts("prediction"), {}, []
    for name, part in list(by_representation(tables.predicted(), finding.target).items())[:MOST_SCATTERS]:
        values = part.groupby("participant_id")[["observed", "predicted"]].mean().dropna().to_numpy(dtype=float)
        if len(values) >= 3:
            pairs[tables.title(name)] = values
            said.append(f"{tables.title(name)} {_describe_pairs(values)}")
    if not pairs:
        return
    residual = bool(facts.get("Preset", {}).get("covariates"))
    binary = finding.score == "auc" and not residual
    label = f"observed {short(finding.target)}" + (", residual" if residual else "")
    positive = facts.get("PositiveClasses", {}).get(finding.target)
    if binary and positive:
        label += f" (1: {short(str(positive))})"
    without = " Observed is the residual of the covariates, fitted to the training people of each fold."
    yield tables.panel(
        "scatter",
        draw_scatter(pairs, label, binary),
        said="; ".join(said),
        without=without if residual else "",
        target=finding.target,
    )


def _describe_pairs(values: np.ndarray) -> str:
    if (np.ptp(values, axis=0) == 0).any() or len(values) < 4:
        return f"r n/a, n = {len(values)}"
    r = float(np.corrcoef(values.T)[0, 1])
    z = np.arctanh(np.clip(r, -0.9999999, 0.9999999))
    low, high = np.tanh(z + np.array([-1.96, 1.96]) / np.sqrt(len(values) - 3))
    return f"r = {r:.2f} (95 % CI {low:.2f} to {high:.2f}), n = {len(values)}"


def _found(finding: Finding, parts: Mapping[str, pd.DataFrame]) -> list[str]:
    """Representations with a table that predict the target better than chance: only of these a map is drawn."""
    rows = finding.summary[finding.summary["p_max_targets"] < SIGNIFICANT]
    return [name for name in map(str, rows["representation"]) if name in parts]


def _networks(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    parts = by_representation(tables.rows("importance_networks"), finding.target)
    for name in sorted(_found(finding, parts), key=list(parts).index):
        names, values = square(parts[name], "network_a", "network_b", "importance")
        largest = float(np.nanmax(np.abs(values)))
        power = int(np.floor(np.log10(largest))) if largest > 0 else 0
        power = 0 if -1 <= power <= 2 else power
        title = tables.title(name) + (f" (values × 10{str(power).translate(RAISED)})" if power else "")
        svg = draw_matrices({title: values / 10.0**power}, [(label, i, i + 1) for i, label in enumerate(names)])
        yield tables.panel("importance_networks", svg, name_of=tables.title(name), n=len(names))


def _parcels(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    """Importance of parcels, and the most important edges, of the best representation that has it; none of noise."""
    parts = by_representation(tables.rows("importance_parcels"), finding.target)
    for name in _found(finding, parts)[:1]:
        part, words = parts[name], {"target": finding.target, "name_of": tables.title(name)}
        yield from parcels_panels("importance_parcels", part, "importance_parcels", "importance", tables, **words)
        there = tables.has("importance_edges") and tables.path("importance_edges").stat().st_size <= LARGEST
        if not there or not set("xyz") <= set(part.columns):
            return
        known = part.dropna(subset=list("xyz"))
        places = {str(row.parcel): (row.x, row.y, row.z) for row in known.itertuples()}
        edges = by_representation(tables.rows("importance_edges"), finding.target)[name].dropna(subset="importance")
        order = edges["importance"].abs().sort_values(ascending=False, kind="stable").index[:MOST_EDGES]
        words["depends"] = (
            "" if name == FC else ", and each of this representation depends on all of FC: read the pattern"
        )
        yield from connections_panels("importance_edges", edges.loc[order], places, "importance", tables, **words)


PANELS = (_folds, _scatter, _networks, _parcels)
"""What makes the figures of a target, in their order."""


# Sites

MOST_SAID = 4
"""Targets that have a sentence, on their best representation; the table has all."""
Sentence = tuple[float, str]
"""Excess of the score of all together over that within sites, and its sentence."""


def sites_chapter(tables: GroupTables) -> Iterator[Section]:
    """Scores per site, within sites, and over sites; and by every handling of sites."""
    best = {finding.target: finding.best for finding in find_targets(tables)}
    rows, said = tables.rows("prediction_sites"), list[str]()
    if len(rows):
        # of the best representation; of all where the best is not known or not there
        own = rows["representation"] == rows["target"].astype(str).map(best)
        said = _worst_first(list(_describe_sites(rows[own | ~own.groupby(rows["target"]).transform("any")], tables)))
    by_site = tables.grid("prediction_sites", score=lambda score: Cell("AUC" if score == "auc" else str(score)))
    grids = (*by_site, *tables.grid("harmonisation"))
    if grids:
        yield Section("sites", "Sites", tuple(said), (), grids, tuple(said))


def _worst_first(found: list[Sentence]) -> list[str]:
    """All sentences where they are few; else those with the largest differences, and how many others there are."""
    if len(found) <= MOST_SAID:
        return [text for _, text in found]
    worst = sorted(found, key=lambda pair: -np.inf if missing(pair[0]) else pair[0], reverse=True)[:MOST_SAID]
    rest = (
        f"{len(found) - MOST_SAID} more targets are in the table; the best of none scores further above what it scores "
        "within sites."
    )
    return [*(text for _, text in worst), rest]


def _describe_sites(found: pd.DataFrame, tables: GroupTables) -> Iterator[Sentence]:
    """One sentence for every target and representation."""
    summary = tables.rows("prediction_summary")
    for (target, name), part in found.groupby(["target", "representation"], sort=False):
        score, title = str(part["score"].iloc[0]), tables.title(name)
        within = float(part.loc[part["over"] == WITHIN, "value"].iloc[0])
        own = own_rows(summary, str(target))
        own = own[own["representation"] == name] if len(own) else own
        pooled = float(own[f"{score}_pooled_mean"].iloc[0]) if len(own) else np.nan
        values = part.loc[part["over"] == SITE, "value"]
        n, scored = count(len(values), "site"), int(values.notna().sum())
        if missing(within):
            yield np.nan, f"{target} from {title}: no site of {n} has enough people for a score of its own."
            continue
        together, interval = "" if missing(pooled) else f", all together {pooled:.2f}", ""
        for _, row in part[part["over"] == RANDOM].dropna(subset="value").head(1).iterrows():
            interval = (
                f"; over sites that may differ {row['value']:.2f}, 95 % CI {row['ci_low']:.2f} to {row['ci_high']:.2f}"
            )
        yield (
            pooled - within,
            f"{target} from {title}: within sites {score_label(score)} {within:.2f} "
            f"({n if scored == len(values) else f'{scored} of {n}'}){together}{interval}.",
        )
