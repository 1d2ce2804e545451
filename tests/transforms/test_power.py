"""FC^alpha as a transform: golden numbers, names, and what is said about the rank."""

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.transforms.stateless import Power


@pytest.mark.parametrize("alpha", ["0.1", "0.35", "0.5", "0.75"])
def test_agrees_with_pyriemann(shared, alpha):
    with np.load(shared / "golden/transforms/transforms_golden.npz") as golden:
        powered = Power(alpha=float(alpha)).transform(golden["corr"])
        np.testing.assert_allclose(powered, golden[f"pyriemann_powm_{alpha}"], rtol=0, atol=1e-12)


def test_default_is_alpha_star():
    assert Power().alpha == 0.35
    assert Power().entities == (("stat", "pearsoncorrelation"), ("desc", "power0p35"))


@pytest.mark.parametrize(
    ("alpha", "label"), [(1, "power1"), (1.0, "power1"), (0.5, "power0p5"), (1e-7, "power0p0000001"), (10, "power10")]
)
def test_label_is_letters_and_digits(alpha, label):
    assert Power(alpha=alpha).label == label


def test_short_scan_reports_what_was_clipped():
    connectivity = pearson_connectivity(np.random.default_rng(0).standard_normal((10, 25)))
    metadata = Power().metadata(connectivity)
    assert metadata["Alpha"] == 0.35
    assert (metadata["Rank"], metadata["NumberClipped"]) == (9, 16)
    assert abs(metadata["SmallestEigenvalue"]) < 1e-13
    assert np.isfinite(Power().transform([connectivity])).all()


def test_clip_follows_the_precision_of_the_input():
    connectivity = pearson_connectivity(np.random.default_rng(0).standard_normal((10, 25))).astype(np.float32)
    assert Power().metadata(connectivity)["NumberClipped"] == 16


@pytest.mark.parametrize("alpha", [0, -0.5, np.nan, np.inf])
def test_senseless_exponents_are_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be positive"):
        Power(alpha=alpha)
    with pytest.raises(ValueError, match="alpha must be positive"):
        Power().set_params(alpha=alpha)
