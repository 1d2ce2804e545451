"""``--compact`` stores less than half, and everything that reads a recording reads that."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from fcpower_bids import notebook
from fcpower_bids.cohort.assembly import load_cohort
from fcpower_bids.cohort.cache import read_edges
from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.signal.timeseries import z_score
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import column_names, read_matrix, read_series, write_json, write_matrix
from fcpower_bids.reports.person.recording_facts import read_accounts
from fcpower_bids.settings import Settings
from fcpower_bids.slices.pretraining.corpus.derived_series import find_series
from fcpower_bids.store import DIGESTS, digest_of
from tests.running import run_app, run_rounded

SERIES = "stat-mean_timeseries"
FC = "stat-pearsoncorrelation_relmat.tsv"


@pytest.fixture(scope="module")
def compact(troubled_demo):
    folder, _ = troubled_demo
    return run_app(folder, folder.parent / "compact_out", "--atlas", "builtin", "--compact")


def settings_of(folder, output, work):
    return Settings(folder, output, "group", work_dir=work, quiet=True, min_time=0.0, nprocs=1)


def test_series_are_those_of_the_table_in_single_precision_and_fc_follows_from_them(troubled_run, compact):
    assert compact.code == 0, compact.err
    tables = troubled_run.files(f"*{SERIES}.tsv")
    assert len(tables) > 3
    for table in tables:
        values, names = read_matrix(table)
        array = compact.output / table.relative_to(troubled_run.output).with_suffix(".npy")
        series = np.load(array, allow_pickle=False)
        assert series.dtype == np.float32
        np.testing.assert_array_equal(series, values.astype(np.float32))
        assert json.loads(array.with_suffix(".json").read_text())["Columns"] == names
        fc, named = read_series(array.with_name(array.name.replace(f"{SERIES}.npy", FC)).with_suffix(".npy"))
        assert named == names
        covered = np.isfinite(series).all(axis=0)
        expected = np.corrcoef(series[:, covered].astype(float), rowvar=False)
        np.testing.assert_allclose(fc[np.ix_(covered, covered)], expected, rtol=0, atol=1e-12)
        edges = array.with_name(array.name.replace(f"{SERIES}.npy", FC.replace("tsv", "npy")))
        sidecar = json.loads(edges.with_suffix(".json").read_text())
        assert sidecar["Columns"] == names
        assert sidecar[DIGESTS] == {".npy": digest_of(edges)}
        np.testing.assert_array_equal(np.load(edges), fc[np.triu_indices(len(fc), 1)])
        np.testing.assert_array_equal(np.diag(fc), np.where(covered, 1, np.nan))
        assert np.load(edges).dtype == np.float64
        assert sidecar["Sources"] == [f"bids::{array.relative_to(compact.output).as_posix()}"]


def test_a_recording_has_few_files(troubled_run, compact):
    done = [json.loads(path.read_text()) for path in compact.files("logs/status/*.json")]
    of = {one["recording"]: one["outputs"] for one in done if one["state"] == "done"}
    assert of.keys() == {name for name, state in troubled_run.states().items() if state == "done"}
    for name, outputs in of.items():
        files = compact.files(f"sub-*/**/{name.partition('_space')[0]}_*")
        assert len(files) + 1 <= 14, "with its status"
        assert {path.name for path in files if path.parent.name == "func"} == {
            output.rpartition("/")[2] for output in outputs if "/func/" in output
        }
    for pattern in ("*desc-power*", "*_eigenvalues.*", "*_design.*", "*_relmat.tsv"):
        assert not compact.files(pattern)
    assert "broken" not in (compact.output / "sub-01.html").read_text(encoding="utf-8")


def test_the_cohort_is_that_of_the_tables_and_its_power_agrees_to_six_digits(
    troubled_demo, troubled_run, compact, tmp_path
):
    whole, small = (
        load_cohort(settings_of(troubled_demo[0], run.output, tmp_path / run.output.name))
        for run in (troubled_run, compact)
    )
    assert whole.scans.equals(small.scans)
    np.testing.assert_allclose(small.edges[:], whole.edges[:], rtol=0, atol=1e-6)
    for ours, theirs in zip(small.series, whole.series, strict=True):
        for one, other in zip(ours(), theirs(), strict=True):
            np.testing.assert_array_equal(one, other.astype(np.float32))


def test_edges_are_those_of_the_table_to_the_bit(troubled_demo, troubled_run, tmp_path):
    paths = [path for path in troubled_run.files(f"*{FC}") if "run-1" in path.name]
    assert all(path.with_suffix(".npy").is_file() for path in paths)
    found = read_edges(paths, tmp_path / "c", settings_of(troubled_demo[0], troubled_run.output, tmp_path))
    for path, row in zip(paths, found.array, strict=True):
        np.testing.assert_array_equal(row, vectorise_edges(read_matrix(path)[0], weighted=False))


@pytest.fixture(scope="module")
def whole(compact, troubled_demo):
    """Tables of the same series: those that the compact form rounds."""
    folder = troubled_demo[0]
    run = run_rounded(folder, folder.parent / "rounded_out", "--atlas", "builtin")
    assert run.code == 0, run.err
    assert run.states() == compact.states()
    return run


def read_everything(output, work):
    """What each reader makes of outputs, by its name."""
    found = {"features": [(one.recording, one.atlas_name) for one in list_connectomes(output)]}
    cohort = load_cohort(settings_of(output.parent / "troubled", output, work))
    found["cohort"] = [cohort.scans.to_csv(), cohort.excluded.to_csv(), cohort.edges[:]]
    found["cohort"] += [series.astype(np.float32) for one in cohort.series for series in one()]
    people = notebook.load_cohort(output, output.parent / "troubled", min_time=0.0, work_dir=work)
    found["notebook"] = [people.connectomes[row] for row in range(2)]
    for one in list_connectomes(output):
        found[f"names of {one.recording}"] = [column_names(one.path)]
    for subject in ("01", "02", "03", "04"):
        for account in read_accounts(output, subject)[0]:
            parts = [part for view in account.views for path in view.connectomes[:1] for part in read_series(path)]
            found[f"page of {account.name}"] = [account.broken, *parts]
    return found


def test_every_reader_sees_what_it_sees_in_tables(whole, compact, tmp_path):
    one, other = (read_everything(run.output, tmp_path / run.output.name) for run in (whole, compact))
    assert one.keys() == other.keys()
    assert len(one) > 12
    for name, parts in one.items():
        for part, its in zip(parts, other[name], strict=True):
            np.testing.assert_array_equal(part, its, err_msg=name)


def test_runs_are_averaged_as_from_tables(troubled_demo, whole, compact, tmp_path):
    edges = []
    for run, options in ((whole, ()), (compact, ("--compact",))):
        copy = shutil.copytree(run.output, tmp_path / run.output.name)
        words = ("--atlas", "builtin", "--participant-label", "01")
        again = run_rounded(troubled_demo[0], copy, *words, *options)
        assert again.code == 0, again.err
        paths = [path for path in again.files("sub-01_ses-a*_relmat.npy") if "run-" not in path.name]
        edges.append([np.load(path) for path in paths])
        sources = [one for path in paths for one in json.loads(path.with_suffix(".json").read_text())["Sources"]]
        assert all((copy / one.removeprefix("bids::")).is_file() for one in sources)
        assert edges[-1]
    np.testing.assert_array_equal(*edges)


def test_outputs_of_former_versions_are_read(troubled_demo, whole, compact, tmp_path):
    """They have the table next to the array, both with their digests."""
    copy = shutil.copytree(compact.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    arrays = sorted(copy.rglob("*_relmat.npy"))
    for array in arrays:
        table = array.with_suffix(".tsv")
        shutil.copy(whole.output / table.relative_to(copy), table)
        os.utime(array)
        facts = json.loads(array.with_suffix(".json").read_text())
        facts[DIGESTS] = {".tsv": digest_of(table), ".npy": digest_of(array)}
        del facts["Columns"]
        array.with_suffix(".json").write_text(json.dumps(facts))
    assert {one.path.suffix for one in list_connectomes(copy)} == {".tsv"}
    former, now = (
        load_cohort(settings_of(troubled_demo[0], output, tmp_path / f"work{number}"))
        for number, output in enumerate((copy, compact.output))
    )
    np.testing.assert_array_equal(former.edges[:], now.edges[:])
    assert former.scans.equals(now.scans)


def test_the_corpus_has_the_same_series(troubled_run, compact):
    packed = [
        {about["id"]: (about["parcel_names"], about["repetition_time"], load()) for about, load in found}
        for found in (find_series(run.output, "demo") for run in (troubled_run, compact))
    ]
    assert packed[0].keys() == packed[1].keys()
    for name, (names, time, series) in packed[0].items():
        assert packed[1][name][:2] == (names, time)
        np.testing.assert_array_equal(packed[1][name][2], series.astype(np.float32))


@pytest.mark.parametrize("fault", ["array", "length", "value", "columns"])
def test_an_array_alone_that_is_not_what_it_should_be_is_named(troubled_demo, compact, tmp_path, fault):
    copy = shutil.copytree(compact.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    array = next(path for path in sorted(copy.rglob("*_relmat.npy")) if "run-1" in path.name)
    edges, sidecar = np.load(array), array.with_suffix(".json")
    facts = json.loads(sidecar.read_text())
    if fault == "array":
        array.write_bytes(array.read_bytes()[:-1])
    elif fault == "columns":
        del facts["Columns"]
    else:
        edges[3] += 0.1
        np.save(array, edges if fault == "value" else edges[:-1])
        facts[DIGESTS] = facts[DIGESTS] if fault == "value" else {}
    write_json(sidecar, facts)
    excluded = load_cohort(settings_of(troubled_demo[0], copy, tmp_path / "work")).excluded
    (reason,) = [reason for reason in excluded["reason"] if array.stem in reason]
    assert "again" in reason or "run participant level" in reason
    assert str(tmp_path) not in reason


@pytest.mark.parametrize("fault", ["array", "length", "first row", "table since"])
def test_an_array_that_is_not_what_it_should_be_is_named(troubled_demo, troubled_run, tmp_path, fault):
    copy = shutil.copytree(troubled_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    table = next(path for path in sorted(copy.rglob(f"*{FC}")) if "run-1" in path.name)
    array = table.with_suffix(".npy")
    edges = np.load(array)
    if fault == "array":
        array.write_bytes(array.read_bytes()[:-1])
    elif fault == "length":
        np.save(array, edges[:-1])
    elif fault == "first row":
        edges[3] += 0.1
        np.save(array, edges)
    else:
        matrix, names = read_matrix(table)
        matrix[[5, 6], [6, 5]] += 0.01
        write_matrix(table, matrix, names, names)
    excluded = load_cohort(settings_of(troubled_demo[0], copy, tmp_path / "work")).excluded
    (reason,) = [reason for reason in excluded["reason"] if array.stem in reason]
    assert "again" in reason or "run participant level" in reason
    assert str(tmp_path) not in reason


@pytest.mark.parametrize("fault", ["array", "columns"])
def test_series_that_are_not_what_they_should_be_are_named(troubled_demo, compact, tmp_path, fault):
    array = next(path for path in compact.files(f"*{SERIES}.npy") if "run-1" in path.name)
    copy = tmp_path / array.name
    copy.write_bytes(array.read_bytes()[: -1 if fault == "array" else None])
    write_json(copy.with_suffix(".json"), {"Columns": ["a"]})
    with pytest.raises(DatasetError, match=r"npy .*participant level") as caught:
        read_series(copy)
    assert array.stem in str(caught.value)


def test_a_copy_whose_arrays_are_older_is_read_from_the_tables(troubled_demo, troubled_run, tmp_path):
    copy = shutil.copytree(troubled_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    paths = [path for path in sorted(copy.rglob(f"*{FC}")) if "run-1" in path.name][:1]
    os.utime(paths[0].with_suffix(".npy"), ns=(1, 1))
    settings = settings_of(troubled_demo[0], copy, tmp_path)
    expected = vectorise_edges(read_matrix(paths[0])[0], weighted=False)
    np.testing.assert_array_equal(read_edges(paths, tmp_path / "c", settings).array[0], expected)


def test_the_choice_can_be_changed_and_leaves_nothing_of_the_other(troubled_demo, compact, tmp_path):
    folder, _ = troubled_demo
    copy = shutil.copytree(compact.output, tmp_path / "out")
    again = run_app(folder, copy, "--atlas", "builtin", "--participant-label", "01")
    assert again.code == 0, again.err
    assert again.files(f"sub-01/**/*{SERIES}.tsv")
    assert not again.files("sub-01/**/*timeseries.npy")
    back = run_app(folder, copy, "--atlas", "builtin", "--participant-label", "01", "--compact")
    assert {path.name for path in back.files("sub-01/**/*.*")} == {path.name for path in compact.files("sub-01/**/*.*")}


def test_power_of_real_series_in_single_precision_agrees_to_six_digits(shared):
    """Why the series are stored and not FC: with fewer volumes than parcels small eigenvalues drown in its digits."""
    worst = {"series": 0.0, "fc": 0.0}
    with np.load(shared / "data" / "stages" / "timeseries.npz") as stages:
        for name in stages.files[:6]:
            series = z_score(np.asarray(stages[name][:, :400], dtype=float))
            fc = pearson_connectivity(series)
            stored = pearson_connectivity(series.astype(np.float32).astype(float))
            exact = spectral_power(fc)
            for kind, found in (("series", stored), ("fc", fc.astype(np.float32).astype(float))):
                error = np.abs(spectral_power(found) - exact).max() / np.abs(exact).max()
                worst[kind] = max(worst[kind], error)
    assert worst["series"] < 1e-6
    assert worst["fc"] > 1e-4
