import numpy as np
import pytest

from fcpower_bids.demo.dataset import LOADINGS, draw_connectome, draw_people, draw_person, draw_population
from fcpower_bids.imaging.atlas import N_PARCELS


def test_connectomes_are_correlation_matrices_of_full_rank():
    rng = np.random.default_rng(0)
    population, people = draw_population(rng), draw_people(20, rng)
    connectomes = np.array([draw_connectome(population, draw_person(rng), factor, rng) for factor in people.factor])
    np.testing.assert_allclose(connectomes[:, range(N_PARCELS), range(N_PARCELS)], 1)
    np.testing.assert_allclose(connectomes, connectomes.swapaxes(1, 2), atol=1e-14)
    assert np.linalg.eigvalsh(connectomes).min() > 1e-4


def test_measures_share_the_factor_as_their_loadings_say():
    people = draw_people(600, np.random.default_rng(1))
    for name, loading in LOADINGS.items():
        scores = np.array(people.cognition[name][:-1], dtype=float)
        assert np.corrcoef(scores, people.factor[:-1])[0, 1] == pytest.approx(loading, abs=0.05)
    assert abs(np.corrcoef(people.participants["null_score"], people.factor)[0, 1]) < 3 / np.sqrt(600)
    assert people.cognition["attention"][-1] == "n/a"


def test_siblings_share_half_of_the_factor():
    people = draw_people(3000, np.random.default_rng(2))
    families = np.array(people.participants["family_id"])
    names, sizes = np.unique(families, return_counts=True)
    assert sorted(set(sizes)) == [1, 2]
    assert sizes.sum() - (sizes == 1).sum() == 1000
    pairs = np.array([people.factor[families == name] for name in names[sizes == 2]])
    assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(0.5, abs=0.1)
    assert people.factor.std() == pytest.approx(1)
