"""Recordings as they come: each is read for what it is, or named with what is wrong with it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.notebook import load_cohort
from tests.cases.people import LABELS, P, T, run, series_of, table, write_list

CHECK = ("--check", "--min-time", "0", "--nprocs", "1")


def excluded(out) -> dict[str, str]:
    rows = table(out / "group" / "excluded.tsv")
    return dict(zip(rows["participant_id"], rows["reason"], strict=True))


LACKING = {
    "one of 24 lacks one": {"005": ["b"]},
    "the first lacks one": {"001": ["a"]},
    "two lack different ones": {"003": ["b"], "007": ["f"]},
    "the last lacks two": {"024": ["c", "d"]},
}


@pytest.mark.parametrize("kind", LACKING)
def test_a_column_that_is_not_there_is_a_parcel_without_a_value(kind, tmp_path):
    folder = tmp_path / "cpac" / "Outputs" / "cpac" / "filt_noglobal" / "rois_toy"
    folder.mkdir(parents=True)
    (tmp_path / "bids").mkdir()
    names = list("abcdefgh")
    truth = {}
    for label in LABELS[:24]:
        values = pd.DataFrame(np.random.default_rng(int(label)).normal(size=(T, 8)), columns=names)
        values = values.drop(columns=LACKING[kind].get(label, []))
        header = "\t".join(f"#{name}" for name in values)
        np.savetxt(folder / f"NYU_{label}_rois_toy.1D", values, delimiter="\t", header=header, comments="")
        truth[f"sub-NYU{label}"] = values.corr().reindex(index=names, columns=names)
    words = (tmp_path / "bids", tmp_path / "out", "group", "-d", f"cpac={tmp_path / 'cpac'}", *CHECK)
    words = (*words, "--drop-parcels-missing-in", "0.2", "--drop-people-missing", "0.3")
    found = run(*words)
    assert found.code == 0, found.err
    lost = sorted({name for lacking in LACKING[kind].values() for name in lacking})
    rows = table(tmp_path / "out" / "group" / "excluded.tsv")
    parcels = rows[rows["what"] == "parcel"]["reason"].str.partition(":")[0].tolist()
    assert parcels == lost
    assert len(table(tmp_path / "out" / "group" / "scans.tsv")) == 24
    limits = {"min_time": 0.0, "drop_parcels_missing_in": 0.2, "drop_people_missing": 0.3}
    cohort = load_cohort(tmp_path / "out", tmp_path / "bids", **limits)
    kept = [name for name in names if name not in lost]
    assert list(cohort.parcels) == kept
    for row, name in enumerate(cohort.names):
        np.testing.assert_allclose(cohort.connectomes[row], truth[name].loc[kept, kept], atol=1e-9)


@pytest.mark.parametrize("kind", ["names by place", "another parcellation"])
def test_parcels_that_cannot_be_told_apart_are_refused(kind, tmp_path):
    source = write_list(tmp_path, LABELS[:6])
    other = np.random.default_rng(0).normal(size=(T, 5))
    if kind == "names by place":
        np.save(tmp_path / "0_002_.npy", other)
    else:
        pd.DataFrame(other, columns=list("vwxyz")).to_csv(tmp_path / "0_002_.tsv", sep="\t", index=False)
        rows = table(source)
        rows["path"] = rows["path"].str.replace("0_002_.npy", "0_002_.tsv")
        rows.to_csv(source, sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={source}", *CHECK)
    assert found.code == 3
    assert "The parcels differ between people: sub-" in found.err


@pytest.mark.parametrize("text", ["series\\0_{}_.npy", ".\\series\\0_{}_.npy", "series/0_{}_.npy"])
def test_a_path_of_windows_is_a_path(text, tmp_path):
    source = write_list(tmp_path / "series", LABELS[:4])
    rows = table(source)
    rows["path"] = [text.format(label) for label in LABELS[:4]]
    rows.to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={tmp_path / 'list.tsv'}", *CHECK)
    assert found.code == 0, found.err
    fc = pd.read_csv(next((tmp_path / "out").glob("sub-003/**/*_relmat.tsv")), sep="\t", index_col=0)
    np.testing.assert_allclose(fc.to_numpy(), np.corrcoef(series_of("003").T), atol=1e-12)


DIAGONALS = {
    "shrunk": (lambda r: 0.97 * r, "it has 0.97 on its diagonal, where correlations have 1"),
    "a covariance": (lambda r: r * np.outer(*[np.linspace(0.3, 0.9, P)] * 2), "a covariance has to be scaled first"),
    "Fisher z": (lambda r: np.arctanh(r * 0.5 - 0.5 * np.eye(P)) + 2 * np.eye(P), "declare it as z"),
}


@pytest.mark.parametrize("kind", DIAGONALS)
def test_a_diagonal_is_called_what_it_is(kind, tmp_path):
    spoil, said = DIAGONALS[kind]
    for label in LABELS[:4]:
        r = np.corrcoef(series_of(label).T)
        np.save(tmp_path / f"{label}.npy", spoil(r) if label == "002" else r)
    rows = pd.DataFrame({"participant_id": LABELS[:4], "path": [f"{label}.npy" for label in LABELS[:4]]})
    rows.to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    assert run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={tmp_path / 'list.tsv'}", *CHECK).code == 0
    assert said in excluded(tmp_path / "out")["sub-002"]
    assert ("declare it as z" in excluded(tmp_path / "out")["sub-002"]) == (kind == "Fisher z")
