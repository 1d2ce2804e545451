"""The files of the trees that are read: names, sidecars, folders, the kept index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bids.layout import BIDSLayout, BIDSLayoutIndexer
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.inputs import sources
from fcpower_bids.inputs.sources import (
    EXTENSIONS,
    SUFFIXES,
    Sidecars,
    hcp_sources,
    list_files,
    list_func_folders,
    read_source,
)
from fcpower_bids.outputs.dataset import ENTITY_ORDER
from tests.planting.trees import add_run, describe, put

ROOT = Path("/data/fmriprep")


def read(name, root=ROOT):
    return read_source(root / "sub-01" / "func" / name, root)


@pytest.mark.parametrize(
    ("name", "kind", "entities"),
    [
        ("sub-01_task-rest_space-X_res-2_desc-preproc_bold.nii.gz", "bold", "sub-01_task-rest_space-X_res-2"),
        ("sub-01_task-rest_desc-preproc_bold.nii.gz", "bold", "sub-01_task-rest"),
        ("sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii", "bold", "sub-01_task-rest_space-fsLR_den-91k"),
        ("sub-01_task-rest_bold.dtseries.nii", "bold", "sub-01_task-rest_space-fsLR"),
        ("sub-01_task-rest_space-X_desc-brain_mask.nii.gz", "mask", "sub-01_task-rest_space-X"),
        ("sub-01_task-rest_desc-confounds_timeseries.tsv", "confounds", "sub-01_task-rest"),
        ("sub-01_task-rest_desc-confounds_regressors.tsv", "confounds", "sub-01_task-rest"),
        ("sub-01_dir-AP_task-rest_lab-b_desc-preproc_bold.nii.gz", "bold", "sub-01_task-rest_dir-AP_lab-b"),
        ("sub-01_task-rest_bold.nii.gz", None, ""),
        ("sub-01_task-rest_space-X_boldref.nii.gz", None, ""),
        ("sub-01_task-rest_space-X_desc-smoothAROMAnonaggr_bold.nii.gz", None, ""),
        ("sub-01_task-rest_bold_space-X_preproc.nii.gz", None, ""),
        ("sub-01_task-rest_space-fsLR_desc-denoised_bold.dtseries.nii", None, ""),
        ("sub-01_task-rest_desc-preproc_bold.json", None, ""),
        ("task-rest_desc-preproc_bold.nii.gz", None, ""),
        ("notes_timeseries.tsv", None, ""),
    ],
)
def test_names_of_all_versions_of_fmriprep_are_taken_and_others_are_not(name, kind, entities):
    source = read(name)
    assert (source and (source.kind, source.name)) == (kind and (kind, entities))


KEYS = st.sampled_from([key for key in ENTITY_ORDER if key not in ("sub", "desc")] + ["lab", "zz"])
LABELS = st.text("abXY0123", min_size=1, max_size=4)


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(KEYS, LABELS, max_size=8), st.randoms(use_true_random=False))
def test_no_entity_is_lost_whatever_their_order(labels, random):
    shuffled = list(labels.items())
    random.shuffle(shuffled)
    middle = "".join(f"{key}-{label}_" for key, label in shuffled)
    source = read(f"sub-01_{middle}desc-preproc_bold.nii.gz")
    assert source.labels == {"sub": "01", **labels}
    known = [key for key, _ in source.entities if key in ENTITY_ORDER]
    assert known == [key for key in ENTITY_ORDER if key in source.labels]


@pytest.fixture
def root(tmp_path):
    return tmp_path / "raw" / "derivatives" / "fmriprep"


def series(root):
    name = "sub-01_ses-a_task-rest_run-1_space-X_desc-preproc_bold.nii.gz"
    return read_source(root / "sub-01" / "ses-a" / "func" / name, root)


@pytest.mark.parametrize(
    ("name", "applies"),
    [
        ("bold.json", True),
        ("task-rest_bold.json", True),
        ("task-rest_run-1_space-X_desc-preproc_bold.json", True),
        ("sub-01/sub-01_task-rest_bold.json", True),
        ("sub-01/ses-a/sub-01_ses-a_bold.json", True),
        ("sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_space-X_desc-preproc_bold.json", True),
        ("../../task-rest_bold.json", True),
        ("../../sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_bold.json", True),
        ("task-nback_bold.json", False),
        ("task-rest_run-2_bold.json", False),
        ("task-rest_events.json", False),
        ("sub-01/sub-01_task-rest_space-Y_bold.json", False),
        ("sub-02/sub-02_task-rest_bold.json", False),
        ("sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_desc-confounds_timeseries.json", False),
    ],
)
def test_json_files_are_inherited_from_every_level_and_those_of_others_do_not_apply(root, name, applies):
    path = put(root / name, {"RepetitionTime": 1.5}).resolve()
    stated = Sidecars((root.parents[1],)).stated(series(root), "RepetitionTime")
    assert {source.resolve(): value for source, value in stated.items()} == ({path: 1.5} if applies else {})


def test_the_nearest_and_most_specific_file_wins_and_null_says_nothing(root):
    raw = root.parents[1]
    order = [
        raw / "task-rest_bold.json",
        raw / "sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_bold.json",
        root / "bold.json",
        root / "task-rest_bold.json",
        root / "sub-01/ses-a/sub-01_ses-a_bold.json",
    ]
    for value, path in enumerate(order):
        put(path, {"RepetitionTime": value + 1.0})
        stated = Sidecars((raw,)).stated(series(root), "RepetitionTime")
        assert list(stated.items())[-1] == (path, value + 1.0)
    put(root / "sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_bold.json", {"RepetitionTime": None})
    stated = Sidecars((raw,)).stated(series(root), "RepetitionTime")
    assert list(stated.items())[-1] == (order[-1], 5.0)


@pytest.fixture
def tree(tmp_path):
    tree = describe(tmp_path / "fmriprep")
    add_run(tree, "sub-01_ses-a_task-rest_acq-x_dir-AP_run-01", "space-T1w", "space-MNI152NLin2009cAsym_res-2")
    add_run(tree, "sub-01_ses-b_task-rest", "space-MNI152NLin2009cAsym_res-2")
    folder = add_run(tree, "sub-02_task-nback_rec-1_run-2", "")
    put(folder / "sub-02_task-nback_rec-1_run-2_space-fsLR_den-91k_bold.dtseries.nii", b"")
    put(tree / "sub-02" / "anat" / "sub-02_desc-brain_mask.nii.gz", b"")
    put(tree / "sub-02" / "figures" / "sub-02_task-nback_bold.svg", b"")
    put(tree / "sub-02.html", b"")
    return tree


def test_the_same_files_are_found_as_by_an_index_of_everything(tree):
    whole = BIDSLayout(
        tree, validate=False, is_derivative=True, indexer=BIDSLayoutIndexer(validate=False, index_metadata=False)
    )
    found = whole.get(suffix=list(SUFFIXES), extension=list(EXTENSIONS), datatype="func", return_type="filename")
    assert len(found) == 12
    assert list(map(str, list_files(tree, None, ()))) == sorted(found)


def test_linked_folders_are_followed_and_hidden_copies_ignored(tree, tmp_path):
    linked = describe(tmp_path / "linked")
    (linked / "sub-02").symlink_to(tree / "sub-02")
    put(tree / "sub-02/func/._sub-02_task-nback_desc-preproc_bold.nii.gz", b"")
    assert list_func_folders(linked)[0] == (linked / "sub-02/func",)
    found = list_files(linked, None, ())
    assert all(path.name.startswith("sub-") for path in found)
    assert len(found) == 4


def test_a_kept_index_is_used_until_a_folder_changes(tree, tmp_path, monkeypatch):
    database = tmp_path / "database"
    fresh = list_files(tree, None, ())
    built, index = [], sources.replace_folder
    monkeypatch.setattr(sources, "replace_folder", lambda *arguments: (built.append(1), index(*arguments))[1])
    for _ in range(3):
        assert list_files(tree, None, (), database) == fresh
    assert built == [1]

    new = put(tree / "sub-02/func/sub-02_task-new_desc-preproc_bold.nii.gz", b"")
    os.utime(new.parent, ns=(1, 1))  # whatever the clock's resolution
    assert new in list_files(tree, None, (), database)
    new.unlink()
    assert new not in list_files(tree, None, (), database)
    assert len(built) == 3
    assert len(list(database.iterdir())) == 1, "stale and half-made indices are removed"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("1/MNINonLinear/Results/tfMRI_WM_RL/tfMRI_WM_RL.nii.gz", "sub-1_task-wm_dir-RL_space-MNI152NLin6Asym_res-2"),
        (
            "1/MNINonLinear/Results/rfMRI_REST2_7T_AP/rfMRI_REST2_7T_AP_Atlas.dtseries.nii",
            "sub-1_task-rest_acq-7T_dir-AP_run-2_space-fsLR_den-91k",
        ),
        (
            "sub-1/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR_Atlas_hp0_clean.dtseries.nii",
            "sub-1_task-rest_dir-LR_run-1_proc-fix_space-fsLR_den-91k",
        ),
    ],
)
def test_folders_become_entities(tmp_path, path, name):
    put(tmp_path / path, "x")
    assert [source.name for source in hcp_sources(tmp_path)] == [name]
    label = name.partition("_")[0].removeprefix("sub-")
    assert hcp_sources(tmp_path, {label})
    assert not hcp_sources(tmp_path, {"other"})
