"""Identification of 37 real people over three months, against numbers computed independently."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.spd import eigendecompose
from fcpower_bids.core.differences import permutation_p_value
from fcpower_bids.core.identification import (
    compare_identification,
    identifiability,
    identify,
    permutation_null,
)
from fcpower_bids.core.regression.kernels import correlation_kernel, power_features

REFERENCE = {1.0: 0.838, 0.5: 0.986, 0.35: 1.000}


@pytest.fixture(scope="module")
def stages(shared):
    """Similarities at each exponent, with the labels of the 74 scans."""
    series = np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False)
    labels = [key.split("_") for key in series.files]
    people = [person for person, _ in labels]
    twice = [(person, session) for person, session in labels if people.count(person) == 2]
    spectra = [
        eigendecompose(pearson_connectivity(series[f"{person}_{session}"][:, :400])) for person, session in twice
    ]
    values, vectors = (np.stack(each) for each in zip(*spectra, strict=True))
    similarities = {alpha: correlation_kernel(power_features(values, vectors, alpha)) for alpha in REFERENCE}
    persons, sessions = np.array(twice).T
    return similarities, persons, sessions


@pytest.mark.parametrize(("alpha", "accuracy"), REFERENCE.items())
def test_accuracy_at_each_exponent(stages, alpha, accuracy):
    similarities, persons, sessions = stages
    result = identify(similarities[alpha], persons, sessions)
    assert round(result.accuracy, 3) == accuracy
    assert len(result.credit) == 74
    assert result.chance == pytest.approx(1 / 37)


def test_flattening_identifies_more_people_while_idiff_falls(stages):
    similarities, persons, sessions = stages
    flattening = [1.0, 0.5, 0.35]
    accuracy = [identify(similarities[alpha], persons, sessions).accuracy for alpha in flattening]
    scores = [identifiability(similarities[alpha], persons, sessions) for alpha in flattening]
    assert np.all(np.diff(accuracy) > 0)
    assert np.all(np.diff([score.i_diff for score in scores]) < 0)
    # d', free of the scale, rises as well, though not monotonically: 2.45, 3.28, 3.11.
    np.testing.assert_allclose([score.d_prime for score in scores], [2.45, 3.28, 3.11], atol=0.006)


def test_the_gain_is_not_chance(stages):
    similarities, persons, sessions = stages
    flat, plain = (identify(similarities[alpha], persons, sessions) for alpha in (0.35, 1.0))
    result = compare_identification(flat, plain)
    assert (result.only_first, result.only_second) == (12, 0)
    assert result.p_mcnemar == pytest.approx(2 * 0.5**12)
    # Ten people won one search or both: their signs, not the twelve searches, are what could have been otherwise.
    assert result.p_people == pytest.approx(2 * 0.5**10)
    assert result.bootstrap.low > 0
    null = permutation_null(similarities[1.0], persons, sessions, 99)
    assert permutation_p_value(plain.accuracy, null) == 0.01
