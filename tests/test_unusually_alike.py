"""People far out on a common axis are not alike, a second scan under another name is: the command against its files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cli.run import main
from tests.derivatives.planted import Planted, draw_table

PEOPLE, PARCELS, VOLUMES = 60, 40, 45


def draw(seed: int = 1) -> list[np.ndarray]:
    """Series of people who differ along one axis, some very much, and a second scan of the most usual of them."""
    rng = np.random.default_rng(seed)
    base, axis = rng.standard_normal((2, PARCELS, PARCELS))
    places = rng.permutation(0.25 * rng.standard_t(5, PEOPLE))
    roots = [base + 0.7 * rng.standard_normal((PARCELS, PARCELS)) + place * axis for place in places]
    usual = int(np.argmin(np.abs(places)))
    return [rng.standard_normal((VOLUMES, PARCELS)) @ root.T for root in (*roots, roots[usual])]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    found = Planted(tmp_path_factory.mktemp("alike"))
    for number, series in enumerate(draw()):
        found.put(number, "a", series)
    found.phenotypes = draw_table(PEOPLE + 1)
    return found


@pytest.fixture(scope="module")
def expected(cohort):
    """Scores and similarity of all pairs, and how wide the scores of each scan spread, from the tables of FC."""
    rows = []
    for path in sorted(cohort.out.glob("**/*stat-pearsoncorrelation_relmat.tsv")):
        values, vectors = np.linalg.eigh(pd.read_csv(path, sep="\t", index_col=0).to_numpy())
        values = np.where(values > 1e-10 * values[-1], values, 0)
        rows.append(((vectors * values**0.35) @ vectors.T)[np.triu_indices(PARCELS, 1)])
    similarity = np.corrcoef(rows)
    centred = similarity - similarity.mean(axis=0) - similarity.mean(axis=1)[:, None] + similarity.mean()
    apart = centred[np.triu_indices(len(rows), 1)]
    scores = (centred - np.median(apart)) / (1.4826 * np.median(np.abs(apart - np.median(apart))))
    spread = []
    for number, own in enumerate(scores):
        others = np.delete(own, number)
        spread.append(1.4826 * np.median(np.abs(others - np.median(others))))
    return scores, similarity, np.array(spread)


@pytest.mark.parametrize("options", [(), ("--mem-mb", "1")], ids=["in memory", "in panels"])
def test_a_pair_stands_out_among_the_scores_of_both(cohort, expected, options, monkeypatch):
    scores, similarity, spread = expected
    high = [(i, j) for i, j in np.argwhere(np.triu(scores >= 8, 1)).tolist() if j < PEOPLE]
    assert high, "nobody to be misled by"
    assert all(scores[i, j] < 8 * max(spread[i], spread[j]) / 1.5 for i, j in high)
    if options:  # a cohort of this size is a large one, and no kernel is whole
        monkeypatch.setattr("fcpower_bids.machine.SHARE", 64)
        monkeypatch.setattr("fcpower_bids.analyses.engine.connectomes.similarity", None)
    named = Planted(cohort.root, "panels" if options else "whole")
    command = [
        cohort.bids,
        cohort.out,
        "group",
        "--targets",
        "age",
        "--check",
        "--min-time",
        "60",
        "--name",
        named.name,
    ]
    assert main([*map(str, command), "--nprocs", "1", *options]) == 0
    found = named.table("check_pairs").to_dict("records")
    usual = int(np.argmax(scores[-1, :-1]))
    assert [(row["verdict"], row["participant_id"], row["other"]) for row in found] == [
        ("place to look", f"sub-{usual + 1:03d}", f"sub-{PEOPLE + 1:03d}")
    ]
    exact = 1e-5 if options else 1e-10
    assert found[0]["score"] == pytest.approx(scores[usual, -1], rel=exact)
    assert found[0]["similarity"] == pytest.approx(similarity[usual, -1], rel=exact)
    assert not list((cohort.out / "work").glob("**/scratch-*"))
