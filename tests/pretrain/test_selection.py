"""Splits by family, the optimism of choosing, and who is said to have been in the training."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pytest
import torch

from fcpower_bids.core.alignment import kernel_alignment
from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import find_in_training
from fcpower_bids.pretrain.corpus import open_pack
from fcpower_bids.pretrain.selection import CONFIRM, SELECT, TRAIN, HeldOut, choose_checkpoint, encode, split_families
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import plant_outputs, run_pretrain


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
    halves = [[0.1, 0.3], [0.5, 0.2], [0.4, 0.6], [0.3, 0.5]]
    paper = choose_checkpoint(halves, [0.2, 0.4, 0.7, 0.66])
    assert (paper.position, paper.selected) == (2, 0.7)
    assert paper.optimism == pytest.approx(((0.5 - 0.2) + (0.6 - 0.4)) / 2)
    assert paper.confirmed == pytest.approx(0.7 - paper.optimism)


@pytest.mark.parametrize(
    ("errors", "position"),
    [
        ([0, 0, 0.03, 0], 2),  # .66 is not within .03 of .70
        ([0, 0, 0.05, 0], 3),  # the latest that is within one standard error of the best
        ([1, 1, 0.05, 1], 3),  # that of the best alone counts
        ([0, 0, np.nan, 0], 2),
    ],
)
def test_the_latest_checkpoint_that_is_as_good_as_the_best_is_chosen(errors, position):
    halves = [[0.1, 0.3], [0.5, 0.2], [0.4, 0.6], [0.3, 0.5]]
    choice = choose_checkpoint(halves, [0.2, 0.69, 0.7, 0.66], errors)
    assert choice.position == position
    assert choice.selected == (0.7, 0.66)[position - 2]
    assert choice.confirmed == pytest.approx(choice.selected - choice.optimism)


@pytest.mark.parametrize("scores", [[], [[0.1, np.nan]]])
def test_a_choice_needs_finite_scores(scores):
    with pytest.raises(ValueError, match="finite scores"):
        choose_checkpoint(np.reshape(scores, (-1, 2)), np.ones(len(scores)))


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
    E, K = held_out.average(encode(Mean()))[0], corpus.kernel_of(rows).double().numpy()
    families = corpus.families[rows]
    without = []
    for family in sorted(set(families)):
        kept = families != family
        part = E[kept] - E[kept].mean(axis=0)
        without.append(kernel_alignment(part @ part.T, K[np.ix_(kept, kept)], debiased=True))
    n = len(without)
    assert n > 5
    expected = np.sqrt((n - 1) / n * np.sum((np.array(without) - np.mean(without)) ** 2))
    assert first["cka_se"] == pytest.approx(expected, abs=1e-9)
    broken = Mean()
    broken.weight.data.fill_(torch.nan)
    assert not held_out.evaluate(broken)  # so the log has no score, and the next step says why


def digest(salt: str, label: str) -> str:
    return hashlib.sha256(f"{salt}\nbids\n{label}".encode()).hexdigest()[:16]


@pytest.mark.parametrize("share", ["0.4", "0"])
def test_everyone_is_in_one_of_the_lists(tmp_path, share):
    recordings = made_recordings()
    for facts, _ in recordings:
        facts["subject"] = f"P{facts['subject']}x"
    recordings.append(({**recordings[0][0], "subject": "short"}, recordings[0][1][:15]))  # no window fits: not seen
    plant_outputs(tmp_path, recordings)
    assert run_pretrain(tmp_path, "--held-out", share) == 0
    model = tmp_path / "out" / "encoder" / "model"
    facts = json.loads((model / "config.json").read_text())
    everyone = {digest(facts["corpus_sha256"], f"P{number:02d}x") for number in range(16)}
    trained_on, held_out = facts["trained_on"], facts["held_out"]
    assert sorted(trained_on + held_out) == sorted(everyone)
    assert trained_on == sorted(trained_on)
    assert len(held_out) in ((6, 7) if share == "0.4" else (0,))  # of 17 families, one of them too short
    card = (model / "README.md").read_text()
    assert f"| people trained on | {len(trained_on)} |" in card
    assert f"| people held out | {len(held_out)} |" in card
    assert not any(one in card for one in everyone)
    everything = "".join(path.read_text() for path in model.glob("*.[jm][sd]*"))
    assert not any(f"P{number:02d}x" in everything for number in range(16))
    assert load_encoder("fbert", model).card.trained_on == tuple(trained_on)
    card = load_encoder("fbert", model).card
    for number in range(16):
        seen = "trained" if digest(card.corpus_sha256, f"P{number:02d}x") in trained_on else "held out"
        assert find_in_training(card, "bids", f"sub-P{number:02d}x") == seen
    assert find_in_training(card, "bids", "new") == find_in_training(card, "other", "P00x") == "no"
    assert load_encoder("random-init", model).card.trained_on == ()


def test_a_scan_under_two_names_is_not_learned_from_and_judged_on(tmp_path, capsys):
    recordings = made_recordings(people=10)
    twins = [({**facts, "subject": f"copy{facts['subject']}"}, 5 * series) for facts, series in recordings]
    plant_outputs(tmp_path, recordings + twins)
    assert run_pretrain(tmp_path) == 3
    told = " ".join(capsys.readouterr().err.split())
    twins = re.search(r"(\S+) and (\S+) are the same scan under two names \(pairs of this kind: (\d+)\)", told)
    assert twins[1].replace("copy", "") == twins[2].replace("copy", "")
    assert twins[1] != twins[2]
    corpus = open_pack(tmp_path / "out" / "corpus")
    trains = dict(zip(corpus.table["id"], split_families(corpus.families, 0.4, 0) == TRAIN, strict=True))
    apart = [name for name in trains if "copy" in name and trains[name] != trains[name.replace("copy", "")]]
    assert int(twins[3]) == len(apart) > 0
    assert not (tmp_path / "out" / "encoder" / "model").exists()
    assert run_pretrain(tmp_path, "--held-out", "0") == 0, "nobody is judged"
