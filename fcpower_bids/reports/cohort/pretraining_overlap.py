"""Sentences of the page about representations whose encoder was trained on the people that they describe."""

from __future__ import annotations

import pandas as pd

from fcpower_bids.analyses.features import EMBEDDING
from fcpower_bids.analyses.pretraining_overlap import ENOUGH
from fcpower_bids.reports.cohort.comparisons import score_label
from fcpower_bids.reports.cohort.tables import GroupTables, count, percent


def seen_rows(rows: pd.DataFrame) -> pd.Series:
    """Which rows of a summary are of an encoder that was trained on people in them."""
    if "n_trained" not in rows:
        return pd.Series(False, index=rows.index)
    return rows["n_trained"].fillna(0) > 0


def seen_names(tables: GroupTables) -> set[str]:
    """Representations of the prediction or the identification whose encoder was trained on people there."""
    found: set[str] = set()
    for name in ("prediction_summary", "identification"):
        rows = tables.rows(name)
        if len(rows):
            found |= set(rows.loc[seen_rows(rows), "representation"].astype(str))
    return found


def describe_training(row: pd.Series) -> str:
    """Say that an encoder was trained on none of the people of a row, or that this is not known."""
    if not str(row["representation"]).startswith(EMBEDDING) or "n_trained" not in row:
        return ""
    known = row["n_trained"] == row["n_trained"]
    return (
        " Its encoder was trained on none of these people."
        if known
        else " The people that its encoder was trained on are not known."
    )


def describe_seen_identification(row: pd.Series, tables: GroupTables) -> str:
    """One sentence instead of the score, and the score of the unseen people where there is one."""
    title, name = tables.title(str(row["representation"])), str(row["representation"])
    said = (
        f"{title} is no finding here: its encoder was trained on {row['n_trained']:.0f} of these "
        f"{row['n_people']:.0f} people ({percent(row['accuracy'])} of the searches find the person)."
    )
    apart = tables.rows("identification_unseen")
    if apart.empty:
        return f"{said} {too_few(row['n_people'] - row['n_trained'])}"
    last = apart.drop_duplicates("representation", keep="last")
    own = last[last["representation"] == name].iloc[0]
    others = "; ".join(
        f"{tables.title(str(one['representation']))} {percent(one['accuracy'])}"
        for _, one in last[last["representation"] != name].iterrows()
    )
    return (
        f"{said} Among the {own['n_people']:.0f} people that no encoder was trained on it finds "
        f"{percent(own['accuracy'])} (95 % CI {percent(own['ci_low'])} to {percent(own['ci_high'])}; chance "
        f"{percent(own['chance'])}; {others})."
    )


def describe_seen_prediction(target: str, tables: GroupTables) -> list[str]:
    """One sentence for every such representation of a target."""
    rows = tables.rows("prediction_unseen")
    if rows.empty:
        return []
    names = seen_names(tables)
    own = rows[(rows["target"].astype(str) == target) & rows["representation"].isin(names)]
    return [_describe_prediction(row, tables) for _, row in own.iterrows()]


def _describe_prediction(row: pd.Series, tables: GroupTables) -> str:
    score = score_label(row["score"])
    left = int(row["n_unseen"])
    rest = too_few(left)
    if row["unseen"] == row["unseen"]:
        rest = f"Over the {count(left, 'person', 'people')} that no encoder was trained on: {row['unseen']:.2f}."
    return (
        f"{tables.title(str(row['representation']))} is no finding here: its encoder was trained on "
        f"{row['n_people'] - left:.0f} of the {row['n_people']:.0f} people ({score} {row['everyone']:.2f} with "
        f"everyone). {rest}"
    )


def too_few(n: float) -> str:
    """Say that the unseen people have no score of their own."""
    left = "No person is" if n == 0 else f"Only {count(int(n), 'person is', 'people are')}"
    return f"{left} left that it was not trained on; {ENOUGH} are needed for a score of their own."
