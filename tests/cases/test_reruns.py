"""Runs after other runs into one folder: nothing is lost, mixed or kept that is not true any more."""

from __future__ import annotations

import json
import shutil

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs.tables import read_matrix
from tests.cases.people import run, table
from tests.running import PLAIN, contents, run_app

ATLAS = ("--atlas", "builtin", "--nprocs", "1")


def two_runs(root):
    make_dataset(root, DemoDesign.tiny(subjects=2, sessions=1, runs=2, volumes=80))
    return root


def atlas_named(folder, name):
    """The built-in atlas under another name."""
    image = builtin_atlas("MNI152NLin2009cAsym", folder / "made").image
    for ending in (".nii.gz", ".tsv"):
        source = image.with_name(image.name.replace(".nii.gz", ending))
        shutil.copy(source, folder / f"{name}_dseg{ending}")
    return folder / f"{name}_dseg.nii.gz"


def states_of(output):
    rows = table(output / "recordings.tsv")
    return rows.set_index("path")["state"].to_dict()


def test_a_scan_without_a_run_beside_a_numbered_one_is_a_scan(tmp_path):
    root = two_runs(tmp_path / "in")
    for path in list((root / "derivatives").rglob("sub-01_*_run-1_*")):
        path.rename(path.with_name(path.name.replace("_run-1", "")))
    found = run_app(root, tmp_path / "out", *ATLAS, *PLAIN)
    assert found.code == 0, found.err
    assert list(states_of(found.output).values()) == ["done"] * 4


def test_embeddings_of_an_atlas_whose_name_goes_on_stay(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=80))
    atlases = [atlas_named(tmp_path, name) for name in ("atlas-Toy_seg-7n", "atlas-Toy")]
    found = run_app(tmp_path / "in", tmp_path / "out", "--atlas", *atlases, "--encoder", "random-init", *PLAIN)
    assert found.code == 0, found.err
    assert len(found.files("*_embedding.tsv")) == 2


def test_pages_alone_change_nothing_of_what_they_are_made_of(tmp_path):
    root = two_runs(tmp_path / "in")
    atlas = atlas_named(tmp_path, "atlas-Toy")
    options = ("--atlas", atlas, *PLAIN, "--fd-thresh", "5", "--nprocs", "1")
    found = run_app(root, tmp_path / "out", *options)
    before = {name: data for name, data in contents(found.output, "work").items() if not name.endswith(".html")}
    (confounds,) = root.rglob("sub-01_*_run-1_*confounds_timeseries.tsv")
    confounds.rename(tmp_path / "away.tsv")
    names = table(tmp_path / "atlas-Toy_dseg.tsv")
    names["name"] = "new" + names["index"].astype(str)
    names.to_csv(tmp_path / "atlas-Toy_dseg.tsv", sep="\t", index=False)
    again = run_app(root, tmp_path / "out", *options, "--reports-only")
    assert again.code == 0, again.err
    after = {name: data for name, data in contents(found.output, "work").items() if not name.endswith(".html")}
    assert {name for name in before if after.get(name) != before[name]} <= {"logs/CITATION.md", "logs/CITATION.bib"}
    assert found.states() == again.states()


@pytest.mark.parametrize(("run", "session"), [("1.0", "n/a"), ("01", "ses-a"), ("run-1", "a")])
def test_a_decision_about_a_run_is_obeyed_however_a_table_writes_it(run, session, tmp_path):
    root = two_runs(tmp_path / "in")
    (tmp_path / "out").mkdir()
    rows = f"sub-01\t{run}\t{session}\treject\nsub-02\t9\tn/a\treject\n"
    (tmp_path / "out" / "exclude.tsv").write_text("participant_id\trun\tsession\tdecision\n" + rows)
    found = run_app(root, tmp_path / "out", *ATLAS, *PLAIN)
    rejected = [path for path, state in states_of(found.output).items() if state == "rejected"]
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
        found = run_app(tmp_path / "in", tmp_path / name, *ATLAS, *options)
        assert found.code == 0, found.err
        _, names = read_matrix(found.file("sub-01", "desc-confounds_design.tsv"))
        numbers.append(len(names))
    assert numbers[0] == numbers[1] == 25


@pytest.mark.parametrize("least", [0, 0.2, 1])
def test_parcels_without_a_value_are_those_that_are_counted_and_named(least, troubled_demo, tmp_path):
    """Without a voxel a parcel is uncovered, whatever is asked for."""
    options = (*ATLAS, *PLAIN, "--min-coverage", least, "--participant-label", "02", "--session-label", "a")
    found = run_app(troubled_demo[0], tmp_path / "out", *options)
    assert found.code == 0, found.err
    fc, names = read_matrix(found.file("sub-02", "stat-pearsoncorrelation_relmat.tsv"))
    lacking = [name for name, row in zip(names, fc, strict=True) if np.isnan(row).all()]
    sidecar = json.loads(found.file("sub-02", "stat-pearsoncorrelation_relmat.json").read_text())
    assert lacking
    assert sidecar["UncoveredNodes"] == lacking
    assert table(found.file("sub-02", "_qc.tsv"))["uncovered_parcels"].tolist() == [str(len(lacking))]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--strategy", "24P"), "Nothing is left to analyse"),
        (("--strategy", "36P"), "Nothing is left to analyse"),
        (("--strategy", "none", "--filter-order", "8"), "too few to filter"),
    ],
)
def test_a_dry_run_knows_of_a_series_that_is_too_short_for_its_cleaning(options, words, tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=40, repetition_time=3.0))
    options = (*ATLAS, *options, "--min-time", "0", "--fd-thresh", "0")
    dry, run = (run_app(tmp_path / "in", tmp_path / "out", *options, *more) for more in (["--dry-run"], []))
    assert dry.code == run.code == 5
    assert words in dry.out
    assert words in run.err


def test_who_is_not_there_is_forgotten_by_a_run_of_all(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=80))
    first = run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN, "--participant-label", "01", "99")
    assert first.states()["sub-99"] == "failed"
    again = run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN)
    assert again.code == 0
    assert "sub-99" not in again.states()


def test_notes_on_what_was_found_are_said_by_a_run_too(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=1, volumes=80))
    found = run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN, "--task-id", "rest", "nback")
    assert found.code == 0
    assert "Note:" in found.err
    assert "nback" in found.err


@pytest.mark.parametrize("seconds", [0.8, 2.5, 3.0])
def test_the_minutes_of_a_scan_of_which_nothing_is_kept_count(seconds, tmp_path):
    design = DemoDesign.tiny(subjects=1, sessions=1, runs=2, volumes=80, repetition_time=seconds)
    make_dataset(tmp_path / "in", design)
    (path,) = (tmp_path / "in").rglob("*_run-2_*confounds_timeseries.tsv")
    confounds = pd.read_csv(path, sep="\t")
    confounds["framewise_displacement"] = 9.0
    confounds.to_csv(path, sep="\t", index=False, na_rep="n/a")
    options = ("--strategy", "none", "--fd-thresh", "5", "--min-time", "0", "--dummy-scans", "0")
    found = run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *options)
    assert sorted(found.states().values()) == ["done", "excluded"]
    minutes = 80 * seconds / 60
    assert f"<dd><bdi>{minutes:.1f} of {2 * minutes:.1f}</bdi></dd>" in found.output.joinpath("sub-01.html").read_text()
    sidecars = found.files("*_qc.json")
    assert [json.loads(path.read_text())["RepetitionTime"] for path in sidecars] == [seconds] * 2


@pytest.mark.parametrize(
    ("option", "lacking"),
    [
        (("--motion-filter-order", "2"), "motion_filter_order is not used: there is no --motion-filter-type"),
        (("--encoder-read", "windows"), "encoder-read is not used: there is no --encoder"),
        (("--filter-order", "3", "--high-pass", "0", "--low-pass", "0"), "filter-order is not used: there is no pass"),
    ],
)
def test_how_something_is_done_that_is_not_done_is_named(option, lacking, exact_demo, tmp_path):
    options = (*ATLAS, "--participant-label", "01", *option, "--dry-run")
    assert lacking.replace("_", "-") in run_app(exact_demo[0], tmp_path / "out", *options).err


def test_a_run_under_another_spelling_is_the_same_acquisition(tmp_path):
    root = two_runs(tmp_path / "in")
    assert run_app(root, tmp_path / "out", *ATLAS, *PLAIN).code == 0
    for path in sorted((root / "derivatives").rglob("*_run-*"), reverse=True):
        path.rename(path.with_name(path.name.replace("_run-", "_run-0")))
    for image in (root / "derivatives").rglob("*_desc-preproc_bold.nii.gz"):  # of newer preprocessing
        bold = nib.load(image)
        changed = np.asarray(bold.dataobj) + np.random.default_rng(0).integers(0, 5, bold.shape)
        nib.save(nib.Nifti1Image(changed.astype(np.int16), bold.affine, bold.header), image)
    run_app(root, tmp_path / "out", *ATLAS, *PLAIN)
    found = run(root, tmp_path / "out", "group", "--analyses", "check", "--min-time", "0", "--nprocs", "1")
    assert found.code == 3
    assert "are the same acquisition" in found.err


def test_who_is_left_out_is_counted_by_what_was_asked_for_and_once(troubled_demo, tmp_path):
    out = tmp_path / "out"
    assert run_app(troubled_demo[0], out, *ATLAS).code in (0, 4)
    statuses = table(out / "logs" / "status.tsv").set_index("recording")["state"]
    excluded = statuses[(statuses == "excluded") & statuses.index.str.contains("_ses-b_")].index
    assert len(excluded)
    (tmp_path / "filter.json").write_text('{"bold": {"session": "b"}}')
    (out / "exclude.tsv").write_text(f"participant_id\trecording\tdecision\n{excluded[0][:6]}\t{excluded[0]}\treject\n")
    rows = []
    for words in (("--bids-filter-file", tmp_path / "filter.json"), ("--session-label", "b")):
        found = run(troubled_demo[0], out, "group", "--analyses", "check", "--nprocs", "1", *words)
        assert found.code == 0, found.err
        left_out = table(out / "group" / "excluded.tsv")
        rows.append(left_out[left_out["what"].isin(["recording", "decision"])])
    pd.testing.assert_frame_equal(*rows)
    assert sorted(rows[0]["reason"].str.partition(":")[0]) == sorted(excluded)


def test_pages_of_nothing_are_refused(exact_demo, tmp_path):
    found = run_app(exact_demo[0], tmp_path / "out", *ATLAS, "--reports-only")
    assert found.code == 2
    assert "nothing to report" in found.err
    assert not (tmp_path / "out" / "dataset_description.json").exists()


def test_one_parcel_makes_no_connectome(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=2, sessions=1, volumes=80))
    atlas = nib.load(builtin_atlas("MNI152NLin2009cAsym", tmp_path / "made").image)
    (mask,) = (tmp_path / "in").rglob("sub-01_*_desc-brain_mask.nii.gz")
    brain = nib.load(mask)
    places = nib.affines.apply_affine(atlas.affine, np.argwhere(np.asarray(atlas.dataobj) == 1))
    voxels = np.unique(np.round(nib.affines.apply_affine(np.linalg.inv(brain.affine), places)).astype(int), axis=0)
    small = np.zeros(brain.shape, dtype=np.uint8)
    small[tuple(voxels.T)] = np.asarray(brain.dataobj)[tuple(voxels.T)]
    nib.save(nib.Nifti1Image(small, brain.affine, brain.header), mask)
    found = run_app(tmp_path / "in", tmp_path / "out", *ATLAS, *PLAIN)
    assert found.code == 4
    assert "fewer than 2 parcels have a signal, so there is no connection" in found.reason("sub-01")


@pytest.mark.parametrize("form", ["{image}", "{image}:{tsv}"])
def test_the_group_level_knows_an_atlas_by_the_file_that_it_was_given_as(form, tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=2, sessions=1, volumes=80))
    (tmp_path / "atlases").mkdir()
    image = atlas_named(tmp_path / "atlases", "tpl-MNI152NLin2009cAsym_atlas-Toy")
    places = {"image": image}
    places["tsv"] = image.with_name(image.name.replace(".nii.gz", ".tsv"))
    shutil.rmtree(tmp_path / "atlases" / "made")
    options = ("--atlas", form.format(**places), "--nprocs", "1", "--min-time", "0")
    found = run(tmp_path / "in", tmp_path / "out", "participant", *options, *PLAIN)
    assert found.code == 0, found.err
    found = run(tmp_path / "in", tmp_path / "out", "group", *options, "--analyses", "check")
    assert found.code == 0, found.err


def test_embeddings_are_not_counted_as_recordings(tmp_path):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=2, sessions=1, volumes=80))
    whole, part = atlas_named(tmp_path, "atlas-Whole"), atlas_named(tmp_path, "atlas-Part")
    image, names = nib.load(part), part.with_name("atlas-Part_dseg.tsv")
    rows = pd.read_csv(names, sep="\t", dtype=str)
    labels = np.asarray(image.dataobj)
    nib.save(nib.Nifti1Image(np.where(labels <= 30, labels, 0).astype(np.int16), image.affine), part)
    rows[rows["index"].astype(int) <= 30].to_csv(names, sep="\t", index=False)
    config = FBertConfig(n_parcels=len(rows), d=8, layers=1, heads=2, ff=16)
    card = ModelCard(roi_labels=tuple(rows["name"]), atlas="atlas-Whole", alpha=0.35, window=10)
    save_checkpoint(tmp_path / "model", FBert(config, seed=1), config, card)
    encoder = ("--encoder", "fbert", "--encoder-weights", tmp_path / "model")
    options = ("--atlas", whole, part, *PLAIN, "--nprocs", "1", "--min-time", "0", *encoder)
    dry = run(tmp_path / "in", tmp_path / "out", "participant", *options, "--dry-run")
    assert "0 are skipped" in dry.out
    found = run(tmp_path / "in", tmp_path / "out", "participant", *options)
    assert "\n2 done\n" in found.err
    assert "Embeddings that were not made: 2 skipped" in found.err
