"""A dataset is known by what it says of itself, not by the name of its folder."""

from __future__ import annotations

import json
import shutil

import pandas as pd

from fcpower_bids.inputs.roots import dataset_identity
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import PACKED, plant_outputs, run_pretrain


def describe(folder, **facts):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset_description.json").write_text(json.dumps(facts))
    return folder


def test_the_doi_comes_before_the_name_and_its_version_does_not_matter(tmp_path):
    dois = ("doi:10.18112/openneuro.ds000030.v1.0.0", "10.18112/openneuro.ds000030.v2.1.0")
    assert {dataset_identity(describe(tmp_path / str(i), Name="x", DatasetDOI=doi)) for i, doi in enumerate(dois)} == {
        "ds000030"
    }
    one = describe(tmp_path / "zenodo", DatasetDOI="https://doi.org/10.5281/Zenodo.12")
    assert dataset_identity(one) == "10.5281-zenodo.12"


def test_a_name_of_two_datasets_is_told_apart_by_what_describes_them(tmp_path):
    one = describe(tmp_path / "a" / "fmriprep", Name="Study", Authors=["A"], BIDSVersion="1.6.0")
    again = describe(tmp_path / "b" / "renamed", Name="Study", Authors=["A"], BIDSVersion="1.9.0")
    other = describe(tmp_path / "c" / "fmriprep", Name="Study", Authors=["B"], BIDSVersion="1.6.0")
    assert dataset_identity(one) == dataset_identity(again) != dataset_identity(other)
    assert dataset_identity(one).startswith("Study-")


def test_a_derivative_is_known_by_the_dataset_it_was_made_of(tmp_path):
    raw = describe(tmp_path / "study", Name="Study")
    inside = describe(raw / "derivatives" / "fmriprep", Name="fMRIPrep", DatasetType="derivative")
    assert dataset_identity(inside) == dataset_identity(raw)
    sources = [{"DOI": "doi:10.18112/openneuro.ds000030.v1.0.0"}]
    assert dataset_identity(describe(tmp_path / "apart", Name="fMRIPrep", SourceDatasets=sources)) == "ds000030"


def two_studies(tmp_path, description):
    """Two datasets with the same labels in folders of one name, and other scans."""
    for seed, place in enumerate(("one", "two")):
        plant_outputs(tmp_path / place, made_recordings(people=3, sessions=1, seed=seed))
        describe(tmp_path / place / "bids", **(description | {"Authors": [place]}))
    return str(tmp_path / "corpus")


def packed(corpus):
    return pd.read_csv(f"{corpus}/recordings.tsv", sep="\t")["dataset"].value_counts().tolist()


def pack(folder, corpus, *options):
    return run_pretrain(folder, "--corpus", corpus, *options, quick=PACKED)


def test_two_datasets_with_one_folder_name_are_packed_beside_each_other(tmp_path):
    corpus = two_studies(tmp_path, {"Name": "Study"})
    assert pack(tmp_path / "one", corpus) == pack(tmp_path / "two", corpus) == 0
    assert packed(corpus) == [3, 3]
    shutil.move(tmp_path / "one" / "bids", tmp_path / "one" / "renamed")
    shutil.copytree(tmp_path / "one" / "renamed", tmp_path / "one" / "bids")
    assert pack(tmp_path / "one", corpus) == 0
    assert packed(corpus) == [3, 3]


def test_a_recording_of_other_outputs_is_never_replaced(tmp_path, capsys):
    corpus = two_studies(tmp_path, {"DatasetDOI": "10.1/x"})
    assert pack(tmp_path / "one", corpus) == 0
    before = pd.read_csv(f"{corpus}/recordings.tsv", sep="\t")
    assert pack(tmp_path / "two", corpus) == 2
    assert "name this one (dataset_name in a file)" in capsys.readouterr().err
    pd.testing.assert_frame_equal(pd.read_csv(f"{corpus}/recordings.tsv", sep="\t"), before)
    assert pack(tmp_path / "two", corpus, "--dataset-name", "second") == 0
    assert packed(corpus) == [3, 3]


def test_a_dataset_that_says_nothing_of_itself_has_to_be_named(tmp_path, capsys):
    plant_outputs(tmp_path, made_recordings(people=3, sessions=1))
    describe(tmp_path / "bids")
    assert pack(tmp_path, str(tmp_path / "corpus")) == 2
    assert "Name it by dataset_name in a file." in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()
    assert pack(tmp_path, str(tmp_path / "corpus"), "--dataset-name", "mine") == 0
    assert packed(tmp_path / "corpus") == [3]


def test_the_name_that_a_program_gives_to_all_of_its_outputs_names_no_dataset(tmp_path):
    about = {"Name": "fMRIPrep - fMRI PREProcessing workflow", "DatasetType": "derivative"}
    for place, made_by in (("a", [{"Name": "fMRIPrep"}]), ("b", None)):
        assert dataset_identity(describe(tmp_path / place, **about, GeneratedBy=made_by)) == ""
    assert dataset_identity(describe(tmp_path / "c", Name="XCP-D output", GeneratedBy=[{"Name": "xcp_d"}])) == ""
    assert dataset_identity(describe(tmp_path / "d", Name="Our study", GeneratedBy=[{"Name": "xcp_d"}])) != ""
