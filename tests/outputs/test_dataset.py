"""The output as a dataset: whose it is, the names of its files, tables that are lossless and never half-written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs import dataset, tables
from fcpower_bids.outputs.dataset import copy_atlas, prepare_dataset
from fcpower_bids.records import Atlas, Output, Recording
from fcpower_bids.schema import Column, TableSpec
from fcpower_bids.settings import Settings
from tests.planting.trees import describe


@pytest.fixture
def chosen(tmp_path):
    return Settings(tmp_path / "in", tmp_path / "out", "participant")


def test_description_names_us_first_and_then_what_made_the_input(chosen):
    source = chosen.bids_dir
    source.mkdir()
    (source / "dataset_description.json").write_text('{"GeneratedBy": [{"Name": "fMRIPrep", "Version": "25.1.0"}]}')
    prepare_dataset(chosen, {"fmriprep": source})
    about = json.loads((chosen.output_dir / "dataset_description.json").read_text())
    assert [entry["Name"] for entry in about["GeneratedBy"]] == ["fcpower_bids", "fMRIPrep"]
    assert about["DatasetType"] == "derivative"
    assert about["DatasetLinks"] == {"fmriprep": "../in"}


def test_our_own_dataset_is_taken_again_and_another_is_refused(chosen):
    prepare_dataset(chosen, {})
    prepare_dataset(chosen, {})
    for content in ('{"GeneratedBy": "nonsense"}', "{half"):
        (chosen.output_dir / "dataset_description.json").write_text(content)
        with pytest.raises(UsageError, match="holds another dataset"):
            prepare_dataset(chosen, {})


def test_the_atlas_is_copied_once_with_its_table(tmp_path):
    atlas = builtin_atlas("MNI152NLin2009cAsym", tmp_path / "cache")
    copy = copy_atlas(tmp_path / "out", atlas)
    assert copy.read_bytes() == atlas.image.read_bytes()
    before = copy.stat().st_mtime_ns
    assert copy_atlas(tmp_path / "out", atlas) == copy
    assert copy.stat().st_mtime_ns == before
    lines = copy.with_name(copy.name.replace(".nii.gz", ".tsv")).read_text().splitlines()
    assert lines[0] == "index\tname\tnetwork\themisphere\tx\ty\tz"
    assert len(lines) == 61


def test_names_of_inputs_stay_what_they_were_for_outputs_that_are_there(chosen, tmp_path):
    """Else the sources of the first would lead into the second: both are called fmriprep."""
    one, two, three = (tmp_path / name / "fmriprep" for name in "abc")
    for place in (one, two, three):
        describe(place)
    assert prepare_dataset(chosen, {"fmriprep": one}) == {"fmriprep": one}
    assert prepare_dataset(chosen, {"fmriprep": two}) == {"fmriprep2": two}
    assert prepare_dataset(chosen, {"fmriprep": two}) == {"fmriprep2": two}
    assert prepare_dataset(chosen, {"mine": two, "fmriprep": three}) == {"fmriprep2": two, "fmriprep3": three}
    about = json.loads((chosen.output_dir / "dataset_description.json").read_text())
    links = {name: (chosen.output_dir / place).resolve() for name, place in about["DatasetLinks"].items()}
    assert links == {"fmriprep": one, "fmriprep2": two, "fmriprep3": three}
    two.rename(tmp_path / "moved")
    assert prepare_dataset(chosen, {"fmriprep2": tmp_path / "moved"}) == {"fmriprep2": tmp_path / "moved"}


NAMED = Atlas(
    (("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400")), Path("a.nii.gz"), "X", (1,), ("p",), ("n",), ("L",)
)
SOURCE_KEYS = [k for k in dataset.ENTITY_ORDER if k not in ("sub", "atlas", "seg", "scale", "stat", "desc", "tpl")]


def recording(**entities):
    return Recording(Path("b.nii.gz"), dataset.order_entities(tuple({"sub": "01", **entities}.items())), 2.0)


def test_order_follows_the_schema_that_the_validator_uses():
    schema = pytest.importorskip("bidsschematools.schema", reason="bidsschematools comes with pybids").load_schema()
    order = [schema.objects.entities[name].name for name in schema.rules.entities]
    ours = [key for key in dataset.ENTITY_ORDER if key != "stat"]
    assert ours == order


def test_the_name_of_the_specification():
    source = recording(ses="a", task="rest", space="MNI", res="2").entities
    path = dataset.path_of(Path("out"), source, NAMED.entities, dataset.CONNECTIVITY)
    assert path.as_posix() == (
        "out/sub-01/ses-a/func/sub-01_ses-a_task-rest_space-MNI_atlas-Schaefer2018_seg-7n_scale-400_res-2"
        "_stat-pearsoncorrelation_relmat.tsv"
    )


@hypothesis_settings(deadline=None, derandomize=True, max_examples=30)
@given(st.dictionaries(st.sampled_from(SOURCE_KEYS), st.text("abXY019", min_size=1, max_size=8), max_size=8))
def test_no_source_entity_is_lost(entities):
    power = Output("relmat", (("desc", "power0p35"),))
    name = dataset.path_of(Path("o"), recording(**entities).entities, NAMED.entities, power).name
    parsed, suffix, extension = dataset.parse_name(name)
    assert (suffix, extension) == ("relmat", ".tsv")
    assert {**entities, "sub": "01", "desc": "power0p35"}.items() <= dict(parsed).items()
    ranks = [dataset.ENTITY_ORDER.index(key) for key, _ in parsed]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("label", ["a_b", "a-b", "../x", "", "a b"])
def test_a_label_that_bids_forbids_is_refused(label):
    with pytest.raises(DatasetError, match="alphanumeric"):
        dataset.order_entities((("sub", "01"), ("task", label)))


@hypothesis_settings(deadline=None, derandomize=True, max_examples=50)
@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(allow_infinity=False)))
def test_matrix_round_trip_is_lossless(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("matrix") / "m.tsv"
    names = [f"p{i}" for i in range(values.shape[1])]
    tables.write_matrix(path, values, names)
    back, columns = tables.read_matrix(path)
    assert columns == names
    np.testing.assert_array_equal(back, values)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=50)
@given(
    arrays(np.float64, st.integers(1, 6).map(lambda n: (n, n)), elements=st.sampled_from([0.0, -0.0, np.nan, 0.1, 2]))
)
def test_a_symmetric_matrix_is_written_as_its_rows_are(tmp_path_factory, values):
    path, lower = tmp_path_factory.mktemp("matrix") / "m.tsv", np.tril_indices(len(values), -1)
    values[lower] = values.T[lower]
    names = [f"p{i}" for i in range(len(values))]
    rows = ["\t".join(tables._decimals([value]) for value in row) for row in values.tolist()]
    assert tables.write_matrix(path, values, names).read_text() == "\n".join(["\t".join(names), *rows, ""])
    values[0, -1] = 3.0  # no longer symmetric
    assert tables.write_matrix(path, values, names).read_text().split("\n")[1].endswith("3")


def test_json_has_no_nan_and_no_numpy(tmp_path):
    facts = {"a": np.nan, "b": np.arange(2), "c": (np.float64(0.5), np.bool_(True))}
    path = tables.write_json(tmp_path / "x.json", facts)
    assert json.loads(path.read_text()) == {"a": None, "b": [0, 1], "c": [0.5, True]}


def test_mixed_table_escapes_tabs_and_keeps_identifiers(tmp_path):
    frame = pd.DataFrame({"participant_id": ["sub-01"], "note": ["a\tb\nc"], "x": [0.1], "y": [None], "ok": [True]})
    path = tables.write_table(tmp_path / "x.tsv", frame)
    assert path.read_text() == "participant_id\tnote\tx\ty\tok\nsub-01\ta b c\t0.1\tn/a\ttrue\n"
    back = tables.read_table(path)
    assert back["x"][0] == 0.1
    assert back["participant_id"][0] == "sub-01"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff\xfe\x00bad", b"a\tb\n1\ttrue\n", b"a\tb\n1\t2\n3\n", b"a\tb\n1\t\n", b"a\tb\n\n1\t2\n"),
    ],
)
def test_a_table_that_is_not_numeric_is_named(tmp_path, content):
    path = tmp_path / "bad.tsv"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"bad\.tsv"):
        tables.read_matrix(path)


def test_a_long_table_is_written_block_by_block_and_whole_or_not_at_all(tmp_path):
    spec = TableSpec("toy", "", {"who": Column("who", "Person", "text"), "n": Column("n", "Number")})
    frame = pd.DataFrame({"who": ["a b", None, "c"], "n": [1.5, np.nan, 3.0]})
    expected = tables.write_table(tmp_path / "whole.tsv", frame, spec).read_bytes()
    plain, packed = tmp_path / "x.tsv", tmp_path / "x.tsv.gz"
    for path in (plain, packed):
        tables.write_table(path, iter([frame[:2], frame[2:]]), spec)
    assert plain.read_bytes() == gzip.decompress(packed.read_bytes()) == expected
    before = packed.read_bytes()
    assert tables.write_table(packed, iter([frame]), spec).read_bytes() == before
    with pytest.raises(TypeError, match="toy"):
        tables.write_table(packed, iter([frame, frame.assign(more=1)]), spec)
    assert packed.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"whole.tsv", "x.tsv", "x.tsv.gz"}


def test_an_array_whose_json_names_no_columns_is_refused_with_its_file(tmp_path):
    path = tables.write_array(tmp_path / "series.npy", np.zeros((5, 2)))
    tables.write_json(path.with_suffix(".json"), {"Units": "arbitrary"})
    with pytest.raises(DatasetError, match=r"series\.npy.*participant level"):
        tables.read_series(path)
