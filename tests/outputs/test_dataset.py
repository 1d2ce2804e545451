"""The output as a dataset: whose it is, where it came from, and the names of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs import names as paths
from fcpower_bids.outputs.dataset import copy_atlas, prepare_dataset
from fcpower_bids.records import Atlas, Output, Recording
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
    (chosen.output_dir / "dataset_description.json").write_text('{"GeneratedBy": "nonsense"}')
    with pytest.raises(UsageError, match="holds another dataset"):
        prepare_dataset(chosen, {})
    (chosen.output_dir / "dataset_description.json").write_text("{half")
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


def folder_of(uri: str, output: Path) -> Path:
    """Where a BIDS URI leads, by the links of the output."""
    _, name, path = uri.split(":", 2)
    links = json.loads((output / "dataset_description.json").read_text())["DatasetLinks"]
    return (output / links[name] / path).resolve()


def test_names_of_inputs_stay_what_they_were_for_outputs_that_are_there(chosen, tmp_path):
    """Else the sources of the first would lead into the second: both are called fmriprep."""
    one, two, three = (tmp_path / name / "fmriprep" for name in "abc")
    for place in (one, two, three):
        describe(place)
    assert prepare_dataset(chosen, {"fmriprep": one}) == {"fmriprep": one}
    assert prepare_dataset(chosen, {"fmriprep": two}) == {"fmriprep2": two}
    assert prepare_dataset(chosen, {"fmriprep": two, "fmriprep2": one}) == {"fmriprep2": two, "fmriprep": one}
    assert prepare_dataset(chosen, {"mine": two, "fmriprep2": three}) == {"mine": two, "fmriprep3": three}
    about = json.loads((chosen.output_dir / "dataset_description.json").read_text())
    links = {"fmriprep": one, "fmriprep2": two, "mine": two, "fmriprep3": three}
    assert {name: folder_of(f"bids:{name}:", chosen.output_dir) for name in about["DatasetLinks"]} == links
    two.rename(tmp_path / "moved")
    assert prepare_dataset(chosen, {"fmriprep2": tmp_path / "moved"}) == {"fmriprep2": tmp_path / "moved"}


NAMED = Atlas(
    (("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400")), Path("a.nii.gz"), "X", (1,), ("p",), ("n",), ("L",)
)
SOURCE_KEYS = [k for k in paths.ENTITY_ORDER if k not in ("sub", "atlas", "seg", "scale", "stat", "desc", "tpl")]


def recording(**entities):
    return Recording(Path("b.nii.gz"), paths.order_entities(tuple({"sub": "01", **entities}.items())), 2.0)


def test_order_follows_the_schema_that_the_validator_uses():
    schema = pytest.importorskip("bidsschematools.schema", reason="bidsschematools comes with pybids").load_schema()
    order = [schema.objects.entities[name].name for name in schema.rules.entities]
    ours = [key for key in paths.ENTITY_ORDER if key != "stat"]
    assert ours == order


def test_the_name_of_the_specification():
    path = paths.output_path(
        Path("out"), recording(ses="a", task="rest", space="MNI", res="2"), paths.CONNECTIVITY, NAMED
    )
    assert path.as_posix() == (
        "out/sub-01/ses-a/func/sub-01_ses-a_task-rest_space-MNI_atlas-Schaefer2018_seg-7n_scale-400_res-2"
        "_stat-pearsoncorrelation_relmat.tsv"
    )


@hypothesis_settings(deadline=None, derandomize=True, max_examples=30)
@given(st.dictionaries(st.sampled_from(SOURCE_KEYS), st.text("abXY019", min_size=1, max_size=8), max_size=8))
def test_no_source_entity_is_lost(entities):
    name = paths.output_path(Path("o"), recording(**entities), Output("relmat", (("desc", "power0p35"),)), NAMED).name
    parsed, suffix, extension = paths.parse_name(name)
    assert (suffix, extension) == ("relmat", ".tsv")
    assert {**entities, "sub": "01", "desc": "power0p35"}.items() <= dict(parsed).items()
    ranks = [paths.ENTITY_ORDER.index(key) for key, _ in parsed]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("label", ["a_b", "a-b", "../x", "", "a b"])
def test_a_label_that_bids_forbids_is_refused(label):
    with pytest.raises(DatasetError, match="alphanumeric"):
        paths.order_entities((("sub", "01"), ("task", label)))
