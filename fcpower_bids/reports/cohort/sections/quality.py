"""Who is in the cohort and how good their recordings are."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.qc_fc import QCFC_PARCELS
from fcpower_bids.cohort.inclusion import CAUTION, EXCLUDED_TABLE, PARCEL
from fcpower_bids.cohort.recordings import FILE as RECORDINGS_FILE
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.group import LEFT_OUT
from fcpower_bids.outputs.status import DONE
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.reports.cohort.brains import parcels_panel
from fcpower_bids.reports.cohort.figures import draw_edge_motion, draw_quality
from fcpower_bids.reports.cohort.findings import FEWEST_PERMUTATIONS
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Cell,
    Grid,
    GroupTables,
    Section,
    count,
    make_grid,
    missing,
    percent,
    say_p,
)
from fcpower_bids.reports.kit.page import relative_link, show_number
from fcpower_bids.reports.kit.panel import Panel
from fcpower_bids.reports.person.verdict import USED_WITH_CAUTION, WORDS

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
MOST_SESSIONS = 12
MOST_BRAINS = 4
NEEDED = ("atlas", "state", "volumes", "dummy_volumes", "censored_volumes", "seconds_kept")
"""Columns without which a quality table is broken."""


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
        # a table of an earlier version has no verdicts
        doubted = judged.loc[judged.get("quality", judged["state"]) == CAUTION, ["recording", "atlas"]]
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
    for row in rows:
        yield {
            **row,
            "recording": name,
            "participant_id": name.split("_", 1)[0],
            "address": relative_link(path, root),
        }


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


def quality_section(tables: GroupTables) -> list[Section]:
    """Distributions and table of the quality of all recordings, outliers marked and linked to the pages."""
    found = read_quality_tables(tables.root)
    if found.empty:
        return []
    marks = {name: np.zeros(len(found), dtype=bool) for name in MEASURES if name in found and found[name].notna().any()}
    for _, rows in found.groupby("atlas").indices.items():
        for name, mark in marks.items():
            mark[rows] = outlying(found[name].to_numpy(dtype=float)[rows], MEASURES[name][2])
    n_marks = np.sum(list(marks.values()), axis=0)
    strange = found["recording"][n_marks > 0].nunique()
    doubted = found.loc[found["verdict"] == USED_WITH_CAUTION, "recording"].nunique()
    sentences = (
        f"{count(found['recording'].nunique(), 'recording')} of "
        f"{count(found['participant_id'].nunique(), 'person', 'people')}; "
        + (f"{count(doubted, 'recording')} used with caution, as their pages say; " if doubted else "")
        + (
            f"{count(strange, 'recording')} stand{'s' if strange == 1 else ''} out in at least one measure "
            f"(more than {OUTLYING:g} robust standard deviations from the median). Standing out is a reason to look, "
            "not a reason to exclude."
            if strange
            else "none stands out."
        ),
    )
    panel = Panel(
        "Quality of the recordings",
        "Each dot is a recording under an atlas; triangles stand out. The line is the median.",
        draw_quality(
            {MEASURES[name][0]: found[name].to_numpy(dtype=float) for name in marks},
            {MEASURES[name][0]: mark for name, mark in marks.items()},
        ),
        "Distributions of " + ", ".join(MEASURES[name][0] for name in marks) + f"; {strange} recordings stand out.",
        wide=True,
    )
    return [
        Section("quality", "Quality of the recordings", sentences, (panel,), (_quality_grid(found, marks, tables),))
    ]


def _quality_grid(found: pd.DataFrame, marks: dict[str, np.ndarray], tables: GroupTables) -> Grid:
    names = found["recording"].str.split("_space-").str[0]
    spaces = found["recording"].str.split("_space-").str[-1].str.split("_").str[0].nunique()
    names = names if spaces == 1 else found["recording"]
    order = np.lexsort((found["recording"].to_numpy(), -np.sum(list(marks.values()), axis=0)))
    rows = []
    for i in order:
        row = found.iloc[int(i)]
        cells = [
            Cell(str(names.iloc[int(i)]), "", tables.pages.get(str(row["participant_id"]), "")),
            Cell(str(row["atlas"]).replace("atlas-", "").replace("_", " ")),
            Cell(str(row["verdict"])),
            Cell(str(int(sum(mark[i] for mark in marks.values()))), int(sum(mark[i] for mark in marks.values()))),
        ]
        for name, mark in marks.items():
            value = float(row[name])
            sorted_by = value if math.isfinite(value) else "n/a"
            cells.append(Cell(show_number(value, MEASURES[name][1]), sorted_by, "", bool(mark[i])))
        rows.append((*cells, Cell("table", "", str(row["address"]))))
    header = (
        "Recording",
        "Atlas",
        "State",
        "Stands out in",
        *(MEASURES[name][0] for name in marks),
        "Data behind this",
    )
    text = "A triangle marks what stands out; the name leads to the page of the participant."
    return Grid("", text, header, tuple(rows))


def cohort_section(tables: GroupTables) -> list[Section]:
    """How many recordings and people are left after each step, and who was left out and why."""
    steps = list(_steps(tables))
    excluded, left_out = tables.frame("excluded"), tables.frame("left_out")
    if not steps and excluded is None and left_out is None:
        return []
    header = ("Step", "Recordings or scans", "People")
    rows = tuple((Cell(name), _number(scans), _number(people)) for name, scans, people in steps)
    sources = tables.links("scans", "excluded", "folds", "identification_scans")
    status = tables.root / "logs" / "status.tsv"
    if status.is_file():
        sources = ((status.name, relative_link(status, tables.root)), *sources)
    text = (
        "A scan is all recordings of a person in a session, combined. From the cohort on, only those are counted that "
        "the command asked for (--participant-label and its like)."
    )
    flow = Grid("Cohort flow", text, header, rows, sources)
    grids = ([flow] if rows else []) + list(_left_out_grid(tables))
    said_of = (note for table in ("scans", "prediction") for note in tables.facts(table).get("CohortNotes", []))
    notes = [*_describe_scans(tables), *dict.fromkeys(map(str, said_of))]
    if excluded is None:
        said = "No person and no recording was left out at group level."
        return [Section("cohort", "Cohort", (said, *notes), (), tuple(grids))]
    grid = make_grid(
        fold_parcels(excluded.fillna("n/a")),
        EXCLUDED_TABLE.columns.values(),
        "Left out, and why",
        "Nothing that is missing was filled in. Parcels that were left out for one reason share a row.",
        tables.links("excluded"),
        {"participant_id": lambda name: tables.person(str(name))},
    )
    kinds = excluded["what"].value_counts()
    said = "Left out: " + ", ".join(count(int(n), str(kind)) for kind, n in kinds.items()) + "."
    return [Section("cohort", "Cohort", (said, *notes), (), (*grids, grid))]


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
    minutes, motion = (scans[name].astype(float).dropna() for name in ("seconds", "mean_fd"))
    minutes = minutes / 60
    said = []
    if len(minutes):
        said.append(f"{minutes.median():.1f} cleaned minutes (median; {minutes.min():.1f} to {minutes.max():.1f})")
    if len(motion):
        said.append(f"a mean FD of {motion.median():.2f} mm (median; {motion.min():.2f} to {motion.max():.2f})")
    if said:
        yield f"Scans have {' and '.join(said)}."


def _left_out_grid(tables: GroupTables) -> Iterator[Grid]:
    """Analyses without tables of this run."""
    left_out = tables.frame("left_out")
    if left_out is None:
        return
    yield make_grid(left_out, LEFT_OUT.columns.values(), "Analyses that were not done", "", tables.links("left_out"))


def _number(value: int | None) -> Cell:
    return Cell("", "n/a") if value is None else Cell(f"{value:,}", value)


def _steps(tables: GroupTables) -> Iterator[tuple[str, int | None, int | None]]:
    path = tables.root / "logs" / "status.tsv"
    if path.is_file():
        status = read_table(path)
        status = status[~status["recording"].str.endswith("_embedding")]
        done = status[status["state"] == "done"]
        for name, part in (("Found by the participant level", status), ("Passed the participant level", done)):
            yield name, len(part), part["recording"].str.split("_").str[0].nunique()
    scans = tables.frame("scans")
    if scans is not None:
        yield "In the cohort, as scans", len(scans), scans["participant_id"].nunique()
        sessions = list(scans.groupby("session", sort=False)) if "session" in scans else []
        for session, part in sessions[:MOST_SESSIONS] if len(sessions) > 1 else ():
            yield f"– of session {session}", len(part), part["participant_id"].nunique()
    if tables.has("folds"):
        yield "In the prediction", None, tables.people("folds")
    found = tables.frame("identification_scans")
    if found is not None:
        searches = found[["participant_id", "session"]].drop_duplicates()
        yield "In the identification (two sessions or more)", len(searches), searches["participant_id"].nunique()


def motion_section(tables: GroupTables) -> list[Section]:
    """How much of the connectomes goes with motion (QC-FC)."""
    summary, edges = tables.frame("qcfc_summary"), tables.frame("qcfc")
    if summary is None or edges is None:
        return []
    shares = ", ".join(
        f"{tables.title(str(row['representation']))} {100 * row['share_significant']:.1f} %"
        for _, row in summary.iterrows()
    )
    sentences: tuple[str, ...] = (f"Edges that go with motion (q < {SIGNIFICANT:g}): {shares}.",)
    sentences += tuple(_motion_sentence(row, tables) for _, row in summary.iterrows())
    has_distance = "distance" in edges and edges["distance"].notna().any()
    parts = {
        tables.title(str(name)): part[["r", *(["distance"] if has_distance else [])]].to_numpy(dtype=float)
        for name, part in edges.groupby("representation", sort=False)
    }
    if not has_distance:
        sentences += ("The distance between parcels is not known here, so its dependence is left out.",)
    panel = Panel(
        "QC-FC",
        "Correlation over people between each edge and mean FD. The grey curve is what chance alone gives with so many "
        "people; a histogram that is much wider, or not centred on zero, means that motion is left in the edges. Edges "
        "depend on each other, so small departures mean little.",
        draw_edge_motion(parts, int(summary["n_people"].iloc[0])),
        " ".join(sentences),
        sources=tables.links("qcfc", "qcfc_summary"),
        wide=True,
    )
    return [Section("motion", "Motion and connectivity (QC-FC)", sentences, (panel, *_motion_brains(tables)))]


def _motion_brains(tables: GroupTables) -> Iterator[Panel]:
    """QC-FC of the parcels, a brain per representation whose edges go with motion; none of chance."""
    found, summary = tables.rows("qcfc_parcels"), tables.rows("qcfc_summary")
    # where the permutations are too few, or none, the edges decide
    tested = summary["p_all"].where(summary["n_permutations"] >= FEWEST_PERMUTATIONS)
    allowed = (tested < SIGNIFICANT) | (tested.isna() & (summary["share_significant"] > 0))
    with_motion = summary.loc[allowed, "representation"] if len(summary) else []
    found = found[found["representation"].isin(with_motion)] if len(found) else found
    for name, part in list(found.groupby("representation", sort=False))[:MOST_BRAINS] if len(found) else ():
        panel = parcels_panel(
            part,
            QCFC_PARCELS.columns["r"],
            f"Motion by parcel, {tables.title(str(name))}",
            "Mean over the edges of a parcel of their correlation with mean FD: red where people who move more have "
            "stronger edges. The table names the parcels with the largest.",
            tables.links("qcfc_parcels"),
        )
        if panel:
            yield panel


def _motion_sentence(row: pd.Series, tables: GroupTables) -> str:
    rho = row.get("distance_rho", math.nan)
    said = (
        f"{tables.title(str(row['representation']))}: median |r| with mean FD is {row['median_abs_r']:.3f} over "
        f"{row['n_people']:.0f} people (chance gives {row['median_abs_r_chance']:.3f}); "
        f"{percent(row['share_significant'], 1)} of the edges are significant after control of the false discovery rate"
    )
    if not missing(row.get("p_all")):
        said += f"; all edges together, permutation {say_p(float(row['p_all']))}"
    return said + (f"; Spearman correlation of |r| with distance {rho:.2f}." if rho == rho else ".")
