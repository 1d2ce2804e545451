"""Tangent space against pyriemann and nilearn, and its dependence on the group."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import ParcelError, pearson_connectivity
from fcpower_bids.transforms.fitted import Tangent


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


def test_recording_without_a_parcel_of_the_reference_is_refused():
    connectomes = draw_connectomes()
    transform = Tangent().fit(connectomes)
    connectomes[0, 4] = connectomes[0, :, 4] = np.nan
    with pytest.raises(ParcelError, match="tangent reference") as caught:
        transform.transform(connectomes[:1])
    assert caught.value.parcels == (4,)


def test_short_scans_need_a_choice():
    connectomes = draw_connectomes(n_parcels=20, n_volumes=10)
    with pytest.raises(ValueError, match="rank-deficient"):
        Tangent().fit(connectomes)
    transform = Tangent(shrink_to_identity=0.2).fit(connectomes)
    shrunk = 0.8 * connectomes + 0.2 * np.eye(20)
    np.testing.assert_allclose(transform.transform(connectomes), Tangent().fit_transform(shrunk), atol=1e-11)
    assert transform.metadata(connectomes[0])["ShrinkageIntensity"] == 0.2


def test_senseless_fits_are_refused():
    with pytest.raises(ValueError, match="no tangent reference 'median'"):
        Tangent(reference="median")
    with pytest.raises(ValueError, match="no recording"):
        Tangent().fit([])
    with pytest.raises(ValueError, match="same parcels"):
        Tangent().fit([np.eye(3), np.eye(4)])
