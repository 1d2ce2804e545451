"""How well each phenotype is predicted, also within sites; and how well scans identify people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.reports.cohort.drawings import draw_folds, draw_scatter
from fcpower_bids.reports.cohort.findings import (
    Finding,
    describe_finding,
    describe_power,
    describe_seen_identification,
    describe_training,
    find_targets,
    seen_names,
    seen_rows,
)
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
    percent,
    say_p,
    square,
)
from fcpower_bids.reports.kit.charts import short
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.page import Panel

MOST_TARGETS = 12
"""Targets that are drawn; of a longer list the best are, and all are in the tables."""
MOST_SCATTERS = 4
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


PANELS = (_folds, _scatter, _networks)
"""What makes the figures of a target, in their order."""


# Sites


def sites_chapter(tables: GroupTables) -> Iterator[Section]:
    """Scores per site and within sites."""
    grids = tuple(tables.grid("prediction_sites", score=lambda score: Cell("AUC" if score == "auc" else str(score))))
    if grids:
        yield Section("sites", "Sites", (), (), grids)


# Identification

FEWEST_DIFFERENT = 6
"""People for whom sign flips can give a p below 0.05: 2 / 2^6 is, 2 / 2^5 is not."""


def identification_rows(tables: GroupTables, unseen: bool = False) -> pd.DataFrame:
    """One row of ``identification`` per representation, the best first: over all sessions where there are several.

    `unseen`: without encoders that were trained on people there.
    """
    rows = tables.rows("identification")
    if rows.empty:
        return rows
    whole = rows[rows["first_session"].astype(str) == "all"]
    ranked = (whole if len(whole) else rows).drop_duplicates("representation")
    ranked = ranked.sort_values("accuracy", ascending=False, kind="stable")
    return ranked[~seen_rows(ranked)] if unseen else ranked


def describe_identification(tables: GroupTables) -> list[str]:
    """Say how often each representation finds the person, the best first, and whether two of them differ."""
    rows = identification_rows(tables)
    seen, said = seen_rows(rows), []
    for _, row in rows[~seen].iterrows():
        within = ""
        if not missing(row.get("chance_within")):
            within = (
                f", within the own site {percent(row['chance_within'], 1)}; among people of the own site alone it "
                f"finds {percent(row['accuracy_within'])}"
            )
        said.append(
            f"{tables.title(row['representation'])} finds the person in {percent(row['accuracy'])} of "
            f"{row['n_searches']:.0f} searches (95 % CI {percent(row['ci_low'])} to {percent(row['ci_high'])} over "
            f"people; chance {percent(row['chance'], 1)}{within}; permutation {say_p(float(row['p_permutation']))})."
            + describe_training(row)
        )
    said += [describe_seen_identification(row, tables) for _, row in rows[seen].iterrows()]
    names = seen_names(tables)
    for _, row in tables.rows("identification_comparisons").iterrows():
        if names.isdisjoint({row["representation"], row["reference"]}):
            said.append(_describe_difference(row, tables))
    return said


def _describe_difference(row: pd.Series, tables: GroupTables) -> str:
    later, earlier = tables.title(row["representation"]), tables.title(row["reference"])
    tested = (
        f"{count(int(row['only_representation']), 'search', 'searches')} only {later} gets right, "
        f"{row['only_reference']:.0f} only {earlier}; exact sign flips over people {say_p(float(row['p_people']))}"
    )
    if row["only_representation"] + row["only_reference"] < FEWEST_DIFFERENT:
        return (
            f"No evidence that {later} and {earlier} differ ({tested}); {FEWEST_DIFFERENT} people at least must differ "
            f"for a p below {SIGNIFICANT:g}."
        )
    if row["p_people"] >= SIGNIFICANT:
        needed = 100 * (row["ci_high"] - row["ci_low"]) / 2
        return f"No evidence that {later} and {earlier} differ ({tested}); {describe_power(needed, 0, ' points')}."
    return f"{later} identifies {'better' if row['difference'] > 0 else 'worse'} than {earlier} ({tested})."


def identification_chapter(tables: GroupTables) -> Iterator[Section]:
    """Accuracy, and how sure it is."""
    rows = tables.rows("identification")
    if rows.empty:
        return
    if rows["chance_within"].isna().all():
        rows = rows.drop(columns=["accuracy_within", "chance_within"])
    grids = tuple(tables.grid("identification", tables.titled(rows)))
    said = tuple(describe_identification(tables))
    yield Section("identification", "Identification across sessions", said, (), grids)


def privacy_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say that connectomes identify people, with the number of this cohort."""
    rows = identification_rows(tables, unseen=True)
    if rows.empty:
        return
    best = rows.iloc[int(rows["accuracy"].to_numpy().argmax())]
    said = str(tables.facts("identification").get("Privacy", "A connectome is a fingerprint: it can link scans."))
    here = (
        f"In this cohort {tables.title(best['representation'])} finds {percent(best['accuracy'])} of the people in "
        "another session. Removing names from a shared connectome does not make it anonymous. This page shows "
        "participant labels: treat it as personal data."
    )
    yield Section("privacy", "Privacy", (said, here))
