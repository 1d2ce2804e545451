import numpy as np
import pytest

from fcpower_bids.demo.dataset import LOADINGS, draw_connectome, draw_people, draw_person, draw_population
from fcpower_bids.demo.signals import DemoDesign
from fcpower_bids.imaging.atlas.builtin import N_PARCELS

UPPER = np.triu_indices(N_PARCELS, 1)


@pytest.fixture(scope="module")
def cohort():
    """True connectomes of 60 people in two sessions, and the people."""
    rng = np.random.default_rng(0)
    design = DemoDesign(subjects=60, troubles=False)
    population, people = draw_population(rng), draw_people(design, rng)
    connectomes = []
    for factor in people.factor:
        person = draw_person(rng)
        connectomes.append([draw_connectome(population, person, factor, rng) for _ in range(2)])
    return np.array(connectomes), people


def edges(connectomes, alpha):
    values, vectors = np.linalg.eigh(connectomes)
    power = (vectors * values[..., None, :] ** alpha) @ np.swapaxes(vectors, -1, -2)
    features = power[..., UPPER[0], UPPER[1]]
    features = features - features.mean(axis=-1, keepdims=True)
    return features / np.linalg.norm(features, axis=-1, keepdims=True)


def identify(connectomes, alpha):
    first, second = edges(connectomes, alpha).swapaxes(0, 1)
    similarity = first @ second.T
    truth = np.arange(len(similarity))
    return ((similarity.argmax(0) == truth).mean() + (similarity.argmax(1) == truth).mean()) / 2


def predict(connectomes, scores, alpha, penalty=0.1):
    """Correlation of scores with leave-one-out predictions by kernel ridge on the mean of both sessions."""
    features = edges(connectomes, alpha).mean(axis=1)
    inverse = np.linalg.inv(features @ features.T + penalty * np.eye(len(scores)))
    ones = inverse.sum(axis=1)
    inverse -= np.outer(ones, ones) / ones.sum()
    predicted = scores - (inverse @ scores) / np.diag(inverse)
    return np.corrcoef(predicted, scores)[0, 1]


def test_connectomes_are_correlation_matrices_of_full_rank(cohort):
    connectomes = cohort[0].reshape(-1, N_PARCELS, N_PARCELS)
    np.testing.assert_allclose(connectomes[:, range(N_PARCELS), range(N_PARCELS)], 1)
    np.testing.assert_allclose(connectomes, connectomes.swapaxes(1, 2), atol=1e-14)
    assert np.linalg.eigvalsh(connectomes).min() > 1e-4


def test_flattening_the_spectrum_identifies_people_better(cohort):
    assert identify(cohort[0], 1.0) < 0.6
    assert identify(cohort[0], 0.35) > 0.95


def test_planted_scores_are_in_the_flattened_connectomes_and_the_null_is_not(cohort):
    connectomes, people = cohort
    planted = np.array(people.participants["planted_score"])
    assert predict(connectomes, planted, 0.35) > 0.7
    assert predict(connectomes, planted, 0.35) > predict(connectomes, planted, 1.0) + 0.05
    null = np.array(people.participants["null_score"])
    # 95 % of correlations of 60 unrelated pairs lie within 2 / sqrt(60) = 0.26; leave-one-out leans to the negative.
    assert predict(connectomes, null, 0.35) < 0.26


def test_measures_share_the_factor_as_their_loadings_say():
    people = draw_people(DemoDesign(subjects=600), np.random.default_rng(1))
    for name, loading in LOADINGS.items():
        scores = np.array(people.cognition[name][:-1], dtype=float)
        assert np.corrcoef(scores, people.factor[:-1])[0, 1] == pytest.approx(loading, abs=0.05)
    assert abs(np.corrcoef(people.participants["null_score"], people.factor)[0, 1]) < 3 / np.sqrt(600)
    assert people.cognition["attention"][-1] == "n/a"


def test_siblings_share_half_of_the_factor():
    people = draw_people(DemoDesign(subjects=3000), np.random.default_rng(2))
    families = np.array(people.participants["family_id"])
    names, sizes = np.unique(families, return_counts=True)
    assert sorted(set(sizes)) == [1, 2]
    assert sizes.sum() - (sizes == 1).sum() == 1000
    pairs = np.array([people.factor[families == name] for name in names[sizes == 2]])
    assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(0.5, abs=0.1)
    assert people.factor.std() == pytest.approx(1)
