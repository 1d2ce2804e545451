"""People who are alike are not taken for one person, and copies among people far out are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.planting.planted import Planted, draw_table
from tests.referee import power_edges

ALIKE = 60


def draw(parcels: int, volumes: int, axis: float, own: float, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Series of people who differ along one axis, some very much; a further scan of the most usual; where all are."""
    rng = np.random.default_rng(seed)
    base, direction = rng.standard_normal((2, parcels, parcels))
    places = rng.permutation(axis * rng.standard_t(5, ALIKE))
    roots = [base + own * rng.standard_normal((parcels, parcels)) + place * direction for place in places]
    usual = int(np.argmin(np.abs(places)))
    return [rng.standard_normal((volumes, parcels)) @ root.T for root in (*roots, roots[usual])], places


def plant(root: Path, scans: list[np.ndarray]) -> Planted:
    cohort = Planted(root)
    for number, series in enumerate(scans):
        cohort.put(number, "a", series)
    cohort.phenotypes = draw_table(len(scans))
    return cohort


def compare_all(cohort: Planted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores and similarity of all pairs, and how wide the scores of each scan spread, from the tables of FC."""
    rows = []
    for path in sorted(cohort.out.glob("**/*stat-pearsoncorrelation_relmat.tsv")):
        rows.append(power_edges(pd.read_csv(path, sep="\t", index_col=0).to_numpy(), 0.35))
    similarity = np.corrcoef(rows)
    centred = similarity - similarity.mean(axis=0) - similarity.mean(axis=1)[:, None] + similarity.mean()
    apart = centred[np.triu_indices(len(rows), 1)]
    scores = (centred - np.median(apart)) / (1.4826 * np.median(np.abs(apart - np.median(apart))))
    others = [np.delete(own, number) for number, own in enumerate(scores)]
    spread = 1.4826 * np.array([np.median(np.abs(own - np.median(own))) for own in others])
    return scores, similarity, spread


def run_check(cohort: Planted, name: str) -> list[dict]:
    """Rows of ``check_pairs``, as the command writes them."""
    check = ("--targets", "age", "--analyses", "check", "--min-time", 60, "--nprocs", 1)
    cohort.group(*check, "--name", name)
    return Planted(cohort.root, name).table("check_pairs").to_dict("records")


def test_a_pair_stands_out_among_the_scores_of_both(tmp_path):
    cohort = plant(tmp_path, draw(40, 45, 0.25, 0.7, seed=1)[0])
    scores, similarity, spread = compare_all(cohort)
    high = [(i, j) for i, j in np.argwhere(np.triu(scores >= 8, 1)).tolist() if j < ALIKE]
    assert high, "nobody to be misled by"
    assert all(scores[i, j] < 8 * max(spread[i], spread[j]) / 1.5 for i, j in high)
    found = run_check(cohort, "whole")
    usual = int(np.argmax(scores[-1, :-1]))
    ((verdict, *names),) = [(row["verdict"], row["participant_id"], row["other"]) for row in found]
    assert (verdict, names) == ("place to look", [f"sub-{usual + 1:03d}", f"sub-{ALIKE + 1:03d}"])
    assert found[0]["score"] == pytest.approx(scores[usual, -1], rel=1e-10)
    assert found[0]["similarity"] == pytest.approx(similarity[usual, -1], rel=1e-10)


def test_where_a_copy_scores_no_more_than_people_far_out_the_series_tell(tmp_path):
    """With few parcels many people look like one scan by their connectomes alone."""
    scans, places = draw(20, 200, 0.3, 0.4, seed=4)
    far = int(np.argmax(np.abs(places)))
    scans[-1] = scans[far] + 0.3 * scans[far].std() * np.random.default_rng(0).standard_normal(scans[far].shape)
    cohort = plant(tmp_path, scans)
    scores, similarity, spread = compare_all(cohort)
    own = np.minimum(*np.meshgrid(np.diag(scores), np.diag(scores)))
    as_one = np.triu((scores >= 8) & (scores > 0.7 * own) & (similarity > 0.7), 1)
    assert as_one.sum() > 2
    assert scores[far, -1] < 8 * spread[[far, -1]].max() / 1.5, "the copy does not stand out"
    (found,) = run_check(cohort, "copied")
    assert (found["verdict"], found["participant_id"]) == ("same scan", f"sub-{far + 1:03d}")
    assert (found["other"], found["series_correlation"] > 0.9) == (f"sub-{ALIKE + 1:03d}", True)
