"""The checkpoint says who was in its training and who was kept out, by digests that are computed here again."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.training_people import (
    find_in_training,
    part_signatures,
    person_digest,
    series_digest,
    signatures_within,
)
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
    control = load_encoder("random-init", model).card
    assert control.trained_on == control.series_trained_on == control.series_held_out == ()


@pytest.mark.parametrize("part", [slice(None), slice(45)], ids=["whole", "part"])
def test_a_scan_under_two_names_is_not_learned_from_and_judged_on(tmp_path, capsys, part):
    recordings = made_recordings(people=10)
    twins = [({**facts, "subject": f"copy{facts['subject']}"}, 5 * series[part]) for facts, series in recordings]
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


def part_digests_of(table, salt: str, order: list[str], window: int = 20) -> set[str]:
    """Computed here from a written table, step by step as the documentation says."""
    series, found = pd.read_csv(table, sep="\t")[order].to_numpy(), set()
    edges = np.triu_indices(len(order), 1)
    for first in range(0, len(series) - window + 1, window):
        r = np.corrcoef(series[first : first + window].T)[edges]
        bins = np.floor(r[np.linspace(0, len(r) - 1, min(64, len(r))).astype(int)] / 0.05).astype(np.int8)
        signature = hashlib.sha256(f"{window} {len(order)}\n".encode() + bins.tobytes()).hexdigest()
        found.add(hashlib.sha256(f"{salt}\n{signature}".encode()).hexdigest()[:16])
    return found


def test_renamed_people_are_found_by_their_series(tmp_path, tables):
    """In the pack, in the public layout written from it, and in the tables under other names."""
    assert run_pretrain(tmp_path) == 0
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "public", out="from_public") == 0
    for out in ("out", "from_public"):
        facts = json.loads((tmp_path / out / "encoder" / "model" / "config.json").read_text())
        each = [part_digests_of(path, facts["corpus_sha256"], facts["roi_labels"]) for path in tables.values()]
        written, packed = set().union(*each), {*facts["series_trained_on"], *facts["series_held_out"]}
        assert len(written) == len(packed) == sum(len(pd.read_csv(path, sep="\t")) // 20 for path in tables.values())
        assert len(written - packed) < 0.1 * len(written), "half precision moves few correlations across a limit"
        assert not {*facts["series_trained_on"]} & {*facts["series_held_out"]}
    card = (tmp_path / "out" / "encoder" / "model" / "README.md").read_text()
    assert f"| parts of scans trained on | {len(facts['series_trained_on'])} |" in card
    model = load_encoder("fbert", tmp_path / "out" / "encoder" / "model").card
    for name, path in tables.items():
        series, label = pd.read_csv(path, sep="\t"), re.search(r"sub-(\d+)", name)[1]
        held_out = person_digest(model.corpus_sha256, "bids", label) in model.held_out
        state = ("held out" if held_out else "trained", "series")
        names = list(series.columns)[::-1]
        for stretch in (series, series[3:42], series[:20], 1000 + 7 * series.round(3)):
            assert find_in_training(model, "other", "new", stretch.to_numpy()[:, ::-1], names) == state
        assert find_in_training(model, "bids", label, series.to_numpy()[::2][:20], names[::-1]) == (
            state[0],
            "participant",
        )
        assert find_in_training(model, "other", "new", series.to_numpy()[:19], names[::-1]) == ("no", ""), "too short"


def test_signatures_survive_precision_and_scale_and_tell_parts_apart():
    """A thousand parts of eighty volumes: all are found again in half precision, and no two people share one."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((1000, 80, 1))  # a signal of all parcels, so that all correlations are alike
    parts = 2 * shared + rng.standard_normal((1000, 80, 30))
    known = part_signatures(parts)
    assert len(set(known)) == len(known)
    stored = part_signatures(parts.astype(np.float16))
    assert 0 < sum(one != other for one, other in zip(known, stored, strict=True)) < 100
    for part, signature in zip(parts[:200], stored, strict=False):
        longer = np.concatenate([rng.standard_normal((5, 30)), 3 * part + 100, rng.standard_normal((7, 30))])
        found = signatures_within(longer.astype(np.float32), 80)
        assert signature in found
        assert not found & set(known[200:])
    assert part_signatures(parts[:5, :, :8]) == [], "of so few parcels people could share one"
    assert signatures_within(parts[0, :, :8], 80) == signatures_within(parts[0, :79], 80) == set()
    assert series_digest("a", known[0]) != series_digest("b", known[0])
