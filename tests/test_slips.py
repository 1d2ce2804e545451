"""Mistakes of ours, planted: each ends with a code that is not 0, says so, keeps the traceback, and blames no data."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_table, write_table
from fcpower_bids.workflows import recording
from tests.planting.participant_outputs import make_outputs
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import plant_outputs, run_pretrain
from tests.running import run, run_app, run_group

assert recording, "all names of the steps are bound before one of them is replaced"
IN_PROCESS = ("--atlas", "builtin", "--participant-label", "01", "--session-label", "a", "--nprocs", "1", "--quiet")
"""One recording of the demo; its steps run in this process, where the mistake is planted."""
GROUP = ("--folds", "3", "--inner-folds", "2", "--repeats", "1", "--min-time", "60")
GROUP += ("--nprocs", "1", "--targets", "age")


def raising(error: Exception):
    def slip(*arguments, **options):
        raise error

    return slip


def shape_slip(*arguments, **options):
    """A product of matrices that do not fit: numpy's own ValueError."""
    return np.ones((3, 4)) @ np.ones((3, 4))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slips")
    make_dataset(folder / "in", DemoDesign.tiny(subjects=1, sessions=1))
    (folder / "plugin.yml").write_text("plugin: Linear\n")
    return folder


# Where a mistake is planted, what it is, and the name of the error in the traceback.
STEPS = {
    "parcellation": ("fcpower_bids.interfaces.nodes.parcellate", raising(KeyError("label")), "KeyError"),
    "cleaning": ("fcpower_bids.imaging.cleaning.clean_series", shape_slip, "ValueError"),
    "shape of FC": (
        "fcpower_bids.transforms.connectomes.pearson_connectivity",
        lambda series: np.ones((3, 4)),
        "ValueError",
    ),
}


@pytest.mark.parametrize("place", STEPS)
def test_a_slip_in_a_step_fails_the_recording_and_is_called_ours(demo, tmp_path, monkeypatch, place):
    target, slip, error = STEPS[place]
    monkeypatch.setattr(target, slip)
    found = run_app(demo / "in", tmp_path / "out", *IN_PROCESS, "--use-plugin", demo / "plugin.yml", code=5)
    ((name, state),) = found.states().items()
    assert state == "failed"
    assert found.reason(name).startswith("Internal error, please report it with logs/crashes/")
    traced = found.output / found.reason(name).split(" with ")[1].split(" (")[0]
    assert error in traced.read_text()
    assert not list(found.output.rglob("*relmat.tsv"))


@pytest.fixture(scope="module")
def processed(demo):
    found = run_app(demo / "in", demo / "out", *IN_PROCESS, code=0)
    return found.output


PAGES = {
    "brain": ("fcpower_bids.reports.panels.draw_brain", raising(IndexError("slice 7")), "IndexError"),
    "verdict": ("fcpower_bids.reports.person.judge", raising(AttributeError("no row")), "AttributeError"),
}


@pytest.mark.parametrize("place", PAGES)
def test_a_slip_on_a_page_of_a_participant_is_said_and_fails_the_command(demo, processed, monkeypatch, place):
    target, slip, error = PAGES[place]
    monkeypatch.setattr(target, slip)
    # Pages are made in processes of their own, which may know nothing of what is planted here.
    run_calls = "fcpower_bids.workflows.participant.run_calls"
    monkeypatch.setattr(run_calls, lambda function, calls, *_: (function(*each) for each in calls))
    found = run_app(demo / "in", processed, *IN_PROCESS, "--reports-only", code=4)
    assert "Internal error, please report it with logs/crashes/sub-01" in found.err
    assert set(found.states().values()) == {"done"}
    assert any(error in path.read_text() for path in (processed / "logs" / "crashes").glob("sub-01*.txt"))


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Eight people with two sessions who differ in motion: their outputs of the participant level."""
    return make_outputs(tmp_path_factory.mktemp("cohort"), people=8, fd_step=0.02)


def group(cohort, *options, code=0) -> str:
    """What is said on the terminal."""
    return run_group(cohort.bids_dir, cohort.output_dir, *GROUP, "--replace", *options, code=code).err


ANALYSES = {
    "prediction": ("fcpower_bids.core.nested.selection_scores", shape_slip, "ValueError"),
    "qc_fc": ("fcpower_bids.analyses.qc_fc.edge_distances", raising(TypeError("NoneType")), "TypeError"),
}


@pytest.mark.parametrize("place", ANALYSES)
def test_a_slip_in_an_analysis_is_not_left_out_and_the_others_are_done(cohort, monkeypatch, place):
    target, slip, error = ANALYSES[place]
    monkeypatch.setattr(target, slip)
    folder = cohort.output_dir / "group"
    (folder / "analyses.json").unlink(missing_ok=True)
    err = group(cohort, code=4)
    table = read_table(folder / "left_out.tsv").set_index("analysis")
    assert table["state"].to_dict() == {place: "failed"}
    said = f"Internal error, please report it with logs/crashes/group_{place}.txt"
    assert table.loc[place, "reason"].startswith(said)
    assert error in (cohort.output_dir / "logs" / "crashes" / f"group_{place}.txt").read_text()
    assert f"fcpower_bids: {place}: Internal error" in err
    assert "Traceback" not in err
    assert "group.html" in err
    page = (cohort.output_dir / "group.html").read_text()
    assert "1 failed" in page
    assert f"logs/crashes/group_{place}.txt" in page


def test_a_slip_in_the_decisions_ends_the_command(cohort, monkeypatch):
    monkeypatch.setattr("fcpower_bids.cohort.recordings.decisions_of", raising(TypeError("None")))
    assert "internal error (TypeError('None')); please report it" in group(cohort, code=1)


def test_a_slip_on_the_page_of_the_cohort_is_said_and_fails_the_command(cohort, monkeypatch):
    group(cohort)
    monkeypatch.setattr("fcpower_bids.reports.cohort.page.find_targets", raising(TypeError("unsupported operand")))
    told = group(cohort, "--reports-only", code=5)
    assert "Internal error, please report it with logs/crashes/group_page.txt" in told


def test_a_slip_in_a_prediction_for_new_scans_blames_no_scan(cohort, monkeypatch):
    group(cohort, "--save-models", "--any-skill")
    model = next((cohort.output_dir / "group" / "models").glob("*_model"))
    for path in cohort.output_dir.rglob("*_qc.tsv"):  # sound, so that the slip is reached
        write_table(path, read_table(path).assign(volumes=40, dummy_volumes=0, censored_volumes=0))
    monkeypatch.setattr("fcpower_bids.clinic.predict.predict_from_arrays", shape_slip)
    told = run("predict", model, cohort.output_dir, code=5).out
    assert "Internal error, please report it with logs/crashes/predict_sub-" in told
    assert "(ValueError: matmul" in told
    (table,) = (cohort.output_dir / "group" / "predicted").glob("target-*[!e].tsv")
    assert set(read_table(table)["state"]) == {"failed"}


def test_a_slip_in_the_pretraining_ends_the_command(tmp_path, monkeypatch):
    plant_outputs(tmp_path, made_recordings())
    monkeypatch.setattr("fcpower_bids.pretrain.packing._Pack.add", raising(KeyError("T")))
    assert "please report it" in run_pretrain(tmp_path, code=1).err


def test_settings_of_others_that_do_not_work_are_a_matter_of_their_file(exact_demo, tmp_path):
    file = tmp_path / "how.yml"
    for content in ("plugin: Nonsense\n", "plugin: MultiProc\nplugin_args: {n_procs: many}\n"):
        file.write_text(content)
        found = run_app(exact_demo[0], tmp_path / "out", "--atlas", "builtin", "--use-plugin", file, code=2)
        assert str(file) in found.err
        assert "Traceback" not in found.err
