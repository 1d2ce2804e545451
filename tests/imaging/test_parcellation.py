"""Streaming parcellation of NIfTI and CIFTI: against closed forms, nilearn, real label images; and every damage."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.imaging import parcellation, streaming
from fcpower_bids.imaging.labels import resample_labels
from fcpower_bids.imaging.parcellation import parcellate
from fcpower_bids.imaging.streaming import MARGIN, N_SLICES, SETTLING, header_summary
from fcpower_bids.records import Atlas
from tests.planting.surfaces import cortex, grayordinates, save_dlabel, save_dtseries

SPACE = "MNI152NLin2009cAsym"
AFFINE = np.array([[2.0, 0, 0, -8], [0, 2, 0, -10], [0, 0, 2, -6], [0, 0, 0, 1]])
SHAPE = (8, 9, 7)


def save_image(path: Path, data, affine=AFFINE, tr=2.0, unit="sec", scaling=(None, None)) -> Path:
    image = nibabel.Nifti1Image(data, affine)
    if data.ndim == 4:
        image.header.set_zooms((*image.header.get_zooms()[:3], tr))
        image.header.set_xyzt_units("mm", unit)
    if scaling[0] is None:
        nibabel.save(image, path)
        return path
    # nibabel would choose its own scaling: write the header and the stored values as they are.
    header = image.header.as_byteswapped(">" if data.dtype.byteorder == ">" else "<")
    header["vox_offset"], header["magic"] = 352, b"n+1"
    header["scl_slope"], header["scl_inter"] = scaling
    payload = header.binaryblock + b"\0\0\0\0" + data.tobytes(order="F")
    path.write_bytes(gzip.compress(payload) if path.suffix == ".gz" else payload)
    return path


def make_labels(rng, shape=SHAPE, n_parcels=5):
    labels = rng.integers(0, n_parcels + 1, shape).astype(np.int16)
    labels.flat[: n_parcels + 1] = np.arange(n_parcels + 1)
    return labels


def make_atlas(path: Path, labels, affine=AFFINE, listed=None, space=SPACE) -> Atlas:
    save_image(path, labels, affine)
    listed = tuple(int(x) for x in (np.unique(labels[labels > 0]) if listed is None else listed))
    return atlas_of(path, space, listed)


def atlas_of(path: Path, space: str, listed) -> Atlas:
    names, blank = tuple(f"parcel{label:03d}" for label in listed), ("n/a",) * len(listed)
    return Atlas((("atlas", "Toy"),), path, space, listed, names, blank, blank)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture
def run(tmp_path, rng):
    """A noisy float32 run of 12 volumes, its mask and an atlas of five parcels, all on one grid."""
    labels = make_labels(rng)
    data = rng.normal(1000, 20, (*SHAPE, 12)).astype(np.float32)
    brain = np.ones(SHAPE, np.uint8)
    brain[0] = 0
    return (
        save_image(tmp_path / f"sub-1_space-{SPACE}_bold.nii.gz", data),
        save_image(tmp_path / f"sub-1_space-{SPACE}_mask.nii.gz", brain),
        make_atlas(tmp_path / "atlas.nii.gz", labels),
        data,
        brain > 0,
        labels,
    )


def mean_by_hand(data, labels, usable, listed):
    return np.stack([data[(labels == label) & usable].astype(float).mean(axis=0) for label in listed], axis=1)


def test_figures_of_every_volume_are_those_of_the_brain(run):
    bold, mask, atlas, data, brain, labels = run
    (found,) = parcellate(bold, mask, [atlas])
    seen = data[brain].astype(float)
    np.testing.assert_allclose(found.figures.global_signal, seen.mean(axis=0), rtol=1e-14)
    changes = np.sqrt(np.square(np.diff(seen, axis=1)).mean(axis=0))
    np.testing.assert_allclose(found.figures.dvars, [np.nan, *changes], rtol=1e-14)
    inside = data[brain & (labels > 0)].astype(float)
    np.testing.assert_array_equal(found.figures.farthest, np.abs(inside - inside[:, :1]).max(axis=0))


@pytest.mark.parametrize("with_mask", [True, False])
def test_equals_nilearn_where_every_voxel_has_signal(tmp_path, rng, with_mask):
    from nilearn.maskers import NiftiLabelsMasker

    labels = make_labels(rng)
    bold = save_image(tmp_path / "bold.nii.gz", rng.normal(100, 5, (*SHAPE, 15)))
    mask = save_image(tmp_path / "mask.nii.gz", (rng.random(SHAPE) < 0.7).astype(np.uint8)) if with_mask else None
    atlas = make_atlas(tmp_path / "atlas.nii.gz", labels)
    masker = NiftiLabelsMasker(str(atlas.image), mask_img=mask and str(mask), standardize=None)
    expected = masker.fit_transform(str(bold))
    np.testing.assert_allclose(parcellate(bold, mask, [atlas])[0].series, expected, rtol=0, atol=1e-10)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    shape=st.tuples(*[st.integers(2, 6)] * 3),
    n_volumes=st.integers(2, 6),
    dtype=st.sampled_from(["u1", "<i2", ">i2", "<u2", "<i4", "<f4", ">f4", "<f8", ">f8"]),
    flips=st.tuples(*[st.sampled_from([-1, 1])] * 3),
    compressed=st.booleans(),
    scaling=st.sampled_from([(1.0, 0.0), (0.25, -30.0), (-2.0, 7.0)]),
    seed=st.integers(0, 2**16),
)
def test_any_storage_gives_the_same_means(tmp_path_factory, shape, n_volumes, dtype, flips, compressed, scaling, seed):
    folder = tmp_path_factory.mktemp("storage")
    rng = np.random.default_rng(seed)
    stored = rng.integers(0, 120, (*shape, n_volumes)).astype(dtype)
    labels = rng.integers(0, 3, shape).astype(np.int16)
    labels.flat[:2] = 1, 2
    affine = AFFINE @ np.diag([*flips, 1])
    path = folder / ("bold.nii.gz" if compressed else "bold.nii")
    save_image(path, stored, affine, scaling=scaling)
    atlas = make_atlas(folder / "atlas.nii", labels, affine)
    kept = stored.astype(float)
    changes = (kept != kept[..., :1]).any(axis=-1)
    if not any(((labels == label) & changes).any() for label in atlas.labels):
        return
    (found,) = parcellate(path, None, [atlas])
    for column, label in zip(found.series.T, atlas.labels, strict=True):
        chosen = (labels == label) & changes
        if chosen.any():
            expected = scaling[0] * kept[chosen].mean(axis=0) + scaling[1]
            np.testing.assert_allclose(column, expected, rtol=1e-12, atol=1e-12)
        else:
            assert np.isnan(column).all()


@pytest.mark.parametrize(("constant", "broken"), [(1234.5, np.nan), (3e38, -np.inf), (np.nan, np.nan)])
def test_voxels_without_signal_or_that_break_in_mid_run_are_left_out_whatever_their_value(run, constant, broken):
    bold, _, atlas, data, _, labels = run
    data, usable = data.copy(), np.ones(SHAPE, bool)
    usable[2:4] = usable[5, 3, 3] = usable[4, 4, 4] = False
    data[2:4], data[5, 3, 3, 5], data[4, 4, 4, 11] = constant, broken, broken
    save_image(bold, data)
    (found,) = parcellate(bold, None, [atlas])
    np.testing.assert_allclose(found.series, mean_by_hand(data, labels, usable, atlas.labels), rtol=1e-12)
    np.testing.assert_allclose(found.coverage, [np.mean(usable[labels == label]) for label in atlas.labels])
    assert found.n_covered.sum() == np.sum(labels > 0) - np.sum(labels[~usable] > 0)


def test_every_parcel_keeps_its_column(tmp_path, run):
    bold, mask, _, data, brain, labels = run
    labels = labels.copy()
    labels[labels == 2] = 0
    labels[0][labels[0] == 0] = 9
    labels[1:][labels[1:] == 9] = 0
    atlas = make_atlas(tmp_path / "gaps.nii.gz", labels, listed=(4, 2, 1, 9))
    (found,) = parcellate(bold, mask, [atlas])
    assert found.series.shape == (12, 4)
    np.testing.assert_array_equal(np.isnan(found.series).all(axis=0), [False, True, False, True])
    np.testing.assert_array_equal(found.coverage[[1, 3]], [0, 0])
    assert found.n_voxels[1] == 0
    assert found.n_voxels[3] > 0
    np.testing.assert_allclose(found.series[:, [0, 2]], mean_by_hand(data, labels, brain, (4, 1)), rtol=1e-13)


def test_several_atlases_in_one_pass_equal_each_alone(tmp_path, run, rng, monkeypatch):
    bold, mask, atlas, *_ = run
    other = make_atlas(tmp_path / "other.nii.gz", make_labels(rng, n_parcels=3))
    alone = [parcellate(bold, mask, [one])[0] for one in (atlas, other)]
    opened, original = [], streaming.open_stored
    monkeypatch.setattr(streaming, "open_stored", lambda path: opened.append(path) or original(path))
    together = parcellate(bold, mask, [atlas, other])
    assert len(opened) == 2, "one look at the first volume, one pass"
    for one, both in zip(alone, together, strict=True):
        for expected, value in zip(one[:4], both[:4], strict=True):
            np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("kept", [(1, 2), (2, 3), (3, 4), (2,), (4,)])
def test_parcels_of_another_atlas_keep_their_voxels_beside_it(tmp_path, run, rng, kept):
    bold, mask, *_ = run
    labels = make_labels(rng, n_parcels=4)
    whole = make_atlas(tmp_path / "whole.nii.gz", labels)
    part = make_atlas(tmp_path / "part.nii.gz", np.where(np.isin(labels, kept), labels, 0))
    (alone,) = parcellate(bold, mask, [part])
    for atlases in ([whole, part], [part, whole], [whole, whole, part]):
        beside = parcellate(bold, mask, atlases)[atlases.index(part)]
        np.testing.assert_array_equal(beside.series, alone.series)
        np.testing.assert_array_equal(beside.coverage, alone.coverage)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    zooms=st.tuples(*[st.sampled_from([1.0, 1.7, 2.0, 3.3])] * 3),
    shift=st.tuples(*[st.sampled_from([-3.1, -0.3, 0.0, 0.7, 2.2])] * 3),
    flips=st.tuples(*[st.sampled_from([-1, 1])] * 3),
    shape=st.tuples(*[st.integers(3, 9)] * 3),
)
def test_resampling_equals_nilearn(zooms, shift, flips, shape):
    from nilearn.image import resample_img

    labels = np.random.default_rng(1).integers(0, 9, SHAPE).astype(np.int32)
    # scipy lets an image end at the centres of its outer voxels, half a voxel early: leave nothing there.
    labels[[0, -1]] = labels[:, [0, -1]] = labels[:, :, [0, -1]] = 0
    target = np.diag([*(np.array(zooms) * flips), 1.0])
    target[:3, 3] = np.array(shift) + np.where(np.array(flips) < 0, 5.0, -7.0)
    expected = resample_img(
        nibabel.Nifti1Image(labels, AFFINE),
        target_affine=target,
        target_shape=shape,
        interpolation="nearest",
        force_resample=True,
        copy_header=True,
    )
    np.testing.assert_array_equal(resample_labels(labels, AFFINE, shape, target), np.asarray(expected.dataobj))


def test_coverage_counts_what_lies_outside_the_grid_of_the_run(tmp_path, rng):
    labels = np.zeros((10, 6, 6), np.int16)
    labels[:, 1:5, 1:5] = 1
    atlas = make_atlas(tmp_path / "atlas.nii.gz", labels)
    bold = save_image(tmp_path / "bold.nii.gz", rng.normal(size=(7, 6, 6, 5)))
    (found,) = parcellate(bold, None, [atlas])
    assert found.coverage[0] == pytest.approx(0.7)
    assert found.n_covered[0] == found.n_voxels[0] == 7 * 16


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cut nii", "is truncated: it has"),
        ("empty mask", "empty_mask.*is empty"),
        ("space", r"MNI152NLin2009cAsym.*MNI152NLin6Asym"),
        ("fractions", "probseg"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_remedy(tmp_path, run, kind, words):
    """Other damages are tried through the command."""
    bold, mask, atlas, data, _, labels = run
    if kind == "cut nii":
        bold = save_image(tmp_path / "plain.nii", data)
        bold.write_bytes(bold.read_bytes()[:-300])
    elif kind == "empty mask":
        mask = save_image(tmp_path / "empty_mask.nii.gz", np.zeros(SHAPE, np.uint8))
    elif kind == "space":
        atlas = make_atlas(tmp_path / "far.nii.gz", labels, space="MNI152NLin6Asym")
    else:
        atlas = make_atlas(tmp_path / "p.nii.gz", np.full(SHAPE, 0.4, np.float32), listed=(1,))
    with pytest.raises(UsageError if kind == "fractions" else RecordingError, match=words):
        parcellate(bold, mask, [atlas])


@pytest.mark.parametrize(
    ("step", "unit", "expected"),
    [
        (2.2, "sec", 2.2),
        (720.0, "msec", 0.72),
        (8e5, "usec", 0.8),
        (0.0, "sec", None),
        (2.5, "unknown", 2.5),
        (5.0, "hz", None),
    ],
)
def test_repetition_time_is_read_with_its_unit(tmp_path, rng, step, unit, expected):
    bold = save_image(tmp_path / "bold.nii.gz", rng.normal(size=(3, 3, 3, 4)), tr=step, unit=unit)
    assert header_summary(bold).repetition_time == (None if expected is None else pytest.approx(expected, abs=1e-15))
    assert header_summary(bold).n_volumes == 4


def test_painted_schaefer_volumes_give_the_painting_back(shared, tmp_path, rng):
    """Real labels on the 2009c grid, and on the grid that fMRIPrep 1.0 wrote: 98 slices, other zooms."""
    image = next((shared / "atlases").rglob(f"tpl-{SPACE}_atlas-Schaefer2018_seg-7n_scale-400_*.nii.gz"))
    labels = np.asarray(nibabel.load(image).dataobj)
    blank = ("n/a",) * 400
    atlas = Atlas((("atlas", "Schaefer2018"),), image, SPACE, tuple(range(1, 401)), blank, blank, blank)
    painted = rng.normal(500, 10, (4, 400)).astype(np.float32)
    lookup = np.concatenate([np.zeros((4, 1), np.float32), painted], axis=1)

    bold = save_image(tmp_path / "bold.nii.gz", np.moveaxis(lookup[:, labels], 0, -1), nibabel.load(image).affine)
    (found,) = parcellate(bold, None, [atlas])
    np.testing.assert_allclose(found.series, painted, rtol=1e-15)
    np.testing.assert_array_equal(found.coverage, 1)

    mask = next((shared / "data").rglob("*desc-brain_mask.nii.gz"))
    grid = nibabel.load(mask)
    there = resample_labels(labels.astype(np.int32), nibabel.load(image).affine, grid.shape, grid.affine)
    assert grid.shape == (97, 115, 98)
    bold = save_image(tmp_path / "tall.nii.gz", np.moveaxis(lookup[:, there], 0, -1), grid.affine)
    (found,) = parcellate(bold, mask, [atlas])
    seen = found.n_covered > 0
    assert seen.sum() > 380
    np.testing.assert_allclose(found.series[:, seen], painted[:, seen], rtol=1e-15)


TALL = (14, 16, 20)
N_VOLUMES = 4 * SETTLING + 2


@pytest.fixture
def files(tmp_path):
    """A recording of a brain with a bright first volume, its mask, an atlas, and the values."""
    rng = np.random.default_rng(3)
    labels = make_labels(rng, TALL)
    data = rng.normal(1000, 20, (*TALL, N_VOLUMES)).astype(np.float32)
    data[..., 0] *= 1.5
    brain = np.zeros(TALL, np.uint8)
    brain[4:10, 5:12, 3:18] = 1
    labels[brain == 0] = 0

    def write(step):
        """With every axis turned round, and the values stored the other way."""
        affine = AFFINE @ np.diag([step, step, step, 1])
        affine[:3, 3] += (1 - step) * (np.array(TALL) - 1)
        turned = (slice(None, None, step),) * 3
        bold = save_image(tmp_path / f"sub-1_space-{SPACE}_bold.nii.gz", data[turned], affine)
        mask = save_image(tmp_path / f"sub-1_space-{SPACE}_mask.nii.gz", brain[turned], affine)
        return bold, mask, make_atlas(tmp_path / "atlas.nii.gz", labels[turned], affine)

    return write, data, brain > 0, labels


def sliced(values, z):
    """Slices of a volume on the grid of `AFFINE`, cut to the brain and its margin: front on top, left on the left."""
    rows, columns = slice(5 - MARGIN, 12 + MARGIN), slice(4 - MARGIN, 10 + MARGIN)
    places = [round((height - AFFINE[2, 3]) / 2) for height in z]
    return np.stack([values[columns, rows, place].T[::-1] for place in places])


@pytest.mark.parametrize("step", [1, -1])
def test_slices_are_those_of_the_first_volume_after_the_start(files, step):
    write, data, brain, labels = files
    bold, mask, atlas = write(step)
    (found,) = parcellate(bold, mask, [atlas])
    shown = found.slices
    assert len(shown.z) == N_SLICES
    np.testing.assert_allclose(shown.volume, sliced(data[..., SETTLING], shown.z), rtol=1e-6)
    np.testing.assert_array_equal(shown.brain, sliced(brain, shown.z))
    np.testing.assert_array_equal(shown.parcels, sliced(labels, shown.z))


def surface_atlas(path, labels, axis=None) -> Atlas:
    names = [f"region{label}" for label in range(1, 5)]
    return atlas_of(save_dlabel(path, labels, names, axis), "fsLR", (1, 2, 3, 4))


@pytest.fixture
def surface(tmp_path, rng):
    """A run in fsLR, an atlas of its grayordinates, its values and their labels."""
    data = rng.normal(100, 9, (7, len(grayordinates()))).astype(np.float32)
    labels = rng.integers(0, 5, data.shape[1])
    bold = save_dtseries(tmp_path / "sub-1_space-fsLR_den-91k_bold.dtseries.nii", data)
    return bold, surface_atlas(tmp_path / "toy.dlabel.nii", labels), data, labels


def test_silent_and_broken_grayordinates_are_left_out(surface, monkeypatch):
    """A few at a time."""
    monkeypatch.setattr(parcellation, "BLOCK_BYTES", 11 * 7 * 4)
    bold, atlas, data, labels = surface
    data[:, labels == 3] = 55.0
    first, second = np.flatnonzero(labels == 1)[:2]
    data[4, first], data[:, second] = np.nan, np.inf
    save_dtseries(bold, data)
    (found,) = parcellate(bold, None, [atlas])
    np.testing.assert_array_equal(np.isnan(found.series).all(axis=0), [False, False, True, False])
    kept = (labels == 1) & ~np.isin(np.arange(len(labels)), [first, second])
    np.testing.assert_allclose(found.series[:, 0], data[:, kept].astype(float).mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(found.coverage, [kept.sum() / np.sum(labels == 1), 1, 0, 1])


def test_an_atlas_with_medial_wall_and_without_subcortex_is_matched_by_vertex(tmp_path, surface, rng):
    """No volume; of the left surface as many vertices as the run has, but others, of the right one all."""
    bold, _, data, _ = surface
    labels = rng.integers(1, 5, 76)
    other = surface_atlas(tmp_path / "other.dlabel.nii", labels, cortex(range(4, 40), range(40)))
    (found,) = parcellate(bold, None, [other])
    on_run = np.concatenate([np.zeros(4, int), labels[:32], labels[36 + 4 :], np.zeros(data.shape[1] - 72, int)])
    expected = np.stack([data[:, on_run == k].astype(float).mean(axis=1) for k in (1, 2, 3, 4)], axis=1)
    np.testing.assert_allclose(found.series, expected, rtol=1e-14)
    share = [np.sum(on_run == k) / np.sum(labels == k) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(found.coverage, share)


def test_kinds_do_not_mix_and_a_truncated_dtseries_is_named(run, surface):
    (bold, atlas, *_), (volumes, _, of_voxels, *_) = surface, run
    for series, other, words in (
        (bold, replace(of_voxels, space="fsLR"), "CIFTI but the atlas"),
        (volumes, replace(atlas, space=SPACE), "NIfTI but the atlas"),
        (bold, atlas, "truncated"),
    ):
        if words == "truncated":
            bold.write_bytes(bold.read_bytes()[:-10])
        with pytest.raises(RecordingError, match=words):
            parcellate(series, None, [other])
