"""The output as a dataset: whose it is, where it came from, what it was made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.outputs.dataset import copy_atlas, prepare_dataset
from fcpower_bids.outputs.tables import read_table
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


def test_every_label_of_a_run_is_described_and_those_of_earlier_runs_stay(tmp_path):
    first = Settings(tmp_path, tmp_path / "out", "participant").changed(
        transforms=("power", "fisher_z", "partial_correlation")
    )
    prepare_dataset(first, {})
    prepare_dataset(first.changed(transforms=("degree",), encoder="brain-jepa"), {})
    table = read_table(tmp_path / "out" / "descriptions.tsv").set_index("desc_id")["description"]
    assert {"desc-power0p35", "desc-fisherz", "desc-degree", "desc-brainjepa", "desc-spectrum"} <= set(table.index)
    assert table.is_unique
    assert "brain-jepa" in table["desc-brainjepa"]


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
