"""The chapters of the page of a cohort: each has a title, its tables, a rule that says what they say, and drawings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.cohort.inclusion import PARCEL
from fcpower_bids.reports.charts import draw_brain, draw_curves, short
from fcpower_bids.reports.cohort import analyses
from fcpower_bids.reports.cohort.findings import describe_finding, describe_identification, find_targets, unseen_best
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Chapter,
    GroupTables,
    Section,
    by_representation,
    count,
    count_people,
    listed,
    missing,
    own_rows,
    percent,
    square,
)
from fcpower_bids.reports.figures import draw_matrices
from fcpower_bids.reports.page import Panel
from fcpower_bids.schema import TABLES

MOST_PREDICTED, MOST_SCATTERS = 12, 4
MOST_BRAINS, MOST_DRAWN, MOST_EDGES = 6, 100, 10
FEW = 3
"""Parcels of a reason that are named."""
NOTE = "note"
BEFORE_CORRECTION = " Corrected for the number of representations, none of this is significant."
ANSWERS = SINGLE, NETWORK = "Single connections", "No single connection, but a network of them,"
"""How the sentences begin that say that connections were found."""


def make_chapter(anchor: str, tables: GroupTables) -> Iterator[Section]:
    """Yield the sections of a chapter, the first with its anchor."""
    chapter = CHAPTERS[anchor]
    yield from chapter.sections(anchor, tables) if isinstance(chapter, Chapter) else chapter(tables)


# Who took part


def _check(tables: GroupTables) -> Iterator[Section]:
    """The findings of the check with consequence and remedy, and the suspicious pairs."""
    if not tables.has("check"):
        return
    rows = tables.rows("check")
    serious = int((rows["level"] != NOTE).sum()) if len(rows) else 0
    sentence = f"{count(serious, 'thing')} to look at, {count(len(rows) - serious, 'note')}."
    sentence = sentence if serious else "Nothing was found that would mislead."
    pairs = tables.grid("check_pairs") if len(rows) else ()
    yield Section("check", "Check before the first model", (sentence,), (), (*tables.grid("check"), *pairs))


def _cohort(tables: GroupTables) -> Iterator[Section]:
    """Who is in the cohort, and who and what was left out and why."""
    excluded, scans, left_out = (tables.rows(name) for name in ("excluded", "scans", "left_out"))
    if excluded.empty and scans.empty and left_out.empty:
        return
    kinds = excluded["what"].value_counts().items() if len(excluded) else ()
    sentences = ["No person and no recording was left out at group level."]
    sentences = ["Left out: " + ", ".join(count(int(n), str(kind)) for kind, n in kinds) + "."] if kinds else sentences
    grids = [*tables.grid("left_out")]
    grids += tables.grid("excluded", fold_parcels(excluded.fillna("n/a"))) if len(excluded) else ()
    notes = (str(note) for table in ("scans", "prediction") for note in tables.facts(table).get("CohortNotes", []))
    sentences += [*_describe_scans(tables), *dict.fromkeys(notes)]
    yield Section("cohort", "Cohort", tuple(sentences), (), tuple(grids))


def fold_parcels(excluded: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of ``excluded`` with one for all parcels of one reason, in the place of the first."""
    parcels = excluded.loc[excluded["what"] == PARCEL, "reason"].astype(str)
    parts = pd.DataFrame([reason.partition(": ") for reason in parcels], parcels.index, ["name", "_", "why"])
    folded = excluded.copy()
    for why, part in parts.groupby("why", sort=False):
        if len(part) > FEW + 1:
            several = f"{', '.join(part['name'][:FEW])} and {len(part) - FEW} more, each: {why}"
            folded.loc[part.index[0], "reason"] = several
            folded = folded.drop(index=part.index[1:])
    return folded


def _describe_scans(tables: GroupTables) -> Iterator[str]:
    """Length and motion of the scans that were used."""
    scans, sentences = tables.rows("scans"), []
    if not {"seconds", "mean_fd"} <= set(scans.columns):
        return
    minutes, motion = scans["seconds"].astype(float).dropna() / 60, scans["mean_fd"].astype(float).dropna()
    if len(minutes):
        sentences.append(f"{minutes.median():.1f} cleaned minutes (median; {minutes.min():.1f} to {minutes.max():.1f})")
    if len(motion):
        sentences.append(f"a mean FD of {motion.median():.2f} mm (median; {motion.min():.2f} to {motion.max():.2f})")
    if sentences:
        yield f"Scans have {' and '.join(sentences)}."


# Motion


def _say_motion(tables: GroupTables) -> Iterator[str]:
    summary = tables.rows("qcfc_summary")
    if len(summary):
        shares = zip(map(tables.title, summary["representation"]), summary["share_significant"], strict=True)
        texts = ", ".join(f"{name} {percent(share, 1)}" for name, share in shares)
        yield f"Edges that go with motion (q < {SIGNIFICANT:g}): {texts}."


def _draw_motion(tables: GroupTables) -> Iterator[Panel]:
    """Draw how many edges go with mean FD how much; the tables have what chance gives, and what distance does."""
    edges = tables.rows("qcfc")
    if edges.empty:
        return
    edges = edges.dropna(subset="r")
    bins = np.linspace(-1, 1, 41) * max(0.1, float(edges["r"].abs().max()))
    shares = {
        tables.title(name): np.column_stack([(bins[1:] + bins[:-1]) / 2, 100 * np.histogram(r, bins)[0] / len(r)])
        for name, r in edges.groupby("representation", sort=False)["r"]
    }
    svg = draw_curves([("", "edges (%)", "correlation with mean FD", shares)], 0.0)
    yield tables.panel("motion", svg, sentence=" ".join(_say_motion(tables)))


# Prediction


def _prediction(tables: GroupTables) -> Iterator[Section]:
    """Yield one section with the tables of all targets, and one per target that is drawn."""
    findings = find_targets(tables)
    if not findings:
        return
    lowest = {finding.target: float(np.nan_to_num(finding.p, nan=np.inf)) for finding in findings}
    highest = {
        finding.target: float(np.nan_to_num(finding.summary[finding.leading].iloc[0], nan=-np.inf))
        for finding in findings
    }
    drawn, sentences = findings, list(_limits(tables.facts("prediction")))
    if len(findings) > MOST_PREDICTED:
        drawn = sorted(findings, key=lambda finding: (lowest[finding.target], -highest[finding.target]))[
            :MOST_PREDICTED
        ]
        sentences.append(f"{len(drawn)} of {len(findings)} targets are drawn: the lowest p, then the highest scores.")
    grids = [*tables.grid("prediction_summary", _summary(tables))]
    for name in ("prediction_baselines", "comparisons", "reliability"):
        grids += tables.grid(name)
    yield Section("prediction", "Prediction of phenotypes", tuple(sentences), (), tuple(grids))
    for number, finding in enumerate(drawn):
        panels = (*_scatter(finding.target, tables), *_networks(finding.target, tables))
        answer = tuple(describe_finding(finding, tables))
        yield Section(f"target-{number}", f"Prediction of {finding.target}", answer, panels)


def _summary(tables: GroupTables) -> pd.DataFrame:
    """The rows of ``prediction_summary``, those of a target together."""
    summary = tables.rows("prediction_summary")
    order = {target: i for i, target in enumerate(dict.fromkeys(summary["target"]))}
    return summary.sort_values("target", key=lambda name: name.map(order), kind="stable")


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


def _scatter(target: str, tables: GroupTables) -> Iterator[Panel]:
    """Draw the out-of-fold predictions of everyone, means over repeats, against what was observed."""
    facts, people = tables.facts("prediction"), tables.rows("predictions")
    people = tables.rows("prediction_means") if people.empty else people
    residual = bool(facts.get("Preset", {}).get("covariates"))
    positive = facts.get("PositiveClasses", {}).get(target)
    label = f"observed {short(target)}" + (", residual" if residual else f" (1: {positive})" if positive else "")
    panels, sentences = [], []
    for name, part in list(by_representation(people, target).items())[:MOST_SCATTERS]:
        means = part.groupby("participant_id")[["observed", "predicted"]].mean().dropna()
        if len(means) > 2:
            title, r = tables.title(name), means.corr().iloc[0, 1]
            panels.append((title, "predicted, out of fold", label, {title: means.to_numpy(dtype=float)}))
            sentences.append(f"{title} {'r n/a' if missing(r) else f'r = {r:.2f}'}, n = {len(means)}")
    if panels:
        without = " Observed is the residual of the covariates, fitted to the training people of each fold."
        words = {"sentence": "; ".join(sentences), "without": without if residual else "", "target": target}
        yield tables.panel("scatter", draw_curves(panels, points=True), len(panels) > 1, **words)


def _networks(target: str, tables: GroupTables) -> Iterator[Panel]:
    """Draw what the networks contribute, of representations that predict the target better than chance."""
    summary = own_rows(tables.rows("prediction_summary"), target)
    significant = set(summary.loc[summary["p_max_targets"] < SIGNIFICANT, "representation"])
    for name, part in by_representation(tables.rows("importance_networks"), target).items():
        if name in significant:
            names, values = square(part, "network_a", "network_b", "importance")
            title = tables.title(name)
            svg = draw_matrices({title: values}, [(label, i, i + 1) for i, label in enumerate(names)])
            yield tables.panel("importance_networks", svg, name_of=title, n=len(names))


# Identification


def _say_privacy(tables: GroupTables) -> Iterator[str]:
    rows = unseen_best(tables)
    if len(rows):
        yield str(tables.facts("identification").get("Privacy", "A connectome is a fingerprint: it can link scans."))
        yield (
            f"In this cohort {tables.title(rows['representation'].iloc[0])} finds {percent(rows['accuracy'].iloc[0])} "
            "of the people in another session. Removing names from a shared connectome does not make it anonymous. "
            "This page shows participant labels: treat it as personal data."
        )


# Connections


def _say_edges(tables: GroupTables) -> Iterator[str]:
    """One sentence per answer, with the targets that have it."""
    names: dict[str, list[str]] = {}
    for target, part in tables.rows("edges_summary").groupby("target", sort=False):
        names.setdefault(_answer_edges(part), []).append(str(target))
    for answer, targets in names.items():
        yield answer.format(listed(targets))


def _warn_of_many_targets(tables: GroupTables) -> Iterator[str]:
    n = tables.rows("edges_summary")["target"].nunique()
    if n > 1 and any(sentence.startswith(ANSWERS) for sentence in _say_edges(tables)):
        yield f"The p of connections are not corrected for the number of targets ({n})."


def _answer_edges(part: pd.DataFrame) -> str:
    """By the smallest p corrected for all edges and representations; that of networks by Bonferroni for the latter."""
    if (part["n_permutations"] == 0).all():
        return "Whether any connection goes with {} was not tested: no permutations were run (--permutations)."
    if part["smallest_p"].min() >= SIGNIFICANT:
        return "For {} the permutations are too few, or the blocks too small, to decide."
    if part["p_max"].min() < SIGNIFICANT:
        return f"{SINGLE} go with {{}}."
    if len(part) * part["p_component"].min() < SIGNIFICANT:
        return f"{NETWORK} goes with {{}}."
    if part["p_component"].min() < SIGNIFICANT:
        return (
            "For {} no connection was found; a network of them stands out only before correction for representations."
        )
    return "For {} no connection was found."


def _draw_edges(tables: GroupTables) -> Iterator[Panel]:
    """Significant edges in the outlines of a brain, where the places of the parcels are known."""
    summary, facts, drawn = tables.rows("edges_summary"), tables.facts("edges"), 0
    tried = summary.groupby("target")["target"].transform("size")  # representations in which networks were looked for
    places, more = facts.get("Centroids", {}), facts.get("PositiveClasses", {})
    for (_, row), n in zip(summary.iterrows(), tried, strict=True):
        target, name = str(row["target"]), str(row["representation"])
        parts = (by_representation(tables.rows(kind), target).get(name) for kind in ("edges_components", "edges"))
        networks, edges = (pd.DataFrame() if part is None else part for part in parts)
        if edges.empty:
            continue
        hits = networks.loc[networks["p_extent"] < SIGNIFICANT, "component"].tolist() if len(networks) else []
        edges = edges[(edges["p_family_wise"] < SIGNIFICANT) | edges["component"].isin(hits)].head(MOST_DRAWN)
        known = edges[edges["parcel_a"].isin(list(places)) & edges["parcel_b"].isin(list(places))]
        drawn += len(known) > 0
        if known.empty or drawn > MOST_BRAINS:
            continue
        ends = known[["parcel_a", "parcel_b"]].astype(str).to_numpy()
        names = sorted(set(ends.ravel().tolist()))
        joined = [(a, b) for a, b in np.searchsorted(names, ends).tolist()]
        svg = draw_brain(
            [places[name] for name in names], joined, known["t"].tolist(), TABLES["edges"].columns["t"].heading
        )
        alone = (edges["p_family_wise"] < SIGNIFICANT).all()
        holds = row["p_max"] < SIGNIFICANT or n * row["p_component"] < SIGNIFICANT
        yield tables.panel(
            "edges",
            svg,
            n=count(len(known), "connection"),
            target=target,
            name_of=tables.title(name),
            more=f"in {more[target]}" if target in more else "with more of it",
            together="Each of them is significant by itself."
            if alone
            else "Of those in a network it is only known that some of them go with it.",
            before="" if holds else BEFORE_CORRECTION,
        )


def _first_edges(name: str, tables: GroupTables) -> pd.DataFrame:
    rows = tables.rows(name)
    return rows.groupby(["target", "representation"], sort=False).head(MOST_EDGES) if len(rows) else rows


CHAPTERS: dict[str, Chapter | Callable[[GroupTables], Iterator[Section]]] = {
    "check": _check,
    "cohort": _cohort,
    "motion": Chapter(
        "Motion and connectivity (QC-FC)", "qcfc_summary", ("qcfc_summary",), _say_motion, draw=_draw_motion
    ),
    "prediction": _prediction,
    "sites": Chapter("Sites", "prediction_sites", ("prediction_sites",)),
    "edges": Chapter(
        "Connections that go with a phenotype",
        "edges_summary",
        (
            "edges_summary",
            ("edges", lambda tables: _first_edges("edges", tables)),
            ("edges_components", lambda tables: _first_edges("edges_components", tables)),
        ),
        _say_edges,
        _warn_of_many_targets,
        _draw_edges,
    ),
    "identification": Chapter(
        "Identification across sessions", "identification", ("identification",), more=describe_identification
    ),
    **analyses.CHAPTERS,
    "privacy": Chapter("Privacy", "identification", more=_say_privacy),
}
"""The chapters by their anchors, in the order of the page."""
