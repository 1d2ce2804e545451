"""Parts of the spectrum through the command: what each edge of each part does, by numpy from the files that went in."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, special, stats
from sklearn.linear_model import LogisticRegression

from fcpower_bids.core.regression.targets import drawn_rows, permuted_rows
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.slices.edges.equations import build_model
from fcpower_bids.slices.edges.modes import bounds_of_parts
from tests.page_sentences import CATALOGUE, unchecked_sentences
from tests.slices.edges.sentences import SENTENCES as OF_EDGES
from tests.slices.edges.test_edges import listed, run
from tests.slices.elsewhere.test_doors import write_list

PEOPLE, PARCELS, PERMUTATIONS, ALPHA = 36, 16, 199, 0.35
BOUNDS = (0, 1, 2, 4, 8, 16)
SENTENCES = (*OF_EDGES, *CATALOGUE)
UPPER = np.triu_indices(PARCELS, 1)
SPECTRUM = np.array([4.5, 3, 2, 1.5, 1.05, 0.95, 0.85, 0.75, *np.linspace(0.3, 0.05, 8)])


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Connectomes with the eigenvectors of Hadamard, so that any eigenvalues of sum 16 have a diagonal of 1.

    With more of the score the modes 5 to 8 are less equal, and no other mode is touched; each person's basis is turned
    a little, which is what people have in common with noise.
    """
    root, rng = tmp_path_factory.mktemp("modes"), np.random.default_rng(5)
    (root / "bids").mkdir()
    score, base, rows = rng.standard_normal(PEOPLE), linalg.hadamard(PARCELS) / 4, []
    for person in range(PEOPLE):
        values = SPECTRUM * PARCELS / SPECTRUM.sum()
        values[4:8] += 0.12 * score[person] * np.array([1, 1, -1, -1])
        skew = 0.02 * rng.standard_normal((PARCELS, PARCELS))
        basis = base @ linalg.expm(skew - skew.T)
        matrix = (basis * values) @ basis.T
        matrix /= np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))
        pd.DataFrame(matrix, columns=[f"p{n:02d}" for n in range(PARCELS)]).to_csv(
            root / f"{person}.tsv", sep="\t", index=False
        )
        about = {"atlas": "Toy", "minutes": 5, "mean_fd": round(rng.uniform(0.1, 0.5), 3)}
        rows.append({"participant_id": f"sub-{person:02d}", "path": f"{person}.tsv", **about})
    write_list(root, rows)
    columns = {"score": score, "noise": rng.standard_normal(PEOPLE), "patient": np.arange(PEOPLE) % 4 == 0}
    table = pd.DataFrame({"participant_id": [row["participant_id"] for row in rows], **columns})
    table.assign(patient=table["patient"].astype(int)).to_csv(
        root / "bids" / "participants.tsv", sep="\t", index=False, na_rep="n/a"
    )
    return root


@pytest.fixture(scope="module")
def results(cohort):
    asked = ["--targets", "score", "noise", "patient", "--covariates", "mean_fd", "--permutations", PERMUTATIONS]
    return run(cohort, *listed(cohort), *asked, "--representations", "fc", "fc_power")


@pytest.fixture(scope="module")
def parts(cohort):
    """Edges (5, n, E) of the parts of FC^0.35, and shares (2, 5), from the files."""
    edges, shares = [], []
    for person in range(PEOPLE):
        values, vectors = np.linalg.eigh(pd.read_csv(cohort / f"{person}.tsv", sep="\t").to_numpy())
        values, vectors = values[::-1], vectors[:, ::-1]
        pairs = list(pairwise(BOUNDS))
        each = [(vectors[:, a:b] * values[a:b] ** ALPHA) @ vectors[:, a:b].T for a, b in pairs]
        edges.append([matrix[UPPER] for matrix in each])
        shares.append([[(values[a:b] ** p).sum() / (values**p).sum() for a, b in pairs] for p in (2, 2 * ALPHA)])
    return np.array(edges).transpose(1, 0, 2), np.mean(shares, axis=0)


def rows_of(results, target):
    table = read_table(results / "edges_modes.tsv")
    return table[table["target"] == target].reset_index(drop=True)


def strength(edges, target, motion, orders):
    """Mean t^2 of Freedman and Lane: residuals of motion change places, and the full model is fitted again."""
    known = np.column_stack([np.ones(PEOPLE), motion])
    hat = known @ np.linalg.pinv(known)
    left, design = edges - hat @ edges, np.column_stack([known, target])
    inverse = np.linalg.pinv(design)
    found = []
    for order in (np.arange(PEOPLE), *orders):
        values = np.empty_like(left)
        values[order] = left
        slopes = inverse @ values
        variance = ((values - design @ slopes) ** 2).sum(axis=0) / (PEOPLE - 3)
        found.append((slopes[2] ** 2 / (inverse[2] @ inverse[2]) / variance).mean())
    return np.array(found)


@pytest.mark.parametrize("target", ["score", "noise"])
def test_strength_and_p_are_those_of_least_squares_on_parts_of_the_files(results, cohort, parts, target):
    edges, shares = parts
    values = read_table(cohort / "bids" / "participants.tsv")[target].to_numpy()
    motion = read_table(cohort / "list.tsv")["mean_fd"].to_numpy()
    orders = permuted_rows(PEOPLE, PERMUTATIONS, 0)
    found = np.column_stack([strength(one, values, motion, orders) for one in edges])
    rows = rows_of(results, target)
    assert rows[["first_rank", "last_rank"]].to_numpy().tolist() == [[1, 1], [2, 2], [3, 4], [5, 8], [9, 16]]
    np.testing.assert_allclose(rows[["share_fc", "share_fc_power"]].to_numpy().T, shares, rtol=1e-5)
    np.testing.assert_allclose(rows["strength"], found[0], rtol=1e-4)
    np.testing.assert_allclose(rows["strength_chance"], found[1:].mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(rows["p_permutation"], (found >= found[0]).mean(axis=0))
    standard = (np.log(found) - np.log(found).mean(axis=0)) / np.log(found).std(axis=0)
    largest = standard[1:].max(axis=1)
    corrected = [(1 + (largest >= one).sum()) / (1 + PERMUTATIONS) for one in standard[0]]
    np.testing.assert_allclose(rows["p_family_wise"], corrected)


def test_a_class_is_drawn_from_its_probability_given_motion_that_stays(results, cohort, parts):
    """Probability by scikit-learn; nine patients are too few for a square of motion."""
    classes = read_table(cohort / "bids" / "participants.tsv")["patient"].to_numpy(dtype=float)
    motion = read_table(cohort / "list.tsv")["mean_fd"].to_numpy()
    standard = stats.zscore(motion)[:, None]
    chance = LogisticRegression(C=100, tol=1e-10).fit(standard, classes).predict_proba(standard)[:, 1]
    orders = drawn_rows(classes, special.logit(chance), PERMUTATIONS, 0)
    model = replace(build_model(classes, np.column_stack([motion, chance]), None, classes), drawn=classes)
    rows = rows_of(results, "patient")
    for (_, row), edges in zip(rows.iterrows(), parts[0], strict=True):
        left = model.residuals(edges)
        own = model.shrinkage(left)
        observed = (model.common_t(model.statistic(left, own)) ** 2).mean()
        left = model.made_alike(left, own)
        drawn = (model.permuted_t(left, orders, model.shrinkage(left, orders)) ** 2).mean(axis=1)
        assert (row["strength"], row["strength_chance"]) == pytest.approx((observed, drawn.mean()), rel=1e-4)
        assert row["p_permutation"] == pytest.approx((1 + (drawn >= observed).sum()) / (1 + PERMUTATIONS))


def test_what_was_planted_in_ranks_5_to_8_is_found_there_and_nowhere_else(results):
    hits = rows_of(results, "score")["p_family_wise"] < 0.05
    assert hits.tolist() == [False, False, False, True, False]
    assert (rows_of(results, "noise")["p_family_wise"] > 0.05).all()
    assert (rows_of(results, "patient")["p_family_wise"] > 0.05).all()


def test_every_sentence_about_the_spectrum_is_that_of_its_table(results, tmp_path):
    page = results.parent / "group.html"
    left, read = unchecked_sentences(page, results, SENTENCES)
    assert not left
    assert (read["modes_found"], read["modes_lacking"], read["modes_row"]) == (3, 1, 3), "headline, quote and section"
    text = re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
    for old, new in (
        ("ranks 5 to 8", "ranks 3 to 8"),
        (r"mean t² \d", "mean t² 9"),
        ("corrected for 5", "corrected for 6"),
    ):
        (tmp_path / "changed.html").write_text(re.sub(old, new, text), encoding="utf-8")
        with pytest.raises(AssertionError):
            unchecked_sentences(tmp_path / "changed.html", results, SENTENCES)


def test_too_few_permutations_and_single_edges_alone_leave_the_spectrum_open(cohort):
    asked = [*listed(cohort), "--targets", "score"]
    folder = run(cohort, *asked, "--permutations", 9, "--name", "few") / "few"
    left, read = unchecked_sentences(cohort / "out" / "group_few.html", folder, SENTENCES)
    assert not left
    assert not {"modes_found", "modes_lacking", "modes_row"} & set(read)
    folder = run(cohort, *asked, "--permutations", 9, "--name", "fc", "--representations", "fc") / "fc"
    assert not (folder / "edges_modes.tsv").exists()


def test_what_several_analyses_find_is_corrected_for_their_number(cohort):
    """Prediction, edges and parts of the spectrum, after Holm: the sentence is recomputed from their tables."""
    asked = ["--targets", "score", "--permutations", 39, "--repeats", 1, "--folds", 3, "--inner-folds", 3]
    several = ["--name", "several", "--analyses", "edges", "prediction", "--representations", "fc", "fc_power"]
    folder = run(cohort, *listed(cohort), *asked, *several) / "several"
    _, read = unchecked_sentences(cohort / "out" / "group_several.html", folder, SENTENCES)
    assert read["analyses_corrected"] == 1
    assert read_table(folder / "edges_modes.tsv")["p_family_wise"].min() == 1 / 40
    assert read["analyses_lost"] == 1, "three analyses with a smallest p of .025"


@pytest.mark.parametrize(
    ("modes", "bounds"),
    [(1, [0, 1]), (2, [0, 1, 2]), (5, [0, 1, 2, 4, 5]), (20, [0, 1, 2, 4, 8, 16, 20]), (17, [0, 1, 2, 4, 8, 17])],
)
def test_parts_double_and_a_short_rest_joins_the_last(modes, bounds):
    assert bounds_of_parts(modes) == bounds
