from __future__ import annotations

import json
from pathlib import Path

import pytest

from fcpower_bids.errors import UsageError
from fcpower_bids.inputs.discover import (
    LONG_NAMES,
    apply_filters,
    choose_spaces,
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


def test_named_spaces_are_all_taken_and_a_run_that_lacks_one_is_told():
    series = sources("sub-01_task-a_space-X", "sub-01_task-a_space-Y", "sub-02_task-a_space-X", "sub-02_task-a_space-Z")
    notes = []
    chosen, missing = choose_spaces(series, ("X", "Y"), notes)
    assert chosen == series[:3]
    assert list(missing) == ["sub-02_task-a"]
    assert "sub-02_task-a in Y, only in X, Z" in missing["sub-02_task-a"]
    assert notes == ["sub-02_task-a: space Z is there but not processed (--space Z would)."]
