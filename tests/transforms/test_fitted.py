"""Transforms that are fitted to a group: tangent space, Tucker, and the components of edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.transforms.fitted import Tangent, Tucker
from fcpower_bids.transforms.subspace import SUBSPACES, Subspace


def draw_connectomes(n=5, n_parcels=6, n_volumes=50, seed=0):
    generator = np.random.default_rng(seed)
    return np.stack([pearson_connectivity(generator.standard_normal((n_volumes, n_parcels))) for _ in range(n)])


# The affine-invariant references of pyriemann and nilearn stop at their own tolerances, 1e-8 and 1e-7.
@pytest.mark.parametrize(
    ("reference", "name", "tolerance"),
    [
        ("harmonic", "harmonic", 1e-12),
        ("arithmetic", "euclid", 1e-12),
        ("logeuclidean", "logeuclid", 1e-12),
        ("riemannian", "riemann", 1e-9),
    ],
)
def test_agrees_with_pyriemann(shared, reference, name, tolerance):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        tangent = Tangent(reference=reference).fit_transform(golden["corr"])
        expected = golden[f"pyriemann_tangent_riemann_ref_{name}"]
    rows, columns = np.triu_indices(24)
    weighted = tangent[:, rows, columns] * np.where(rows == columns, 1, np.sqrt(2))
    np.testing.assert_allclose(weighted, expected, rtol=0, atol=tolerance)


def test_agrees_with_nilearn_whose_covariance_is_of_another_scale(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        transform = Tangent(reference="riemannian").fit(golden["corr"])
        np.testing.assert_allclose(
            transform.transform(golden["corr"]), golden["nilearn_tangent_emp_z"], rtol=0, atol=1e-6
        )
        scaled = transform.reference_ * 199 / 200
        np.testing.assert_allclose(scaled, golden["nilearn_tangent_mean_emp_z"], rtol=0, atol=1e-6)


def test_new_recordings_do_not_move_the_reference():
    connectomes = draw_connectomes()
    transform = Tangent().fit(connectomes[:3])
    np.testing.assert_array_equal(transform.transform(connectomes)[3:], transform.transform(connectomes[3:]))


def test_parcel_that_one_misses_is_left_out_for_all():
    connectomes = draw_connectomes()
    connectomes[1, 2] = connectomes[1, :, 2] = np.nan
    transform = Tangent().fit(connectomes)
    kept = [0, 1, 3, 4, 5]
    without = connectomes[:, kept][:, :, kept]
    result = transform.transform(connectomes)
    assert np.isnan(result[:, 2]).all()
    np.testing.assert_allclose(result[:, kept][:, :, kept], Tangent().fit_transform(without), atol=1e-14)


def test_short_scans_need_a_choice():
    connectomes = draw_connectomes(n_parcels=20, n_volumes=10)
    with pytest.raises(ValueError, match="rank-deficient"):
        Tangent().fit(connectomes)
    transform = Tangent(shrink_to_identity=0.2).fit(connectomes)
    shrunk = 0.8 * connectomes + 0.2 * np.eye(20)
    np.testing.assert_allclose(transform.transform(connectomes), Tangent().fit_transform(shrunk), atol=1e-11)
    assert transform.metadata(connectomes[0])["ShrinkageIntensity"] == 0.2


def draw_connectomes_of_tucker(n=6, n_parcels=8, n_volumes=60, seed=0):
    generator = np.random.default_rng(seed)
    return np.stack([pearson_connectivity(generator.standard_normal((n_volumes, n_parcels))) for _ in range(n)])


def denoise_golden(shared):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        connectomes, expected = golden["corr"], golden["tensorly_tucker_8_8_10_recon"]
    transform = Tucker(parcel_share=8 / 24, people_share=10 / 14)
    return connectomes, expected, transform.fit_transform(connectomes)


def test_agrees_with_tensorly(shared, monkeypatch):
    """Its iteration stops earlier: ours may differ a little, but must not fit worse."""
    monkeypatch.setattr("fcpower_bids.transforms.fitted.TUCKER_ITERATIONS", 500)
    monkeypatch.setattr("fcpower_bids.transforms.fitted.TUCKER_TOLERANCE", 1e-14)
    connectomes, expected, denoised = denoise_golden(shared)
    np.testing.assert_allclose(denoised, expected, rtol=0, atol=2e-4)
    assert np.linalg.norm(denoised - connectomes) <= np.linalg.norm(expected - connectomes)


def test_recovers_a_tensor_of_low_rank_and_removes_noise():
    generator = np.random.default_rng(1)
    factors = np.linalg.qr(generator.standard_normal((12, 3)))[0]
    cores = np.tensordot(generator.standard_normal((20, 2)), generator.standard_normal((2, 3, 3)), axes=1)
    clean = factors @ (cores + cores.swapaxes(1, 2)) @ factors.T
    noise = 0.05 * generator.standard_normal(clean.shape)
    transform = Tucker(parcel_share=0.25, people_share=0.1)
    np.testing.assert_allclose(transform.fit_transform(clean), clean, atol=1e-10)
    noisy = clean + noise + noise.swapaxes(1, 2)
    assert np.linalg.norm(transform.fit_transform(noisy) - clean) < 0.4 * np.linalg.norm(noisy - clean)


def test_somebody_new_is_denoised_alone():
    connectomes = draw_connectomes_of_tucker()
    transform = Tucker().fit(connectomes[:5])
    np.testing.assert_allclose(transform.transform(connectomes)[5], transform.transform(connectomes[5:])[0], atol=1e-12)


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


def test_principal_scores_carry_pca_to_its_last_component_and_to_people_who_were_not_fitted():
    edges, others = draw_edges(), draw_edges(seed=1)
    ours, theirs = Subspace("pca", 6).fit(edges), PCA(6, svd_solver="full").fit(edges)
    for rows in (edges, others):
        scores, expected = ours.transform(rows), theirs.transform(rows)
        signs = np.sign((ours.transform(edges) * theirs.transform(edges)).sum(axis=0))
        np.testing.assert_allclose(scores * signs, expected, rtol=0, atol=1e-10)
