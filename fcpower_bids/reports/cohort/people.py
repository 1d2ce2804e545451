"""Who is in the cohort and who is not, what the check found, and what goes with motion."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from fcpower_bids.cohort.inclusion import PARCEL
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.reports.cohort.drawings import draw_edge_motion
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Cell,
    Grid,
    GroupTables,
    Section,
    count,
    percent,
)
from fcpower_bids.reports.kit.page import relative_link

FEW = 3
"""Parcels of a reason that are named."""
MOST_SESSIONS = 12
NOTE = "note"
NOTHING = "Nothing was found that would mislead."


# The check before the first model


def check_chapter(tables: GroupTables) -> Iterator[Section]:
    """The findings with consequence and remedy, and the suspicious pairs."""
    if not tables.has("check"):
        return
    found = tables.rows("check")
    serious = int((found["level"] != NOTE).sum()) if len(found) else 0
    said = f"{count(serious, 'thing')} to look at, {count(len(found) - serious, 'note')}." if serious else NOTHING
    pairs = tables.grid("check_pairs", participant_id=tables.person, other=tables.person) if len(found) else ()
    grids = (*tables.grid("check"), *pairs)
    yield Section("check", "Check before the first model", (said,), (), grids)


# Who took part


def cohort_chapter(tables: GroupTables) -> Iterator[Section]:
    """How many recordings and people are left after each step, and who was left out and why."""
    excluded, steps = tables.rows("excluded"), list(_steps(tables))
    if not steps and excluded.empty and tables.rows("left_out").empty:
        return
    sources = tables.links("scans", "excluded", "folds", "identification_scans")
    if (tables.root / "index.html").is_file():
        sources = (("index.html", "index.html"), *sources)
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
        yield "In the prediction", None, tables.facts("prediction").get("NumberOfPeople")
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
    panels = (tables.panel("motion", svg, said=said),)
    grids = tuple(tables.grid("qcfc_summary", tables.titled(summary).dropna(axis=1, how="all")))
    yield Section("motion", "Motion and connectivity (QC-FC)", (said,), panels, grids, (said,))
