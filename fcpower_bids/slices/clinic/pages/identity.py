"""The page of whose scans bear a name: they are of one person, they are not, or it cannot be said."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.outputs.status import explain
from fcpower_bids.reports.kit.page import render_page, write_page
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.slices.clinic.pages.prediction import draw_ratios, title_of
from fcpower_bids.slices.clinic.same_person import MATCHES, OPEN, OTHER, RATIO, SAME

LEVELS = {SAME: "ok", OTHER: "stop", OPEN: "caution"}

LONGEST = 30
"""Letters of a name of a pair, which has room in the figure."""


def write_identity_pages(
    output_dir: Path,
    pairs: pd.DataFrame,
    people: int,
    command: Callable[[str], str] = lambda person: "",
    doubtful: int = 0,
) -> tuple[list[Path], list[str]]:
    """Write ``sub-LABEL_identify.html`` for every person of `PAIRS`; say of each that failed why."""
    pages, broken = [], []
    for person, rows in pairs.groupby("participant_id", sort=True):
        try:
            answer, headline = answer_for(str(person), rows)
            text = render_page(
                "identity.html",
                command=command(str(person)),
                title=f"{person}: whose scans",
                person=person,
                level=LEVELS[answer],
                headline=headline,
                figure=draw_pairs(rows),
                rows=[_row(each) for each in rows.to_dict("records")],
                people=people,
                limits=_limits(people, doubtful),
            )
            pages.append(write_page(output_dir / f"{person}_identify.html", text))
        except Exception as error:  # of one page: the others go on
            broken.append(f"{person} has no page. {explain(error, output_dir, f'identify_{person}_page')}")
    return pages, broken


def answer_for(person: str, rows: pd.DataFrame) -> tuple[str, str]:
    """The verdict about all scans of one name, and its sentence."""
    own = rows[rows["participant_id"] == rows["other_participant_id"]]
    foreign = rows[(rows["participant_id"] != rows["other_participant_id"]) & (rows["verdict"] == SAME)]
    n = len({*own["scan"], *own["other_scan"]})
    if len(foreign) or (own["verdict"] == OTHER).any():
        better = f": one fits {foreign.iloc[0]['other_participant_id']} better" if len(foreign) else ""
        return OTHER, f"The {n} scans filed under {person} are not all of one person{better}."
    if len(own) and (own["verdict"] == SAME).all():
        return SAME, f"The {n} scans filed under {person} are of one person."
    return OPEN, f"Whether the {n} scans filed under {person} are of one person cannot be said."


def draw_pairs(rows: pd.DataFrame) -> Panel:
    """Figure of the pairs whose likelihood ratio is known, a row each."""
    known = rows[np.isfinite(rows["likelihood_ratio"].to_numpy(dtype=float))]
    records = [_row(each) for each in known.to_dict("records")]
    titles = _without_shared([(one, other) for one, other, *_ in records])
    ratios = known["likelihood_ratio"].to_numpy(dtype=float)
    return Panel(
        "One person or two",
        f"From the right line (blue) on, {RATIO:g} times as likely of one person; up to the left one (orange), of two.",
        draw_ratios(titles, ratios, RATIO) if titles else "",
        "; ".join(f"{title}: {record[3]}" for title, record in zip(titles, records, strict=True)) + ".",
    )


def _without_shared(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Name pairs of scans in few words: without the parts that all scans share, such as the task."""
    parts = [[one.replace(": ", ", ").split(", ") for one in pair] for pair in pairs]
    shared = set.intersection(*({word.lower() for word in one} for pair in parts for one in pair)) if pairs else set()
    kept = [[[word for word in one if word.lower() not in shared] or one for one in pair] for pair in parts]
    names = [" - ".join(", ".join([one[0], *map(str.lower, one[1:])]) for one in pair) for pair in kept]
    if max(map(len, names), default=0) <= LONGEST:
        return names
    return [re.sub(r"session ", "", name, flags=re.IGNORECASE) for name in names]


def _limits(people: int, doubtful: int) -> tuple[str, ...]:
    without = f" without {doubtful} scans that fit another name better" if doubtful else ""
    return (
        f"The reference is the {people} people of this folder{without}; with other scanners or scans it does not hold.",
        f"'{SAME.capitalize()}' asks for a likelihood ratio of {RATIO:g} and fewer than {100 * MATCHES:g} % of the "
        f"pairs of different people as similar, '{OTHER}' for a ratio of 1/{RATIO:g}.",
        "It compares connectomes and no faces, dates or records; look at these before a scan is moved.",
    )


def _title(scan: Any) -> str:
    return title_of(str(scan).removesuffix("_stat-pearsoncorrelation"))


def _round(ratio: float) -> str:
    """Write a number of one or more with three digits that count."""
    return f"{float(f'{ratio:.3g}'):,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def _row(each: dict[Any, Any]) -> Sequence[str]:
    other = str(each["other_participant_id"])
    ratio = each["likelihood_ratio"]
    whose = "" if other == each["participant_id"] else f"{other}: "
    odds = "too few pairs" if ratio != ratio else _round(ratio) if ratio >= 1 else f"1/{_round(1 / ratio)}"
    return (
        _title(each["scan"]),
        f"{whose}{_title(each['other_scan'])}",
        str(each["verdict"]),
        odds,
        f"{100 * each['false_match']:.2g} %",
    )
