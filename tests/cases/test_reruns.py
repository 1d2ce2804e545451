"""Runs after other runs into one folder: nothing is lost, mixed or kept that is not true any more."""

from __future__ import annotations

import json
import shutil

import nibabel as nib
import numpy as np
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_matrix
from tests.cases.cohorts import run, table
from tests.planting.trees import copy_builtin
from tests.running import PLAIN, contents, run_app

ATLAS = ("--atlas", "builtin", "--nprocs", "1")


def two_runs(root):
    make_dataset(root, DemoDesign.tiny(subjects=2, sessions=1, runs=2, volumes=80))
    return root


@pytest.mark.parametrize("form", ["{0}.nii.gz", "{0}.nii.gz:{0}.tsv"])
def test_pages_alone_change_nothing_and_the_group_level_knows_an_atlas_by_the_file_that_it_was_given_as(form, tmp_path):
    root = two_runs(tmp_path / "in")
    copy_builtin(tmp_path / "atlas-Toy_dseg")
    atlas = ("--atlas", form.format(tmp_path / "atlas-Toy_dseg"))
    options = (*atlas, *PLAIN, "--fd-thresh", "5", "--nprocs", "1")
    found = run_app(root, tmp_path / "out", *options)
    run(root, tmp_path / "out", "group", *atlas, "--min-time", "0", "--analyses", "check", code=0)
    before = {name: data for name, data in contents(found.output, "work").items() if not name.endswith(".html")}
    (confounds,) = root.rglob("sub-01_*_run-1_*confounds_timeseries.tsv")
    confounds.rename(tmp_path / "away.tsv")
    names = table(tmp_path / "atlas-Toy_dseg.tsv")
    names["name"] = "new" + names["index"].astype(str)
    names.to_csv(tmp_path / "atlas-Toy_dseg.tsv", sep="\t", index=False)
    again = run_app(root, tmp_path / "out", *options, "--reports-only", code=0)
    after = {name: data for name, data in contents(found.output, "work").items() if not name.endswith(".html")}
    assert {name for name in before if after.get(name) != before[name]} <= {"logs/CITATION.md", "logs/CITATION.bib"}
    assert found.states() == again.states()


def test_an_atlas_and_a_strategy_are_known_by_name_and_content_wherever_they_lie(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=80))

    def finish(place, column):
        image = copy_builtin(tmp_path / place / "mine_dseg")
        (tmp_path / place / "mine.yml").write_text(f"methods: x.\ncolumns: [{column}]\n")
        given = ("--atlas", image, "--strategy", tmp_path / place / "mine.yml")
        given += ("--atlas-dir", tmp_path / place)
        return run_app(tmp_path / "in", tmp_path / "out", *given, "--min-time", "0", "--nprocs", "1")

    first, moved, other = finish("one", "csf"), finish("two", "csf"), finish("three", "global_signal")
    assert (first.code, moved.code) == (0, 0), first.err + moved.err
    assert "finished before" not in first.err
    assert "1 recording, 1 of them finished before" in moved.err
    assert other.code == 2
    assert "made otherwise (--strategy mine.yml" in " ".join(other.err.split())


@pytest.mark.parametrize(("run", "session"), [("1.0", "n/a"), ("01", "ses-a"), ("run-1", "a")])
def test_a_decision_about_a_run_is_obeyed_however_a_table_writes_it(run, session, tmp_path):
    root = two_runs(tmp_path / "in")
    (tmp_path / "out").mkdir()
    rows = f"sub-01\t{run}\t{session}\treject\nsub-02\t9\tn/a\treject\n"
    (tmp_path / "out" / "exclude.tsv").write_text("participant_id\trun\tsession\tdecision\n" + rows)
    found = run_app(root, tmp_path / "out", *ATLAS, *PLAIN)
    rejected = table(found.output / "recordings.tsv").query("state == 'rejected'")["path"].tolist()
    assert [path.partition("_run-")[2][0] for path in rejected] == ["1"]
    assert all("sub-01" in path for path in rejected)


def test_a_pattern_means_the_same_regressors_where_motion_is_filtered(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=120, repetition_time=1.0))
    pattern = tmp_path / "pattern.yml"
    pattern.write_text("methods: x.\ncolumns: ['^(trans|rot)_[xyz](_derivative1)?(_power2)?$', csf]\n")
    numbers = []
    for name, motion in (("plain", ()), ("filtered", ("lp", "--band-stop-min", "6"))):
        motion = ("--motion-filter-type", *motion) if motion else ()
        options = ("--strategy", pattern, "--high-pass", "0", "--low-pass", "0", "--min-time", "0", *motion)
        found = run_app(tmp_path / "in", tmp_path / name, *ATLAS, *options, code=0)
        _, names = read_matrix(found.file("sub-01", "desc-confounds_design.tsv"))
        numbers.append(len(names))
    assert numbers[0] == numbers[1] == 25


@pytest.mark.parametrize("least", [0, 0.2, 1])
def test_parcels_without_a_value_are_those_that_are_counted_and_named(least, troubled_demo, tmp_path):
    """Without a voxel a parcel is uncovered, whatever is asked for."""
    options = (*ATLAS, *PLAIN, "--min-coverage", least, "--participant-label", "02", "--session-label", "a")
    found = run_app(troubled_demo[0], tmp_path / "out", *options, code=0)
    fc, names = read_matrix(found.file("sub-02", "stat-pearsoncorrelation_relmat.tsv"))
    lacking = [name for name, row in zip(names, fc, strict=True) if np.isnan(row).all()]
    sidecar = json.loads(found.file("sub-02", "stat-pearsoncorrelation_relmat.json").read_text())
    assert lacking
    assert sidecar["UncoveredNodes"] == lacking
    assert table(found.file("sub-02", "_qc.tsv"))["uncovered_parcels"].tolist() == [str(len(lacking))]


def test_who_is_not_there_is_forgotten_by_a_run_of_all(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=80))
    first = run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN, "--participant-label", "01", "99")
    assert first.states()["sub-99"] == "failed"
    again = run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN, code=0)
    assert "sub-99" not in again.states()


def test_a_run_under_another_spelling_is_the_same_acquisition(two_runs_done, tmp_path):
    root = shutil.copytree(two_runs_done, tmp_path, dirs_exist_ok=True) / "in"
    for path in sorted((root / "derivatives").rglob("*_run-*"), reverse=True):
        path.rename(path.with_name(path.name.replace("_run-", "_run-0")))
    for image in (root / "derivatives").rglob("*_desc-preproc_bold.nii.gz"):  # of newer preprocessing
        bold = nib.load(image)
        changed = np.asarray(bold.dataobj) + np.random.default_rng(0).integers(0, 5, bold.shape)
        nib.save(nib.Nifti1Image(changed.astype(np.int16), bold.affine, bold.header), image)
    run_app(root, tmp_path / "out", *ATLAS, *PLAIN)
    found = run(root, tmp_path / "out", "group", "--analyses", "check", "--min-time", "0", "--nprocs", "1", code=3)
    assert "are the same acquisition" in found.err


def test_pages_of_nothing_are_refused(exact_demo, tmp_path):
    found = run_app(exact_demo[0], tmp_path / "out", *ATLAS, "--reports-only", code=2)
    assert "nothing to report" in found.err
    assert not (tmp_path / "out" / "dataset_description.json").exists()
