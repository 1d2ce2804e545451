"""The sentences about connections that go with a phenotype, each held against the tables that it speaks of."""

from __future__ import annotations

import re

import pandas as pd

from tests.page_sentences import COUNT, NAME, NUMBER, Catalogue, P, Page, close, same_p


def about(page: Page, name: str) -> pd.DataFrame:
    """Rows of the target and representation that the last sentence named."""
    return page.rows(name, page.about[0], representation=page.about[1])


def edges_answer(page: Page, *said: str) -> None:
    """Who is named follows from the smallest p that is corrected for edges and representations."""
    summary = page.table("edges_summary")
    state = {}
    for target, part in summary.groupby("target", sort=False):
        single, network = part["p_max"].min() < 0.05, part["p_component"].min() < 0.05 / len(part)
        almost = part["p_component"].min() < 0.05
        state[target] = "single" if single else "network" if network else "almost" if almost else "none"
    kinds = ("single", "network", "almost", "none")
    wanted, names = next((kind, text) for kind, text in zip(kinds, said, strict=True) if text)
    assert re.split(r", | and ", names) == [target for target, own in state.items() if own == wanted]


def edges_targets(page: Page, n: str) -> None:
    assert int(n) == page.table("edges_summary")["target"].nunique()


def edges_row(page: Page, target: str, title: str) -> tuple[pd.Series, pd.DataFrame]:
    page.about = target, page.key(title)
    return about(page, "edges_summary").iloc[0], about(page, "edges")


def edges_p(row: pd.Series, p: str, p_max: str) -> None:
    same_p(p, row["p_family_wise"])
    same_p(p_max, row["p_max"])


def edges_found(page: Page, target: str, title: str, *said: str) -> None:
    row, edges = edges_row(page, target, title)
    hits, total, stronger, weaker, fdr, first, second, measure, effect, low, high, p, p_max, not_for_all = said
    assert bool(not_for_all) == (row["p_max"] >= 0.05)
    significant = edges[edges["p_family_wise"] < 0.05]
    assert int(hits.replace(",", "")) == len(significant) > 0
    assert (int(stronger), int(weaker)) == ((significant["t"] > 0).sum(), (significant["t"] < 0).sum())
    assert int(total.replace(",", "")) == row["n_edges"]
    assert int(fdr) == (edges["q"] < 0.05).sum()
    best = edges.loc[edges["t"].abs().idxmax()]
    assert (first, second) == (best["parcel_a"], best["parcel_b"])
    assert measure == {"r": "partial r", "d": "d"}[best["measure"]]
    for text, key in ((effect, "effect"), (low, "ci_low"), (high, "ci_high")):
        close(text, best[key])
    edges_p(row, p, p_max)


def edges_not_found(page: Page, target: str, title: str, total: str, p: str, p_max: str, fdr: str, *said: str) -> None:
    row, edges = edges_row(page, target, title)
    assert not (edges["p_family_wise"] < 0.05).any()
    assert (int(total.replace(",", "")), int(fdr)) == (row["n_edges"], (edges["q"] < 0.05).sum())
    assert said[0] == {"r": "partial r", "d": "d"}[row["measure"]]
    close(said[1], row["effect_needed"])
    close(said[2], row["effect_powered"])
    assert row["effect_powered"] > row["effect_needed"]
    edges_p(row, p, p_max)


def edges_undecided(page: Page, target: str, title: str, n: str, smallest: str) -> None:
    row, _ = edges_row(page, target, title)
    assert int(n.replace(",", "")) == row["n_permutations"]
    close(smallest, row["smallest_p"])
    assert row["smallest_p"] >= 0.05


def edges_untested(page: Page, target: str, title: str, total: str, fdr: str) -> None:
    row, edges = edges_row(page, target, title)
    assert row["n_permutations"] == 0
    assert (int(total.replace(",", "")), int(fdr)) == (row["n_edges"], (edges["q"] < 0.05).sum())


def edges_networks_found(
    page: Page, n: str, threshold: str, edges: str, parcels: str, sign: str, p: str, *more: str
) -> None:
    table = about(page, "edges_components")
    assert int(n) == (table["p_extent"] < 0.05).sum() > 0
    close(threshold, about(page, "edges_summary")["threshold"].item())
    largest = table.loc[table["n_edges"].idxmax()]
    assert (int(edges), int(parcels), sign) == (largest["n_edges"], largest["n_parcels"], largest["sign"])
    same_p(p, largest["p_extent"])
    tried = page.rows("edges_summary", page.about[0])["representation"].nunique()
    if tried > 1:
        assert int(more[1]) == tried
        same_p(more[0], min(1, tried * largest["p_extent"]))


def edges_no_network(page: Page, threshold: str, p: str | None = None) -> None:
    table = about(page, "edges_components")
    close(threshold, about(page, "edges_summary")["threshold"].item())
    if p is None:
        assert table.empty
    else:
        assert table["p_extent"].min() >= 0.05
        same_p(p, table["p_extent"].min())


def edges_pairs(page: Page, hits: str, tried: str | None, total: str) -> None:
    """Which target is meant stands in the title of the panel, so that one of them must have these numbers."""
    table = page.table("edges_networks")
    each = [((part["p_family_wise"] < 0.05).sum(), len(part)) for _, part in table.groupby("target")]
    assert int(tried or 1) == table["representation"].nunique()
    assert (int(hits), int(tried or 1) * int(total.replace(",", ""))) in each


def ranks(rows: pd.DataFrame) -> list[str]:
    """Ranks of parts of the spectrum one by one, to be compared with what a sentence joins."""
    pairs = rows[["first_rank", "last_rank"]].astype(int).to_numpy().tolist()
    return [str(rank) for first, last in pairs for rank in range(first, last + 1)]


def spelled(said: str) -> list[str]:
    ends = [one.split(" to ") for one in re.sub(r"^ranks? ", "", said).split(", ")]
    return [str(rank) for one in ends for rank in range(int(one[0]), int(one[-1]) + 1)]


def modes_found(page: Page, named: str) -> None:
    table = page.table("edges_modes")
    wanted = {target: ranks(part[part["p_family_wise"] < 0.05]) for target, part in table.groupby("target")}
    said = dict(re.findall(r"(\S+) \((ranks? [^)]+)\)", named))
    assert {target: spelled(one) for target, one in said.items()} == {k: each for k, each in wanted.items() if each}


def modes_lacking(page: Page, named: str) -> None:
    table = page.table("edges_modes")
    lacking = [target for target, part in table.groupby("target", sort=False) if part["p_family_wise"].min() >= 0.05]
    assert re.split(r", | and ", named) == lacking


def modes_row(page: Page, target: str, said: str, p: str, n: str, strength: str, chance: str) -> None:
    table = page.rows("edges_modes", target)
    best = table.loc[table["p_family_wise"].idxmin()]
    assert spelled(said) == ranks(best.to_frame().T)
    same_p(p, best["p_family_wise"])
    assert int(n) == len(table)
    close(strength, best["strength"])
    close(chance, best["strength_chance"])


CORRECTED = rf"{P} corrected for all edges, {P} for all representations too"
SENTENCES: Catalogue = (
    (r"Parts of the spectrum of FC\^0\.\d+ go with (.+?\))\.", modes_found),
    (r"No part of the spectrum of FC\^0\.\d+ goes with (.+?) detectably\.", modes_lacking),
    (
        rf"(\S+): (ranks? [\d, to]+), {P} corrected for (\d+) parts?, mean t² {NUMBER} \({NUMBER} by chance\)\.",
        modes_row,
    ),
    (r"The p of connections are not corrected for the number of targets \((\d+)\)\.", edges_targets),
    (
        r"(?:Single connections go with (.+?)|No single connection, but a network of them, goes with (.+?)|For (.+?) "
        r"no connection was found; a network of them stands out only before correction for representations|For (.+?) "
        r"no connection was found)\.",
        edges_answer,
    ),
    (
        rf"(\S+) in {NAME}: {COUNT} of {COUNT} edges goe?s? with it \({COUNT} stronger and {COUNT} weaker; {COUNT} "
        rf"with q below 0\.05\); the largest is (\S+) to (\S+), (d|partial r) {NUMBER} \(95 % CI {NUMBER} to {NUMBER}; "
        rf"{CORRECTED}\)\.( With all representations counted, none of them is significant\.)?",
        edges_found,
    ),
    (
        rf"(\S+) in {NAME}: none of {COUNT} edges goes with it detectably \({CORRECTED}; {COUNT} with q below 0\.05\); "
        rf"the threshold was an observed (d|partial r) of ±{NUMBER}, and a true one of ±{NUMBER} is found in 80 of 100 "
        r"cohorts\.",
        edges_not_found,
    ),
    (
        rf"(\S+) in {NAME}: not decided, the smallest p that {COUNT} permutations? give here is {NUMBER}\.",
        edges_undecided,
    ),
    (
        rf"(\S+) in {NAME}: {COUNT} edges, {COUNT} with q below 0\.05; none is corrected for all edges\.",
        edges_untested,
    ),
    (
        rf"(\d+) networks? of edges with \|t\| above {NUMBER} (?:is|are) larger than chance; the largest has (\d+) "
        rf"edges? between (\d+) parcels, (stronger|weaker) \({P}(?:; {P} corrected for (\d+) representations)?\)\.",
        edges_networks_found,
    ),
    (rf"No network of edges with \|t\| above {NUMBER} is larger than chance \(smallest {P}\)\.", edges_no_network),
    (rf"No two edges with \|t\| above {NUMBER} share a parcel\.", edges_no_network),
    (
        rf"t of the mean of all edges .*? stronger (?:with more of it|in \S+)\. {COUNT} pairs? of (?:(\d+) × )?{COUNT} "
        r"(?:is|are) significant, "
        r"corrected for the number of pairs\.",
        edges_pairs,
    ),
)
