"""Splits by family, and the optimism of choosing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.core.alignment import kernel_alignment
from fcpower_bids.pretrain.corpus import open_pack
from fcpower_bids.pretrain.selection import (
    CONFIRM,
    SELECT,
    TRAIN,
    HeldOut,
    choose_checkpoint,
    encode,
    split_families,
)


def test_no_family_is_on_two_sides():
    families = np.random.default_rng(0).integers(0, 30, 200).astype(str)
    roles = split_families(families, 0.4, seed=1)
    for family in np.unique(families):
        assert len(set(roles[families == family])) == 1
    counts = [len(np.unique(families[roles == role])) for role in (TRAIN, SELECT, CONFIRM)]
    assert counts == [18, 6, 6]
    assert (split_families(families, 0, 1) == TRAIN).all()
    assert (split_families(families, 0.4, 1) == roles).all()
    assert (split_families(families, 0.4, 2) != roles).any()


def test_choice_closed_form():
    choice = choose_checkpoint([[0.1, 0.3], [0.5, 0.2], [0.4, 0.6]])
    assert (choice.position, choice.selected, choice.confirmed) == (1, 0.5, 0.2)
    assert choice.optimism == pytest.approx(((0.5 - 0.2) + (0.6 - 0.4)) / 2)
    paper = choose_checkpoint([[0.1, 0.3], [0.5, 0.2], [0.4, 0.6]], [0.2, 0.4, 0.7])
    assert (paper.position, paper.selected) == (2, 0.7)
    assert paper.confirmed == pytest.approx(0.7 - choice.optimism)


def test_optimism_of_pure_noise_is_positive_and_of_agreement_zero():
    rng = np.random.default_rng(0)
    noise = [choose_checkpoint(rng.standard_normal((20, 2)) * 0.02 + 0.4).optimism for _ in range(100)]
    assert 0.03 < np.mean(noise) < 0.045  # expected largest of 20 normals: 1.87 standard deviations
    curve = np.sin(np.linspace(0, 2, 20))
    assert choose_checkpoint(np.stack((curve, curve + 0.3), axis=1)).optimism == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("scores", [[], [[0.1, np.nan]]])
def test_a_choice_needs_finite_scores(scores):
    with pytest.raises(ValueError, match="finite scores"):
        choose_checkpoint(np.reshape(scores, (-1, 2)))


class Mean(torch.nn.Module):
    """Second moments of the first parcels: enough to be scored."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return (x[:, :, :, None] * x[:, :, None, :]).mean(1).flatten(1) * self.weight


def test_evaluation_uses_the_held_out_rows_and_fixed_windows(pack):
    corpus = open_pack(pack)
    rows = np.arange(4, 24)
    held_out = HeldOut(corpus, rows, np.array([SELECT, CONFIRM] * 10), window=40, seed=3)
    first, again = held_out.evaluate(Mean().train()), held_out.evaluate(Mean())
    assert first == again
    assert first["cka_debiased"] > 0.2
    assert first["cka"] > first["cka_debiased"]
    for half, name in ((SELECT, "select"), (CONFIRM, "confirm")):
        E = held_out.average(encode(Mean()))[0][held_out.roles == half]
        K = corpus.kernel_of(rows[held_out.roles == half]).double().numpy()
        assert first[name] == pytest.approx(kernel_alignment(E @ E.T, K, debiased=True), abs=1e-9)
    broken = Mean()
    broken.weight.data.fill_(torch.nan)
    assert not held_out.evaluate(broken)  # so the log has no score, and the next step says why
