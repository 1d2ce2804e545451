"""Whether scans identify people, by representation, exponent and length of scan."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from fcpower_bids.analyses.fingerprinting import IDENTIFICATION, IDENTIFICATION_ICC
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.reports.cohort import figures as group_figures
from fcpower_bids.reports.cohort.findings import describe_power
from fcpower_bids.reports.cohort.pretraining_overlap import (
    describe_seen_identification,
    describe_training,
    seen_names,
    seen_rows,
)
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    Grid,
    GroupTables,
    Section,
    count,
    make_grid,
    missing,
    percent,
    say_p,
    smallest_of,
)
from fcpower_bids.reports.kit.panel import Panel

MOST_MATRICES = 3
FEWEST_DIFFERENT = 6
"""People for whom sign flips can give a p below 0.05: 2 / 2^6 is, 2 / 2^5 is not."""


def identification_rows(tables: GroupTables) -> pd.DataFrame:
    """One row of ``identification`` per representation, the best first: over all sessions where there are several."""
    rows = tables.rows("identification")
    if rows.empty:
        return rows
    whole = rows[rows["first_session"].astype(str) == "all"]
    each = (whole if len(whole) else rows).drop_duplicates("representation")
    return each.sort_values("accuracy", ascending=False, kind="stable")


def smallest_p_identified(tables: GroupTables) -> float:
    """The smallest p of a representation, times their number."""
    rows = identification_rows(tables)
    return smallest_of(rows.loc[~seen_rows(rows), "p_permutation"]) if len(rows) else float("nan")


def describe_identification(tables: GroupTables) -> list[str]:
    """Say how often each representation finds the person, the best first, and whether two of them differ."""
    rows = identification_rows(tables)
    seen = seen_rows(rows)
    said = [
        f"{tables.title(str(row['representation']))} finds the person in {percent(row['accuracy'])} of "
        f"{row['n_searches']:.0f} searches (95 % CI {percent(row['ci_low'])} to {percent(row['ci_high'])} over "
        f"people; chance {percent(row['chance'], 1)}{_within(row)}; permutation "
        f"{say_p(float(row['p_permutation']))})." + describe_training(row)
        for _, row in rows[~seen].iterrows()
    ]
    said += [describe_seen_identification(row, tables) for _, row in rows[seen].iterrows()]
    comparisons, names = tables.rows("identification_comparisons"), seen_names(tables)
    fair = [row for _, row in comparisons.iterrows() if names.isdisjoint({row["representation"], row["reference"]})]
    return said + [_describe_difference(row, tables) for row in fair]


def _within(row: pd.Series) -> str:
    """Score and chance among the people of the own site, where there are sites."""
    if missing(row.get("chance_within")):
        return ""
    return (
        f", within the own site {percent(row['chance_within'], 1)}; among people of the own site alone it finds "
        f"{percent(row['accuracy_within'])}"
    )


def _describe_difference(row: pd.Series, tables: GroupTables) -> str:
    later, earlier = tables.title(str(row["representation"])), tables.title(str(row["reference"]))
    tested = (
        f"{count(int(row['only_representation']), 'search', 'searches')} only {later} gets right, "
        f"{row['only_reference']:.0f} only "
        f"{earlier}; exact sign flips over people {say_p(float(row['p_people']))}"
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


def identification_section(tables: GroupTables) -> list[Section]:
    """Accuracy, who is taken for whom, accuracy against exponent and length, reliability of the edges."""
    if tables.frame("identification") is None:
        return []
    panels = [*_accuracy_panel(tables), *_length_panel(tables), *_matches_panel(tables), *_alpha_panel(tables)]
    grids = [_identification_grid(tables), *_icc_grid(tables)]
    said = tuple(describe_identification(tables))
    return [Section("identification", "Identification across sessions", said, tuple(panels), tuple(grids))]


def _accuracy_panel(tables: GroupTables) -> Iterator[Panel]:
    rows = identification_rows(tables)
    points = [
        (tables.title(str(row["representation"])), float(row["accuracy"]), float(row["ci_low"]), float(row["ci_high"]))
        for _, row in rows.iterrows()
    ]
    chance = float(rows["chance"].iloc[0])
    seen = [tables.title(name) for name in rows.loc[seen_rows(rows), "representation"].astype(str)]
    marked = f" No score for new people: {', '.join(seen)} (trained on people shown here)." if seen else ""
    yield Panel(
        "Identification accuracy",
        f"Mean of both directions with its 95 % interval over people; dashed: chance, {percent(chance, 1)}.{marked}",
        group_figures.draw_intervals(points, "share of searches that find the person", chance),
        "; ".join(f"{title} {percent(middle)}" for title, middle, _, _ in points) + f"; chance {percent(chance, 1)}.",
        sources=tables.links("identification", "identification_comparisons"),
    )


def _matches_panel(tables: GroupTables) -> Iterator[Panel]:
    scans = tables.rows("identification_scans")
    if scans.empty:
        return
    people = sorted({*scans["participant_id"].astype(str), *scans["matched"].dropna().astype(str)})
    place = {name: i for i, name in enumerate(people)}
    matches = {}
    for name, part in list(scans.dropna(subset=["matched"]).groupby("representation", sort=False))[:MOST_MATRICES]:
        pair = tuple(
            part[column].astype(str).map(place).to_numpy(dtype=float) for column in ("participant_id", "matched")
        )
        matches[tables.title(str(name))] = (pair[0], pair[1])
    if not matches:
        return
    said = "; ".join(f"{title}: {int((a == b).sum())} of {len(a)}" for title, (a, b) in matches.items())
    yield Panel(
        "Who is taken for whom",
        "One mark per search: squares on the diagonal are found people, crosses are people taken for someone else. A "
        f"column of crosses is a scan that many others resemble. Found: {said}.",
        group_figures.draw_matches(matches, len(people)),
        f"Matrix of matches between persons; found: {said}.",
        sources=tables.links("identification_scans"),
        wide=len(matches) > 1,
    )


def _alpha_panel(tables: GroupTables) -> Iterator[Panel]:
    table = tables.frame("identification_alpha")
    if table is None:
        return
    table = table.sort_values("alpha", kind="stable")
    panels = [
        (title, unit, {title: table[["alpha", column]].to_numpy(dtype=float)})
        for title, unit, column in (
            ("Accuracy", "share found", "accuracy"),
            ("Idiff", "100 × (self − others)", "i_diff"),
            ("d′", "pooled SDs", "d_prime"),
        )
    ]
    yield Panel(
        "Identification against the exponent",
        describe_alpha(table),
        group_figures.draw_lines(panels, "exponent α (1 is FC)", ALPHA_STAR),
        "Accuracy, Idiff and d-prime against the exponent. " + describe_alpha(table),
        sources=tables.links("identification_alpha"),
        wide=True,
    )


def describe_alpha(table: pd.DataFrame) -> str:
    """Say how accuracy and Idiff go with the exponent, and why Idiff does not measure the gain."""
    first, last = table.iloc[0], table.iloc[-1]
    best, widest = (table.iloc[int(table[key].to_numpy().argmax())] for key in ("accuracy", "i_diff"))
    said = (
        f"From α = {last['alpha']:g} to {first['alpha']:g} the accuracy goes from {percent(last['accuracy'])} to "
        f"{percent(first['accuracy'])} (highest at α = {best['alpha']:g}) and Idiff from {last['i_diff']:.1f} to "
        f"{first['i_diff']:.1f} (highest at α = {widest['alpha']:g}). "
    )
    falling = [
        (float(table["alpha"].iloc[i]), float(table["alpha"].iloc[i + 1]))
        for i in range(len(table) - 1)
        if table["accuracy"].iloc[i] >= table["accuracy"].iloc[i + 1]
        and table["i_diff"].iloc[i] < table["i_diff"].iloc[i + 1]
    ]
    here = (
        f" Here it falls while the accuracy rises or stays, between α = {falling[-1][1]:g} and {falling[0][0]:g}."
        if falling
        else " In this cohort the two happen to agree."
    )
    return said + (
        "Idiff has the unit of the similarity, which changes with the exponent; with real data Idiff falls while "
        "accuracy rises, so it does not measure the gain; accuracy and d′ do."
        + here
        + " Dashed: α = 0.35. The exponent with the best "
        "accuracy was found on these very scans, so its accuracy is optimistic."
    )


def _length_panel(tables: GroupTables) -> Iterator[Panel]:
    table = tables.frame("identification_length")
    if table is None:
        return
    curves = {
        tables.title(str(name)): part.sort_values("minutes", kind="stable")[["minutes", "accuracy"]].to_numpy(
            dtype=float
        )
        for name, part in table.groupby("representation", sort=False)
    }
    said = "; ".join(
        f"{title} {percent(values[0, 1])} with {values[0, 0]:.1f} min, {percent(values[-1, 1])} with "
        f"{values[-1, 0]:.1f} min"
        for title, values in curves.items()
    )
    yield Panel(
        "Identification against the length of scan",
        f"First minutes of every cleaned scan, up to the shortest: {said}.",
        group_figures.draw_lines([("", "share found", curves)], "minutes of each scan"),
        f"Accuracy against minutes: {said}.",
        sources=tables.links("identification_length"),
    )


def _identification_grid(tables: GroupTables) -> Grid:
    facts, rows = tables.facts("identification"), tables.rows("identification")
    within = () if rows["chance_within"].isna().all() else ("accuracy_within", "chance_within")
    return make_grid(
        tables.titled(rows),
        IDENTIFICATION.shown(
            "representation",
            "first_session",
            "second_session",
            "n_people",
            "accuracy",
            "ci_low",
            "ci_high",
            "accuracy_first_to_second",
            "accuracy_second_to_first",
            "chance",
            *within,
            "p_permutation",
            "d_prime",
            "i_self",
            "i_others",
            "i_diff",
            "n_trained",
        ),
        "All pairs of sessions",
        " ".join(str(facts[key]) for key in ("Rule", "Ties") if key in facts),
        tables.links("identification", "identification_scans"),
    )


def _icc_grid(tables: GroupTables) -> Iterator[Grid]:
    if tables.frame("identification_icc") is None:
        return
    yield make_grid(
        tables.titled(tables.rows("identification_icc")),
        IDENTIFICATION_ICC.shown("representation", "form", "mean", "sd", "median", "n_people", "n_features"),
        "Test-retest reliability of single features",
        "Intraclass correlation over sessions of each edge or embedding dimension (Shrout and Fleiss 1979), averaged.",
        tables.links("identification_icc"),
    )


def privacy_section(tables: GroupTables) -> list[Section]:
    """Say that connectomes identify people, with the number of this cohort."""
    rows = identification_rows(tables)
    rows = rows[~seen_rows(rows)]
    if rows.empty:
        return []
    best = rows.iloc[int(rows["accuracy"].to_numpy().argmax())]
    said = str(tables.facts("identification").get("Privacy", "A connectome is a fingerprint: it can link scans."))
    return [
        Section(
            "privacy",
            "Privacy",
            (
                said,
                f"In this cohort {tables.title(str(best['representation']))} finds {percent(best['accuracy'])} of the "
                "people in another session. Removing names from a shared connectome does not make it anonymous. This "
                "page shows participant labels: treat it as personal data.",
            ),
        )
    ]
