"""CIFTI parcellation: against the same data in NIfTI, and with axes that must not be trusted."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
from nibabel.cifti2 import BrainModelAxis, Cifti2Image, LabelAxis, SeriesAxis

from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.labels import align_labels
from fcpower_bids.imaging.parcellation import parcellate
from fcpower_bids.records import Atlas

AFFINE = np.diag([2.0, 2, 2, 1])
SHAPE = (6, 5, 4)


def make_axis(left=range(0, 30), right=range(3, 28), n_vertices=32, volume=True) -> BrainModelAxis:
    axis = BrainModelAxis.from_surface(np.array(left), n_vertices, "CIFTI_STRUCTURE_CORTEX_LEFT")
    axis += BrainModelAxis.from_surface(np.array(right), n_vertices, "CIFTI_STRUCTURE_CORTEX_RIGHT")
    if volume:
        inside = np.zeros(SHAPE, bool)
        inside[1:4, 1:4, 1:3] = True
        axis += BrainModelAxis.from_mask(inside, "CIFTI_STRUCTURE_THALAMUS_LEFT", affine=AFFINE)
    return axis


def save_series(path: Path, data, axis, step=2.0, unit="SECOND") -> Path:
    nibabel.save(Cifti2Image(data, header=(SeriesAxis(0, step, len(data), unit=unit), axis)), path)
    return path


def save_labels(path: Path, rows, axis, tables=None) -> Path:
    rows = np.atleast_2d(rows)
    tables = tables or [{0: ("???", (0, 0, 0, 0))} | {k: (f"region{k}", (1, 0, 0, 1)) for k in range(1, 5)}] * len(rows)
    names = [f"map{i}" for i in range(len(rows))]
    nibabel.save(Cifti2Image(rows.astype(np.float32), header=(LabelAxis(names, tables), axis)), path)
    return path


def make_atlas(path: Path, space="fsLR", labels=(1, 2, 3, 4)) -> Atlas:
    blank = ("n/a",) * len(labels)
    return Atlas((("atlas", "Toy"),), path, space, labels, tuple(map(str, labels)), blank, blank)


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.fixture
def run(tmp_path, rng):
    axis = make_axis()
    data = rng.normal(100, 9, (7, len(axis))).astype(np.float32)
    labels = rng.integers(0, 5, len(axis))
    bold = save_series(tmp_path / "sub-1_space-fsLR_den-91k_bold.dtseries.nii", data, axis)
    return bold, make_atlas(save_labels(tmp_path / "toy.dlabel.nii", labels, axis)), data, labels, axis


def test_silent_and_broken_grayordinates_are_left_out(run):
    bold, atlas, data, labels, axis = run
    data = data.copy()
    data[:, labels == 3] = 55.0
    first, second = np.flatnonzero(labels == 1)[:2]
    data[4, first], data[:, second] = np.nan, np.inf
    save_series(bold, data, axis)
    (found,) = parcellate(bold, None, [atlas])
    np.testing.assert_array_equal(np.isnan(found.series).all(axis=0), [False, False, True, False])
    kept = (labels == 1) & ~np.isin(np.arange(len(labels)), [first, second])
    np.testing.assert_allclose(found.series[:, 0], data[:, kept].astype(float).mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(found.coverage, [kept.sum() / np.sum(labels == 1), 1, 0, 1])


def test_an_atlas_with_medial_wall_and_without_subcortex_is_matched_by_vertex(tmp_path, run, rng):
    """As published fs_LR 32k parcellations are: all vertices of both surfaces, no volume."""
    bold, _, data, _, axis = run
    whole = make_axis(range(32), range(32), volume=False)
    labels = rng.integers(1, 5, len(whole))
    atlas = make_atlas(save_labels(tmp_path / "whole.dlabel.nii", labels, whole))
    (found,) = parcellate(bold, None, [atlas])
    on_run = np.concatenate([labels[:30], labels[32 + 3 : 32 + 28], np.zeros(len(axis) - 55, int)])
    expected = np.stack([data[:, on_run == k].astype(float).mean(axis=1) for k in (1, 2, 3, 4)], axis=1)
    np.testing.assert_allclose(found.series, expected, rtol=1e-14)
    share = [np.sum(on_run == k) / np.sum(labels == k) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(found.coverage, share)


def test_equal_length_is_not_equal_order(rng):
    axis = make_axis(range(0, 30), range(0, 30), volume=False)
    shifted = make_axis(range(2, 32), range(2, 32), volume=False)
    labels = rng.integers(1, 9, 60)
    moved = align_labels(labels, axis, shifted)
    np.testing.assert_array_equal(moved[:28], labels[2:30])
    np.testing.assert_array_equal(moved[28:30], 0)


def test_kinds_do_not_mix(tmp_path, run):
    bold, atlas, *_ = run
    nibabel.save(nibabel.Nifti1Image(np.ones(SHAPE, np.int16), AFFINE), tmp_path / "toy.nii.gz")
    with pytest.raises(RecordingError, match="CIFTI but the atlas"):
        parcellate(bold, None, [make_atlas(tmp_path / "toy.nii.gz")])
    nibabel.save(nibabel.Nifti1Image(np.ones((*SHAPE, 3), np.float32), AFFINE), tmp_path / "bold.nii.gz")
    with pytest.raises(RecordingError, match="NIfTI but the atlas"):
        parcellate(tmp_path / "bold.nii.gz", None, [atlas])


def test_a_truncated_dtseries(run):
    bold, atlas, *_ = run
    bold.write_bytes(bold.read_bytes()[:-10])
    with pytest.raises(RecordingError, match="truncated"):
        parcellate(bold, None, [atlas])
