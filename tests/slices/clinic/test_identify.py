"""``identify`` on people of whom it is known whose scans were exchanged."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, stats

from fcpower_bids.cli.run import main
from fcpower_bids.outputs.tables import read_table
from tests.slices.clinic.planted import as_arrays, make_pairs

ANSWERS = {"are of one person.": "own", "are not all of one person": "other", "cannot be said.": "open"}


def answers(out: Path) -> Counter[str]:
    """The headlines of all pages."""
    said = [html.unescape(page.read_text()) for page in out.glob("sub-*_identify.html")]
    return Counter(next(name for words, name in ANSWERS.items() if words in text) for text in said)


@pytest.mark.parametrize("exchanged", [0, 1, 2])
def test_exchanged_scans_are_named_and_the_others_are_decided_all_the_same(tmp_path, capsys, exchanged):
    out = make_pairs(tmp_path, exchanged=exchanged)
    assert main(["identify", str(out)]) == 0
    said = capsys.readouterr().out
    assert answers(out) == Counter({"own": 24 - 2 * exchanged, "other": 2 * exchanged})
    pairs = read_table(out / "group" / "identify_pairs.tsv")
    crossed = pairs[pairs["participant_id"] != pairs["other_participant_id"]]
    partner = {f"sub-{n:02d}": f"sub-{n + 1 if n % 2 else n - 1:02d}" for n in range(1, 2 * exchanged + 1)}
    assert set(zip(crossed["participant_id"], crossed["other_participant_id"], strict=True)) == set(partner.items())
    doubtful = json.loads((out / "group" / "identify_pairs.json").read_text())["NoReference"]
    assert {name[:6] for name in doubtful} == set(partner)
    assert len(doubtful) == 4 * exchanged == said.count("No reference for others")
    page = html.unescape((out / "sub-24_identify.html").read_text())
    assert f"the 24 people of this folder{f' without {4 * exchanged} scans' if exchanged else ';'}" in page


def test_chance_likeness_of_people_who_cannot_be_told_apart_is_no_mixup(tmp_path):
    for seed in range(3):
        out = make_pairs(tmp_path / str(seed), own=0.0, seed=seed)
        assert main(["identify", str(out)]) == 0
        assert answers(out) == Counter({"open": 24})
        assert json.loads((out / "group" / "identify_pairs.json").read_text())["NoReference"] == []


def test_numbers_of_a_pair_are_those_of_its_files(tmp_path):
    """Scores by numpy and scipy from the written connectomes, the reference without the exchanged scans."""
    out = make_pairs(tmp_path, exchanged=2)
    assert main(["identify", str(out)]) == 0
    table = read_table(out / "group" / "identify_pairs.tsv")
    row = table[table["scan"].str.startswith("sub-24")].iloc[0]
    files = sorted(out.rglob("*stat-pearsoncorrelation_relmat.tsv"))
    rows = []
    for path in files:
        values, vectors = linalg.eigh(pd.read_csv(path, sep="\t", index_col=0).to_numpy(dtype=float))
        power = (vectors * np.clip(values, 0, None) ** 0.35) @ vectors.T
        rows.append(power[np.triu_indices(20, 1)])
    likeness = np.corrcoef(rows)
    means = likeness.mean(axis=0)
    centred = likeness - means - means[:, None] + means.mean()
    people = np.array([re.search(r"sub-\d+", path.name).group() for path in files])
    first, second = np.triu_indices(len(files), 1)
    apart = people[first] != people[second]
    values = centred[first, second]
    scores = (values - np.median(values[apart])) / stats.median_abs_deviation(values[apart], scale="normal")
    used = ~np.isin(people[first], ["sub-01", "sub-02", "sub-03", "sub-04", "sub-24"])
    used &= ~np.isin(people[second], ["sub-01", "sub-02", "sub-03", "sub-04", "sub-24"])
    same, different = scores[used & ~apart], scores[used & apart]
    (mine,) = scores[(people[first] == "sub-24") & (people[second] == "sub-24")]
    ratio = stats.gaussian_kde(same)(mine)[0] / (stats.gaussian_kde(different)(mine)[0] + np.finfo(float).tiny)
    assert (row["score"], row["similarity"]) == pytest.approx((mine, likeness[-2, -1]), rel=1e-4)
    assert row["false_match"] == pytest.approx((1 + np.sum(different >= mine)) / (1 + len(different)))
    assert row["false_non_match"] == pytest.approx((1 + np.sum(same <= mine)) / (1 + len(same)))
    assert row["likelihood_ratio"] == pytest.approx(min(ratio, 1 + len(different)), rel=1e-3)


def test_arrays_in_place_of_tables_give_the_same_table(tmp_path):
    out = make_pairs(tmp_path, people=12)
    copy = as_arrays(out, tmp_path / "copy")
    for folder in (out, copy):
        assert main(["identify", str(folder)]) == 0
    one, other = (folder / "group" / "identify_pairs.tsv" for folder in (out, copy))
    assert one.read_bytes() == other.read_bytes()
