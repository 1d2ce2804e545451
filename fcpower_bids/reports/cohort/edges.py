"""Which connections go with a phenotype: the answer, networks, brains, and the edges themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcpower_bids.analyses.edges import D
from fcpower_bids.reports.cohort.brains import connections_panels
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    Section,
    count,
    listed,
    missing,
    say_p,
    smallest_of,
    square,
)
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.page import Panel

MOST_PANELS = 6
MOST_DRAWN = 100
ALONE = "Each of them is significant by itself."
TOGETHER = "Of those in a network it is only known that some of them go with it."
ANSWERS = SINGLE, NETWORK = "Single connections", "No single connection, but a network of them,"
"""How the sentences begin that say that something was found."""
BEFORE_CORRECTION = " Corrected for the number of representations, none of this is significant."
NOT_FOR_ALL = " With all representations counted, none of them is significant."
MOST_EDGES = 10
"""Edges of each target and representation in the table of the page; the file has more."""
EFFECTS = {D: "d", "r": "partial r"}
BOTH = ["target", "representation"]


def edges_chapter(tables: GroupTables) -> Iterator[Section]:
    """Say of every target which edges go with it."""
    summary = tables.rows("edges_summary")
    if summary.empty:
        return
    tried = summary.groupby("target")["target"].transform("size")  # representations in which networks were looked for
    said, panels = [*_headline(summary)], list[Panel]()
    for (_, row), n in zip(summary.iterrows(), tried, strict=True):
        said += [_say_edges(row, tables), *_say_networks(row, tables, n)]
        panels += _brain(row, tables, n) if len(panels) < MOST_PANELS else ()
    firsts = {name: tables.rows(name) for name in ("edges", "edges_components")}
    firsts = {name: rows.groupby(BOTH, sort=False).head(MOST_EDGES) for name, rows in firsts.items() if len(rows)}
    grids = [*tables.grid("edges_summary")]
    for name, rows in firsts.items():
        grids += tables.grid(name, tables.titled(rows))
    title = "Connections that go with a phenotype"
    yield Section("edges", title, tuple(said), (*panels, *_networks(tables)), tuple(grids), tuple(said[:1]))


def _headline(summary: pd.DataFrame) -> Iterator[str]:
    """One sentence per answer, with the targets that have it."""
    names: dict[str, list[str]] = {}
    for target, part in summary.groupby("target", sort=False):
        names.setdefault(_answer(part), []).append(str(target))
    for answer, targets in names.items():
        yield answer.format(listed(targets))
    n = summary["target"].nunique()
    if n > 1 and any(answer.startswith(ANSWERS) for answer in names):
        yield f"The p of connections are not corrected for the number of targets ({n})."


def _answer(part: pd.DataFrame) -> str:
    """By the smallest p corrected for all edges and representations; that of networks by Bonferroni for the latter."""
    if (part["n_permutations"] == 0).all():
        return "Whether any connection goes with {} was not tested: no permutations were run (--permutations)."
    if part["smallest_p"].min() >= SIGNIFICANT:
        return "For {} the permutations are too few, or the blocks too small, to decide."
    if part["p_max"].min() < SIGNIFICANT:
        return f"{SINGLE} go with {{}}."
    if len(part) * part["p_component"].min() < SIGNIFICANT:
        return f"{NETWORK} goes with {{}}."
    if part["p_component"].min() < SIGNIFICANT:
        return (
            "For {} no connection was found; a network of them stands out only before correction for representations."
        )
    return "For {} no connection was found."


def _say_edges(row: pd.Series, tables: GroupTables) -> str:
    what = f"{row['target']} in {tables.title(row['representation'])}"
    n, effect = int(row["n_permutations"]), EFFECTS[str(row["measure"])]
    total, fdr = f"{int(row['n_edges']):,} edges", f"{int(row['n_fdr']):,} with q below {SIGNIFICANT:g}"
    if not n:
        return f"{what}: {total}, {fdr}; none is corrected for all edges."
    if row["smallest_p"] >= SIGNIFICANT:
        return (
            f"{what}: not decided, the smallest p that {count(n, 'permutation')} give here is {row['smallest_p']:.3f}."
        )
    p = f"{say_p(row['p_family_wise'])} corrected for all edges, {say_p(row['p_max'])} for all representations too"
    if not row["n_family_wise"]:
        return (
            f"{what}: none of {total} goes with it detectably ({p}; {fdr}); the threshold was an observed {effect} "
            f"of ±{row['effect_needed']:.2f}, and a true one of ±{row['effect_powered']:.2f} is found in 80 of 100 "
            "cohorts."
        )
    hits, stronger = int(row["n_family_wise"]), int(row["n_stronger"])
    edge = _part(tables.rows("edges"), row).iloc[0]
    return (
        f"{what}: {hits:,} of {total} {'goes' if hits == 1 else 'go'} with it ({stronger:,} stronger and "
        f"{hits - stronger:,} weaker; {fdr}); the largest is {edge['parcel_a']} to {edge['parcel_b']}, {effect} "
        f"{edge['effect']:.2f} (95 % CI {edge['ci_low']:.2f} to {edge['ci_high']:.2f}; {p})."
        f"{NOT_FOR_ALL if row['p_max'] >= SIGNIFICANT else ''}"
    )


def _say_networks(row: pd.Series, tables: GroupTables, tried: int) -> Iterator[str]:
    """Sentences on the network-based statistic, where it can decide."""
    if not row["n_permutations"] or row["smallest_p"] >= SIGNIFICANT:
        return
    above = f"edges with |t| above {row['threshold']:.2f}"
    if missing(row["p_component"]):
        yield f"No two {above} share a parcel."
        return
    if row["p_component"] >= SIGNIFICANT:
        yield f"No network of {above} is larger than chance (smallest {say_p(row['p_component'])})."
        return
    found = _part(tables.rows("edges_components"), row)
    hits, largest = found[found["p_extent"] < SIGNIFICANT], found.iloc[0]
    p = say_p(largest["p_extent"])
    if tried > 1:
        p += f"; {say_p(min(1.0, tried * largest['p_extent']))} corrected for {tried} representations"
    yield (
        f"{count(len(hits), 'network')} of {above} {'is' if len(hits) == 1 else 'are'} larger than chance; the largest "
        f"has {count(int(largest['n_edges']), 'edge')} between {largest['n_parcels']:.0f} parcels, {largest['sign']} "
        f"({p})."
    )


def _part(frame: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    if frame.empty:
        return frame
    same = (frame["target"].astype(str) == str(row["target"])) & (frame["representation"] == row["representation"])
    return frame[same]


def _brain(row: pd.Series, tables: GroupTables, tried: int) -> Iterator[Panel]:
    """Significant edges in a glass brain, where the places of the parcels are known."""
    networks, edges = _part(tables.rows("edges_components"), row), _part(tables.rows("edges"), row)
    hits = networks.loc[networks["p_extent"] < SIGNIFICANT, "component"].tolist() if len(networks) else []
    edges = edges[(edges["p_family_wise"] < SIGNIFICANT) | edges["component"].isin(hits)].head(MOST_DRAWN)
    holds = row["p_max"] < SIGNIFICANT or tried * row["p_component"] < SIGNIFICANT
    yield from connections_panels(
        "edges",
        edges,
        tables.facts("edges").get("Centroids", {}),
        "t",
        tables,
        target=row["target"],
        name_of=tables.title(row["representation"]),
        more=_more(row["target"], tables),
        together=ALONE if (edges["p_family_wise"] < SIGNIFICANT).all() else TOGETHER,
        before="" if holds else BEFORE_CORRECTION,
    )


def _more(target: object, tables: GroupTables) -> str:
    """The direction of a target, in words."""
    of_two = tables.facts("edges").get("PositiveClasses", {}).get(str(target))
    return f"in {of_two}" if of_two else "with more of it"


def _networks(tables: GroupTables) -> Iterator[Panel]:
    """T of the mean edge between two networks, a panel per target."""
    found = tables.rows("edges_networks")
    for target, part in list(found.groupby("target", sort=False))[:MOST_PANELS] if len(found) else ():
        matrices = {}
        for name, own in part.groupby("representation", sort=False):
            names, matrices[tables.title(name)] = square(own, "network_a", "network_b", "t")
        n = len(matrices)
        pairs = f"{n} × {len(part) // n:,}" if n > 1 else f"{len(part):,}"
        hits = int((part["p_family_wise"] < SIGNIFICANT).sum())
        yield tables.panel(
            "edges_networks",
            draw_matrices(matrices, [(name, i, i + 1) for i, name in enumerate(names)]),
            target=target,
            more=_more(target, tables),
            hits=f"{count(hits, 'pair')} of {pairs} {'is' if hits == 1 else 'are'} significant",
            matrices=count(n, "matrix", "matrices"),
            n=len(names),
        )


def smallest_p_of_edges(tables: GroupTables) -> float:
    """The smallest p of a target's edges or networks, corrected for representations and for both of all targets."""
    summary = tables.rows("edges_summary")
    if summary.empty:
        return np.nan
    parts = summary.groupby("target")
    return smallest_of([*parts["p_max"].min(), *(parts["p_component"].min() * parts.size()).clip(upper=1)])
