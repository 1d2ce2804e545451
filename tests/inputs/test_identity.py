"""Whose data these are: datasets by what they say, templates by their cohort, tables as people save them."""

from __future__ import annotations

import codecs
import io
import shutil
import unicodedata
import zipfile

import pandas as pd
import pytest

from fcpower_bids.encoders.checkpoints import ModelCard, find_in_training, people_digests
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.roots import dataset_identity, dataset_names
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.schema import read_spreadsheet
from tests.planting.trees import copy_builtin, put
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import PACKED, plant_outputs, run_pretrain
from tests.running import PLAIN, run_app


def describe(folder, **facts):
    return put(folder / "dataset_description.json", facts).parent


def test_the_doi_comes_before_the_name_and_its_version_does_not_matter(tmp_path):
    dois = ("doi:10.18112/openneuro.ds000030.v1.0.0", "10.18112/openneuro.ds000030.v2.1.0")
    found = {dataset_identity(describe(tmp_path / str(i), Name="x", DatasetDOI=doi)) for i, doi in enumerate(dois)}
    assert found == {"ds000030"}
    one = describe(tmp_path / "zenodo", DatasetDOI="https://doi.org/10.5281/Zenodo.12")
    assert dataset_identity(one) == "10.5281-zenodo.12"


def test_a_name_of_two_datasets_is_told_apart_by_what_describes_them(tmp_path):
    one = describe(tmp_path / "a" / "fmriprep", Name="Study", Authors=["A"], BIDSVersion="1.6.0")
    again = describe(tmp_path / "b" / "renamed", Name="Study", Authors=["A"], BIDSVersion="1.9.0", License="CC0")
    other = describe(tmp_path / "c" / "fmriprep", Name="Study", Authors=["B"], BIDSVersion="1.6.0")
    assert dataset_identity(one) == dataset_identity(again) != dataset_identity(other)
    assert dataset_identity(one).startswith("Study-")


def test_people_of_a_training_are_known_also_after_their_dataset_got_a_doi(tmp_path):
    about = {"Name": "Study", "Authors": ["A"]}
    before = dataset_identity(describe(tmp_path, **about))
    card = ModelCard(("P1",), corpus_sha256="x", trained_on=people_digests("x", [(before, "sub-01")]))
    names = dataset_names(describe(tmp_path, **about, DatasetDOI="10.5281/zenodo.12"))
    assert names.split() == ["10.5281-zenodo.12", before]
    assert find_in_training(card, names, "sub-01") == "trained"
    assert find_in_training(card, names, "sub-02") == "no"


def test_a_derivative_is_known_by_the_dataset_it_was_made_of(tmp_path):
    raw = describe(tmp_path / "study", Name="Study")
    inside = describe(raw / "derivatives" / "fmriprep", Name="fMRIPrep", DatasetType="derivative")
    assert dataset_identity(inside) == dataset_identity(raw)
    sources = [{"DOI": "doi:10.18112/openneuro.ds000030.v1.0.0"}]
    assert dataset_identity(describe(tmp_path / "apart", Name="fMRIPrep", SourceDatasets=sources)) == "ds000030"


def packed(corpus):
    return pd.read_csv(f"{corpus}/recordings.tsv", sep="\t")["dataset"].value_counts().tolist()


def pack(folder, corpus, code=0):
    return run_pretrain(folder, "--corpus", corpus, quick=PACKED, code=code)


def test_a_recording_of_other_outputs_is_never_replaced(tmp_path):
    """Of two datasets that say the same of themselves, with the same labels and other scans."""
    corpus = tmp_path / "corpus"
    for seed, place in enumerate(("one", "two")):
        plant_outputs(tmp_path / place, made_recordings(people=3, sessions=1, seed=seed))
        describe(tmp_path / place / "bids", DatasetDOI="10.1/x", Authors=[place])
    pack(tmp_path / "one", corpus)
    before = pd.read_csv(f"{corpus}/recordings.tsv", sep="\t")
    assert "give this one a DatasetDOI or a Name of its own" in pack(tmp_path / "two", corpus, code=2).err
    pd.testing.assert_frame_equal(pd.read_csv(f"{corpus}/recordings.tsv", sep="\t"), before)
    describe(tmp_path / "two" / "bids", DatasetDOI="10.1/y")
    pack(tmp_path / "two", corpus)
    assert packed(corpus) == [3, 3]


def test_a_dataset_that_says_nothing_of_itself_has_to_be_named(tmp_path):
    plant_outputs(tmp_path, made_recordings(people=3, sessions=1))
    describe(tmp_path / "bids")
    assert "Give it that file with a Name." in pack(tmp_path, tmp_path / "corpus", code=2).err
    assert not (tmp_path / "corpus").exists()
    describe(tmp_path / "bids", Name="Mine")
    pack(tmp_path, tmp_path / "corpus")
    assert packed(tmp_path / "corpus") == [3]


def test_the_name_that_a_program_gives_to_all_of_its_outputs_names_no_dataset(tmp_path):
    about = {"Name": "fMRIPrep - fMRI PREProcessing workflow", "DatasetType": "derivative"}
    for place, made_by in (("a", [{"Name": "fMRIPrep"}]), ("b", None)):
        assert dataset_identity(describe(tmp_path / place, **about, GeneratedBy=made_by)) == ""
    assert dataset_identity(describe(tmp_path / "c", Name="XCP-D output", GeneratedBy=[{"Name": "xcp_d"}])) == ""
    assert dataset_identity(describe(tmp_path / "d", Name="Our study", GeneratedBy=[{"Name": "xcp_d"}])) != ""


ONE = ("--participant-label", "01", "--session-label", "a")
THREE, FOUR = "MNIInfant_cohort-3", "MNIInfant_cohort-4"


def test_connectomes_of_one_age_are_those_of_the_same_voxels_elsewhere(exact_demo, exact_run, tmp_path):
    """The demo under NiBabies' names, and a folder with an atlas for two ages."""
    bids = shutil.copytree(exact_demo[0], tmp_path / "bids")
    for path in sorted(bids.rglob("*space-MNI152NLin2009cAsym*")):
        path.rename(path.with_name(path.name.replace("space-MNI152NLin2009cAsym", f"space-{THREE}")))
    for space in (THREE, FOUR):
        copy_builtin(tmp_path / "atlases" / f"tpl-{space}_atlas-Own_dseg")
    options = ("--atlas", "Own", "--atlas-dir", tmp_path / "atlases", "--space", "MNIInfant:cohort-3", *ONE, *PLAIN)
    found = run_app(tmp_path / "bids", tmp_path / "out", *options, code=0)
    (written,) = found.files("*cohort-3*space-MNIInfant*stat-pearsoncorrelation_relmat.tsv")
    matrix, parcels = read_matrix(written)
    expected, names = read_matrix(exact_run.file("sub-01_ses-a_task-rest_run-1", "pearsoncorrelation_relmat.tsv"))
    assert tuple(parcels) == tuple(names)
    assert (matrix == expected).all()
    (copy,) = (found.output / "sourcedata" / "atlases").glob("tpl-*")
    assert copy.name == f"tpl-{THREE}"


PLAIN_TABLE = "participant_id\tage\tplace\nsub-01\t20.5\tKöln\nsub-02\tn/a\tUlm\n"
CELLS = (("participant_id", "age", "place"), [["sub-01", "20.5", "Köln"], ["sub-02", "", "Ulm"]])
SAVED = {
    "tabs": PLAIN_TABLE,
    "commas": PLAIN_TABLE.replace("\t", ","),
    "semicolons": PLAIN_TABLE.replace("\t", ";"),
    "semicolons and decimal commas": PLAIN_TABLE.replace("\t", ";").replace("20.5", "20,5"),
    "quoted decimal commas": PLAIN_TABLE.replace("\t", ",").replace("20.5", '"20,5"'),
    "byte order mark": codecs.BOM_UTF8 + PLAIN_TABLE.encode(),
    "UTF-16": PLAIN_TABLE.encode("utf-16"),
    "UTF-16, big end first": codecs.BOM_UTF16_BE + PLAIN_TABLE.encode("utf-16-be"),
    "Latin-1": PLAIN_TABLE.encode("latin-1"),
    "Windows": PLAIN_TABLE.replace("\n", "\r\n"),
    "old Macintosh": PLAIN_TABLE.replace("\n", "\r"),
    "blanks": PLAIN_TABLE.replace("\t", " \t ").replace("\n", " \n"),
    "blank lines": "\n" + PLAIN_TABLE.replace("\n", "\n\n"),
    "a tab at the end of every line": PLAIN_TABLE.replace("\n", "\t\n"),
    "accents apart": unicodedata.normalize("NFD", PLAIN_TABLE),
    "invisible marks": PLAIN_TABLE.replace("sub-01", "sub-01\u200b").replace("age", "\u202aage\u202c"),
    "quotes": PLAIN_TABLE.replace("Köln", '"Köln"'),
}


def read(tmp_path, content: str | bytes, name="x.tsv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_spreadsheet(path)


@pytest.mark.parametrize("how", SAVED)
def test_the_same_cells_however_they_were_saved(tmp_path, how):
    found = read(tmp_path, SAVED[how])
    assert (found.names, found.rows) == CELLS


def workbook() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (PLAIN_TABLE.replace("Ulm", "Ulm\t"), "has 4 fields in line 3 where its header has 3"),
        (PLAIN_TABLE.replace("place", "age"), "has the column 'age' twice"),
        (PLAIN_TABLE.replace("20.5", "1,234"), "may be 1.234 or 1234"),
        (PLAIN_TABLE.replace("Köln", '"Köln'), "cannot be read as a table"),
        (workbook(), "Save its sheet as TSV or CSV"),
        (b"\x00\x01\x02\xff", "is no text"),
        (PLAIN_TABLE.encode("utf-16-le"), "UTF-16 that does not say so"),
        (PLAIN_TABLE.encode("utf-32"), "holds null bytes"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_read_in_one_way_is_named(tmp_path, content, words):
    with pytest.raises(DatasetError, match=words) as refused:
        read(tmp_path, content)
    assert "x.tsv" in str(refused.value)


def test_text_with_commas_stays_text(tmp_path):
    assert read(tmp_path, "participant_id\tcode\n1\t3,4\n2\ta\n").rows == [["1", "3,4"], ["2", "a"]]
