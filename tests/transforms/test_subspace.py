"""Reductions of edges against scikit-learn's reference scores."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA

from fcpower_bids.transforms.subspace import SUBSPACES, Subspace


def draw_edges(n=12, n_edges=30, seed=0):
    return np.random.default_rng(seed).standard_normal((n, n_edges))


# Factor analysis is let run to scikit-learn's default tolerance here; the reference stopped at a smaller one.
@pytest.mark.parametrize(
    ("name", "n_components", "key", "angle"),
    [
        ("pca", 5, "sklearn_pca5", 1e-10),
        ("factor_analysis", 3, "sklearn_fa3", 0.02),
        ("ica", 3, "sklearn_fastica3", 1e-10),
        ("random_projection", 8, "sklearn_grp8_seed0", 1e-10),
    ],
)
def test_spans_the_reference_subspace(shared, name, n_components, key, angle, monkeypatch):
    monkeypatch.setattr("fcpower_bids.transforms.subspace.FACTOR_ITERATIONS", 100)
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        scores = Subspace(name, n_components).fit(golden["X_triu"]).transform(golden["X_triu"])
        expected = golden[key]
    assert scores.shape == expected.shape
    angles = subspace_angles(scores - scores.mean(axis=0), expected - expected.mean(axis=0))
    assert angles.max() < angle


@pytest.mark.parametrize("name", SUBSPACES)
def test_people_who_were_not_fitted_get_scores_and_change_nothing(name):
    edges, others = draw_edges(), draw_edges(seed=1)
    subspace = Subspace(name, 4, seed=3).fit(edges)
    before = subspace.transform(edges)
    assert subspace.transform(others).shape == (12, 4)
    np.testing.assert_array_equal(subspace.transform(edges), before)
    np.testing.assert_array_equal(Subspace(name, 4, seed=3).fit(edges).transform(edges), before)
    np.testing.assert_allclose(Subspace(name, 4, seed=3).fit_transform(edges), before, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "expected"), [("pca", 11), ("random_projection", 30)])
def test_no_more_components_than_the_people_allow(name, expected):
    assert Subspace(name, 300).fit(draw_edges()).transform(draw_edges()).shape == (12, expected)


def test_principal_scores_carry_pca_to_its_last_component_and_to_people_who_were_not_fitted():
    edges, others = draw_edges(), draw_edges(seed=1)
    ours, theirs = Subspace("pca", 6).fit(edges), PCA(6, svd_solver="full").fit(edges)
    for rows in (edges, others):
        scores, expected = ours.transform(rows), theirs.transform(rows)
        signs = np.sign((ours.transform(edges) * theirs.transform(edges)).sum(axis=0))
        np.testing.assert_allclose(scores * signs, expected, rtol=0, atol=1e-10)


def test_a_method_that_did_not_converge_is_noted(monkeypatch):
    monkeypatch.setattr("fcpower_bids.transforms.subspace.FACTOR_ITERATIONS", 1)
    assert "converge" in Subspace("factor_analysis", 5).fit(draw_edges()).notes[0]
    assert Subspace("pca", 5).fit(draw_edges()).notes == ()


def test_refusals():
    with pytest.raises(ValueError, match="no reduction called 'tsne'"):
        Subspace("tsne")
    with pytest.raises(ValueError, match="three people"):
        Subspace("pca").fit(draw_edges(2))
    with pytest.raises(ValueError, match="missing values"):
        Subspace("pca").fit(np.full((5, 4), np.nan))
    with pytest.raises(ValueError, match="call fit"):
        Subspace("pca").transform(draw_edges())
