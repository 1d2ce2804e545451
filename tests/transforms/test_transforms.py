"""Transforms of one scan and of a group against scipy, pyriemann, nilearn, scikit-learn and tensorly."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from fcpower_bids.core.connectome import ParcelError, pearson_connectivity
from fcpower_bids.transforms.connectomes import TRANSFORMS, recording_transform
from fcpower_bids.transforms.fitted import SUBSPACES, Subspace, Tangent, Tucker
from fcpower_bids.transforms.stateless import shrunk_covariance

N_PARCELS = 7


def make(name, **parameters):
    return recording_transform(name, parameters)


@pytest.fixture(params=[*TRANSFORMS.values(), Tangent(), Tucker()], ids=[*TRANSFORMS, "tangent", "tucker"])
def transform(request):
    return request.param


def needs_series(transform):
    return getattr(transform, "needs", None) == "series"


def each(transform, recordings):
    return np.stack([transform.transform(recording) for recording in recordings])


def transform_all(transform, recordings):
    """Those of a group after it was fitted to them."""
    return each(transform.fit(recordings) if hasattr(transform, "fit") else transform, recordings)


@pytest.fixture
def recordings(transform):
    rng = np.random.default_rng(0)
    mixing = np.eye(N_PARCELS) + 0.3 * rng.standard_normal((N_PARCELS, N_PARCELS))
    series = rng.standard_normal((4, 60, N_PARCELS)) @ mixing
    return series if needs_series(transform) else np.stack([pearson_connectivity(one) for one in series])


def test_reordered_parcels_reorder_the_result(transform, recordings):
    order = np.random.default_rng(1).permutation(N_PARCELS)
    reordered = recordings[:, :, order] if needs_series(transform) else recordings[:, order][:, :, order]
    expected = transform_all(transform, recordings)[:, order][:, :, order]
    result = transform_all(transform, reordered)
    if "cholesky" not in getattr(transform, "name", ""):
        np.testing.assert_allclose(result, expected, atol=1e-9)
    else:
        assert np.abs(result - expected).max() > 1e-3


def test_uncovered_parcels_stay_missing_and_touch_nobody(transform, recordings):
    holed = recordings.copy()
    holed[:, :, 2] = np.nan
    if not needs_series(transform):
        holed[:, 2] = np.nan
    kept = np.delete(np.arange(N_PARCELS), 2)
    without = recordings[:, :, kept] if needs_series(transform) else recordings[:, kept][:, :, kept]
    result = transform_all(transform, holed)
    assert np.isnan(result[:, 2]).all()
    assert np.isnan(result[:, :, 2]).all()
    np.testing.assert_allclose(result[:, kept][:, :, kept], transform_all(transform, without), atol=1e-12)


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_what_a_transform_of_one_does_to_a_recording_goes_into_its_sidecar(transform, recordings):
    json.dumps(transform.metadata(recordings[0]), allow_nan=False)


def noise(volumes: int, parcels: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((volumes, parcels))


SHORT = pearson_connectivity(noise(10, 25))


def refused_parcels(transform, matrix, match) -> tuple[int, ...]:
    with pytest.raises(ParcelError, match=match) as caught:
        transform.transform(matrix)
    return caught.value.parcels


@pytest.mark.parametrize("alpha", ["0.1", "0.35"])
def test_power_agrees_with_pyriemann(golden, alpha):
    powered = each(make("power", alpha=float(alpha)), golden["corr"])
    np.testing.assert_allclose(powered, golden[f"pyriemann_powm_{alpha}"], rtol=0, atol=1e-12)


def test_short_scan_reports_what_was_clipped_by_the_precision_of_the_input():
    metadata = make("power").metadata(SHORT)
    assert metadata["Alpha"] == 0.35
    assert (metadata["Rank"], metadata["NumberClipped"]) == (9, 16)
    assert abs(metadata["SmallestEigenvalue"]) < 1e-13
    assert np.isfinite(make("power").transform(SHORT)).all()
    assert make("power").metadata(SHORT.astype(np.float32))["NumberClipped"] == 16


def test_logarithm_agrees_with_pyriemann_and_is_the_limit_of_powers(golden):
    logarithms = each(make("log_euclidean"), golden["corr"])
    np.testing.assert_allclose(logarithms, golden["pyriemann_logm"], rtol=0, atol=1e-12)
    rows, columns = np.triu_indices(24)
    weighted = logarithms[:, rows, columns] * np.where(rows == columns, 1, np.sqrt(2))
    np.testing.assert_allclose(weighted, golden["pyriemann_tangent_logeuclid_ref_I"], rtol=0, atol=1e-12)
    connectivity = pearson_connectivity(noise(60, 8))
    quotient = (make("power", alpha=1e-7).transform(connectivity) - np.eye(8)) / 1e-7
    np.testing.assert_allclose(quotient, make("log_euclidean").transform(connectivity), atol=1e-6)


@pytest.mark.parametrize("name", ["log_euclidean", "cholesky", "log_cholesky"])
def test_short_scan_is_refused_without_a_choice_and_the_choice_is_recorded(name):
    with pytest.raises(ValueError, match=r"rank-deficient \(16 of 25.*Give a shrinkage or a floor"):
        make(name).transform(SHORT)
    chosen = {"eigenvalue_floor": (1e-3, "EigenvalueFloor"), "shrink_to_identity": (0.1, "ShrinkageIntensity")}
    for choice, (value, key) in chosen.items():
        made = make(name, **{choice: value})
        assert np.isfinite(made.transform(SHORT)).all()
        metadata = made.metadata(SHORT)
        assert metadata[key] == value
        assert (metadata["Rank"], metadata["NumberClipped"]) == (9, 16)


def test_cholesky_agrees_with_scipy(golden):
    lower = np.tril(make("cholesky").transform(golden["corr"][0]))
    np.testing.assert_allclose(lower, golden["scipy_cholesky_s0"], rtol=0, atol=1e-13)
    np.testing.assert_allclose(lower @ lower.T, golden["corr"][0], atol=1e-13)


def test_fisher_z_is_arctanh_with_a_zero_diagonal_and_perfect_correlations_are_named():
    matrix = np.array([[1, 0.5, -0.2], [0.5, 1, 0], [-0.2, 0, 1]])
    expected = 0.5 * np.log((1 + matrix - np.eye(3)) / (1 - matrix + np.eye(3)))
    np.testing.assert_allclose(make("fisher_z").transform(matrix), expected, atol=1e-15)
    assert make("fisher_z").entities == (("stat", "pearsoncorrelation"), ("desc", "fisherz"))
    matrix = np.eye(4)
    matrix[2, 3] = matrix[3, 2] = -1.0
    matrix[0] = matrix[:, 0] = np.nan  # behind a missing parcel
    assert refused_parcels(make("fisher_z"), matrix, "perfectly") == (2, 3)


def test_degree_by_hand_and_by_its_invariances():
    matrix = np.array([[1, 0.5, -0.3], [0.5, 1, 0.1], [-0.3, 0.1, 1]])
    normalised = make("degree").transform(matrix)
    assert normalised[0, 1] == pytest.approx(0.5 / np.sqrt(0.8 * 0.6))
    assert normalised[0, 2] == pytest.approx(-0.3 / np.sqrt(0.8 * 0.4))
    np.testing.assert_array_equal(np.diag(normalised), 0)
    matrix = pearson_connectivity(noise(40, 9))
    np.testing.assert_allclose(make("degree").transform(5 * matrix), make("degree").transform(matrix), atol=1e-15)
    assert np.abs(np.linalg.eigvalsh(make("degree").transform(matrix))).max() <= 1
    isolated = np.eye(4)
    isolated[:2, :2] = [[1, 0.4], [0.4, 1]]
    assert refused_parcels(make("degree"), isolated, "degree is zero") == (2, 3)


def test_precision_agrees_with_nilearn_and_scikit_learn(golden):
    series = golden["timeseries"]
    precision = each(make("precision"), series)
    np.testing.assert_allclose(precision, golden["nilearn_precision_lw_z"], rtol=0, atol=1e-11)
    shrunk = golden["sklearn_ledoit_wolf_cov"], golden["sklearn_ledoit_wolf_shrinkage"]
    for one, covariance, shrinkage in zip(series, *shrunk, strict=True):
        ours = shrunk_covariance(one)
        np.testing.assert_allclose(ours[0], covariance, rtol=0, atol=1e-12)
        assert ours[1] == pytest.approx(shrinkage, abs=1e-12)
        assert make("precision").metadata(one)["ShrinkageIntensity"] == pytest.approx(shrinkage, abs=1e-12)


def test_precision_of_a_short_scan_is_an_inverse_and_has_no_units():
    series = noise(10, 25)
    product = make("precision").transform(series) @ shrunk_covariance(series)[0]
    np.testing.assert_allclose(product, np.eye(25), atol=1e-11)
    series = noise(30, 5)
    scaled = 7 + series * [1, 10, 100, 0.1, 3]
    np.testing.assert_allclose(make("precision").transform(scaled), make("precision").transform(series), atol=1e-11)
    series[:, 3] = 2.5
    series[:, 1] = np.nan
    assert refused_parcels(make("precision"), series, "constant") == (3,)


@pytest.mark.parametrize("standardised", ["z", "raw"])
def test_partial_correlation_agrees_with_nilearn(golden, standardised):
    partial = each(make("partial_correlation"), golden["timeseries"])
    np.testing.assert_allclose(partial, golden[f"nilearn_partial_correlation_lw_{standardised}"], rtol=0, atol=1e-12)


def draw_connectomes(n_parcels=6, n_volumes=50):
    series = np.random.default_rng(0).standard_normal((5, n_volumes, n_parcels))
    return np.stack([pearson_connectivity(each) for each in series])


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
def test_agrees_with_pyriemann(golden, reference, name, tolerance):
    tangent = transform_all(Tangent(reference=reference), golden["corr"])
    expected = golden[f"pyriemann_tangent_riemann_ref_{name}"]
    rows, columns = np.triu_indices(24)
    weighted = tangent[:, rows, columns] * np.where(rows == columns, 1, np.sqrt(2))
    np.testing.assert_allclose(weighted, expected, rtol=0, atol=tolerance)


def test_parcel_that_one_misses_is_left_out_for_all():
    connectomes = draw_connectomes()
    connectomes[1, 2] = connectomes[1, :, 2] = np.nan
    transform = Tangent().fit(connectomes)
    kept = [0, 1, 3, 4, 5]
    without = connectomes[:, kept][:, :, kept]
    result = each(transform, connectomes)
    assert np.isnan(result[:, 2]).all()
    np.testing.assert_allclose(result[:, kept][:, :, kept], transform_all(Tangent(), without), atol=1e-14)


def test_short_scans_need_a_choice():
    connectomes = draw_connectomes(n_parcels=20, n_volumes=10)
    with pytest.raises(ValueError, match="rank-deficient"):
        Tangent().fit(connectomes)
    transform = Tangent(shrink_to_identity=0.2).fit(connectomes)
    shrunk = 0.8 * connectomes + 0.2 * np.eye(20)
    np.testing.assert_allclose(each(transform, connectomes), transform_all(Tangent(), shrunk), atol=1e-11)


def test_agrees_with_tensorly(golden, monkeypatch):
    """Its iteration stops earlier: ours may differ a little, but must not fit worse."""
    monkeypatch.setattr("fcpower_bids.transforms.fitted.TUCKER_ITERATIONS", 500)
    monkeypatch.setattr("fcpower_bids.transforms.fitted.TUCKER_TOLERANCE", 1e-14)
    connectomes, expected = golden["corr"], golden["tensorly_tucker_8_8_10_recon"]
    denoised = transform_all(Tucker(parcel_share=8 / 24, people_share=10 / 14), connectomes)
    np.testing.assert_allclose(denoised, expected, rtol=0, atol=2e-4)
    assert np.linalg.norm(denoised - connectomes) <= np.linalg.norm(expected - connectomes)


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
def test_spans_the_reference_subspace(golden, name, n_components, key, angle, monkeypatch):
    monkeypatch.setattr("fcpower_bids.transforms.fitted.FACTOR_ITERATIONS", 100)
    scores = Subspace(name, n_components).fit(golden["X_triu"]).transform(golden["X_triu"])
    expected = golden[key]
    assert scores.shape == expected.shape
    angles = subspace_angles(scores - scores.mean(axis=0), expected - expected.mean(axis=0))
    assert angles.max() < angle


@pytest.mark.parametrize("name", SUBSPACES)
def test_people_who_were_not_fitted_get_scores_and_change_nothing(name):
    edges, others = noise(12, 30), noise(12, 31)[:, 1:]
    subspace = Subspace(name, 4, seed=3).fit(edges)
    before = subspace.transform(edges)
    assert subspace.transform(others).shape == (12, 4)
    np.testing.assert_array_equal(subspace.transform(edges), before)
    np.testing.assert_array_equal(Subspace(name, 4, seed=3).fit(edges).transform(edges), before)
    np.testing.assert_allclose(Subspace(name, 4, seed=3).fit_transform(edges), before, rtol=0, atol=1e-12)
