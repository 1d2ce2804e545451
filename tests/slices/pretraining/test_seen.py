"""The checkpoint says who was in its training and who was kept out, by digests that are computed here again."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.training_people import person_digest, series_digest, series_signature
from fcpower_bids.slices.pretraining.corpus.pack import load_corpus
from fcpower_bids.slices.pretraining.selection import TRAIN, split_families
from tests.slices.pretraining.conftest import made_recordings
from tests.slices.pretraining.outputs import plant_outputs, run_pretrain


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
    control = load_encoder("random-init", model).card
    assert control.trained_on == control.series_trained_on == control.series_held_out == ()


def test_a_scan_under_two_names_is_not_learned_from_and_judged_on(tmp_path, capsys):
    recordings = made_recordings()
    twins = [({**facts, "subject": f"copy{facts['subject']}"}, series) for facts, series in recordings]
    plant_outputs(tmp_path, recordings + twins)
    assert run_pretrain(tmp_path) == 3
    told = " ".join(capsys.readouterr().err.split())
    twins = re.search(r"(\S+) and (\S+) are the same scan under two names \(pairs of this kind: (\d+)\)", told)
    assert twins[1].replace("copy", "") == twins[2].replace("copy", "")
    assert twins[1] != twins[2]
    corpus = load_corpus(tmp_path / "out" / "corpus")
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


def series_digest_of(table, salt: str, order: list[str]) -> str:
    """Computed here from a written table, step by step as the documentation says."""
    z = pd.read_csv(table, sep="\t")[order]
    z = ((z - z.mean()) / z.std()).to_numpy()
    signs = (z[[i * (len(z) - 1) // 15 for i in range(16)]] > 0).ravel()
    bits = np.packbits(signs).tobytes()
    signature = hashlib.sha256(f"{len(z)} {len(order)}\n".encode() + bits).hexdigest()
    return hashlib.sha256(f"{salt}\n{signature}".encode()).hexdigest()[:16]


def test_renamed_people_are_found_by_their_series(tmp_path):
    """In the pack, in the public layout written from it, and in the tables under other names."""
    tables = plant_outputs(tmp_path, made_recordings())
    assert run_pretrain(tmp_path, "--public-corpus", tmp_path / "public", level="pack") == 0
    assert run_pretrain(tmp_path) == 0
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "public", out="from_public") == 0
    for out in ("out", "from_public"):
        facts = json.loads((tmp_path / out / "encoder" / "model" / "config.json").read_text())
        written = {series_digest_of(path, facts["corpus_sha256"], facts["roi_labels"]) for path in tables.values()}
        assert len(written) == len(tables)
        assert {*facts["series_trained_on"], *facts["series_held_out"]} == written
        assert not {*facts["series_trained_on"]} & {*facts["series_held_out"]}
    card = (tmp_path / "out" / "encoder" / "model" / "README.md").read_text()
    assert f"| recordings trained on | {len(facts['series_trained_on'])} |" in card


def test_a_signature_survives_half_precision_and_tells_recordings_apart():
    z = np.random.default_rng(0).standard_normal((60, 30))
    signature = series_signature(z)
    assert signature == series_signature(z.astype(np.float16)) == series_signature(3 * z.astype(np.float32))
    others = (z[::-1], z[:, ::-1], z[:-1], np.roll(z, 1, axis=0), -z)
    assert len({signature, *map(series_signature, others)}) == 6
    assert series_digest("a", signature) != series_digest("b", signature)
