"""Embeddings that say nothing, and scans of other parcels: what they cost, through the command, and nobody else."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest

from tests.cases.cohorts import group, read, write_series, write_table

PEOPLE = tuple(f"sub-{number:02d}" for number in range(1, 31))
ANALYSES = ("--analyses", "prediction", "fingerprinting", "--targets", "score")
BOTH = ("--representations", "fc", "embedding", "--encoder", "random-init")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Thirty people twice, with embeddings by random weights."""
    folder = write_series(tmp_path_factory.mktemp("embedded"), PEOPLE, ("a", "b"), parcels=8, volumes=90)
    score = np.random.default_rng(0).standard_normal(30)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, score=score)
    assert group(folder, *ANALYSES, *BOTH) == 0
    return folder


def everywhere(number: float):
    return lambda path, table: table.assign(**dict.fromkeys(table, number))


def same_for_all(path, table):
    return pd.DataFrame([np.arange(table.shape[1], dtype=float)], columns=table.columns)


def of_one_scan(path, table):
    return table * 0.0 if "sub-03_ses-a" in path.name else table


@pytest.mark.parametrize(
    ("change", "left", "reason"),
    [
        (everywhere(0.5), 0, "it is one number throughout"),
        (everywhere(0.0), 0, "it is one number throughout"),
        (same_for_all, 0, "is the same for everyone, and left out"),
        (of_one_scan, 29, "it is one number throughout"),
    ],
)
def test_an_embedding_that_says_nothing_costs_itself_alone(plain, tmp_path, change, left, reason):
    folder = shutil.copytree(plain, tmp_path / "study")
    expected = {name: read(folder, name).query("representation == 'fc'") for name in ("predictions", "identification")}
    for path in (folder / "out").rglob("*_embedding.tsv"):
        change(path, pd.read_csv(path, sep="\t")).to_csv(path, sep="\t", index=False)
    assert group(folder, *ANALYSES, "--representations", "fc", "embedding", "--replace") == 0
    excluded = read(folder, "excluded")
    assert excluded["reason"].str.contains(reason).any()
    predictions = read(folder, "predictions")
    embedded = predictions[predictions["representation"].str.startswith("embedding")]
    assert embedded["participant_id"].nunique() in ((left, 30) if left else (0,))  # who has another scan is described
    if not left:
        for name, rows in expected.items():
            now = read(folder, name).query("representation == 'fc'")
            now, rows = (each.reset_index(drop=True).dropna(axis=1, how="all") for each in (now, rows))
            pd.testing.assert_frame_equal(now, rows[list(now)], rtol=1e-9, obj=name, check_dtype=False)


@pytest.mark.parametrize("names", [list("stuvwxyz"), [*"abcdefg", "x"], ["b", "a", *"cdefgh"]])
def test_a_scan_of_other_parcels_is_left_out_with_its_reason(tmp_path, names, capsys):
    folder = write_series(tmp_path, PEOPLE, ("a", "b"), parcels=8, volumes=90)
    score = np.random.default_rng(0).standard_normal(30)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, score=score)
    rows = pd.read_csv(folder / "list.tsv", sep="\t")
    for path in rows["path"]:
        columns = names if path == "sub-03_b.npy" else list("abcdefgh")
        table = pd.DataFrame(np.load(folder / path), columns=columns)
        table.to_csv((folder / path).with_suffix(".tsv"), sep="\t", index=False)
    rows["path"] = rows["path"].str.replace(".npy", ".tsv")
    rows.to_csv(folder / "list.tsv", sep="\t", index=False)
    assert group(folder, *ANALYSES, *BOTH) == 0
    excluded = read(folder, "excluded").query("participant_id == 'sub-03'")
    assert excluded["reason"].str.contains("its parcels are others: it has 8, the others have 8, and").sum() == 1
    scans = read(folder, "scans")
    assert len(scans) == 59
    assert ("sub-03", "ses-b") not in set(zip(scans["participant_id"], scans["session"], strict=True))
    fc = {name: np.corrcoef(np.load(folder / f"{name}_a.npy").T)[np.triu_indices(8, 1)] for name in PEOPLE}
    other = {name: np.corrcoef(np.load(folder / f"{name}_b.npy").T)[np.triu_indices(8, 1)] for name in PEOPLE}
    there = [name for name in PEOPLE if name != "sub-03"]
    r = np.corrcoef([fc[name] for name in there], [other[name] for name in there])[:29, 29:]
    places = np.arange(29)
    accuracy = np.mean([r.argmax(axis=0) == places, r.argmax(axis=1) == places])
    assert read(folder, "identification").set_index("representation").loc["fc", "accuracy"] == pytest.approx(accuracy)
