"""Sites of one dataset: people of a site are held out together, and alignment is also taken within sites."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.encoders.training_people import person_digest
from tests.slices.pretraining.conftest import made_recordings
from tests.slices.pretraining.outputs import plant_outputs, run_pretrain
from tests.slices.pretraining.test_judgement import edges_of, hsic

PEOPLE, LENGTH = 48, 50
SITES = [f"site{number % 6}" for number in range(PEOPLE)]
BY_SITE = ("--method", "closed-form", "--held-out-by", "site", "--held-out", "0.4", "--window", str(LENGTH))


@pytest.fixture
def tables(tmp_path):
    """Six sites of eight people with one scan as long as a window; one family has people at two of the sites."""
    whole = [(facts, series[:LENGTH]) for facts, series in made_recordings(people=PEOPLE, sessions=1)]
    tables = plant_outputs(tmp_path, whole)
    people = {"participant_id": [f"sub-{i:02d}" for i in range(PEOPLE)], "scanner": SITES}
    families = ["shared" if number in (0, 1) else f"F{number}" for number in range(PEOPLE)]
    pd.DataFrame(people | {"home": families}).to_csv(tmp_path / "bids" / "participants.tsv", sep="\t", index=False)
    return list(tables.values())


def held_out(folder, out: str = "out") -> set[int]:
    facts = json.loads((folder / out / "encoder" / "model" / "config.json").read_text())
    digests = {person_digest(facts["corpus_sha256"], "bids", f"{number:02d}"): number for number in range(PEOPLE)}
    assert {*facts["trained_on"], *facts["held_out"]} == set(digests)
    return {digests[one] for one in facts["held_out"]}


def test_sites_are_held_out_whole_and_alignment_is_taken_within_them(tmp_path, tables):
    options = ("--site-column", "scanner", "--family-column", "home")
    assert run_pretrain(tmp_path, *options, "--public-corpus", tmp_path / "public", level="pack") == 0
    assert run_pretrain(tmp_path, *options, *BY_SITE) == 0
    apart = held_out(tmp_path)
    by_site = {site: {number in apart for number in range(PEOPLE) if SITES[number] == site} for site in set(SITES)}
    assert all(len(sides) == 1 for sides in by_site.values()), "no site is on two sides"
    assert by_site["site0"] == by_site["site1"], "nor is a family"
    assert len(apart) in (16, 24)
    rows = sorted(apart)
    series = [pd.read_csv(tables[number], sep="\t").to_numpy() for number in rows]
    fc, power = (np.array([edges_of(one, alpha) for one in series]) for alpha in (1.0, 0.35))
    parts = np.zeros(3)
    for site in set(SITES):
        members = [place for place, number in enumerate(rows) if SITES[number] == site]
        if members:
            K, L = (edges[members] @ edges[members].T for edges in (fc, power))
            parts += [hsic(K, L, True), hsic(K, K, True), hsic(L, L, True)]
    found = pd.read_csv(tmp_path / "out" / "encoder" / "alignment.tsv", sep="\t", na_values="n/a").set_index("map")
    assert found.loc["fc", "cka_within"] == pytest.approx(parts[0] / np.sqrt(parts[1] * parts[2]), abs=1e-3)
    assert "Most of the alignment" not in (tmp_path / "out" / "pretrain.html").read_text()
    assert run_pretrain(tmp_path, "--corpus", tmp_path / "public", *BY_SITE, "--window", "20", out="again") == 0
    sides = held_out(tmp_path, "again")
    assert {SITES[number] for number in sides}.isdisjoint(SITES[number] for number in set(range(PEOPLE)) - sides)


def test_without_sites_none_can_be_held_out_and_the_corpus_is_that_of_before(tmp_path, tables, capsys):
    assert run_pretrain(tmp_path, *BY_SITE) == 3
    assert "The corpus has no sites to hold out: pack it with --site-column." in capsys.readouterr().err
    before = json.loads((tmp_path / "out" / "corpus" / "pack.json").read_text())["sha256"]
    assert run_pretrain(tmp_path, "--site-column", "none", level="pack") == 3
    assert "has no column 'none'" in capsys.readouterr().err
    assert run_pretrain(tmp_path, "--site-column", "scanner", level="pack") == 0
    assert json.loads((tmp_path / "out" / "corpus" / "pack.json").read_text())["sha256"] != before
    assert run_pretrain(tmp_path, level="pack") == 0
    assert json.loads((tmp_path / "out" / "corpus" / "pack.json").read_text())["sha256"] == before
