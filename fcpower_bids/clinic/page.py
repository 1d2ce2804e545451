"""The page of what a model says of one person: one answer, its scans, what it cannot say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from fcpower_bids.analyses.baselines import FEWEST_PERMUTATIONS
from fcpower_bids.cohort.inclusion import CAUTION
from fcpower_bids.outputs.dataset import parse_name
from fcpower_bids.outputs.status import explain
from fcpower_bids.reports.page import listed, render_page, show_number, write_page

DONE = "predicted"
"""State of a scan."""
ENTITIES = {"ses": "session", "task": "task", "acq": "acquisition", "run": "run"}
Row = Mapping[Any, Any]


def write_prediction_pages(
    output_dir: Path,
    model: str,
    frame: pd.DataFrame,
    facts: Mapping[str, Any],
) -> tuple[list[Path], list[str]]:
    """Write ``sub-LABEL_MODEL.html`` for every person of a table of predictions; say of each that failed why."""
    about: dict[str, Any] = {"card": card_of(facts, model), "target": facts["Target"]}
    about |= {"trust": [say_trust(facts)], "limits": say_limits(facts)}
    pages, broken = [], []
    words = {name: frame[name].astype(object).fillna("") for name in ("warning", "reason", "differences", "classes")}
    frame = frame.assign(**words)
    for person, rows in frame.groupby("participant_id", sort=True):
        try:
            text = render_page(
                "prediction.html",
                title=f"{person}: {facts['Target']}",
                person=person,
                answer=answer_person(rows.to_dict("records"), facts),
                date=datetime.now(tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                **about,
            )
            pages.append(write_page(output_dir / f"{person}_{model}.html", text))
        except Exception as error:  # of one page: the others go on
            broken.append(f"{person} has no page. {explain(error, output_dir, f'predict_{person}_page')}")
    return pages, broken


def answer_person(rows: Sequence[Row], facts: Mapping[str, Any]) -> dict[str, Any]:
    """One answer from all scans of a person: the mean of their predictions with the interval of a single scan.

    ``level`` ("ok", "caution" or "stop"), ``headline``, ``sentences`` (what must be known with it, the gravest first),
    ``scans`` as of `say_scan`.
    """
    scans = [say_scan(row, facts) for row in rows]
    done = [row for row in rows if row["state"] == DONE]
    if not done:
        return {"level": "stop", "headline": "There is no prediction.", "sentences": [], "scans": scans}
    guess = fmean(row["prediction"] for row in done)
    low, high = ends_of(guess, facts)
    warnings = [row["warning"] for row in done]
    sentences = [warning for warning in dict.fromkeys(warnings) if warning]
    width, values, apart = high - low, [row["prediction"] for row in done], list[str]()
    if len(done) > 1:
        shown = ", ".join(fitting(value, width) if width == width else show_number(value) for value in values)
        apart.append(
            f"This is the mean of {len(done)} scans, which give {shown}; the interval is that of a single scan."
        )
    if max(values) - min(values) > width:
        apart.append("They differ by more than an interval is wide: make sure that they are of one person.")
    sentences += apart
    doubtful = any(warnings) or len(apart) > 1 or any(row["quality"] == CAUTION for row in done)
    answer = {"level": "caution" if doubtful else "ok", "headline": say_result(guess, low, high, facts)}
    return answer | {"sentences": sentences, "scans": scans}


def say_scan(row: Row, facts: Mapping[str, Any]) -> dict[str, Any]:
    """One scan in words: its title and file, and its own prediction or why there is none."""
    name = str(row["scan"]).removesuffix("_stat-pearsoncorrelation")
    entities = dict(parse_name(f"{name}_bold.tsv")[0])
    parts = [f"{word} {entities[key]}" for key, word in ENTITIES.items() if key in entities]
    title = ", ".join(parts).capitalize() or "The scan"
    scan: dict[str, Any] = {"title": title, "file": name, "sentences": [], "facts": ()}
    if row["state"] != DONE:
        return scan | {"result": f"No prediction. {row['reason']}"}
    result = say_result(row["prediction"], row["low"], row["high"], facts)
    sentences = [f"The scan itself calls for caution: {row['cautions']}"] if row["quality"] == CAUTION else []
    if row["differences"]:
        sentences.append(f"Made otherwise than the training scans: {row['differences']}.")
    about = (
        ("Minutes of series", show_number(row["minutes"], 1)),
        ("Mean FD, mm", show_number(row["mean_fd"], 3)),
        ("Digest of the connectome", " ".join(digest[:16] for digest in str(row["sha256"]).split())),
    )
    return scan | {"result": result, "sentences": sentences, "facts": about}


def ends_of(prediction: float, facts: Mapping[str, Any]) -> tuple[float, float]:
    """Ends of the interval, NaN for classes."""
    interval = facts["Interval"]
    if facts["PositiveClass"] is not None:
        return math.nan, math.nan
    least = -math.inf if interval.get("Least") is None else interval["Least"]
    low, high = prediction - interval["Radius"], prediction + interval["Radius"]
    return max(low, least), max(high, least)


def possible_classes(score: float, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Classes whose members have scores as far from the class as this one, in 90 of 100 cases."""
    radii = facts["Interval"].get("RadiusOfClasses", {})
    return tuple(name for name, radius in radii.items() if abs(score - float(name == facts["PositiveClass"])) <= radius)


def say_skill(facts: Mapping[str, Any]) -> str:
    """Whether the model does better than a guess, and the numbers behind it, without a full stop."""
    skill, guess = facts["Skill"], f"guessing the average {facts['Target']}"
    if facts["PositiveClass"] is not None:
        guess = "guessing by the share of each class"
    elif facts["Covariates"]:
        guess = f"{listed(facts['Covariates'])} alone"
    score, tested = "AUC" if skill["Score"] == "auc" else "r", was_tested(skill)
    people = "people within sites that were held out" if skill.get("WithinSites") else "held-out people"
    parts = [f"p {skill['P']:.2g}, {score} {skill['OverPeople']:.2f} over {people}"] if tested else []
    if "Beside" in skill:
        parts.append(f"{score} beside what is known: {skill['Beside']}")
    parts.append(f"error {skill['Error']:.3g}, that of the guess {skill['ErrorOfGuess']:.3g}")
    does = "does better than" if skill["Found"] else "does no better than" if tested else "was not tested against"
    return f"This model {does} {guess} ({'; '.join(parts)})"


def was_tested(skill: Mapping[str, Any]) -> bool:
    """Whether there was a test that could have found skill."""
    return skill["P"] is not None and skill["P"] == skill["P"] and skill["Permutations"] >= FEWEST_PERMUTATIONS


def say_trust(facts: Mapping[str, Any]) -> str:
    """How far the interval, or the choice of classes, holds."""
    interval = facts["Interval"]
    if facts["PositiveClass"] is None:
        nominal, measured = (f"{100 * interval[key]:.0f}" for key in ("NominalCoverage", "MeasuredCoverage"))
        held = f"on what was held out of the training it held in {measured}"
        return f"The interval is made to hold in {nominal} of 100 cases for {interval['HoldsFor']}; {held}."
    kept = ", ".join(f"{name} {100 * share:.0f}" for name, share in interval["CoverageOfClasses"].items())
    return (
        "A class is ruled out where 90 of 100 of its members have scores nearer to it; of 100 people of each class "
        f"held out of the training so many kept their own: {kept}."
    )


def say_limits(facts: Mapping[str, Any]) -> list[str]:
    """What a prediction cannot say."""
    sites = f" of {len(facts['Sites'])} sites" if len(facts["Sites"]) > 1 else ""
    sentences = [
        f"It was learned from {facts['NumberOfPeople']} people{sites}; for people unlike these it says nothing.",
        "It is no diagnosis, and no reason to change a treatment.",
        "An interval holds on average over people; for a single one it may be far too narrow.",
    ]
    if facts["Covariates"]:
        share = f"the share of {listed(facts['Covariates'])} was taken off"
        expected = "so that 0 is the expectation for a person alike in this"
        sentences.append(f"The number is no {facts['Target']} itself: {share}, {expected}.")
    return sentences


def say_result(guess: float, low: float, high: float, facts: Mapping[str, Any]) -> str:
    """The result in one sentence, the interval first, with no more digits than the interval supports."""
    if facts["PositiveClass"] is not None:
        left = " or ".join(possible_classes(guess, facts)) or "neither class"
        between = f"between {facts['NegativeClass']} at 0 and {facts['PositiveClass']} at 1"
        return f"{_named(facts)}: {left} cannot be ruled out (score {show_number(guess)}, {between})."
    ends = [fitting(value, high - low) for value in (low, high, guess)]
    return f"{_named(facts)}: between {ends[0]} and {ends[1]}; best guess {ends[2]}."


def fitting(value: float, width: float) -> str:
    """Write a value with digits that a width supports: tenths for widths below 10, whole numbers below 100."""
    if not (math.isfinite(value) and width > 0):
        return show_number(value)
    digits = math.ceil(-math.log10(width / 10))
    return f"{round(value, digits) + 0.0:,.{max(digits, 0)}f}"


def _named(facts: Mapping[str, Any]) -> str:
    """The target, what it was cut from (``old (1.0: age of 40 or more)``) and what was taken off it.

    Without these the number would be misread.
    """
    cut = (
        f" ({facts['PositiveClass']}: {facts['CutColumn']} of {facts['CutAt']:g} or more)"
        if "CutColumn" in facts
        else ""
    )
    off = f", without what goes with {listed(facts['Covariates'])}" if facts["Covariates"] else ""
    return f"{facts['Target']}{cut}{off}"


def card_of(facts: Mapping[str, Any], model: str) -> tuple[tuple[str, str], ...]:
    """Identity of the model."""
    made = facts["Preprocessing"]
    return (
        ("Model", model),
        ("Target", _named(facts)),
        ("Skill", f"{say_skill(facts)}."),
        ("Predicted from", f"{facts['Representation']}, alpha {facts['Alpha']:g}, {len(facts['Parcels'])} parcels"),
        ("Trained on", f"{facts['NumberOfPeople']} people, {facts['NumberOfScans']} scans"),
        *((kind.capitalize(), " or ".join(made[kind])) for kind in made),
        ("Made with", f"fcpower_bids {facts['SoftwareVersion']}"),
        ("Digest of the weights", str(facts["Digests"]["weights.npz"])),
    )
