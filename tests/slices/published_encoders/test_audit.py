"""The audit finds the order that an encoder was made for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fcpower_bids.errors import RecordingError
from fcpower_bids.slices.published_encoders.audit import (
    audit_orders,
    candidate_orders,
    main,
    other_release,
    power_kernel,
)
from fcpower_bids.slices.published_encoders.parcel_orders import parcel_order
from tests.slices.published_encoders.test_brainmass import published_shapes

P = 60
NAMES = [f"P{i:02d}" for i in np.random.default_rng(2).permutation(P)]


ORDERS = candidate_orders(np.random.default_rng(1).permutation(P), NAMES)


def draw(n, rng, base, modes):
    """Recordings of n people whose connectomes differ along the same few directions."""
    people = []
    for _ in range(n):
        loadings = base + np.tensordot(rng.standard_normal(len(modes)), modes, 1)
        people.append(rng.standard_normal((150, len(base))) @ loadings + 0.5 * rng.standard_normal((150, P)))
    return people


@pytest.fixture(scope="module")
def population():
    """People to train on, and other people to audit with."""
    rng = np.random.default_rng(0)
    base, modes = rng.standard_normal((8, P)), 0.5 * rng.standard_normal((4, 8, P))
    return draw(60, rng, base, modes), draw(24, rng, base, modes)


@pytest.fixture(scope="module")
def people(population):
    return population[1]


class TrainedEncoder:
    """Embeds by the first components of the connectomes of its training people, parcels in the order of training."""

    def __init__(self, training, trained):
        self.declared, self.recipe = ORDERS["declared"], SimpleNamespace(atlas="toy")
        edges = self.edges(training, trained)
        self.components = np.linalg.svd(edges - edges.mean(axis=0), full_matrices=False)[2][:4]

    def edges(self, series, order):
        return np.stack([np.corrcoef(one[:, order].T)[np.triu_indices(P, 1)] for one in series])

    def columns(self, names):
        return self.declared

    def embed(self, series, names, time):
        return self.edges(series, self.declared) @ self.components.T


@pytest.mark.parametrize("planted", ORDERS)
def test_the_order_of_training_is_found_whatever_is_declared(population, planted):
    training, people = population
    scores = audit_orders(TrainedEncoder(training, ORDERS[planted]), people, NAMES, 2.0)
    (first, best), (_, second), *_ = scores.items()
    assert first == planted
    assert best > 0.9 > second + 0.1
    assert list(scores.values()) == sorted(scores.values(), reverse=True)


def test_every_candidate_is_fed_as_said(people):
    fed = []

    class Recorder:
        def columns(self, names):
            return np.array([2, -1, 0, 1])

        def embed(self, series, names, time):
            fed.append(series[0][0, [2, 0, 1]])  # what the model takes for its inputs 0, 2, 3
            return np.random.default_rng(0).standard_normal((len(series), 5))

    series = [np.random.default_rng(i).standard_normal((30, 3)) for i in range(8)]
    audit_orders(Recorder(), series, ["b", "c", "a"], 2.0, {"one": [1, -1, 2, 0], "two": [0, -1, 1, 2]})
    np.testing.assert_array_equal(fed[0], series[0][0, [1, 2, 0]])
    np.testing.assert_array_equal(fed[1], series[0][0, [0, 1, 2]])


def test_candidates_are_permutations_and_leave_missing_parcels():
    columns = np.array([5, 3, -1, 4, 0, 1, 2, -1])
    candidates = candidate_orders(columns, list("fedcba"))
    for order in candidates.values():
        assert sorted(order[order >= 0]) == list(range(6))
        np.testing.assert_array_equal(order < 0, columns < 0)
    assert candidates["alphabetical"].tolist() == [5, 4, -1, 3, 2, 1, 0, -1]
    assert candidates["as recorded"].tolist() == [0, 1, -1, 2, 3, 4, 5, -1]


def test_the_other_release_is_a_candidate_where_there_is_one():
    names = parcel_order("Schaefer400x17").names
    assert list(other_release("Schaefer400x17", names)) == ["as Schaefer400"]
    assert other_release("Schaefer100", names) == {}
    assert other_release("toy", names) == {}


def test_teacher_kernel_is_a_correlation_kernel(people):
    kernel = power_kernel(people)
    np.testing.assert_allclose(np.diag(kernel), 1, atol=1e-10)
    assert np.linalg.eigvalsh(kernel)[0] > -1e-9


def test_too_few_recordings_are_refused(people):
    with pytest.raises(RecordingError, match="at least 8 recordings"):
        audit_orders(TrainedEncoder(people, ORDERS["declared"]), people[:7], NAMES, 2.0)


def test_command_line(tmp_path, capsys):
    names = parcel_order("Schaefer100").names
    torch.manual_seed(0)
    state = {key: torch.randn(shape) * 0.05 for key, shape in published_shapes().items()}
    torch.save({"online_network_state_dict": state}, tmp_path / "w.pth")
    paths = []
    for i in range(8):
        series = np.random.default_rng(i).standard_normal((40, 100))
        paths.append(tmp_path / f"sub-{i}_timeseries.tsv")
        np.savetxt(paths[-1], series, delimiter="\t", header="\t".join(names), comments="")
    arguments = ["brainmass", str(tmp_path / "w.pth"), *map(str, paths), "--repetition-time", "2"]
    assert main(arguments) == 2
    assert "read their licence" in capsys.readouterr().err
    assert main([*arguments, "--accept-encoder-licence"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "order\tdebiased_cka"
    assert {"declared", "shuffled"} < {row.split("\t")[0] for row in rows}
    assert main(["fbert", *arguments[1:]]) == 2
    assert "There is no checkpoint folder" in capsys.readouterr().err
    assert main(["ridge", *arguments[1:]]) == 2
    assert "The audit is for fbert and the encoders" in capsys.readouterr().err
