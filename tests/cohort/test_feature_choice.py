"""Which connectomes make up the cohort; what the user must choose is asked in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fcpower_bids.cohort.feature_choice import check_alike, choose_connectomes
from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Settings
from tests.planting.participant_outputs import add_output, other_atlas, series_of


def choose(out: Path, **choices):
    settings = Settings(out / "bids", out, "group", **choices)
    chosen, notes = choose_connectomes(list_connectomes(out), settings)
    return [one.recording.replace("_space-MNI152NLin2009cAsym", "") for one in chosen], notes


def add(out: Path, *names: str, **choices):
    for number, name in enumerate(names):
        add_output(out, name, series_of(number), **choices)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"participant_label": ("sub-02",)}, {"sub-02_ses-a_task-rest_run-1"}),
        ({"session_label": ("b",)}, {"sub-01_ses-b_task-rest_run-1"}),
        ({"task_id": ("task-rest",), "participant_label": ("02",)}, {"sub-02_ses-a_task-rest_run-1"}),
    ],
)
def test_the_selection_of_the_participant_level_applies(tmp_path, choices, expected):
    add(tmp_path, "sub-01_ses-a_run-1", "sub-01_ses-a_run-02", "sub-01_ses-b_run-1", "sub-02_ses-a_run-1")
    assert set(choose(tmp_path, **choices)[0]) == expected


def test_a_selection_without_match_is_told(tmp_path):
    add(tmp_path, "sub-01")
    with pytest.raises(DatasetError, match=r"--session-label"):
        choose(tmp_path, session_label=("b",))


def test_one_atlas_needs_no_choice_and_several_do(tmp_path):
    add(tmp_path, "sub-01", "sub-02")
    assert len(choose(tmp_path)[0]) == 2
    add(tmp_path, "sub-01", atlas=other_atlas())
    with pytest.raises(DatasetError, match=r"several atlases: atlas-Other_scale-6 \(1 rec.*--atlas"):
        choose(tmp_path)
    for spec in ("Toy", "atlas-Toy_scale-6", "Toy_scale-6", "some/toy.nii.gz"):
        chosen, notes = choose(tmp_path, atlas=(spec,))
        assert chosen == ["sub-01_task-rest", "sub-02_task-rest"]
        assert "atlas-Toy_scale-6" in notes[0]


def test_short_names_mean_what_they_mean_at_participant_level(tmp_path):
    schaefer = replace(other_atlas(), entities=(("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400")))
    larger = replace(other_atlas(), entities=(("atlas", "TianS3Schaefer2018"), ("seg", "7n"), ("scale", "450")))
    add(tmp_path, "sub-01", atlas=schaefer)
    add(tmp_path, "sub-01", "sub-02", atlas=larger)
    assert choose(tmp_path)[0] == ["sub-01_task-rest"], "Schaefer400 is the default of --atlas"


def test_an_atlas_that_is_not_there_is_told(tmp_path):
    add(tmp_path, "sub-01")
    with pytest.raises(DatasetError, match=r"no FC of --atlas Glasser, only of atlas-Toy"):
        choose(tmp_path, atlas=("Glasser",))


def test_several_spaces_need_a_choice(tmp_path):
    add(tmp_path, "sub-01", "sub-02_space-MNI152NLin6Asym")
    with pytest.raises(DatasetError, match=r"several spaces: .*--space"):
        choose(tmp_path)
    assert choose(tmp_path, space=("MNI152NLin6Asym",))[0] == ["sub-02_task-rest_space-MNI152NLin6Asym"]
    with pytest.raises(DatasetError, match=r"no FC in --space fsLR, only in"):
        choose(tmp_path, space=("fsLR",))


def test_several_tasks_need_a_choice(tmp_path):
    add(tmp_path, "sub-01", "sub-01_task-nback")
    with pytest.raises(DatasetError, match=r"several tasks: nback \(1 recordings\), rest .*--task-id"):
        choose(tmp_path)
    assert choose(tmp_path, task_id=("nback",))[0] == ["sub-01_task-nback"]
    both, notes = choose(tmp_path, task_id=("nback", "rest"))
    assert len(both) == 2
    assert "combined like runs" in notes[0]


def test_a_recording_without_a_run_in_its_name_is_one_of_them(tmp_path):
    add(tmp_path, "sub-01", "sub-01_run-2")
    chosen, notes = choose(tmp_path)
    assert sorted(chosen) == ["sub-01_task-rest", "sub-01_task-rest_run-2"]
    assert not notes


def test_two_versions_of_one_acquisition_are_not_two_runs(tmp_path):
    add(tmp_path, "sub-01_res-1", "sub-01_res-2")
    with pytest.raises(DatasetError, match=r"same acquisition and differ in res only"):
        choose(tmp_path)


def test_two_directions_are_two_runs(tmp_path):
    add(tmp_path, "sub-01_dir-AP", "sub-01_dir-PA")
    assert len(choose(tmp_path)[0]) == 2


def alike(out: Path) -> list[str]:
    return check_alike(list_connectomes(out))


def test_exponents_that_differ_between_people_are_an_error(tmp_path):
    add(tmp_path, "sub-01", power="power0p35")
    add(tmp_path, "sub-02", power="power0p5")
    with pytest.raises(DatasetError, match=r"exponents .* differ .*power0p35 \(1 recordings\), power0p5"):
        alike(tmp_path)
    add(tmp_path, "sub-02", power="power0p35")
    assert alike(tmp_path) == [], "an exponent that all have is enough"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"NuisanceStrategy": "36P"}, "confound strategy differs .*24P .*36P"),
        ({"SoftwareFilters": {"Butterworth": {"HighPassHz": 0.01, "LowPassHz": 0.1}}}, "pass-band .*0.08 .*0.1"),
    ],
)
def test_recordings_that_were_cleaned_otherwise_are_an_error(tmp_path, facts, words):
    add(tmp_path, "sub-01")
    add(tmp_path, "sub-02", **facts)
    with pytest.raises(DatasetError, match=words):
        alike(tmp_path)


def test_another_configuration_alone_is_a_note(tmp_path):
    add(tmp_path, "sub-01")
    add(tmp_path, "sub-02", ConfigurationHash="ffffffff")
    (note,) = alike(tmp_path)
    assert "0a0a0a0a (1 recordings), ffffffff (1 recordings)" in note


def test_another_file_of_the_same_atlas_is_noted(tmp_path):
    """One name, and parcels in another order or of another version."""
    add_output(tmp_path, "sub-01", series_of(0), Atlas={"Name": "atlas-Toy_scale-6", "Sha256": "a" * 64})
    add_output(tmp_path, "sub-02", series_of(1), Atlas={"Name": "atlas-Toy_scale-6", "Sha256": "b" * 64})
    (note,) = check_alike(list_connectomes(tmp_path))
    assert "made with 2 files of the atlas: aaaaaaaaaaaa (1 recordings), bbbbbbbbbbbb (1 recordings)" in note
