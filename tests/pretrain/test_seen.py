"""The checkpoint says who was in its training and who was kept out, by digests that are computed here again."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import find_in_training, person_digest
from fcpower_bids.pretrain.corpus import open_pack
from fcpower_bids.pretrain.selection import TRAIN, split_families
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import plant_outputs, run_pretrain


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


def test_a_digest_depends_on_all_three_and_not_on_the_prefix():
    assert person_digest("s", "d", "sub-01") == person_digest("s", "d", "01")
    others = {
        person_digest(*words) for words in (("s", "d", "01"), ("t", "d", "01"), ("s", "e", "01"), ("s", "d", "02"))
    }
    assert len(others) == 4
