"""What an output folder holds, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.imaging.atlas import builtin_atlas
from tests.cases.cohorts import LABELS, TR, T, index_rows, run, store_matrices, table, write_list, write_people
from tests.elsewhere.sources import xcpd
from tests.running import PLAIN, contents

ATLAS = ("--atlas", "builtin", "--nprocs", "1", "--quiet")
PLAINLY = (*ATLAS, *PLAIN, "--transforms", "power", "fisher_z")
OTHERWISE = {
    "one person at another threshold": ("--participant-label", "02", "--fd-thresh", "0.01"),
    "everyone in another band": ("--low-pass", "0.1"),
    "another exponent": ("--participant-label", "02", "--alpha", "0.5"),
    "a transform more": ("--transforms", "degree"),
    "an atlas more": ("--atlas", "OTHER"),
    "a cleaning that no recording allows": ("--strategy", "MINE"),
}


@pytest.mark.parametrize("kind", OTHERWISE)
def test_one_method_per_output_folder(kind, exact_demo, outputs, tmp_path):
    atlas = shutil.copy(builtin_atlas("MNI152NLin2009cAsym", tmp_path).image, tmp_path / "atlas-Mine_dseg.nii.gz")
    (tmp_path / "mine.yml").write_text("methods: x.\ncolumns: [no_such_column]\n")
    other = [{"OTHER": atlas, "MINE": tmp_path / "mine.yml"}.get(word, word) for word in OTHERWISE[kind]]
    before = contents(outputs)
    for dry in ((), ("--dry-run",)):
        found = run(exact_demo[0], outputs, "participant", *PLAINLY, *other, *dry, code=2)
        assert f"holds 4 recordings that were made otherwise ({other[-2]} " in found.err
        assert "--replace" in found.err
    assert contents(outputs, "work") == before
    assert run(exact_demo[0], outputs, "participant", *PLAINLY, "--participant-label", "02", "--dry-run").code == 0


def connectomes(output):
    return {name: data for name, data in contents(output).items() if name.endswith(("_relmat.tsv", "_relmat.npy"))}


def test_jobs_that_replace_remove_what_was_made_otherwise_and_not_what_they_make(exact_demo, outputs, tmp_path):
    words = [word for word in (*ATLAS, *PLAIN, "--alpha", "0.5", "--replace") if word != "--quiet"]
    first, second = (("--participant-label", label) for label in ("01", "02"))
    found = run(exact_demo[0], outputs, "participant", *words, *first, "--dry-run")
    assert "--replace removes 4 recordings of 2 participants that were made otherwise." in found.err
    assert len(list(outputs.glob("sub-*/**/*desc-fisherz_relmat.tsv"))) == 4
    assert run(exact_demo[0], outputs, "participant", *words, *first).code == 0
    assert set(table(outputs / "recordings.tsv")["recording"].str[:6]) == {"sub-01"}
    assert not [*outputs.glob("sub-02/**/*_relmat.*"), *outputs.glob("sub-02.html")]
    before = connectomes(outputs)
    assert run(exact_demo[0], outputs, "participant", *words, *second).code == 0
    assert before.items() < connectomes(outputs).items()
    assert run(exact_demo[0], tmp_path / "anew", "participant", *words).code == 0
    assert connectomes(outputs) == connectomes(tmp_path / "anew")


def test_a_run_that_was_killed_as_it_replaced_is_finished_by_the_same_command(exact_demo, outputs, monkeypatch):
    words = (*ATLAS, *PLAIN, "--alpha", "0.5")
    unlink, removed = Path.unlink, []

    def be_killed(path, **how):
        removed.append(path)
        if len(removed) == 40:
            raise KeyboardInterrupt
        unlink(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", be_killed)
        assert run(exact_demo[0], outputs, "participant", *words, "--replace").code not in (0, 2)
    left = list(outputs.glob("sub-*/**/*desc-fisherz_relmat.tsv"))
    assert 0 < len(left) < 4
    assert run(exact_demo[0], outputs, "participant", *words).code == 2
    assert run(exact_demo[0], outputs, "participant", *words, "--replace").code == 0
    assert not list(outputs.glob("sub-*/**/*desc-fisherz_relmat.tsv"))
    assert table(outputs / "recordings.tsv")["state"].tolist() == ["done"] * 4


def test_what_cannot_be_made_is_said_of_a_run_that_replaces(exact_demo, tmp_path):
    copy, words = shutil.copytree(exact_demo[0], tmp_path / "in"), (*ATLAS, *PLAIN)
    assert run(copy, tmp_path / "out", "participant", *words).code == 0
    next(copy.rglob("sub-02_ses-a_*_desc-confounds_timeseries.tsv")).unlink()
    assert run(copy, tmp_path / "out", "participant", *words, "--alpha", "0.5", "--replace").code == 4
    states = table(tmp_path / "out" / "recordings.tsv").set_index("recording")["state"]
    assert {name[:12]: state for name, state in states.items() if state != "done"} == {"sub-02_ses-a": "failed"}
    assert len(states) == 4


def test_of_two_runs_with_other_choices_the_second_writes_over_nothing(exact_demo, outputs, monkeypatch):
    """Both have begun before the other has made anything."""
    before = connectomes(outputs)
    monkeypatch.setattr("fcpower_bids.workflows.participant._find_others", lambda *_: [])
    words = (*ATLAS, *PLAIN, "--alpha", "0.5", "--participant-label", "01")
    found = run(exact_demo[0], outputs, "participant", *words, code=4)
    assert "Another run has made it with other choices in the meantime" in found.err
    assert connectomes(outputs) == before


def test_the_same_derivatives_under_a_name_are_the_same_dataset(exact_demo, outputs):
    before = contents(outputs)
    (prepared,) = (exact_demo[0] / "derivatives").iterdir()
    run(exact_demo[0], outputs, "participant", *PLAINLY, "-d", f"one={prepared}", code=0)
    after = contents(outputs)
    of_recordings = [name for name in before if name.startswith(("sub-01/", "sub-02/", "recordings.tsv"))]
    assert {name: before[name] for name in of_recordings} == {name: after.get(name) for name in of_recordings}


def test_a_rejected_person_stays_so_on_the_index(exact_demo, outputs):
    recording = next(iter(table(outputs / "recordings.tsv")["recording"]))
    decisions = f"sub-01\tn/a\treject\tmoved\n{recording[:6]}\t{recording}\taccept\tlooked again\n"
    (outputs / "exclude.tsv").write_text("participant_id\trecording\tdecision\treason\n" + decisions)
    assert run(exact_demo[0], outputs, "participant", *PLAINLY, "--reports-only").code == 0
    page = (outputs / "index.html").read_text()
    assert "looked again" not in page
    assert page.count("moved") >= 2
    rows = table(outputs / "recordings.tsv").set_index("recording")
    assert rows.loc[recording, "state"] == "rejected"


def test_one_dataset_per_output_folder(exact_demo, outputs, tmp_path):
    """Others of the same labels, and others of other labels."""
    make_dataset(tmp_path / "same", DemoDesign.tiny(subjects=1, sessions=1, seed=9))
    before = contents(outputs)
    for dry in (("--dry-run",), ()):
        found = run(tmp_path / "same", outputs, "participant", *PLAINLY, *dry, code=2)
        assert "another dataset" in found.err
        assert "an output folder of its own" in " ".join(found.err.split())
    for path in sorted((tmp_path / "same").rglob("*sub-01*"), reverse=True):
        path.rename(path.with_name(path.name.replace("sub-01", "sub-77")))
    assert run(tmp_path / "same", outputs, "participant", *PLAINLY).code == 2
    assert contents(outputs, "work") == before
    assert run(tmp_path / "same", outputs, "participant", *PLAINLY, "--replace").code == 0


def test_another_study_at_the_same_place_is_another_dataset(exact_demo, tmp_path):
    """As in containers, where every study is at one path."""
    data, out = shutil.copytree(exact_demo[0], tmp_path / "data"), tmp_path / "out"
    assert run(data, out, "participant", *PLAINLY).code == 0
    description = data / "dataset_description.json"
    facts = json.loads(description.read_text()) | {"License": "PDDL", "DatasetDOI": "10.1/x"}
    description.write_text(json.dumps(facts))
    assert run(data, out, "participant", *PLAINLY).code == 0
    description.write_text('{"Name": "Quite another study", "BIDSVersion": "1.9.0"}')
    before = connectomes(out)
    found = run(data, out, "participant", *PLAINLY, code=2)
    assert "of another dataset" in found.err
    assert connectomes(out) == before


def test_nothing_of_an_input_that_was_another_person_stays(exact_demo, tmp_path):
    copy, out, options = shutil.copytree(exact_demo[0], tmp_path / "in"), tmp_path / "out", (*ATLAS[:-1], *PLAIN)
    assert run(copy, out, "participant", *options).code == 0
    one, other = (next(copy.rglob(f"sub-01_ses-{session}_*_desc-preproc_bold.nii.gz")) for session in "ab")
    one.write_bytes(other.read_bytes())
    (series,) = out.glob("sub-01/ses-a/func/*_timeseries.tsv")
    embedding = series.with_name(series.name.replace("timeseries", "embedding"))
    embedding.write_text("of the person before")
    found = run(copy, out, "participant", *options, code=0)
    assert "its input is another than before" in found.err
    assert not embedding.exists()
    same = [next(out.glob(f"sub-01/ses-{session}/func/*builtin*pearson*.npy")).read_bytes() for session in "ab"]
    assert same[0] == same[1]
    kept = connectomes(out)
    for path in copy.rglob("*_bold.nii.gz"):  # a copy of the dataset has other times and the same content
        path.touch()
    again = run(copy, out, "participant", *options, code=0)
    assert "its input" not in again.err
    assert connectomes(out) == kept


def test_a_run_in_which_nothing_passes_the_limits_is_no_success(exact_demo, tmp_path):
    words = (*ATLAS, *PLAIN, "--min-time", "100000")
    for dry in (("--dry-run",), ()):
        assert run(exact_demo[0], tmp_path / "out", "participant", *words, *dry).code == 5
    assert set(table(tmp_path / "out" / "recordings.tsv")["state"]) == {"excluded"}
    assert run(exact_demo[0], tmp_path / "out", "participant", *words, "--reports-only").code == 5


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Thirty people who were given as a list, with a model of their score."""
    folder = tmp_path_factory.mktemp("listed")
    write_people(folder / "bids", score=np.arange(30.0))
    (folder / "bids" / "dataset_description.json").write_text('{"Name": "Toy", "BIDSVersion": "1.9.0"}')
    words = ("-d", f"list={write_list(folder)}", "--min-time", "0", "--targets", "score", "--nprocs", "1", "--quiet")
    few = ("--folds", 3, "--repeats", 1, "--permutations", 0)
    few += ("--analyses", "prediction", "--save-models", "--any-skill")
    run(folder / "bids", folder / "out", "group", *words, *few, code=0)
    return folder


def expected_of(path, threshold):
    """Mean FD of the steady volumes, and how many of them pass a threshold, by a table of confounds."""
    confounds = pd.read_csv(path, sep="\t", na_values="n/a")
    steady = ~confounds.filter(like="non_steady_state").any(axis=1)
    moved = confounds["framewise_displacement"][steady]
    return moved.mean(), int((~(moved > threshold)).sum())


@pytest.mark.parametrize(("cohort", "threshold"), [("troubled", 0.5), ("exact", np.inf), ("listed", np.nan)])
def test_the_numbers_of_recordings_are_those_of_the_input_files(cohort, threshold, request):
    if cohort == "listed":
        folder = request.getfixturevalue("listed")
        there, rows = table(folder / "out" / "recordings.tsv"), table(folder / "list.tsv")
        expected = {f"{row.participant_id}_task-rest": (float(row.mean_fd), T) for row in rows.itertuples()}
        time = TR
    else:
        there = table(request.getfixturevalue(f"{cohort}_run").output / "recordings.tsv")
        paths = request.getfixturevalue(f"{cohort}_demo")[0].rglob("*_desc-confounds_timeseries.tsv")
        expected = {path.name.partition("_desc-")[0]: expected_of(path, threshold) for path in paths}
        time = DemoDesign.tiny().repetition_time
    assert sorted(there["recording"].str.partition("_space-")[0]) == sorted(expected)
    done = there[there["state"] == "done"]
    assert len(done) > len(there) / 2
    assert (there.loc[there["state"] != "done", ["mean_fd", "seconds", "volumes"]] == "n/a").all(axis=None)
    for row in done.itertuples():
        moved, volumes = expected[row.recording.partition("_space-")[0]]
        assert float(row.mean_fd) == pytest.approx(moved, abs=1e-6)
        assert [float(row.volumes), float(row.seconds)] == [volumes, volumes * time]


def test_what_is_rejected_is_neither_analysed_nor_packed_nor_predicted(listed, tmp_path):
    folder = shutil.copytree(listed, tmp_path / "listed")
    bids, out = folder / "bids", folder / "out"
    (out / "exclude.tsv").write_text("participant_id\n3\n")
    assert run(bids, out, "pretrain", "--steps", "0", "--alpha", "1", "--quiet", "--nprocs", "1").code == 0
    assert "003" not in table(out / "corpus" / "recordings.tsv")["subject"].tolist()
    assert len(table(out / "corpus" / "recordings.tsv")) == 29
    (model,) = (out / "group" / "models").glob("*fc_model")
    run("predict", model, out, code=4)
    (predicted,) = (out / "group" / "predicted").glob("*-fc.tsv")
    rows = table(predicted).set_index("participant_id")
    assert rows["state"].value_counts().to_dict() == {"predicted": 29, "refused": 1}
    assert rows.loc["sub-003", "reason"] == "exclude.tsv: named there"
    found = run(bids, out, "group", "--min-time", "0", "--analyses", "check", "--replace", code=0)
    assert "Left out: sub-003: sub-003_task-rest: exclude.tsv: named there" in found.err
    assert "sub-003" not in table(out / "group" / "scans.tsv")["participant_id"].tolist()
    states = table(out / "recordings.tsv").set_index("recording")["state"]
    assert states["sub-003_task-rest"] == "rejected"


def change_a_byte(path):
    """Another digit in the first row."""
    text = path.read_text()
    place = text.index("\t0.") + 6
    path.write_text(text[:place] + ("8" if text[place] != "8" else "3") + text[place + 1 :])


def cut_at_a_line(table):
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join(lines[: len(lines) // 2]))


def series_beside(table):
    return next(table.parent.glob("*_stat-mean_timeseries.tsv"))


HARMED = {
    "a folder is gone": (lambda table: shutil.rmtree(table.parents[1]), "is gone"),
    "a byte is changed": (change_a_byte, "is not of it"),
    "a table is gone": (Path.unlink, "is gone"),
    "half a table": (cut_at_a_line, "is cut short"),
    "half a series": (lambda table: os.truncate(series := series_beside(table), series.stat().st_size // 2), "is cut"),
}


@pytest.mark.parametrize("kind", HARMED)
def test_who_is_missing_is_said_before_the_tables(kind, troubled_demo, troubled):
    harm, said = HARMED[kind]
    path = next(troubled.glob("sub-02/ses-a/**/*_stat-pearsoncorrelation_relmat.tsv"))
    whole = path.read_bytes()
    harm(path)
    found = run(troubled_demo[0], troubled, "group", "--analyses", "check", "--min-time", "0", code=0)
    lines = found.err.splitlines()
    missing = [line for line in lines if line.startswith("Left out: ") and "sub-02" in line]
    assert missing
    assert said in missing[0]
    assert lines.index(missing[0]) < next(number for number, line in enumerate(lines) if "Tables: " in line)
    assert run(troubled_demo[0], troubled, "participant", *ATLAS).code == 0
    assert path.read_bytes() == whole or kind == "a byte is changed"


@pytest.mark.parametrize("kind", ["a list of matrices", "a tree"])
def test_the_index_of_another_program_says_what_its_tables_say(kind, tmp_path):
    """Minutes and motion, no link to a page that is not there, and no blame for files that it never has."""
    if kind == "a tree":
        (tmp_path / "bids").mkdir()
        xcpd(tmp_path / "xcpd")
        source, minutes, motion = f"xcpd={tmp_path / 'xcpd'}", 70 * 2.0 / 60, 0.1
    else:
        source, minutes, motion = f"list={write_list(tmp_path, LABELS[:4])}", 5.0, 0.101
        store_matrices(tmp_path).assign(minutes="5").to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    words = ("group", "-d", source, "--analyses", "check", "--min-time", "0")
    assert run(tmp_path / "bids", tmp_path / "out", *words).code == 0
    first, *others = index_rows(tmp_path / "out")
    assert others
    assert float(first["values"][0]) == pytest.approx(minutes, abs=0.05)
    assert float(first["values"][2]) == pytest.approx(motion, abs=1e-3)
    assert all(row["page"] == "" and row["said"] == [] and row["state"] == "used" for row in (first, *others))


def test_a_report_of_results_that_are_not_there_is_refused(listed, tmp_path):
    folder = shutil.copytree(listed, tmp_path / "listed")
    (folder / "out" / "group").rename(folder / "out" / "before")
    (folder / "out" / "group").mkdir()
    (folder / "out" / "before").rename(folder / "out" / "group" / "other")
    found = run(folder / "bids", folder / "out", "group", "--reports-only", "--name", "nothere", code=2)
    assert "holds no results" in found.err
    assert "There are: other." in found.err


def test_two_ways_of_cleaning_make_no_cohort_and_no_pages_in_folders_that_are_joined(exact_demo, outputs, tmp_path):
    words = (*PLAINLY, "--participant-label", "02", "--fd-thresh", "5")
    assert run(exact_demo[0], tmp_path / "other", "participant", *words).code == 0
    for folder in ("sub-02", "logs/status"):
        shutil.copytree(tmp_path / "other" / folder, outputs / folder, dirs_exist_ok=True)
    assert run(exact_demo[0], outputs, "participant", *PLAINLY, "--reports-only").code == 2
    found = run(exact_demo[0], outputs, "group", "--analyses", "check", code=3)
    assert "were cleaned otherwise (--fd-thresh 0.0, now 5.0)" in found.err
    (outputs / "exclude.tsv").write_text("participant_id\n02\n")
    assert run(exact_demo[0], outputs, "group", "--analyses", "check").code == 0
