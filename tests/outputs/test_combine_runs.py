"""Runs of one session as one: which belong together, and what becomes of those that cannot be combined."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.errors import RecordingError
from fcpower_bids.outputs.combine_runs import combine_runs, group_runs, whole_of
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.records import Recording
from fcpower_bids.settings import Settings
from tests.running import PLAIN, run_app


def run(*entities: str) -> Recording:
    return Recording(Path("bold.nii.gz"), tuple(tuple(pair.split("-")) for pair in ("sub-01", *entities)), 2.0)


def test_only_runs_of_one_session_task_and_space_belong_together():
    runs = [
        run("ses-a", "task-rest", "run-1"),
        run("ses-a", "task-rest", "run-2"),
        run("ses-b", "task-rest", "run-1"),
        run("ses-a", "task-film", "run-1"),
        run("ses-a", "task-rest", "run-1", "space-fsLR"),
    ]
    assert group_runs(runs) == [tuple(runs[:2]), *((one,) for one in runs[2:])]
    assert whole_of(runs[:2]).name == "sub-01_ses-a_task-rest"


def test_a_recording_without_run_is_whole_already():
    assert group_runs([run("ses-a", "task-rest")]) == []


def test_runs_with_different_repetition_times_are_refused():
    runs = [run("run-1"), replace(run("run-2"), repetition_time=1.0)]
    with pytest.raises(RecordingError, match=r"\[1.0, 2.0\] s; not combined"):
        combine_runs(Path("out"), runs, (), Settings(Path("in"), Path("out"), "participant"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("combination") / "in"
    make_dataset(folder, DemoDesign.tiny(subjects=1, sessions=1, runs=2, noise=0, nuisance=0))
    return folder


@pytest.mark.parametrize("how", ["concat", "average"])
def test_a_run_whose_fellow_failed_is_the_combination(runs, tmp_path, how):
    copy = shutil.copytree(runs, tmp_path / "in")
    truncate(copy, "run-2")
    found = run_app(copy, tmp_path / "out", "--atlas", "builtin", *PLAIN, "--combine-runs", how)
    assert found.code == 4
    ending = "stat-pearsoncorrelation_relmat.tsv"
    (path,) = found.files(f"sub-01_ses-a_task-rest_space-*{ending}")
    alone = read_matrix(found.file("sub-01_ses-a_task-rest_run-1", ending))[0]
    np.testing.assert_allclose(read_matrix(path)[0], alone, atol=1e-12)
    assert json.loads(path.with_suffix(".json").read_text())["NumberOfRuns"] == 1


def truncate(folder, run):
    (bold,) = folder.rglob(f"*_{run}_*_bold.nii.gz")
    bold.write_bytes(bold.read_bytes()[:-4000])


def test_a_combination_without_any_finished_run_is_skipped_and_says_so(runs, tmp_path):
    copy = shutil.copytree(runs, tmp_path / "in")
    truncate(copy, "run-1")
    truncate(copy, "run-2")
    found = run_app(copy, tmp_path / "out", "--atlas", "builtin", *PLAIN, "--combine-runs", "concat")
    assert found.code == 5
    (whole,) = (name for name in found.states() if "run-" not in name)
    assert found.states()[whole] == "skipped"
    assert "None of its 2 runs passed" in found.reason(whole)
    assert not found.files("*_relmat.tsv")


def test_nothing_is_left_of_a_combination_whose_runs_are_all_excluded_now(runs, tmp_path):
    options = ("--atlas", "builtin", *PLAIN, "--combine-runs", "concat")
    whole = "sub-01_ses-a_task-rest_space-*"
    found = run_app(runs, tmp_path / "out", *options)
    assert found.files(f"{whole}_relmat.tsv")
    found = run_app(runs, tmp_path / "out", *options, "--min-time", "9999")
    assert set(found.states().values()) == {"excluded", "skipped"}
    assert {path.parent.name for path in found.files(whole)} == {"status"}


def test_nothing_is_left_of_a_combination_whose_runs_can_no_longer_be_read(runs, tmp_path):
    copy, options = shutil.copytree(runs, tmp_path / "in"), ("--atlas", "builtin", *PLAIN, "--combine-runs", "concat")
    whole = "sub-01_ses-a_task-rest_space-*"
    assert run_app(copy, tmp_path / "out", *options).files(f"{whole}_relmat.tsv")
    for bold in copy.rglob("*_bold.nii.gz"):
        bold.write_bytes(b"no image")
    found = run_app(copy, tmp_path / "out", *options)
    assert found.code == 5
    assert Counter(found.states().values()) == {"failed": 2, "skipped": 1}
    assert {path.parent.name for path in found.files(whole)} == {"status"}


def test_what_was_noted_of_a_person_goes_when_recordings_come(runs, tmp_path):
    copy, options = shutil.copytree(runs, tmp_path / "in"), ("--atlas", "builtin", *PLAIN)
    (person,) = copy.rglob("fmriprep/sub-01")
    late = person.with_name("sub-02")
    late.mkdir()
    assert run_app(copy, tmp_path / "out", *options).states()["sub-02"] == "skipped"
    late.rmdir()
    shutil.copytree(person, late)
    for path in [path for path in late.rglob("*") if path.is_file()]:
        path.rename(path.with_name(path.name.replace("sub-01", "sub-02")))
    found = run_app(copy, tmp_path / "out", *options)
    assert set(found.states().values()) == {"done"}
    assert len(found.states()) == 4


def test_sidecars_of_a_combination_have_the_regressors_and_the_sources_of_their_atlas(runs, tmp_path):
    first = run_app(runs, tmp_path / "out", "--atlas", "builtin", "--combine-runs", "concat", "--min-time", "10")
    image, table = (first.files(f"sourcedata/**/*_dseg{end}")[0] for end in (".nii.gz", ".tsv"))
    other = shutil.copy(image, tmp_path / "other.nii.gz"), shutil.copy(table, tmp_path / "other.tsv")
    atlases = ("--atlas", "builtin", ":".join(map(str, other)))
    found = run_app(runs, tmp_path / "out", *atlases, "--combine-runs", "concat", "--min-time", "10")
    sidecars = [path for path in found.files("sub-01_ses-a_task-rest_space-*.json") if "atlas-" in path.name]
    assert len(sidecars) >= 4
    for path in sidecars:
        facts, (atlas,) = json.loads(path.read_text()), re.findall(r"_(atlas-[a-z]+)_", path.name)
        assert len(facts.get("NuisanceParameters", range(24))) == 24  # a table of coverage has none
        assert all(atlas in source for source in facts["Sources"]), path.name


def test_an_average_takes_the_place_of_a_series(runs, tmp_path):
    """Files of the concatenation would be of another cleaning than the connectome beside them."""
    options = ("--atlas", "builtin", *PLAIN, "--combine-runs")
    series = "sub-01_ses-a_task-rest_space-*stat-mean_timeseries.*"
    found = run_app(runs, tmp_path / "out", *options, "concat")
    assert len(found.files(series)) == 2
    assert not run_app(runs, tmp_path / "out", *options, "average").files(series)


@pytest.mark.parametrize(
    ("changed", "kept"),
    [(("--transforms", "fisher_z"), True), (("--low-pass", "0.1"), False), (("--min-time", "9999"), False)],
)
def test_a_combination_goes_with_the_runs_that_it_was_made_of(runs, tmp_path, changed, kept):
    """Beside runs of another cleaning it would pass for theirs; another transform changes no run."""
    options, whole = ("--atlas", "builtin", *PLAIN), "sub-01_ses-a_task-rest_space-*"
    before = run_app(runs, tmp_path / "out", *options, "--combine-runs", "concat").files(whole)
    found = run_app(runs, tmp_path / "out", *options, *changed)
    assert found.files(whole) == (before if kept else [])
    said = "Removed, because their runs were made anew: sub-01_ses-a_task-rest_space-"
    assert (said in found.err) == (not kept)
    assert len(found.states()) == 2 + kept


def test_a_lost_file_of_a_combination_is_made_again(runs, tmp_path):
    options = ("--atlas", "builtin", *PLAIN, "--combine-runs", "concat")
    found = run_app(runs, tmp_path / "out", *options)
    (lost,) = found.files("sub-01_ses-a_task-rest_space-*stat-mean_timeseries.tsv")
    content = lost.read_bytes()
    lost.unlink()
    assert run_app(runs, tmp_path / "out", *options).code == 0
    assert lost.read_bytes() == content


def test_a_transform_that_needs_a_series_cannot_be_had_from_an_average(runs, tmp_path):
    options = ("--transforms", "partial_correlation", "--combine-runs", "average")
    found = run_app(runs, tmp_path / "out", "--atlas", "builtin", *PLAIN, *options)
    assert found.code == 4
    (whole,) = (name for name in found.states() if "run-" not in name)
    assert found.states()[whole] == "failed"
    assert "averaged runs do not have" in found.reason(whole)


@pytest.mark.parametrize("how", ["concat", "average"])
def test_a_parcel_that_one_run_lacks_is_missing_in_the_whole(runs, tmp_path, how):
    copy = shutil.copytree(runs, tmp_path / "in")
    (mask,) = copy.rglob("*_run-2_*_desc-brain_mask.nii.gz")
    image = nibabel.load(mask)
    data = np.asarray(image.dataobj).copy()
    data[..., -6:] = 0
    nibabel.save(nibabel.Nifti1Image(data, image.affine), mask)
    found = run_app(copy, tmp_path / "out", "--atlas", "builtin", *PLAIN, "--combine-runs", how)
    assert found.code == 0, found.err
    ending = "stat-pearsoncorrelation_relmat.tsv"
    part, _ = read_matrix(found.file("sub-01_ses-a_task-rest_run-2", ending))
    (path,) = found.files(f"sub-01_ses-a_task-rest_space-*{ending}")
    whole, _ = read_matrix(path)
    assert np.isnan(part).any()
    np.testing.assert_array_equal(np.isnan(whole), np.isnan(part))
