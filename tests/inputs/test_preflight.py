"""Each thing that can be wrong with one recording; which recordings a filter file chooses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fcpower_bids.errors import UsageError
from fcpower_bids.inputs.discover import (
    LONG_NAMES,
    apply_filters,
    find_recordings,
    note_unmatched,
    read_filter_file,
    read_filters,
)
from fcpower_bids.inputs.sources import read_source
from fcpower_bids.outputs.dataset import ENTITY_ORDER
from tests.planting.trees import MNI, N_VOLUMES, add_run, describe, nifti, put, settings, zipped

RUN = "sub-01_task-rest"
BOLD = f"{RUN}_{MNI}_desc-preproc_bold.nii.gz"
SIDECAR = f"{RUN}_{MNI}_desc-preproc_bold.json"
MASK = f"{RUN}_{MNI}_desc-brain_mask.nii.gz"
CONFOUNDS = f"{RUN}_desc-confounds_timeseries.tsv"
ALL = {"bold", "mask", "confounds", "TR"}


@pytest.fixture
def root(tmp_path):
    root = describe(tmp_path / "fmriprep")
    add_run(root, "sub-02_task-rest")
    return root


@pytest.fixture
def folder(root):
    return add_run(root, RUN)


def the_problem(root):
    """The one problem there is; the other recording goes on."""
    found = find_recordings(settings(root))
    assert [dict(recording.entities)["sub"] for recording in found.recordings] == ["02"]
    (problem,) = found.problems
    assert (problem.recording, problem.kind) == (f"{RUN}_{MNI}", "failed")
    return problem


def test_a_sound_recording_has_no_problem(root, folder):
    found = find_recordings(settings(root))
    assert (len(found.recordings), found.problems, found.notes, found.volumes) == (2, (), (), (N_VOLUMES,) * 2)
    first = found.recordings[0]
    assert (first.bold, first.mask, first.confounds) == (folder / BOLD, folder / MASK, folder / CONFOUNDS)
    assert first.confounds_metadata == folder / f"{RUN}_desc-confounds_timeseries.json"
    assert first.sidecar == folder / SIDECAR
    assert first.repetition_time == 2.0
    assert first.name == f"{RUN}_{MNI}"


FAULTS = {
    "bold not gzip": (BOLD, nifti(), "is not gzip although its name says so", {"bold"}),
    "bold is a pointer": (BOLD, b"/annex/objects/MD5E-s1--a.nii.gz\n", "stands for content.*datalad", {"bold"}),
    "bold no image": (BOLD, gzip.compress(b"no image at all"), "cannot be read as an image", {"bold"}),
    "bold 3-D": (BOLD, zipped(0), "has shape .* four dimensions", {"bold"}),
    "bold of one volume": (BOLD, zipped(1), "holds a single volume", {"bold"}),
    "JSON broken": (SIDECAR, "{", f"{SIDECAR} is not valid JSON", {"TR"}),
    "TR in milliseconds": (SIDECAR, {"RepetitionTime": 2000}, "of 2000, which cannot be seconds.*milliseconds", {"TR"}),
    "TR not finite": (SIDECAR, '{"RepetitionTime": NaN}', "cannot be seconds", {"TR"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_sentence(root, folder, fault):
    name, content, sentence, wrong = FAULTS[fault]
    put(folder / name, content)
    problem = the_problem(root)
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(problem.sentence)
    assert str(folder) in problem.sentence
    assert ALL - set(problem.usable) - {"TR"} == wrong - {"TR"}
    assert ("TR" in problem.usable) == ("TR" not in wrong)


@pytest.mark.parametrize(
    ("header_tr", "stated", "expected"), [(2.0, None, 2.0), (0.0, 2.5, 2.5), (2.0, 2.015, 2.015), (2.0, "2.0", 2.0)]
)
def test_json_and_header_complete_each_other(root, header_tr, stated, expected):
    folder = add_run(root, RUN, bold=zipped(header_tr=header_tr))
    put(folder / SIDECAR, {"RepetitionTime": stated})
    assert find_recordings(settings(root)).recordings[0].repetition_time == expected


ROOT = Path("/data/fmriprep")


def sources(*stems):
    return [read_source(ROOT / f"{stem}_desc-preproc_bold.nii.gz", ROOT) for stem in stems]


SERIES = sources(
    "sub-01_ses-a_task-rest_run-01_space-X",
    "sub-01_ses-b_task-rest_run-2_space-X",
    "sub-02_ses-a_task-nback_acq-hi_space-X",
    "sub-03_task-rest_space-X",
)


def passing(filters):
    return [SERIES.index(one) for one in apply_filters(SERIES, filters)]


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
    assert passing(read_filter_file(path)) == expected
    assert passing(read_filters(settings(ROOT, bids_filter_file=path))) == expected


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
