from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bids.layout import BIDSLayout, BIDSLayoutIndexer

from fcpower_bids.errors import UsageError
from fcpower_bids.inputs import sources
from fcpower_bids.inputs.sources import EXTENSIONS, SUFFIXES, list_files, list_func_folders
from tests.planting.trees import add_run, cifti, describe, put


@pytest.fixture
def root(tmp_path):
    root = describe(tmp_path / "fmriprep")
    add_run(root, "sub-01_ses-a_task-rest_acq-x_dir-AP_run-01", "space-T1w", "space-MNI152NLin2009cAsym_res-2")
    add_run(root, "sub-01_ses-b_task-rest", "space-MNI152NLin2009cAsym_res-2")
    folder = add_run(root, "sub-02_task-nback_rec-1_run-2", "")
    put(folder / "sub-02_task-nback_rec-1_run-2_space-fsLR_den-91k_bold.dtseries.nii", cifti())
    put(root / "sub-02" / "anat" / "sub-02_desc-brain_mask.nii.gz", b"")
    put(root / "sub-02" / "figures" / "sub-02_task-nback_bold.svg", b"")
    put(root / "sub-02.html", b"")
    return root


def indexed(root, database):
    return list_files(root, None, (), database)


def test_the_same_files_are_found_as_by_an_index_of_everything(root):
    whole = BIDSLayout(
        root, validate=False, is_derivative=True, indexer=BIDSLayoutIndexer(validate=False, index_metadata=False)
    )
    found = whole.get(suffix=list(SUFFIXES), extension=list(EXTENSIONS), datatype="func", return_type="filename")
    assert len(found) == 12
    assert list(map(str, list_files(root, None, ()))) == sorted(found)


def test_folders_of_nobody_who_is_wanted_are_not_opened(root, monkeypatch):
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path=".": (listed.append(str(path)), scandir(path))[1])
    assert len(list_files(root, {"02"}, ())) == 4
    assert {Path(path) for path in listed if path.startswith(str(root))} == {
        root,
        root / "sub-02",
        root / "sub-02/func",
    }


def test_linked_folders_are_followed_and_hidden_copies_ignored(root, tmp_path):
    linked = describe(tmp_path / "linked")
    (linked / "sub-02").symlink_to(root / "sub-02")
    put(root / "sub-02/func/._sub-02_task-nback_desc-preproc_bold.nii.gz", b"")
    assert list_func_folders(linked)[0] == (linked / "sub-02/func",)
    found = list_files(linked, None, ())
    assert all(path.name.startswith("sub-") for path in found)
    assert len(found) == 4


@pytest.mark.parametrize("inner", ["ses-b/func", "ses-b"])
def test_folders_without_permission_are_told(root, monkeypatch, inner):
    closed = root / "sub-01" / inner
    monkeypatch.setattr(sources.os, "access", lambda path, mode: Path(path) != closed)
    folders, told = list_func_folders(root)
    assert told == (closed,)
    assert folders == (root / "sub-01/ses-a/func", root / "sub-02/func")
    assert not [path for path in list_files(root, None, told) if path.is_relative_to(closed)]


def test_a_configuration_of_pybids_in_the_dataset_changes_nothing(root):
    found = list_files(root, None, ())
    put(root / "layout_config.json", b"{no json")
    put(root / "sub-01" / "layout_config.json", b'{"name": "x", "entities": [{"name": "suffix", "pattern": "(z)"}]}')
    assert list_files(root, None, ()) == found


def test_a_kept_index_that_is_damaged_is_made_anew_and_is_of_one_dataset(root, tmp_path):
    database = tmp_path / "database"
    found = indexed(root, database)
    (file,) = database.rglob("*.sqlite")
    file.write_bytes(file.read_bytes()[:5000])
    assert indexed(root, database) == found
    (manifest,) = database.glob("*/manifest.json")
    manifest.write_text("{")
    assert indexed(root, database) == found
    assert json.loads(manifest.read_text())["root"] == str(root)
    other = describe(tmp_path / "elsewhere" / "fmriprep")
    add_run(other, "sub-09_task-rest")
    for dataset in (other, root):
        assert all(path.is_relative_to(dataset) for path in indexed(dataset, database))


def test_a_kept_index_is_used_until_a_folder_changes(root, tmp_path, monkeypatch):
    database = tmp_path / "database"
    fresh = list_files(root, None, ())
    built, index = [], sources.replace_folder
    monkeypatch.setattr(sources, "replace_folder", lambda *arguments: (built.append(1), index(*arguments))[1])
    for _ in range(3):
        assert indexed(root, database) == fresh
    assert built == [1]

    new = put(root / "sub-02/func/sub-02_task-new_desc-preproc_bold.nii.gz", b"")
    os.utime(new.parent, ns=(1, 1))  # whatever the clock's resolution
    assert new in indexed(root, database)
    new.unlink()
    assert new not in indexed(root, database)
    assert len(built) == 3
    assert len(list(database.iterdir())) == 1, "stale and half-made indices are removed"


def test_jobs_at_once_make_one_index(root, tmp_path, monkeypatch):
    database, built, index = tmp_path / "database", [], sources.replace_folder

    def slow_index(*arguments):
        built.append(1)
        time.sleep(0.2)
        return index(*arguments)

    monkeypatch.setattr(sources, "replace_folder", slow_index)
    with ThreadPoolExecutor(2) as pool:
        found = [each.result() for each in [pool.submit(indexed, root, database) for _ in range(2)]]
    assert found == [list_files(root, None, ())] * 2
    assert len(built) == 1
    assert len(list(database.iterdir())) == 1


def test_a_folder_that_cannot_hold_the_index_is_a_usage_error(root, tmp_path):
    blocked = put(tmp_path / "file", b"")
    with pytest.raises(UsageError, match="--bids-database-dir"):
        indexed(root, blocked)


def test_an_unwanted_participant_may_be_closed(root, monkeypatch):
    monkeypatch.setattr(sources.os, "access", lambda path, mode: Path(path) != root / "sub-01")
    assert list_func_folders(root, {"02"}) == ((root / "sub-02/func",), ())
    assert list_func_folders(root) == ((root / "sub-02/func",), (root / "sub-01",))
