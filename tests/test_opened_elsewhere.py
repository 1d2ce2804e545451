"""Other programs open what was written: pybids and pandas by sidecars, spreadsheets whatever parcels are called."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from bids.layout import BIDSLayout

from fcpower_bids.outputs.tables import read_connectome, read_matrix, read_series, read_table
from tests.cases.cohorts import write_table
from tests.command import main
from tests.running import PLAIN, run_app, run_by_spreadsheet


def test_stock_pybids_opens_every_table_with_its_sidecar(exact_run):
    layout = BIDSLayout(exact_run.output, validate=False)
    written = {str(path) for path in exact_run.files("sub-*/**/*.tsv")}
    found = {one.path: one for one in layout.get(extension=".tsv", scope="all") if "sub-" in one.filename}
    assert set(found) == written
    assert len(written) >= 8
    for path, one in found.items():
        with open(path.replace(".tsv", ".json"), encoding="utf-8") as file:
            about = json.load(file)
        read = one.get_metadata()  # with what is inherited: the sidecar of FC applies to its transforms too
        assert {key: read[key] for key in about} == about
        assert set(read) - set(about) <= {"Estimator"}


def test_a_matrix_says_what_it_is_made_of_and_between_what(exact_run):
    paths = exact_run.files("*_relmat.tsv")
    assert paths
    for path in paths:
        about = json.loads(path.with_suffix(".json").read_text())
        matrix, names = read_matrix(path)
        (nodes,), (source,) = about["NodeFiles"], about["Sources"]
        parcels = pd.read_csv(exact_run.output / nodes.removeprefix("bids::"), sep="\t")
        assert parcels["name"].tolist() == names
        series = pd.read_csv(exact_run.output / source.removeprefix("bids::"), sep="\t")
        if "desc-" not in path.name:
            np.testing.assert_allclose(series.corr().to_numpy(), matrix, atol=1e-12)
        known = np.isfinite(np.diag(matrix))
        np.testing.assert_array_equal(matrix, matrix.T)
        assert about["ValidDiagonal"] == (np.ptp(np.diag(matrix)[known]) > 1e-6) == ("desc-power" in path.name)
        assert (about["RelationshipMeasure"], about["StorageFormat"]) == ("Pearson correlation", "Full")
        assert (about["Weighted"], about["Directed"]) == (True, False)


STRANGE = ["n/a", "Node", "A", "A", "A_3", "=cmd|' /C calc'!A0", "@SUM(A1)", "-2+3", "nan", "+x"]
"""Read as missing, as the head of a column of names, twice, like the second of two, by a spreadsheet as formulas."""


@pytest.fixture(scope="module")
def strange(exact_demo, exact_run, tmp_path_factory):
    """The exact demo with parcels that bear strange names."""
    folder = tmp_path_factory.mktemp("strange")
    (image,) = exact_run.output.rglob("sourcedata/atlases/**/*_dseg.nii.gz")
    table = read_table(image.with_name(image.name.replace(".nii.gz", ".tsv")))
    names = [*STRANGE, *table["name"][len(STRANGE) :]]
    table.assign(name=names).to_csv(folder / "names.tsv", sep="\t", index=False)
    words = ("--atlas", f"{image}:{folder / 'names.tsv'}", *PLAIN, "--nprocs", "1", "--quiet")
    return run_app(exact_demo[0], folder / "out", *words, code=0)


def test_every_parcel_keeps_its_numbers_whatever_it_is_called_and_no_name_is_run_by_a_spreadsheet(strange, exact_run):
    for ending in ("*_stat-pearsoncorrelation_relmat.tsv", "*_stat-mean_timeseries.tsv"):
        for ours, theirs in zip(strange.files(ending), exact_run.files(ending), strict=True):
            values, names = read_matrix(ours)
            np.testing.assert_array_equal(values, read_matrix(theirs)[0])
            assert len(set(names)) == len(names)
            assert not {"n/a", "nan", "Node"} & set(names)
    for path in strange.files("*_qc.tsv"):
        table = read_table(path)
        assert "Node" not in table or table["Node"].notna().all(), path
    assert run_by_spreadsheet(strange.output) == []


def test_names_in_a_list_are_made_safe_and_numbers_stay(tmp_path):
    series, names = np.random.default_rng(0).standard_normal((6, 60, 5)), ["Node", "n/a", "A", "=1+1", "B"]
    people, files = [f"sub-{number}" for number in range(6)], [f"{number}.tsv" for number in range(6)]
    for name, values in zip(files, series, strict=True):
        pd.DataFrame(values, columns=names).to_csv(tmp_path / name, sep="\t", index=False)
    rows = pd.DataFrame({"participant_id": people, "path": files, "kind": "series"})
    rows.to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    sites = ["=north()", "@south"] * 3
    write_table(tmp_path / "bids" / "participants.tsv", participant_id=people, site=sites, age=range(6))
    out = tmp_path / "out"
    words = ["group", "-d", f"list={tmp_path / 'list.tsv'}", "--analyses", "prediction", "--targets", "age"]
    quick = "--site-column site --folds 2 --inner-folds 2 --repeats 1 --permutations 0 --min-time 0 --quiet --nprocs 1"
    assert main([str(tmp_path / "bids"), str(out), *words, *quick.split()]) == 0
    found = sorted(out.rglob("*_stat-mean_timeseries.npy"))
    assert len(found) == len(series)
    for number, path in enumerate(found):
        np.testing.assert_allclose(read_connectome(path)[0], np.corrcoef(series[number].T), atol=1e-12)
        assert read_series(path)[0].shape == (60, 5)
    assert run_by_spreadsheet(out) == []
