"""Which recordings are found and chosen, in which folders, and what is said of the others."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs.discover import (
    LONG_NAMES,
    apply_filters,
    find_recordings,
    note_unmatched,
    read_filter_file,
    read_filters,
)
from fcpower_bids.inputs.roots import derivative_root, raw_roots
from fcpower_bids.inputs.sources import read_source
from fcpower_bids.outputs.dataset import ENTITY_ORDER
from tests.planting.trees import MNI, N_VOLUMES, add_run, describe, func, put, settings, zipped


@pytest.fixture
def root(tmp_path):
    root = describe(tmp_path / "fmriprep")
    for run in ("sub-01_ses-a_task-rest_run-1", "sub-01_ses-b_task-rest_run-2", "sub-02_task-nback"):
        add_run(root, run)
    return root


def names(root, **choices):
    return [recording.name for recording in find_recordings(settings(root, **choices)).recordings]


def test_selection_reaches_the_query(root, tmp_path):
    assert names(root, participant_label=("sub-02",)) == [f"sub-02_task-nback_{MNI}"]
    assert names(root, session_label=("b",)) == [f"sub-01_ses-b_task-rest_run-2_{MNI}"]
    path = put(tmp_path / "filter.json", {"bold": {"session": None}})
    assert names(root, bids_filter_file=path) == [f"sub-02_task-nback_{MNI}"]


def test_nothing_left_says_which_filter_and_what_there_is(root):
    with pytest.raises(DatasetError, match=r"none of 3 passes --task-id rst.*task nback, rest"):
        names(root, task_id=("rst",))


def test_participants_asked_for_that_are_not_there(root):
    found = find_recordings(settings(root, participant_label=("02", "sub-09")))
    assert [dict(recording.entities)["sub"] for recording in found.recordings] == ["02"]
    (problem,) = found.problems
    assert (problem.recording, problem.kind) == ("sub-09", "failed")
    assert f"There is no sub-09 in {root}" in problem.sentence
    assert "There are 01, 02." in problem.sentence
    with pytest.raises(DatasetError, match=r"no sub-08 in .*no sub-09 in "):
        names(root, participant_label=("08", "09"))


def test_participants_without_series_are_skipped_or_failed_when_asked_for(root):
    (root / "sub-03" / "anat").mkdir(parents=True)
    (problem,) = find_recordings(settings(root)).problems
    assert (problem.recording, problem.kind) == ("sub-03", "skipped")
    assert "did fMRIPrep finish?" in problem.sentence
    (problem,) = find_recordings(settings(root, participant_label=("01", "03"))).problems
    assert (problem.recording, problem.kind) == ("sub-03", "failed")


def test_a_folder_without_permission_does_not_stop_the_others(root, monkeypatch):
    from fcpower_bids.inputs import sources

    closed = root / "sub-01" / "ses-b" / "func"
    monkeypatch.setattr(sources.os, "access", lambda path, mode: Path(path) != closed)
    found = find_recordings(settings(root))
    assert len(found.recordings) == 2
    (problem,) = found.problems
    assert problem.recording == "sub-01"
    assert f"{closed} may not be read" in problem.sentence


def test_a_name_that_no_output_could_have_does_not_stop_the_others(root):
    path = put(func(root, "sub-05_task-x") / "sub-05_task-re-st_desc-preproc_bold.nii.gz", zipped())
    found = find_recordings(settings(root, participant_label=("01", "05")))
    assert len(found.recordings) == 2
    assert any(str(path) in problem.sentence and problem.kind == "failed" for problem in found.problems)


def test_the_first_default_space_of_each_run_is_taken_with_all_resolutions(root):
    add_run(root, "sub-03_task-rest", f"{MNI}_res-1", f"{MNI}_res-2", "space-MNI152NLin6Asym", "space-T1w")
    found = find_recordings(settings(root, participant_label=("03",)))
    for label, recording in zip("12", found.recordings, strict=True):
        assert recording.name == f"sub-03_task-rest_{MNI}_res-{label}"
        assert recording.mask.name == f"sub-03_task-rest_{MNI}_res-{label}_desc-brain_mask.nii.gz"


def test_two_derivatives_are_refused_with_what_to_do(root, tmp_path):
    with pytest.raises(UsageError, match="group -d one=OUT1 two=OUT2"):
        find_recordings(settings(root, derivatives=(str(root), str(describe(tmp_path / "other")))))


ENTITIES = st.fixed_dictionaries(
    {"sub": st.sampled_from(["1", "01"])},
    optional={
        key: st.sampled_from(["1", "01", "a"])
        for key in ("ses", "acq", "ce", "rec", "dir", "run", "part", "res", "lab")
    },
)


@hypothesis.settings(deadline=None, derandomize=True, max_examples=10)
@hypothesis.given(st.lists(ENTITIES, min_size=1, max_size=4, unique_by=lambda labels: tuple(sorted(labels.items()))))
def test_no_two_inputs_share_a_name(runs):
    with tempfile.TemporaryDirectory() as folder:
        root = describe(Path(folder, "fmriprep"))
        for labels in runs:
            grid = f"{MNI}_res-{labels['res']}" if "res" in labels else MNI
            others = (f"_{key}-{label}" for key, label in labels.items() if key not in ("sub", "res"))
            run = f"sub-{labels['sub']}{''.join(others)}"
            add_run(root, f"{run}_task-rest", grid)
        found = find_recordings(settings(root)).recordings
    wanted = {frozenset({**labels, "task": "rest", "space": "MNI152NLin2009cAsym"}.items()) for labels in runs}
    assert {frozenset(recording.entities) for recording in found} == wanted
    assert len({recording.name for recording in found}) == len(runs)
    for recording in found:
        labels = dict(recording.entities)
        assert all(f"{key}-{label}" in recording.mask.name.split("_") for key, label in labels.items())
        own = {key: label for key, label in labels.items() if key not in ("space", "res")}
        assert recording.confounds.name.count("-") == len(own) + 1
        assert all(f"{key}-{label}" in recording.confounds.name.split("_") for key, label in own.items())


def test_single_echoes_are_noted_and_left_out(root):
    folder = func(root, "sub-02_task-nback")
    for echo in (1, 2, 3):
        put(folder / f"sub-02_task-nback_echo-{echo}_desc-preproc_bold.nii.gz", zipped())
    found = find_recordings(settings(root))
    assert len(found.recordings) == 3
    assert "echo-1" in found.notes[0]
    assert "and 2 more hold single echoes" in found.notes[0]
    (folder / f"sub-02_task-nback_{MNI}_desc-preproc_bold.nii.gz").unlink()
    with pytest.raises(DatasetError, match="single echoes of it and not their combination"):
        find_recordings(settings(root, task_id=("nback",)))


def test_an_echo_asked_for_shares_mask_and_confounds(root, tmp_path):
    folder = func(root, "sub-02_task-nback")
    put(folder / f"sub-02_task-nback_echo-2_{MNI}_desc-preproc_bold.nii.gz", zipped())
    path = put(tmp_path / "filter.json", {"bold": {"echo": 2}})
    (recording,) = find_recordings(settings(root, bids_filter_file=path)).recordings
    assert recording.name == f"sub-02_task-nback_echo-2_{MNI}"
    assert recording.mask == folder / f"sub-02_task-nback_{MNI}_desc-brain_mask.nii.gz"


@pytest.fixture
def raw(tmp_path):
    describe(tmp_path / "raw", "raw")
    describe(tmp_path / "raw" / "derivatives" / "fmriprep")
    return tmp_path / "raw"


def test_named_derivatives_win(raw, tmp_path):
    first, second = describe(tmp_path / "first"), describe(tmp_path / "sec=ond")
    assert derivative_root(settings(raw, derivatives=(f"mine={first}",))) == ("mine", first)
    assert derivative_root(settings(raw, derivatives=(str(second),))) == ("fmriprep", second)


def test_raw_data_alone_are_not_enough_and_a_description_is_needed(tmp_path):
    (tmp_path / "bare" / "sub-01").mkdir(parents=True)
    for root, words in ((describe(tmp_path / "raw", "raw"), "has no fMRIPrep"), (tmp_path / "bare", "_description")):
        with pytest.raises(DatasetError, match=words):
            derivative_root(settings(root))


def test_raw_datasets_around_the_derivatives(raw, tmp_path):
    root = raw / "derivatives" / "fmriprep"
    assert raw_roots(settings(raw), root) == (raw,)
    assert raw_roots(settings(root), root) == (raw,)
    elsewhere = describe(tmp_path / "elsewhere")
    assert raw_roots(settings(raw), elsewhere) == (raw,)
    assert raw_roots(settings(elsewhere), elsewhere) == ()


RUN = "sub-01_task-rest"
BOLD = f"{RUN}_{MNI}_desc-preproc_bold"


def test_a_sound_recording_has_no_problem(tmp_path):
    folder = add_run(describe(tmp_path / "fmriprep"), RUN)
    found = find_recordings(settings(tmp_path / "fmriprep"))
    assert (found.problems, found.notes) == ((), ())
    (first,) = found.recordings
    assert first.volumes == N_VOLUMES
    assert (first.bold, first.mask) == (folder / f"{BOLD}.nii.gz", folder / f"{RUN}_{MNI}_desc-brain_mask.nii.gz")
    assert first.confounds == folder / f"{RUN}_desc-confounds_timeseries.tsv"
    assert first.confounds_metadata == first.confounds.with_suffix(".json")
    assert first.repetition_time == 2.0
    assert first.name == f"{RUN}_{MNI}"


@pytest.mark.parametrize(
    ("header_tr", "stated", "expected"), [(2.0, None, 2.0), (0.0, 2.5, 2.5), (2.0, 2.015, 2.015), (2.0, "2.0", 2.0)]
)
def test_json_and_header_complete_each_other(tmp_path, header_tr, stated, expected):
    folder = add_run(describe(tmp_path / "fmriprep"), RUN, bold=zipped(header_tr=header_tr))
    put(folder / f"{BOLD}.json", {"RepetitionTime": stated})
    assert find_recordings(settings(tmp_path / "fmriprep")).recordings[0].repetition_time == expected


ROOT = Path("/data/fmriprep")
STEMS = ("sub-01_ses-a_task-rest_run-01", "sub-01_ses-b_task-rest_run-2", "sub-02_ses-a_task-nback_acq-hi")
STEMS += ("sub-03_task-rest",)
SERIES = [read_source(ROOT / f"{stem}_space-X_desc-preproc_bold.nii.gz", ROOT) for stem in STEMS]


@pytest.mark.parametrize(
    ("bold", "expected"),
    [
        ({"task": "rest"}, [0, 1, 3]),
        ({"session": ["a"]}, [0, 2]),
        ({"ses": ["a", None]}, [0, 2, 3]),
        ({"session": None}, [3]),
        ({"acquisition": "*"}, [2]),
        ({"acq": None, "run": "*"}, [0, 1]),
        ({"run": 1}, [0]),
        ({"run": ["01", "002"]}, [0, 1]),
        ({"datatype": "func", "suffix": "bold", "extension": ".nii.gz", "desc": "preproc"}, [0, 1, 2, 3]),
    ],
)
def test_filter_file_selects_as_fmriprep_does(tmp_path, bold, expected):
    path = tmp_path / "filter.json"
    path.write_text(json.dumps({"t1w": {"session": "z"}, "bold": bold}))
    for filters in (read_filter_file(path), read_filters(settings(ROOT, bids_filter_file=path))):
        assert apply_filters(SERIES, filters) == [SERIES[place] for place in expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "says nothing about BOLD"),
        ('{"bold": {"sesion": "a"}}', "'sesion', which is no BIDS entity. Entities are "),
        ('{"bold": {"task": {"a": 1}}}', "must give 'task' a label"),
    ],
)
def test_unusable_filter_file_is_a_usage_error(tmp_path, text, message):
    path = tmp_path / "filter.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        read_filter_file(path)
    assert str(path) in str(caught.value)


def test_long_names_are_those_of_the_specification():
    schema = pytest.importorskip("bidsschematools.schema").load_schema()
    entities = schema.objects.entities
    official = {name: entities[name].name for name in schema.rules.entities if entities[name].name != name}
    assert official == LONG_NAMES
    assert set(LONG_NAMES.values()) <= set(ENTITY_ORDER)


def test_labels_that_match_nothing_are_noted():
    filters = read_filters(settings(ROOT, task_id=("rest", "rst"), session_label=("a", "b")))
    (note,) = note_unmatched(SERIES, filters)
    assert note == "--task-id rst matches nothing; there are task nback, rest."
