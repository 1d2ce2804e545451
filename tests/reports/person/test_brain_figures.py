"""The picture of a recording's own brain: what is drawn where, and the number that is told with it."""

from __future__ import annotations

import re

import nibabel
import numpy as np
import pytest

from fcpower_bids.errors import DatasetError
from fcpower_bids.records import AXIAL, Slices
from fcpower_bids.reports.brains import (
    ATLAS,
    MASK,
    TEMPLATE,
    UNCOVERED,
    borders,
    outline,
    paint_coverage,
    read_slices,
)

SETTLED = 10


def slices_of(grey, brain, parcels, template):
    return Slices(
        grey[..., 0], grey[..., 0], brain, parcels, template, np.zeros(1), np.array([AXIAL]), np.array(np.nan)
    )


def test_borders_are_the_rims_of_regions():
    region = np.zeros((1, 7, 7), dtype=int)
    region[0, 1:6, 1:4], region[0, 1:6, 4:6] = 1, 2
    expected = region[0] > 0
    expected[2:5, 2] = False  # what has only its own kind around it
    np.testing.assert_array_equal(borders(region)[0], expected)


def test_outlines_lie_on_the_rim_and_leave_the_anatomy_inside():
    brain = np.zeros((1, 12, 12), dtype=bool)
    brain[0, 1:11, 1:11] = True
    parcels, template = np.where(brain, 1, 0), brain.astype(int)
    parcels[0, :, 5:] *= 2
    parcels[0, :, 8:] = 0
    template[0, 4:6, 3:7] = 2
    grey = np.full((1, 12, 12, 3), 96, dtype=np.uint8)
    shown = outline(grey, slices_of(grey, brain, parcels, template))[0]
    assert (shown[2, 2] == MASK).all()
    assert (shown[18, 10] == 96).all(), "a border between two parcels is not drawn"
    assert (np.abs(shown[14, 15].astype(int) - (0.3 * 96 + 0.7 * np.array(ATLAS))) <= 1).all()
    assert (np.abs(shown[8, 10].astype(int) - (0.3 * 96 + 0.7 * np.array(TEMPLATE))) <= 1).all()
    assert (shown[0] == 96).all()


def test_a_parcel_below_the_limit_has_the_colour_that_says_so():
    grey = np.zeros((1, 1, 4, 3), dtype=np.uint8)
    parcels, brain = np.array([[[0, 1, 2, 3]]]), np.ones((1, 1, 4), dtype=bool)
    slices = slices_of(grey, brain, parcels, np.zeros_like(parcels))
    shown = paint_coverage(grey, slices, np.array([1.0, 0.49, np.nan]), 0.5)[0, 0]
    assert (shown[0] == 0).all()
    assert shown[1][0] > 1.5 * shown[1][2]  # yellow
    for uncovered in shown[2:]:
        np.testing.assert_allclose(uncovered, 0.65 * np.array(UNCOVERED), atol=1)


def test_the_page_tells_the_tsnr_of_the_file(troubled_demo, troubled_run):
    output, page = troubled_run.output, (troubled_run.output / "sub-01.html").read_text(encoding="utf-8")
    told = [int(text) for text in re.findall(r"cleaning, median (\d+) in the mask", page)]
    computed = []
    for kept in sorted((output / "sub-01" / "figures").glob("*_desc-slices_bold.npz")):
        name = kept.name.partition("_atlas-")[0]
        (bold,) = troubled_demo[0].rglob(f"{name}*_desc-preproc_bold.nii.gz")
        (mask,) = troubled_demo[0].rglob(f"{name}*_desc-brain_mask.nii.gz")
        image, heights = nibabel.load(bold), read_slices(kept).of(AXIAL).heights
        places = np.round((heights - image.affine[2, 3]) / image.affine[2, 2]).astype(int)
        values = image.get_fdata()[:, :, places, SETTLED:]
        brain = nibabel.load(mask).get_fdata()[:, :, places] > 0
        deviation = values.std(-1, ddof=1)
        varying = brain & (deviation > 0)
        computed.append(np.median(values.mean(-1)[varying] / deviation[varying]))
    assert len(told) == len(computed) > 1
    np.testing.assert_allclose(told, computed, atol=0.6)


def test_a_broken_picture_is_named(tmp_path):
    path = tmp_path / "x_desc-slices_bold.npz"
    assert read_slices(path) is None
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(DatasetError, match=r"slices_bold\.npz cannot be read"):
        read_slices(path)
    one = np.zeros((1, 2, 2))
    np.savez(path, **dict.fromkeys(Slices._fields, one) | {"parcels": np.zeros((1, 3, 2))})
    with pytest.raises(DatasetError, match="holds no slices"):
        read_slices(path)
