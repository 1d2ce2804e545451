"""How well each phenotype is predicted: folds, differences, null, scatter, importance; within sites; by exponent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.features import FC
from fcpower_bids.analyses.sites import HANDLINGS, RANDOM, SITE, WITHIN
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.reports.cohort.brains import connections_panels, parcels_panels
from fcpower_bids.reports.cohort.drawings import draw_exponents, draw_folds, draw_intervals, draw_null, draw_scatter
from fcpower_bids.reports.cohort.findings import Finding, describe_difference, describe_finding, find_targets
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
    say_p,
    score_label,
    square,
    targets_of,
)
from fcpower_bids.reports.kit.charts import short
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.page import Panel

MOST_TARGETS = 12
"""Targets that are drawn; of a longer list the best are, and all are in the tables."""
MOST_SCATTERS, MOST_PAIRS = 4, 10
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
    said = list(_protocol(tables.facts("prediction")))
    if len(drawn) < len(findings):
        said.append(f"{len(drawn)} of {len(findings)} targets are drawn: the lowest p, then the highest scores.")
    names = ("prediction_baselines", "comparisons", "reliability")
    summary = tables.titled(tables.rows("prediction_summary")).dropna(axis=1, how="all")
    order = {target: i for i, target in enumerate(dict.fromkeys(summary["target"]))}
    summary = summary.sort_values("target", key=lambda name: name.map(order), kind="stable")
    grids = (*tables.grid("prediction_summary", summary), *(grid for name in names for grid in tables.grid(name)))
    yield Section("prediction", "Prediction of phenotypes", tuple(said), (), grids)
    for number, finding in enumerate(drawn):
        panels = tuple(panel for make in PANELS for panel in make(finding, tables))
        sentences = tuple(describe_finding(finding, tables))
        yield Section(f"target-{number}", f"Prediction of {finding.target}", sentences, panels)


def _last(number: float) -> float:
    """What sorts a number that is not known behind all others."""
    return np.inf if missing(number) else number


def _protocol(facts: Mapping[str, Any]) -> Iterator[str]:
    preset, family = facts.get("Preset") or {}, facts.get("FamilyColumn")
    name = preset.get("name", "?")
    shape = "{} × {} outer and {} inner folds, protocol '{}'".format(
        *(preset.get(key, "?") for key in ("n_repeats", "n_folds", "n_inner")), name
    )
    if facts.get("Folds") != "K-fold":
        shape = f"{facts.get('Folds', 'folds')}, protocol '{name}'"
    yield f"Nested cross-validation ({shape}): the penalty is selected among the training people alone."
    if family:
        yield f"Families ('{family}') are never split between training and test people."
    else:
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
    said = "Site effects were taken from the features by ComBat, fitted to the training people of every fold."
    if left := facts["Harmonisation"]["PeopleTestedUnadjusted"]:
        said += f" Tested unadjusted, from sites too small or unseen in training: {count_people(len(left))}."
    if shared := facts.get("TargetsThatGoWithSites", {}):
        between = [f"{percent(about['Share'])} of the variance of {target}" for target, about in shared.items()]
        said += (
            f" ComBat does not keep the target: it takes what target and site share ({listed(between, 4)} "
            f"{'lies' if len(shared) == 1 else 'lie'} between sites), so that a lower score than without it does not "
            "show that the site had made the score."
        )
    yield said


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


def _null(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    parts = by_representation(tables.rows("null"), finding.target)
    scores = {
        tables.title(name): part.sort_values("permutation", kind="stable")["score"].to_numpy(dtype=float)
        for name, part in parts.items()
    }
    own = finding.summary.set_index("representation")["p_permutation"]
    said = "; ".join(f"{tables.title(name)} {say_p(float(own.get(name, np.nan)))}" for name in parts)
    if scores:
        svg = draw_null(scores, f"{finding.label} of all predictions of the first repeat")
        yield tables.panel("null", svg, said=said)


def _differences(finding: Finding, tables: GroupTables) -> Iterator[Panel]:
    own = own_rows(tables.rows("comparisons"), finding.target)
    pairs = own.dropna(subset=["ci_low", "ci_high"]).head(MOST_PAIRS).to_dict("records") if len(own) else []
    if not pairs:
        return
    rows = {
        f"{tables.title(row['representation'])} − {tables.title(row['reference'])}": np.array(
            [row["mean_difference"], row["ci_low"], row["ci_high"]], dtype=float
        )
        for row in pairs
    }
    parts = by_representation(tables.rows("prediction"), finding.target).items()
    scores = {name: part.set_index(["repeat", "fold"])[finding.score] for name, part in parts}
    dots = [
        (scores[row["representation"]] - scores[row["reference"]]).dropna().to_numpy(dtype=float)
        for row in pairs
        if {row["representation"], row["reference"]} <= scores.keys()
    ]
    said = " ".join(describe_difference(pd.Series(row), finding, tables) for row in pairs)
    svg = draw_intervals(rows, f"difference in {finding.label}", 0.0, dots)
    yield tables.panel("differences", svg, said=said)


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


PANELS = (_folds, _null, _differences, _scatter, _networks, _parcels)
"""What makes the figures of a target, in their order."""


# Sites

MOST_SAID = 4
"""Targets that have a sentence, on their best representation; the table has all."""
Sentence = tuple[float, str]
"""Excess of the score of all together over that within sites, and its sentence."""


def sites_chapter(tables: GroupTables) -> Iterator[Section]:
    """Scores per site, within sites, and over sites."""
    best = {finding.target: finding.best for finding in find_targets(tables)}
    said: list[list[str]] = []
    for name, describe in (("prediction_sites", _describe_sites), ("harmonisation", _describe_handlings)):
        rows = tables.rows(name)
        if len(rows):
            # of the best representation; of all where the best is not known or not there
            own = rows["representation"] == rows["target"].astype(str).map(best)
            said.append(worst_first(describe(rows[own | ~own.groupby(rows["target"]).transform("any")], tables)))
    by_site = tables.grid("prediction_sites", score=lambda score: Cell("AUC" if score == "auc" else str(score)))
    grids = (*by_site, *tables.grid("harmonisation"))
    if grids:
        yield Section("sites", "Sites", tuple(chain(*said)), (), grids, tuple(said[0]) if said else ())


def worst_first(found: Iterable[Sentence]) -> list[str]:
    """All sentences where they are few; else those with the largest differences, and how many others there are."""
    found = list(found)
    if len(found) <= MOST_SAID:
        return [text for _, text in found]
    worst = sorted(found, key=lambda pair: -np.inf if missing(pair[0]) else pair[0], reverse=True)[:MOST_SAID]
    rest = (
        f"{len(found) - MOST_SAID} more targets are in the table; the best of none scores further above what it scores "
        "within sites."
    )
    return [*(text for _, text in worst), rest]


def _describe_handlings(compared: pd.DataFrame, tables: GroupTables) -> Iterator[Sentence]:
    """One sentence for every target and representation: all predictions together, and within sites."""
    for (target, name), part in compared.groupby(["target", "representation"], sort=False):
        scored = part.dropna(subset=["pooled"])
        ways = [
            f"{HANDLINGS[str(row['sites'])]} {row['pooled']:.2f}"
            + ("" if missing(row["within"]) else f" (within {row['within']:.2f})")
            for _, row in scored.iterrows()
        ]
        label = score_label(part["score"].iloc[0])
        text = f"{target} from {tables.title(name)}, {label} with sites {', '.join(ways)}."
        yield float((scored["pooled"] - scored["within"]).max()), text


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


# The exponent

OPTIMISM = (
    "The curves of the prediction score the test people, so the best point of a curve is optimistic; the exponent "
    "of a fold is chosen without its test people."
)
CRITERIA = {"prediction": "prediction: score in the test people", "alignment": "alignment with the target"}


def exponent_chapter(tables: GroupTables) -> Iterator[Section]:
    """Curves of both criteria against the exponent as far as they were computed, and what the folds chose."""
    curve = tables.rows("alpha")
    if curve.empty:
        return
    optimum, facts = tables.rows("alpha_optimum"), tables.facts("alpha")
    targets = targets_of(curve)[:MOST_TARGETS]
    chosen = tuple(said for target in targets for said in _chosen(target, own_rows(optimum, target)))
    said = [*chosen, *([OPTIMISM] if (curve["criterion"] == "prediction").any() else [])]
    said += [str(facts["Rule"])] if "Rule" in facts else []
    panels = tuple(_exponent_panel(target, own_rows(curve, target), optimum, tables) for target in targets)
    rows = []
    for (target, criterion), own in optimum.groupby(["target", "criterion"], sort=False) if len(optimum) else ():
        best = facts.get("BestOfGridScore", {}) if criterion == "prediction" else {}
        quartiles = own["alpha"].quantile([0.5, 0.25, 0.75]).tolist()
        scores = own["score"].mean(), own["score_at_star"].mean(), best.get(str(target), np.nan)
        rows.append((target, criterion, *quartiles, *scores))
    names = ["target", "criterion", "median", "low", "high", "score", "star", "grid"]
    grids = tables.grid("alpha_optimum", pd.DataFrame(rows, columns=names).dropna(axis=1, how="all"))
    yield Section("exponent", "The exponent", tuple(said), panels, tuple(grids), chosen)


def _chosen(target: str, optimum: pd.DataFrame) -> Iterator[str]:
    """One sentence per criterion."""
    for criterion, own in optimum.groupby("criterion", sort=False) if len(optimum) else ():
        alphas = own["alpha"].dropna().to_numpy(dtype=float)
        if not alphas.size:
            yield f"{target} ({criterion}): no fold could choose an exponent."
            continue
        low, middle, high = np.quantile(alphas, [0.25, 0.5, 0.75])
        bound, gain = (own["at_bound"].astype(str) == "true").mean(), (own["score"] - own["score_at_star"]).mean()
        at_bound = (
            f", {percent(bound)} of them at an end of the search, so the optimum may lie outside" if bound else ""
        )
        yield (
            f"{target} ({criterion}): the folds choose α = {middle:.2f} (median; quartiles {low:.2f} to {high:.2f})"
            f"{at_bound}; its score in the table is {gain:+.3f} relative to α = {ALPHA_STAR:g} (mean)."
        )


def _exponent_panel(target: str, curve: pd.DataFrame, optimum: pd.DataFrame, tables: GroupTables) -> Panel:
    curves, chosen = {}, {}
    for criterion, part in curve.groupby("criterion", sort=False):
        title, scores = CRITERIA.get(str(criterion), str(criterion)), part.groupby("alpha")["score"]
        ends = (scores.mean(), scores.quantile(0.25), scores.quantile(0.75))
        curves[title] = np.column_stack([ends[0].index.to_numpy(dtype=float), *ends])
        rows = own_rows(optimum, target)
        if len(rows):
            chosen[title] = rows.loc[rows["criterion"] == criterion, "alpha"].dropna().to_numpy(dtype=float)
    said = "; ".join(
        f"{title}: highest mean at α = {values[np.nanargmax(values[:, 1]), 0]:g}" for title, values in curves.items()
    )
    svg = draw_exponents(curves, chosen, ALPHA_STAR)
    return tables.panel("alpha", svg, target=target, star=f"{ALPHA_STAR:g}", said=said)
