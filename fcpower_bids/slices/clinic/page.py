"""The page of what a model says of one person: usable or not, the result in words, how unusual, what it cannot say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from fcpower_bids.outputs.crashes import explain
from fcpower_bids.reports.kit.page import render_page, show_number, write_page

PREDICTED, CAUTION = "predicted", "caution"
SITE = "site"
FEW_SITES = 5
"""Sites below which an interval that rests on them says so; simulated in docs/models.md."""
IN_WORDS = {
    "mean_fc": "mean correlation",
    "participation_ratio": "effective number of eigenvalues",
    "similarity": "similarity to the training people",
}
"""Measures of the reference as people read them; networks are named as they are."""
FAR = 2.0
"""Standard deviations from the mean of the reference beyond which a measure is called unusual."""


@dataclass(frozen=True)
class Said:
    """Content of a page about one scan.

    Attributes
    ----------
    scan, level, headline : str
        Name; ``ok``, ``caution`` or ``stop``; the result in one sentence.
    sentences : tuple of str
        Cautions, the gravest first.
    facts : tuple of (str, str)
        Label and value.
    measures : tuple of mapping
        Rows of the comparison with the reference.
    """

    scan: str
    level: str
    headline: str
    sentences: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    measures: tuple[Mapping[str, Any], ...]


def write_prediction_pages(
    output_dir: Path,
    model: str,
    frame: pd.DataFrame,
    compared: pd.DataFrame,
    facts: Mapping[str, Any],
    moved: Mapping[str, Any],
    command: Callable[[str], str] = lambda person: "",
) -> tuple[list[Path], list[str]]:
    """Write ``sub-LABEL_MODEL.html`` for every person of a table of predictions; say of each that failed why."""
    limits, card = limits_of(facts), card_of(facts, model)
    pages, broken = [], []
    for person, rows in frame.groupby("participant_id", sort=True):
        try:
            scans = [say_scan(row, compared[compared["scan"] == row["scan"]], facts, moved) for row in _records(rows)]
            text = render_page(
                "prediction.html",
                command=command(str(person)),
                title=f"{person}: {facts['Target']}",
                person=person,
                target=facts["Target"],
                scans=scans,
                limits=limits,
                card=card,
                date=datetime.now(tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            )
            pages.append(write_page(output_dir / f"{person}_{model}.html", text))
        except Exception as error:  # of one page: the others go on
            broken.append(f"{person} has no page. {explain(error, output_dir, f'predict_{person}_page')}")
    return pages, broken


def say_scan(
    row: Mapping[str, Any], compared: pd.DataFrame, facts: Mapping[str, Any], moved: Mapping[str, Any]
) -> Said:
    """Put the rows of one scan into words."""
    measures = tuple({**row, "measure": IN_WORDS.get(row["measure"], row["measure"])} for row in _records(compared))
    name = str(row["scan"]).removesuffix("_stat-pearsoncorrelation")
    if row["state"] != PREDICTED:
        return Said(name, "stop", "There is no prediction for this scan.", (str(row["reason"]),), (), ())
    sentences = [str(row["warning"])] if row["warning"] else []
    sentences += [f"The scan itself calls for caution: {row['cautions']}"] if row["quality"] == CAUTION else []
    sentences += _interval_sentences(row, facts, moved)
    if measures:
        sentences.append(say_unusual(measures))
    if row["differences"]:
        sentences.append(f"Made otherwise than the training scans: {row['differences']}.")
    told = (
        ("Minutes of series", show_number(row["minutes"], 1)),
        ("Mean FD, mm", show_number(row["mean_fd"], 3)),
        ("Similarity to the training people", f"percentile {show_number(row['similarity_percentile'], 0)}"),
        ("Digest of the connectome", str(row["sha256"])[:16]),
    )
    return Said(
        name,
        "caution" if row["warning"] or row["quality"] == CAUTION else "ok",
        say_result(row, facts),
        tuple(sentences),
        told,
        measures,
    )


def say_result(row: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    if facts["PositiveClass"] is not None:
        left = row["classes"] or "neither class"
        between = f"between {facts['NegativeClass']} at 0 and {facts['PositiveClass']} at 1"
        if facts["Covariates"]:
            between = f"higher for {facts['PositiveClass']}"
        return f"{_named(facts)}: {left} cannot be ruled out (score {show_number(row['prediction'])}, {between})."
    ends = f"{show_number(row['low'])} to {show_number(row['high'])}"
    return f"{_named(facts)}: {show_number(row['prediction'])}, interval {ends}."


def _named(facts: Mapping[str, Any]) -> str:
    """The target, and what was taken off it, without which the number would be read as one of its own."""
    return facts["Target"] + (f", without what goes with {_covariates(facts)}" if facts["Covariates"] else "")


def _covariates(facts: Mapping[str, Any]) -> str:
    *others, last = facts["Covariates"]
    return f"{', '.join(others)} and {last}" if others else str(last)


def _interval_sentences(row: Mapping[str, Any], facts: Mapping[str, Any], moved: Mapping[str, Any]) -> list[str]:
    if facts["PositiveClass"] is not None:
        return ["A class is ruled out where 90 of 100 of its members have scores nearer to it."]
    interval = facts["Interval"]
    if moved:
        return [
            f"The model was moved by {moved['LocalPeople']} local people: predictions by {-moved['Offset']:+.3g}, the "
            f"interval holds in {100 * moved['NominalCoverage']:.0f} of 100 cases at sites moved in the same way."
        ]
    found = [
        f"The interval is made to hold in {100 * interval['NominalCoverage']:.0f} of 100 cases for "
        f"{interval['HoldsFor']}; on what was held out of the training it held in "
        f"{100 * interval['MeasuredCoverage']:.0f}, in the worst part in {100 * interval['LeastCoverageOfAGroup']:.0f}."
    ]
    if interval["HeldOut"] == SITE and interval["Groups"] < FEW_SITES:
        found.append(f"It rests on {interval['Groups']} sites, too few to know how far apart sites are.")
    if row["low_new_site"] == row["low_new_site"]:
        found.append(
            f"For a site that is unlike those of the training: {show_number(row['low_new_site'])} to "
            f"{show_number(row['high_new_site'])}."
        )
    return found


def say_unusual(measures: Sequence[Mapping[str, Any]]) -> str:
    """How unusual the connectome is, in one sentence."""
    far = [f"{one['measure']} (z {one['z']:.1f})" for one in measures if abs(one["z"]) > FAR]
    like = "of similar motion and length" if measures[0]["matched"] else "of any motion and length"
    like += " and of the same sex" if measures[0]["same_sex"] else ""
    against = f"against {int(measures[0]['scans'])} training scans {like}"
    if not far:
        return f"None of {len(measures)} measures of the connectome is beyond {FAR:g} standard deviations, {against}."
    return f"Unusual, beyond {FAR:g} standard deviations {against}: {', '.join(far)}."


def limits_of(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Limits of a prediction."""
    sites = len(facts["Sites"])
    trained = f"{facts['NumberOfPeople']} people" + (f" of {sites} sites" if sites > 1 else "")
    return (
        f"It was learned from {trained}; for people unlike these it says nothing.",
        "It is no diagnosis, and no reason to change a treatment.",
        "An interval holds on average over people; for a single one it may be far too narrow.",
        *((_residual(facts),) if facts["Covariates"] else ()),
    )


def _residual(facts: Mapping[str, Any]) -> str:
    return (
        f"The number is no {facts['Target']} itself: the share of {_covariates(facts)} was taken off, so that 0 "
        "is the expectation for a person alike in this."
    )


def card_of(facts: Mapping[str, Any], model: str) -> tuple[tuple[str, str], ...]:
    """Identity of the model."""
    made = facts["Preprocessing"]
    return (
        ("Model", model),
        ("Predicted from", f"{facts['Representation']}, alpha {facts['Alpha']:g}, {len(facts['Parcels'])} parcels"),
        ("Trained on", f"{facts['NumberOfPeople']} people, {facts['NumberOfScans']} scans"),
        *(("Scores", each) for each in say_scores(facts)),
        *((name.capitalize(), " or ".join(made[name])) for name in made),
        ("Made with", f"fcpower_bids {facts['SoftwareVersion']}"),
        ("Digest of the weights", str(facts["Digests"]["weights.npz"])),
    )


def say_scores(facts: Mapping[str, Any]) -> list[str]:
    """How well held-out sites were predicted, else held-out folds; nothing where no score is defined."""
    kinds = facts.get("HeldOutScores", {})  # models of earlier versions have none
    kind = SITE if len(kinds.get(SITE, {})) > 1 else "fold"
    groups = list(kinds.get(kind, {}).values())
    name = "auc" if any("auc" in one for one in groups) else "r"
    known = [one[name] for one in groups if one[name] is not None and one[name] == one[name]]
    if not known:
        return []
    spread = f"{min(known):.2f} to {max(known):.2f}"
    return [f"{name} {median(known):.2f} at the median of {len(known)} held-out {kind}s, {spread}"]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with text where text is missing empty."""
    rows: list[dict[str, Any]] = [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]
    for row in rows:
        for key in ("warning", "reason", "differences", "classes"):
            if key in row and not isinstance(row[key], str):
                row[key] = ""
    return rows
