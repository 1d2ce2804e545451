"""Who is in the cohort and who is not, what the check found, how good the recordings are, and what goes with motion."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.cohort.inclusion import CAUTION, PARCEL
from fcpower_bids.cohort.recordings import FILE as RECORDINGS_FILE
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.status import DONE
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.reports.cohort.drawings import draw_edge_motion, draw_quality
from fcpower_bids.reports.cohort.edges import parcels_panels
from fcpower_bids.reports.cohort.findings import FEWEST_PERMUTATIONS
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Cell,
    Grid,
    GroupTables,
    Section,
    count,
    count_people,
    missing,
    percent,
)
from fcpower_bids.reports.kit.page import relative_link, show_number
from fcpower_bids.reports.person.recording import USED_WITH_CAUTION, WORDS

FEW = 3
"""Parcels of a reason that are named."""
QUALITY_END = "_desc-fcpower_qc.tsv"
OUTLYING = 3.5
"""Robust standard deviations from the median above which a recording stands out (Iglewicz and Hoaglin 1993)."""
MEASURES = {
    "mean_fd": ("Mean FD (mm)", 3, 1),
    "minutes": ("Minutes kept", 1, -1),
    "censored": ("Censored (%)", 1, 1),
    "degrees_of_freedom": ("Degrees of freedom", 0, -1),
    "band_leakage": ("Out of band (share)", 3, 1),
    "uncovered_parcels": ("Parcels without a value", 0, 1),
    "participation_ratio": ("Part. ratio of FC", 1, 0),
    "mask_dice": ("Mask and template (Dice)", 2, -1),
}
"""Heading, decimals, and which side is the bad one: 1 high, -1 low, 0 both."""
NEEDED = ("atlas", "state", "volumes", "dummy_volumes", "censored_volumes", "seconds_kept")
"""Columns without which a quality table is broken."""
MOST_SESSIONS = 12
MOST_BRAINS = 4
NOTE, SAME = "note", "same scan"
FEWEST = 10
"""With fewer people left, no score without the pairs of the check is given."""
NOTHING = "Nothing was found that would mislead."


# The check before the first model


def check_chapter(tables: GroupTables) -> Iterator[Section]:
    """The findings with consequence and remedy, the suspicious pairs, and the scores without them."""
    if not tables.has("check"):
        return
    found = tables.rows("check")
    serious = int((found["level"] != NOTE).sum()) if len(found) else 0
    said = f"{count(serious, 'thing')} to look at, {count(len(found) - serious, 'note')}." if serious else NOTHING
    scores = _without_pairs(tables) if len(found) else ()
    pairs = tables.grid("check_pairs", participant_id=tables.person, other=tables.person) if len(found) else ()
    grids = (*tables.grid("check"), *pairs)
    yield Section("check", "Check before the first model", (said, *scores), (), grids)


def _without_pairs(tables: GroupTables) -> Iterator[str]:
    """Say for every target what the score is when people who seem to share a scan are not counted."""
    pairs, predictions = tables.rows("check_pairs"), tables.predicted()
    if pairs.empty or predictions.empty:
        return
    same = pairs[pairs["verdict"] == SAME]
    alike = set(same["participant_id"]) | set(same["other"])
    for (target, name), part in predictions.groupby(["target", "representation"], sort=False) if alike else ():
        rest = part[~part["participant_id"].isin(alike)]
        if (n := rest["participant_id"].nunique()) >= FEWEST:
            yield (
                f"{target} from {tables.title(name)}: r {_pooled_r(part):.2f} with everyone, {_pooled_r(rest):.2f} "
                f"over the {count_people(n)} who share no scan."
            )


def _pooled_r(predictions: pd.DataFrame) -> float:
    """Correlation of observed and predicted over everyone, mean over repeats; of their means if these are all."""
    repeats = [part for _, part in predictions.groupby("repeat")] if "repeat" in predictions else [predictions]
    return float(np.mean([part["observed"].corr(part["predicted"]) for part in repeats]))


# Who took part


def cohort_chapter(tables: GroupTables) -> Iterator[Section]:
    """How many recordings and people are left after each step, and who was left out and why."""
    excluded, steps = tables.rows("excluded"), list(_steps(tables))
    if not steps and excluded.empty and tables.rows("left_out").empty:
        return
    sources = tables.links("scans", "excluded", "folds", "identification_scans")
    status = tables.root / "logs" / "status.tsv"
    if status.is_file():
        sources = ((status.name, relative_link(status, tables.root)), *sources)
    numbers = [[Cell("", "n/a") if n is None else Cell(f"{n:,}", n) for n in counted] for _, *counted in steps]
    rows = tuple((Cell(name), *cells) for (name, *_), cells in zip(steps, numbers, strict=True))
    text = (
        "A scan is all recordings of a person in a session, combined. From the cohort on, only those are counted that "
        "the command asked for (--participant-label and its like)."
    )
    flow = Grid("Cohort flow", text, ("Step", "Recordings or scans", "People"), rows, sources)
    grids = [*([flow] if rows else []), *tables.grid("left_out")]
    said = "No person and no recording was left out at group level."
    if len(excluded):
        grids += tables.grid("excluded", fold_parcels(excluded.fillna("n/a")), participant_id=tables.person)
        kinds = excluded["what"].value_counts()
        said = "Left out: " + ", ".join(count(int(n), str(kind)) for kind, n in kinds.items()) + "."
    notes = (str(note) for table in ("scans", "prediction") for note in tables.facts(table).get("CohortNotes", []))
    yield Section("cohort", "Cohort", (said, *_describe_scans(tables), *dict.fromkeys(notes)), (), tuple(grids))


def _steps(tables: GroupTables) -> Iterator[tuple[str, int | None, int | None]]:
    path = tables.root / "logs" / "status.tsv"
    if path.is_file():
        status = read_table(path)
        status = status[~status["recording"].str.endswith("_embedding")]
        done = status[status["state"] == "done"]
        for name, part in (("Found by the participant level", status), ("Passed the participant level", done)):
            yield name, len(part), part["recording"].str.split("_").str[0].nunique()
    scans = tables.rows("scans")
    if len(scans):
        yield "In the cohort, as scans", len(scans), scans["participant_id"].nunique()
        sessions = list(scans.groupby("session", sort=False)) if "session" in scans else []
        for session, part in sessions[:MOST_SESSIONS] if len(sessions) > 1 else ():
            yield f"– of session {session}", len(part), part["participant_id"].nunique()
    if tables.has("folds"):
        yield "In the prediction", None, tables.people("folds")
    found = tables.rows("identification_scans")
    if len(found):
        searches = found[["participant_id", "session"]].drop_duplicates()
        yield "In the identification (two sessions or more)", len(searches), searches["participant_id"].nunique()


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
    scans = tables.rows("scans")
    if not {"seconds", "mean_fd"} <= set(scans.columns):
        return
    minutes, motion = scans["seconds"].astype(float).dropna() / 60, scans["mean_fd"].astype(float).dropna()
    said = []
    if len(minutes):
        said.append(f"{minutes.median():.1f} cleaned minutes (median; {minutes.min():.1f} to {minutes.max():.1f})")
    if len(motion):
        said.append(f"a mean FD of {motion.median():.2f} mm (median; {motion.min():.2f} to {motion.max():.2f})")
    if said:
        yield f"Scans have {' and '.join(said)}."


# The quality of the recordings


def read_quality_tables(root: Path) -> pd.DataFrame:
    """Read the quality tables of all recordings, one row per recording and atlas."""
    rows = [row for path in sorted(root.glob(f"sub-*/**/*{QUALITY_END}")) for row in _read(path, root)]
    table = pd.DataFrame(rows)
    for name in table.columns.difference(["recording", "participant_id", "atlas", "state", "address", "verdict"]):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    if table.empty:
        return table
    table["verdict"] = np.where(table["state"] == DONE, WORDS[DONE], table["state"])
    if (path := root / RECORDINGS_FILE).is_file():  # the verdict of the page and of the index, not another one
        judged = read_table(path)
        doubted = judged.loc[judged["quality"] == CAUTION, ["recording", "atlas"]]
        names = set(doubted.itertuples(index=False, name=None))
        pairs = zip(table["recording"], table["atlas"], strict=True)
        table.loc[[pair in names for pair in pairs], "verdict"] = USED_WITH_CAUTION
    later = (table["volumes"] - table["dummy_volumes"]).clip(lower=1)
    table["censored"] = 100 * table["censored_volumes"] / later
    table["minutes"] = table["seconds_kept"] / 60
    return table


def _read(path: Path, root: Path) -> Iterator[dict[str, Any]]:
    """Rows of one table; none of one that cannot be read, whose recording is left out with the reason."""
    if not path.is_file():
        return
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            rows, there = list(reader), reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error):
        return
    lacking = [name for name in NEEDED if name not in there]
    if lacking:
        raise DatasetError(f"{path} lacks the columns {', '.join(lacking)}. Run the participant level again.")
    name = path.name.removesuffix(QUALITY_END)
    about = {"recording": name, "participant_id": name.split("_", 1)[0], "address": relative_link(path, root)}
    yield from (row | about for row in rows)


def outlying(values: np.ndarray, side: int) -> np.ndarray:
    """Which values lie over `OUTLYING` times 1.4826 median (half equal: mean) absolute deviations from the median."""
    known = values[np.isfinite(values)]
    if known.size < 5:
        return np.zeros(values.shape, dtype=bool)
    from_median = values - np.median(known)
    spread = 1.4826 * np.median(np.abs(known - np.median(known)))
    spread = spread or 1.2533 * float(np.mean(np.abs(known - np.median(known))))
    if not spread:
        return np.zeros(values.shape, dtype=bool)
    distance = np.abs(from_median) if side == 0 else side * from_median
    return np.nan_to_num(distance / spread, nan=0.0) > OUTLYING


def quality_chapter(tables: GroupTables) -> Iterator[Section]:
    """Distributions and table of the quality of all recordings, outliers marked and linked to the pages."""
    found = read_quality_tables(tables.root)
    if found.empty:
        return
    marks = {name: np.zeros(len(found), dtype=bool) for name in MEASURES if name in found and found[name].notna().any()}
    values = {name: found[name].to_numpy(dtype=float) for name in marks}
    for rows in found.groupby("atlas").indices.values():
        for name, mark in marks.items():
            mark[rows] = outlying(values[name][rows], MEASURES[name][2])
    strange = found["recording"][np.any(list(marks.values()), axis=0)].nunique()
    doubted = found.loc[found["verdict"] == USED_WITH_CAUTION, "recording"].nunique()
    said = f"{count(found['recording'].nunique(), 'recording')} of {count_people(found['participant_id'].nunique())}; "
    if doubted:
        said += f"{count(doubted, 'recording')} used with caution, as their pages say; "
    said += (
        f"{count(strange, 'recording')} stand{'s' if strange == 1 else ''} out in at least one measure (more than "
        f"{OUTLYING:g} robust standard deviations from the median). Standing out is a reason to look, not a reason to "
        "exclude."
        if strange
        else "none stands out."
    )
    titles = {name: MEASURES[name][0] for name in marks}
    svg = draw_quality({titles[name]: values[name] for name in marks}, {titles[name]: marks[name] for name in marks})
    panel = tables.panel("quality", svg, measures=", ".join(titles.values()), strange=strange)
    recording = found["recording"].str.split("_space-")
    one_space = recording.str[-1].str.split("_").str[0].nunique() == 1
    names = recording.str[0] if one_space else found["recording"]
    n_marks = np.sum(list(marks.values()), axis=0)
    order = np.lexsort((found["recording"].to_numpy(), -n_marks))
    shown = {
        "Recording": [
            Cell(name, "", tables.pages.get(person, ""))
            for name, person in zip(names, found["participant_id"], strict=True)
        ],
        "Atlas": [Cell(str(name).replace("atlas-", "").replace("_", " ")) for name in found["atlas"]],
        "State": list(map(Cell, found["verdict"])),
        "Stands out in": [Cell(str(n), n) for n in n_marks.tolist()],
    }
    for name, mark in marks.items():
        heading, digits, _ = MEASURES[name]
        pairs = zip(values[name].tolist(), mark.tolist(), strict=True)
        shown[heading] = [
            Cell(show_number(value, digits), "n/a" if missing(value) else value, outlier=out) for value, out in pairs
        ]
    shown["Data behind this"] = [Cell("table", "", address) for address in found["address"]]
    columns = [[cells[place] for place in order] for cells in shown.values()]
    text = "A triangle marks what stands out; the name leads to the page of the participant."
    grid = Grid("", text, tuple(shown), tuple(zip(*columns, strict=True)))
    yield Section("quality", panel.title, (said,), (panel,), (grid,))


# Motion


def motion_chapter(tables: GroupTables) -> Iterator[Section]:
    """How much of the connectomes goes with motion (QC-FC)."""
    summary, edges = tables.rows("qcfc_summary"), tables.rows("qcfc")
    if summary.empty or edges.empty:
        return
    shares = zip(map(tables.title, summary["representation"]), summary["share_significant"], strict=True)
    each = ", ".join(f"{name} {percent(share, 1)}" for name, share in shares)
    said = f"Edges that go with motion (q < {SIGNIFICANT:g}): {each}."
    columns = ["r", "distance"] if "distance" in edges and edges["distance"].notna().any() else ["r"]
    parts = edges.groupby("representation", sort=False)[columns]
    shown = {tables.title(name): part.to_numpy(dtype=float) for name, part in parts}
    svg = draw_edge_motion(shown, int(summary["n_people"].iloc[0]))
    panels = (tables.panel("motion", svg, said=said), *_motion_brains(tables))
    grids = tuple(tables.grid("qcfc_summary", tables.titled(summary).dropna(axis=1, how="all")))
    yield Section("motion", "Motion and connectivity (QC-FC)", (said,), panels, grids, (said,))


def _motion_brains(tables: GroupTables) -> Iterator[Any]:
    """QC-FC of the parcels, a brain per representation whose edges go with motion; none of chance."""
    found, summary = tables.rows("qcfc_parcels"), tables.rows("qcfc_summary")
    if found.empty:
        return
    # where the permutations are too few, or none, the edges decide
    tested = summary["p_all"].where(summary["n_permutations"] >= FEWEST_PERMUTATIONS)
    allowed = (tested < SIGNIFICANT) | (tested.isna() & (summary["share_significant"] > 0))
    found = found[found["representation"].isin(summary.loc[allowed, "representation"])]
    for name, part in list(found.groupby("representation", sort=False))[:MOST_BRAINS]:
        yield from parcels_panels("motion_brain", part, "qcfc_parcels", "r", tables, title=tables.title(name))
