"""Whether scans identify people, by representation, exponent and length of scan."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.reports.cohort.drawings import draw_curves
from fcpower_bids.reports.cohort.findings import (
    describe_power,
    describe_seen_identification,
    describe_training,
    seen_names,
    seen_rows,
)
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    Section,
    count,
    missing,
    percent,
    say_p,
    smallest_of,
)
from fcpower_bids.reports.kit.page import Panel

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


def smallest_p_identified(tables: GroupTables) -> float:
    """The smallest p of a representation, times their number."""
    return smallest_of(identification_rows(tables, unseen=True).get("p_permutation", ()))


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
    """Accuracy, against exponent and length too, and reliability of the edges."""
    rows = tables.rows("identification")
    if rows.empty:
        return
    panels = (*_length(tables), *_exponents(tables))
    if rows["chance_within"].isna().all():
        rows = rows.drop(columns=["accuracy_within", "chance_within"])
    grids = (*tables.grid("identification", tables.titled(rows)), *tables.grid("identification_icc"))
    said = tuple(describe_identification(tables))
    yield Section("identification", "Identification across sessions", said, panels, grids)


def _exponents(tables: GroupTables) -> Iterator[Panel]:
    table = tables.rows("identification_alpha")
    if table.empty:
        return
    table = table.sort_values("alpha", kind="stable")
    panels = [
        (title, unit, "exponent α (1 is FC)", {title: table[["alpha", column]].to_numpy(dtype=float)})
        for title, unit, column in (
            ("Accuracy", "share found", "accuracy"),
            ("Idiff", "100 × (self − others)", "i_diff"),
            ("d′", "pooled SDs", "d_prime"),
        )
    ]
    yield tables.panel("identification_alpha", draw_curves(panels, mark=ALPHA_STAR), said=describe_alpha(table))


def describe_alpha(table: pd.DataFrame) -> str:
    """Say how accuracy and Idiff go with the exponent, and why Idiff does not measure the gain."""
    first, last = table.iloc[0], table.iloc[-1]
    best, widest = (table.iloc[int(table[key].to_numpy().argmax())] for key in ("accuracy", "i_diff"))
    alpha, accuracy, i_diff = (table[key].tolist() for key in ("alpha", "accuracy", "i_diff"))
    falling = [i for i in range(len(table) - 1) if accuracy[i] >= accuracy[i + 1] and i_diff[i] < i_diff[i + 1]]
    here = "In this cohort the two happen to agree."
    if falling:
        ends = f"between α = {alpha[falling[-1] + 1]:g} and {alpha[falling[0]]:g}"
        here = f"Here it falls while the accuracy rises or stays, {ends}."
    return (
        f"From α = {last['alpha']:g} to {first['alpha']:g} the accuracy goes from {percent(last['accuracy'])} to "
        f"{percent(first['accuracy'])} (highest at α = {best['alpha']:g}) and Idiff from {last['i_diff']:.1f} to "
        f"{first['i_diff']:.1f} (highest at α = {widest['alpha']:g}). Idiff has the unit of the similarity, which "
        "changes with the exponent; with real data Idiff falls while accuracy rises, so it does not measure the gain; "
        f"accuracy and d′ do. {here} Dashed: α = 0.35. The exponent with the best accuracy was found on these very "
        "scans, so its accuracy is optimistic."
    )


def _length(tables: GroupTables) -> Iterator[Panel]:
    table = tables.rows("identification_length")
    if table.empty:
        return
    curves = {
        tables.title(name): part.sort_values("minutes", kind="stable")[["minutes", "accuracy"]].to_numpy(dtype=float)
        for name, part in table.groupby("representation", sort=False)
    }
    said = "; ".join(
        f"{title} {percent(values[0, 1])} with {values[0, 0]:.1f} min, {percent(values[-1, 1])} with "
        f"{values[-1, 0]:.1f} min"
        for title, values in curves.items()
    )
    svg = draw_curves([("", "share found", "minutes of each scan", curves)])
    yield tables.panel("identification_length", svg, said=said)


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
