from __future__ import annotations

import json
from pathlib import Path

import pytest

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs.discover import (
    LONG_NAMES,
    apply_filters,
    choose_spaces,
    drop_single_echoes,
    note_unmatched,
    read_filter_file,
    read_filters,
)
from fcpower_bids.inputs.sources import read_source
from fcpower_bids.outputs.names import ENTITY_ORDER
from tests.planting.trees import settings

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
    ("choices", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"participant_label": ("sub-01", "03")}, [0, 1, 3]),
        ({"session_label": ("ses-a",)}, [0, 2]),
        ({"session_label": ("a", "b"), "task_id": ("rest",)}, [0, 1]),
        ({"task_id": ("task-nback",)}, [2]),
    ],
)
def test_options_select(choices, expected):
    assert passing(read_filters(settings(ROOT, **choices))) == expected


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
        ('{"t1w": {}}', "says nothing about BOLD"),
        ('{"bold": ["rest"]}', "says nothing about BOLD"),
        ('{"bold": {"sesion": "a"}}', "'sesion', which is no BIDS entity. Did you mean 'session'?"),
        ('{"bold": {"xyzzy": "a"}}', "'xyzzy', which is no BIDS entity. Entities are sub,"),
        ('{"bold": {"task": {"a": 1}}}', "must give 'task' a label"),
        ('{"bold": {"task": []}}', "must give 'task' a label"),
    ],
)
def test_unusable_filter_file_is_a_usage_error(tmp_path, text, message):
    path = tmp_path / "filter.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        read_filter_file(path)
    assert str(path) in str(caught.value)


def test_missing_filter_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_filter_file(tmp_path / "none.json")


def test_long_names_are_those_of_the_specification():
    schema = pytest.importorskip("bidsschematools.schema").load_schema()
    entities = schema.objects.entities
    official = {name: entities[name].name for name in schema.rules.entities if entities[name].name != name}
    assert official == LONG_NAMES
    assert set(LONG_NAMES.values()) <= set(ENTITY_ORDER)


def test_a_filter_that_leaves_nothing_is_named_with_what_there_is():
    filters = read_filters(settings(ROOT, session_label=("a",), task_id=("rst",)))
    with pytest.raises(DatasetError) as caught:
        apply_filters(SERIES, filters)
    assert "none of 2 passes --task-id rst" in str(caught.value)
    assert "task nback, rest" in str(caught.value)


def test_labels_that_match_nothing_are_noted():
    filters = read_filters(settings(ROOT, task_id=("rest", "rst"), session_label=("a", "b")))
    (note,) = note_unmatched(SERIES, filters)
    assert note == "--task-id rst matches nothing; there are task nback, rest."


def test_default_space_is_the_first_of_the_list_in_each_run():
    series = sources(
        "sub-01_task-a_space-MNI152NLin6Asym",
        "sub-01_task-a_space-MNI152NLin2009cAsym_res-1",
        "sub-01_task-a_space-MNI152NLin2009cAsym_res-2",
        "sub-01_task-b_space-MNI152NLin6Asym",
        "sub-01_task-b_space-T1w",
        "sub-02_task-b_space-T1w",
        "sub-02_task-b",
    )
    notes = []
    chosen, missing = choose_spaces(series, (), notes)
    assert chosen == series[1:4]
    assert list(missing) == ["sub-02_task-b"]
    assert "in MNI152NLin2009cAsym or MNI152NLin6Asym or fsLR, only in T1w, scanner" in missing["sub-02_task-b"]
    assert "--output-spaces MNI152NLin2009cAsym" in missing["sub-02_task-b"]
    assert notes == [
        "sub-01_task-a: space MNI152NLin6Asym is there but not processed (--space MNI152NLin6Asym would).",
        "sub-01_task-b: space T1w is there but not processed (--space T1w would).",
    ]


def test_named_spaces_are_all_taken_and_a_run_that_lacks_one_is_told():
    series = sources("sub-01_task-a_space-X", "sub-01_task-a_space-Y", "sub-02_task-a_space-X", "sub-02_task-a_space-Z")
    notes = []
    chosen, missing = choose_spaces(series, ("X", "Y"), notes)
    assert chosen == series[:3]
    assert list(missing) == ["sub-02_task-a"]
    assert "sub-02_task-a in Y, only in X, Z" in missing["sub-02_task-a"]
    assert notes == ["sub-02_task-a: space Z is there but not processed (--space Z would)."]


def test_single_echoes_are_left_out_unless_asked_for(tmp_path):
    series = sources("sub-01_task-a_echo-1_space-X", "sub-01_task-a_echo-2_space-X", "sub-01_task-a_space-X")
    notes = []
    kept, alone = drop_single_echoes(series, (), notes)
    assert alone == []
    assert kept == series[2:]
    assert "echo-1" in notes[0]
    assert "and 1 more" in notes[0]
    path = tmp_path / "filter.json"
    path.write_text('{"bold": {"echo": 2}}')
    filters = read_filter_file(path)
    assert drop_single_echoes(apply_filters(series, filters), filters, []) == (series[1:2], [])
