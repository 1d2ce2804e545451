from __future__ import annotations

import pytest

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs import roots
from fcpower_bids.inputs.roots import derivative_roots, raw_roots
from tests.planting.trees import describe, put, settings


@pytest.fixture
def raw(tmp_path):
    describe(tmp_path / "raw", "raw")
    describe(tmp_path / "raw" / "derivatives" / "fmriprep")
    return tmp_path / "raw"


def test_derivatives_of_a_raw_dataset_are_found(raw):
    assert derivative_roots(settings(raw)) == {"fmriprep": raw / "derivatives" / "fmriprep"}


def test_the_input_folder_may_be_the_derivatives(raw):
    root = raw / "derivatives" / "fmriprep"
    assert derivative_roots(settings(root)) == {"fmriprep": root}


def test_old_fmriprep_without_dataset_type_is_recognised(tmp_path):
    put(tmp_path / "old" / "dataset_description.json", {"Name": "x", "PipelineDescription": {"Name": "fMRIPrep"}})
    assert derivative_roots(settings(tmp_path / "old")) == {"fmriprep": tmp_path / "old"}


def test_named_derivatives_win(raw, tmp_path):
    first, second = describe(tmp_path / "first"), describe(tmp_path / "sec=ond")
    choices = settings(raw, derivatives=(f"mine={first}", str(second)))
    assert derivative_roots(choices) == {"mine": first, "fmriprep2": second}


def test_relative_paths_become_absolute(raw, monkeypatch):
    monkeypatch.chdir(raw)
    choices = settings(raw, derivatives=("derivatives/fmriprep",))
    assert derivative_roots(choices) == {"fmriprep": raw / "derivatives" / "fmriprep"}


def test_two_derivatives_of_one_name_are_a_usage_error(raw):
    with pytest.raises(UsageError, match="Two derivatives are called 'a'"):
        derivative_roots(settings(raw, derivatives=(f"a={raw}", f"a={raw}")))


def test_missing_folders_are_named(raw, tmp_path):
    with pytest.raises(DatasetError, match=r"nowhere does not exist"):
        derivative_roots(settings(tmp_path / "nowhere"))
    with pytest.raises(DatasetError, match=r"nothing does not exist"):
        derivative_roots(settings(raw, derivatives=(str(tmp_path / "nothing"),)))


@pytest.mark.parametrize("place", ["derivatives/fmriprep-23.1.3", "derivatives/fmriprep_1.0.0/fmriprep", "fmriprep"])
def test_raw_data_alone_are_not_enough_and_other_derivatives_are_offered(tmp_path, place):
    raw = describe(tmp_path / "raw", "raw")
    with pytest.raises(DatasetError, match="has no fMRIPrep derivatives"):
        derivative_roots(settings(raw))
    other = describe(raw / place)
    with pytest.raises(DatasetError) as caught:
        derivative_roots(settings(raw))
    assert f"There are {other}: name one with --derivatives." in str(caught.value)


def test_description_is_needed(tmp_path):
    root = tmp_path / "bare"
    (root / "sub-01").mkdir(parents=True)
    with pytest.raises(DatasetError, match=r"no dataset_description.json"):
        derivative_roots(settings(root))


def test_broken_description_is_named(tmp_path):
    put(tmp_path / "x" / "dataset_description.json", "{")
    with pytest.raises(DatasetError, match=r"dataset_description.json is not valid JSON"):
        derivative_roots(settings(tmp_path / "x"))


def test_folder_without_permission_is_named(raw, monkeypatch):
    monkeypatch.setattr(roots.os, "access", lambda path, mode: False)
    with pytest.raises(DatasetError, match="may not be read"):
        derivative_roots(settings(raw))


def test_raw_datasets_around_the_derivatives(raw, tmp_path):
    root = raw / "derivatives" / "fmriprep"
    assert raw_roots(settings(raw), (root,)) == (raw,)
    assert raw_roots(settings(root), (root,)) == (raw,)
    elsewhere = describe(tmp_path / "elsewhere")
    assert raw_roots(settings(raw), (elsewhere,)) == (raw,)
    assert raw_roots(settings(elsewhere), (elsewhere,)) == ()
