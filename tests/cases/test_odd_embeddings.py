"""Embeddings that say nothing, and scans of other parcels: what they cost, through the command, and nobody else."""

from __future__ import annotations

import json
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


def same_for_all(path, table):
    return pd.DataFrame([np.arange(table.shape[1], dtype=float)], columns=table.columns)


def of_one_scan(path, table):
    return table * 0.0 if "sub-03_ses-a" in path.name else table


@pytest.mark.parametrize(
    ("change", "left", "reason"),
    [
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


@pytest.mark.parametrize("names", [[*"abcdefg", "x"]])
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


def test_the_runs_of_a_session_are_embedded_as_one_sequence(tmp_path):
    """Two runs of other lengths for every second person; then without --encoder: means over runs, and a note."""
    folder = write_series(tmp_path, PEOPLE, ("a",), parcels=8, volumes=90)
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, score=np.arange(30.0))
    rows = pd.read_csv(folder / "list.tsv", sep="\t").assign(run="1")
    more = rows.iloc[::2].assign(run="2")
    more["path"] = more["path"].str.replace("_a.npy", "_a2.npy")
    for number, path in enumerate(more["path"]):
        np.save(folder / path, np.random.default_rng(100 + number).standard_normal((60, 8)))
    pd.concat([rows, more]).to_csv(folder / "list.tsv", sep="\t", index=False)
    words = ("--analyses", "prediction", "--targets", "score", "--representations", "embedding", "--penalties", "1")
    assert group(folder, *words, "--encoder", "random-init") == 0
    scans = read(folder, "scans")
    assert sorted(scans["n_runs"].value_counts().to_dict().items()) == [(1, 15), (2, 15)]

    whole = write_series(tmp_path / "whole", PEOPLE, ("a",), parcels=8, volumes=90)  # the same, put end to end by hand
    shutil.copy(folder / "bids" / "participants.tsv", whole / "bids" / "participants.tsv")
    for name in PEOPLE:
        runs = [np.load(path) for path in sorted(folder.glob(f"{name}_a*.npy"))]
        runs = [(run - run.mean(axis=0)) / run.std(axis=0, ddof=1) for run in runs]
        np.save(whole / f"{name}_a.npy", np.concatenate(runs))
    assert group(whole, *words, "--encoder", "random-init") == 0
    ours, theirs = (read(each, "predictions")["predicted"] for each in (folder, whole))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3)
    notes = json.loads((folder / "out" / "group" / "scans.json").read_text())["CohortNotes"]
    assert "Of 15 scans 'randominit' has read the runs as one sequence." in notes
    assert group(folder, *words, "--replace") == 0
    notes = json.loads((folder / "out" / "group" / "scans.json").read_text())["CohortNotes"]
    assert "Embeddings of 15 scans are means over their runs; --encoder reads these as one sequence." in notes
    assert np.abs(read(folder, "predictions")["predicted"] - theirs).max() > 0.01
