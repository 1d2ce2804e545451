"""Tucker denoising against tensorly and closed forms."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import ParcelError, pearson_connectivity
from fcpower_bids.transforms.fitted import Tucker
from tests.planting.planted import draw_series


def draw_connectomes(n=6, n_parcels=8, n_volumes=60, seed=0):
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


def test_the_usual_number_of_iterations_is_enough(shared):
    connectomes, expected, denoised = denoise_golden(shared)
    np.testing.assert_allclose(denoised, expected, rtol=0, atol=5e-3)
    errors = (np.linalg.norm(each - connectomes) for each in (denoised, expected))
    assert next(errors) <= next(errors) * (1 + 1e-6)


def test_single_precision_is_near():
    """Of people who resemble each other, the fit gains little for many iterations."""
    connectomes = [pearson_connectivity(series) for series in draw_series(20, "a").values()]
    found = (np.array(Tucker(single=single).fit_transform(connectomes)) for single in (True, False))
    kernels = [np.corrcoef(each[(slice(None), *np.triu_indices(each.shape[1], 1))]) for each in found]
    np.testing.assert_allclose(*kernels, rtol=0, atol=1e-3)


def test_full_ranks_change_nothing():
    connectomes = draw_connectomes()
    np.testing.assert_allclose(
        Tucker(parcel_share=1, people_share=1).fit_transform(connectomes), connectomes, atol=1e-12
    )


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
    connectomes = draw_connectomes()
    transform = Tucker().fit(connectomes[:5])
    np.testing.assert_allclose(transform.transform(connectomes)[5], transform.transform(connectomes[5:])[0], atol=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        Tucker(parcel_share=0)
    with pytest.raises(ValueError, match="no recording"):
        Tucker().fit([])
    with pytest.raises(ValueError, match="same parcels"):
        Tucker().fit([np.eye(3), np.eye(4)])
    holed = draw_connectomes(1)[0]
    transform = Tucker().fit(draw_connectomes())
    holed[2] = holed[:, 2] = np.nan
    with pytest.raises(ParcelError, match="not covered here"):
        transform.transform([holed])
