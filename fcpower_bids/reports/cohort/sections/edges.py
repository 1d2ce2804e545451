"""Which connections go with a phenotype: the answer, networks, brains, and the edges themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.edges import COMPONENTS, EDGES, SUMMARY, D
from fcpower_bids.reports.cohort.brains import connections_panel
from fcpower_bids.reports.cohort.methods import Paragraph, count_permutations
from fcpower_bids.reports.cohort.tables import (
    SIGNIFICANT,
    GroupTables,
    Part,
    Section,
    count,
    listed,
    make_grid,
    missing,
    say_p,
    smallest_of,
)
from fcpower_bids.reports.kit.figures import draw_matrices
from fcpower_bids.reports.kit.panel import Panel

MOST_PANELS = 6
MOST_DRAWN = 100
ALONE = "Each of them is significant by itself."
TOGETHER = "Of those in a network it is only known that some of them go with it."
ANSWERS = SINGLE, NETWORK = "Single connections", "No single connection, but a network of them,"
"""How the sentences begin that say that something was found."""
BEFORE_CORRECTION = " Corrected for the number of representations, none of this is significant."
NOT_FOR_ALL = " With all representations counted, none of them is significant."
DRAWN = ("parcel_a", "network_a", "parcel_b", "network_b", "effect", "p_family_wise", "t")
MOST_EDGES = 10
"""Edges of each target and representation in the table of the page; the file has more."""
EFFECTS = {D: "d", "r": "partial r"}


def edges_section(tables: GroupTables) -> list[Section]:
    """Say of every target which edges go with it."""
    summary = tables.frame("edges_summary")
    if summary is None:
        return []
    sentences = [*_headline(summary)]
    for _, row in summary.iterrows():
        sentences += [_edges_sentence(row, tables), *_network_sentence(row, tables, _tried(row, summary))]
    return [
        Section(
            "edges",
            "Connections that go with a phenotype",
            tuple(sentences),
            (*_brain_panels(summary, tables), *_network_panels(tables)),
            tuple(_grids(summary, tables)),
        )
    ]


def _headline(summary: pd.DataFrame) -> Iterator[str]:
    """One sentence per answer, with the targets that have it."""
    names: dict[str, list[str]] = {}
    for target, part in summary.groupby("target", sort=False):
        names.setdefault(_answer(part), []).append(str(target))
    for answer, targets in names.items():
        yield answer.format(listed(targets))
    if len(set(summary["target"])) > 1 and any(answer.startswith(ANSWERS) for answer in names):
        yield f"The p of connections are not corrected for the number of targets ({len(set(summary['target']))})."


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


def _edges_sentence(row: pd.Series, tables: GroupTables) -> str:
    what = f"{row['target']} in {tables.title(str(row['representation']))}"
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


def _tried(row: pd.Series, summary: pd.DataFrame) -> int:
    """In how many representations networks of this target were looked for."""
    return int((summary["target"] == row["target"]).sum())


def _network_sentence(row: pd.Series, tables: GroupTables, tried: int) -> Iterator[str]:
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
    same = (frame["target"].astype(str) == str(row["target"])) & (frame["representation"] == row["representation"])
    return frame[same]


def _brain_panels(summary: pd.DataFrame, tables: GroupTables) -> Iterator[Panel]:
    """Significant edges in a glass brain, where the places of the parcels are known."""
    places, networks = tables.facts("edges").get("Centroids", {}), tables.rows("edges_components")
    drawn = 0
    for _, row in summary.iterrows():
        found = _part(networks, row) if len(networks) else None
        hits = [] if found is None else found.loc[found["p_extent"] < SIGNIFICANT, "component"].tolist()
        edges = _part(tables.rows("edges"), row)
        edges = edges[(edges["p_family_wise"] < SIGNIFICANT) | edges["component"].isin(hits)].head(MOST_DRAWN)
        holds = row["p_max"] < SIGNIFICANT or _tried(row, summary) * row["p_component"] < SIGNIFICANT
        title = tables.title(str(row["representation"]))
        panel = connections_panel(
            edges,
            places,
            EDGES.shown(*DRAWN),
            f"Connections that go with {row['target']} in {title}",
            "Edges that are significant, by themselves or in a network that is: red where they are stronger "
            f"{_more(row['target'], tables)}, blue where weaker; of many the strongest. "
            f"{ALONE if (edges['p_family_wise'] < SIGNIFICANT).all() else TOGETHER}"
            + ("" if holds else BEFORE_CORRECTION),
            tables.links("edges"),
        )
        if panel and drawn < MOST_PANELS:
            drawn += 1
            yield panel


def _more(target: Any, tables: GroupTables) -> str:
    """The direction of a target, in words."""
    of_two = tables.facts("edges").get("PositiveClasses", {}).get(str(target))
    return f"in {of_two}" if of_two else "with more of it"


def _network_panels(tables: GroupTables) -> Iterator[Panel]:
    """T of the mean edge between two networks, a panel per target."""
    found = tables.rows("edges_networks")
    if found.empty:
        return
    for number, (target, part) in enumerate(found.groupby("target", sort=False)):
        if number >= MOST_PANELS:
            return
        names = list(dict.fromkeys([*_labels(part, "network_a"), *_labels(part, "network_b")]))
        matrices = {}
        for name, own in part.groupby("representation", sort=False):
            values = np.full((len(names), len(names)), np.nan)
            for a, b, t in zip(_labels(own, "network_a"), _labels(own, "network_b"), own["t"], strict=True):
                i, j = names.index(a), names.index(b)
                values[i, j] = values[j, i] = t
            matrices[tables.title(str(name))] = values
        each = part["representation"].nunique()
        pairs = f"{each} × {len(part) // each:,}" if each > 1 else f"{len(part):,}"
        hits = part[part["p_family_wise"] < SIGNIFICANT]
        yield Panel(
            f"Networks that go with {target}",
            f"t of the mean of all edges between two networks: red where they are stronger {_more(target, tables)}. "
            f"{count(len(hits), 'pair')} of {pairs} {'is' if len(hits) == 1 else 'are'} significant, corrected "
            "for the number of pairs.",
            draw_matrices(matrices, [(name, i, i + 1) for i, name in enumerate(names)]),
            f"{count(len(matrices), 'matrix', 'matrices')} of {len(names)} networks.",
            sources=tables.links("edges_networks"),
        )


def _labels(part: pd.DataFrame, column: str) -> list[str]:
    return [str(each) for each in part[column].fillna("n/a")]


SUMMARY_SHOWN = (
    *("target", "representation", "n_people", "df", "n_edges", "n_family_wise", "n_fdr", "p_family_wise", "p_max"),
    *(
        "measure",
        "effect_largest",
        "effect_needed",
        "effect_powered",
        "n_components",
        "p_component",
        "p_component_intensity",
    ),
)
EDGES_SHOWN = (
    *("target", "representation", "parcel_a", "parcel_b", "measure", "effect", "ci_low", "ci_high", "t", "df"),
    *("p", "q", "p_family_wise", "component"),
)


def _grids(summary: pd.DataFrame, tables: GroupTables) -> Iterator[Any]:
    yield make_grid(
        tables.titled(summary),
        SUMMARY.shown(*SUMMARY_SHOWN),
        "Finding",
        "Needed: the observed effect from which an edge would have been significant; found in four of "
        "five: the true effect that would be found so often. q and p are two ways of correcting for the "
        "number of edges: the first bounds the share of false ones, the second the chance of any.",
        tables.links("edges_summary", "edges_null"),
    )
    edges = tables.frame("edges")
    if edges is not None:
        yield make_grid(
            tables.titled(edges.groupby(["target", "representation"], sort=False).head(MOST_EDGES)),
            EDGES.shown(*EDGES_SHOWN),
            "The strongest edges of each",
            "Intervals are those of the edge by itself; the largest of many effects is overestimated.",
            tables.links("edges"),
        )
    components = tables.frame("edges_components")
    if components is not None:
        yield make_grid(
            tables.titled(components.groupby(["target", "representation"], sort=False).head(MOST_EDGES)),
            COMPONENTS.shown(*COMPONENTS.columns),
            "Networks of edges",
            "The p is that of the network: it does not say which of its edges differ.",
            tables.links("edges_components"),
        )


def smallest_p_of_edges(tables: GroupTables) -> float:
    """The smallest p of a target's edges or networks, corrected for representations and for both of all targets."""
    summary = tables.rows("edges_summary")
    if summary.empty:
        return np.nan
    each = summary.groupby("target")
    return smallest_of([*each["p_max"].min(), *(each["p_component"].min() * each.size()).clip(upper=1)])


PART = Part(
    edges_section,
    "edges",
    "Connections that go with a phenotype",
    place=70,
    quoted=True,
    answers=ANSWERS,
    smallest_p=smallest_p_of_edges,
)


def _describe_edges(tables: GroupTables, table: str) -> dict[str, Any]:
    summary = tables.rows(table)
    fewest_and_most = (f"{n:,}" for n in (summary["n_people"].min(), summary["n_people"].max()))
    return {
        "facts": tables.facts("edges"),
        "targets": list(dict.fromkeys(map(str, summary["target"]))),
        "people": " to ".join(dict.fromkeys(fewest_and_most)),
        "n_permutations": count_permutations(summary),
    }


METHODS = Paragraph(
    "edges", "edges_summary", Path(__file__).with_name("methods_edges.md"), _describe_edges, heading=True
)
