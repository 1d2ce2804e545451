"""The chapters of the page of a cohort: each has a title, its tables, a rule that says what they say, and drawings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.cohort.inclusion import COUNTED, PARCEL
from fcpower_bids.reports.cohort import analyses
from fcpower_bids.reports.cohort.findings import Finding, describe_identification, find_targets, unseen_best
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Chapter,
    GroupTables,
    Section,
    by_representation,
    missing,
    own_rows,
    percent,
    square,
)
from fcpower_bids.reports.figures import draw_matrices
from fcpower_bids.reports.page import Grid, Panel, count, listed
from fcpower_bids.reports.svg import draw_curves, short

MOST_DRAWN_TARGETS, MOST_SCATTERS = 12, 4
MOST_EDGES = 10
FEW = 3
"""Parcels of a reason that are named."""
NOTE = "note"
ANSWERS = SINGLE, NETWORK = "Single connections", "No single connection, but a network of them,"
"""How the sentences begin that say that connections were found."""


def make_chapter(anchor: str, tables: GroupTables) -> Iterator[Section]:
    """Yield the section of a chapter, if one of its tables has rows; of a check without findings, too."""
    chapter = CHAPTERS[anchor]
    if not any(len(tables.rows(name)) or (name == "check" and tables.has(name)) for name in chapter.needed.split()):
        return
    answers, grids = tuple(chapter.answer(tables)), list[Grid]()
    for grid in chapter.grids:
        grids += tables.grid(grid) if isinstance(grid, str) else tables.grid(grid[0], grid[1](tables))
    sentences = (*answers, *chapter.more(tables))
    yield Section(anchor, chapter.title, sentences, tuple(chapter.draw(tables)), tuple(grids), answers)


# Who took part


def _say_check(tables: GroupTables) -> Iterator[str]:
    rows = tables.rows("check")
    serious = int((rows["level"] != NOTE).sum()) if len(rows) else 0
    said = f"{count(serious, 'thing')} to look at, {count(len(rows) - serious, 'note')}."
    yield said if serious else "Nothing was found that would mislead."


def say_left_out(tables: GroupTables) -> str:
    """``1 recording, 2 values``; nothing where none was left out."""
    excluded = tables.rows("excluded")
    kinds = excluded["what"].astype(str).value_counts().items() if len(excluded) else ()
    return ", ".join(count(int(n), str(kind)) for kind, n in kinds if kind in COUNTED)


def _describe_cohort(tables: GroupTables) -> Iterator[str]:
    left_out = say_left_out(tables)
    yield f"Left out: {left_out}." if left_out else "No person and no recording was left out at group level."
    yield from _describe_scans(tables)
    notes = (str(note) for table in ("scans", "prediction") for note in tables.facts(table).get("CohortNotes", []))
    yield from dict.fromkeys(notes)


def fold_parcels(excluded: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of ``excluded`` with one for all parcels of one reason, in the place of the first."""
    if excluded.empty:
        return excluded
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
    scans, said = tables.rows("scans"), []
    for column, unit, text in (
        ("seconds", 60, "{:.1f} cleaned minutes (median; {:.1f} to {:.1f})"),
        ("mean_fd", 1, "a mean FD of {:.2f} mm (median; {:.2f} to {:.2f})"),
    ):
        known = scans[column].astype(float).dropna() / unit if column in scans else pd.Series(dtype=float)
        said += [text.format(known.median(), known.min(), known.max())] if len(known) else []
    if said:
        yield f"Scans have {' and '.join(said)}."


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


def _limits_of_prediction(tables: GroupTables) -> Iterator[str]:
    """What the folds and ComBat leave open; how they were made is in the methods text."""
    facts = tables.facts("prediction")
    if not facts.get("FamilyColumn"):
        yield (
            "Relatives were not declared (--family-column); relatives on both sides of a split would raise the scores."
        )
    if pairs := facts.get("AcceptedPairs"):
        named = ", ".join(" and ".join(pair) for pair in pairs)
        yield f"Accepted by name though they look like one scan, and not kept together by the folds: {named}."
    if "Permutations" in facts:
        yield f"Permutations: {facts['Permutations']}"
    if left := facts.get("Harmonisation", {}).get("PeopleTestedUnadjusted"):
        yield f"Tested without ComBat, from sites too small or unseen in training: {count(len(left), 'person')}."
    if "Harmonisation" in facts and (shared := facts.get("TargetsThatGoWithSites", {})):
        between = [f"{percent(about['Share'])} of the variance of {target}" for target, about in shared.items()]
        yield (
            f"ComBat does not keep the target: it takes what target and site share (between sites: "
            f"{listed(between, 4)}), so a lower score than without it does not show that the site had made the score."
        )


def _summary(tables: GroupTables) -> pd.DataFrame:
    """The rows of ``prediction_summary``, those of a target together."""
    summary = tables.rows("prediction_summary")
    order = {target: i for i, target in enumerate(dict.fromkeys(summary["target"]))} if len(summary) else {}
    return summary.sort_values("target", key=lambda name: name.map(order), kind="stable") if order else summary


def _draw_predictions(tables: GroupTables) -> Iterator[Panel]:
    """Draw the targets with the lowest p, and then the highest scores."""

    def rank(finding: Finding) -> tuple[float, float]:
        score = float(finding.summary[finding.leading].iloc[0])
        return float(np.nan_to_num(finding.p, nan=np.inf)), -float(np.nan_to_num(score, nan=-np.inf))

    findings = find_targets(tables)
    first = sorted(findings, key=rank)[:MOST_DRAWN_TARGETS]
    for finding in findings:
        if finding in first:
            yield from _scatter(finding.target, tables)
            yield from _networks(finding.target, tables)


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
        yield tables.panel("scatter", draw_curves(panels, points=True), **words)


def _networks(target: str, tables: GroupTables) -> Iterator[Panel]:
    """Draw what the networks contribute, of representations that predict the target better than chance."""
    summary = own_rows(tables.rows("prediction_summary"), target)
    significant = set(summary.loc[summary["p_max_targets"] < SIGNIFICANT, "representation"])
    for name, part in by_representation(tables.rows("importance_networks"), target).items():
        if name in significant:
            names, values = square(part, "network_a", "network_b", "importance")
            title = tables.title(name)
            svg = draw_matrices({title: values}, [(label, i, i + 1) for i, label in enumerate(names)])
            yield tables.panel("importance_networks", svg, name_of=title, n=len(names), target=target)


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
        yield answer.format(listed(targets, 6))


def _limits_of_edges(tables: GroupTables) -> Iterator[str]:
    n = tables.rows("edges_summary")["target"].nunique()
    if n > 1 and any(sentence.startswith(ANSWERS) for sentence in _say_edges(tables)):
        yield f"The p of connections are not corrected for the number of targets ({n})."
    if refused := tables.facts("edges_summary").get("LeftOut"):
        yield str(refused)


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
    return "For {} no connection was found."


def _first_edges(name: str, tables: GroupTables) -> pd.DataFrame:
    rows = tables.rows(name)
    return rows.groupby(["target", "representation"], sort=False).head(MOST_EDGES) if len(rows) else rows


CHAPTERS: dict[str, Chapter] = {
    "check": Chapter("Check before the first model", "check", ("check", "check_pairs"), more=_say_check),
    "cohort": Chapter(
        "Cohort",
        "excluded scans left_out",
        ("left_out", ("excluded", lambda tables: fold_parcels(tables.rows("excluded").fillna("n/a")))),
        more=_describe_cohort,
    ),
    "motion": Chapter(
        "Motion and connectivity (QC-FC)", "qcfc_summary", ("qcfc_summary",), _say_motion, draw=_draw_motion
    ),
    "prediction": Chapter(
        "Prediction of phenotypes",
        "prediction_summary",
        (("prediction_summary", _summary), "prediction_baselines", "comparisons", "reliability"),
        more=_limits_of_prediction,
        draw=_draw_predictions,
    ),
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
        _limits_of_edges,
    ),
    "identification": Chapter(
        "Identification across sessions", "identification", ("identification",), more=describe_identification
    ),
    **analyses.CHAPTERS,
    "privacy": Chapter("Privacy", "identification", more=_say_privacy),
}
"""The chapters by their anchors, in the order of the page."""
