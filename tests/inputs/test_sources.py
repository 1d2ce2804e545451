from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.sources import Sidecars, read_source
from fcpower_bids.outputs.names import ENTITY_ORDER
from tests.planting.trees import put

ROOT = Path("/data/fmriprep")


def read(name, root=ROOT):
    return read_source(root / "sub-01" / "func" / name, root)


@pytest.mark.parametrize(
    ("name", "kind", "entities"),
    [
        ("sub-01_task-rest_space-X_res-2_desc-preproc_bold.nii.gz", "bold", "sub-01_task-rest_space-X_res-2"),
        ("sub-01_task-rest_space-X_desc-preproc_bold.nii", "bold", "sub-01_task-rest_space-X"),
        ("sub-01_task-rest_desc-preproc_bold.nii.gz", "bold", "sub-01_task-rest"),
        ("sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii", "bold", "sub-01_task-rest_space-fsLR_den-91k"),
        ("sub-01_task-rest_space-fsLR_desc-preproc_bold.dtseries.nii", "bold", "sub-01_task-rest_space-fsLR"),
        ("sub-01_task-rest_bold.dtseries.nii", "bold", "sub-01_task-rest_space-fsLR"),
        ("sub-01_task-rest_space-X_desc-brain_mask.nii.gz", "mask", "sub-01_task-rest_space-X"),
        ("sub-01_task-rest_desc-confounds_timeseries.tsv", "confounds", "sub-01_task-rest"),
        ("sub-01_task-rest_desc-confounds_regressors.tsv", "confounds", "sub-01_task-rest"),
        ("sub-01_dir-AP_task-rest_lab-b_desc-preproc_bold.nii.gz", "bold", "sub-01_task-rest_dir-AP_lab-b"),
    ],
)
def test_names_of_all_versions_of_fmriprep(name, kind, entities):
    source = read(name)
    assert (source.kind, source.name) == (kind, entities)


@pytest.mark.parametrize(
    "name",
    [
        "sub-01_task-rest_bold.nii.gz",
        "sub-01_task-rest_space-X_boldref.nii.gz",
        "sub-01_task-rest_space-X_desc-smoothAROMAnonaggr_bold.nii.gz",
        "sub-01_task-rest_bold_space-X_preproc.nii.gz",
        "sub-01_task-rest_space-fsLR_desc-denoised_bold.dtseries.nii",
        "sub-01_task-rest_desc-aparcaseg_dseg.nii.gz",
        "sub-01_task-rest_atlas-x_timeseries.tsv",
        "sub-01_task-rest_desc-preproc_bold.json",
        "task-rest_desc-preproc_bold.nii.gz",
        "notes_timeseries.tsv",
    ],
)
def test_other_files_are_not_taken(name):
    assert read(name) is None


def test_a_label_that_no_output_could_hold_is_refused():
    with pytest.raises(DatasetError, match="re-st"):
        read("sub-01_task-re-st_desc-preproc_bold.nii.gz")


def test_the_run_is_the_name_without_the_grid():
    names = ["space-X_res-2_desc-preproc_bold.nii.gz", "space-fsLR_den-91k_bold.dtseries.nii", "desc-preproc_bold.nii"]
    assert {read(f"sub-01_task-rest_acq-b_{name}").run for name in names} == {
        (("sub", "01"), ("task", "rest"), ("acq", "b"))
    }


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
    "name",
    [
        "bold.json",
        "task-rest_bold.json",
        "task-rest_run-1_space-X_desc-preproc_bold.json",
        "sub-01/sub-01_task-rest_bold.json",
        "sub-01/ses-a/sub-01_ses-a_bold.json",
        "sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_space-X_desc-preproc_bold.json",
        "../../task-rest_bold.json",
        "../../sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_bold.json",
    ],
)
def test_json_files_are_inherited_from_every_level(root, name):
    path = put(root / name, {"RepetitionTime": 1.5})
    value, source = Sidecars((root.parents[1],)).lookup(series(root), "RepetitionTime")
    assert (value, source.resolve()) == (1.5, path.resolve())


@pytest.mark.parametrize(
    "name",
    [
        "task-nback_bold.json",
        "task-rest_run-2_bold.json",
        "task-rest_events.json",
        "sub-01/sub-01_task-rest_space-Y_bold.json",
        "sub-02/sub-02_task-rest_bold.json",
        "sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_desc-confounds_timeseries.json",
    ],
)
def test_json_files_of_others_do_not_apply(root, name):
    put(root / name, {"RepetitionTime": 1.5})
    assert Sidecars((root.parents[1],)).lookup(series(root), "RepetitionTime") == (None, None)


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
        assert Sidecars((raw,)).lookup(series(root), "RepetitionTime") == (value + 1.0, path)
    put(root / "sub-01/ses-a/func/sub-01_ses-a_task-rest_run-1_bold.json", {"RepetitionTime": None})
    assert Sidecars((raw,)).lookup(series(root), "RepetitionTime") == (5.0, order[-1])


def test_a_broken_json_file_is_named(root):
    put(root / "task-rest_bold.json", "{")
    with pytest.raises(DatasetError, match=r"task-rest_bold.json is not valid JSON"):
        Sidecars().lookup(series(root), "RepetitionTime")
