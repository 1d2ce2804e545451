"""Voxels of the demo: every fourth one of the 2 mm parcellation, series painted into them, and NIfTI bytes."""

from __future__ import annotations

import gzip
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.demo.design import DemoDesign
from fcpower_bids.demo.signals import SIGNAL_SD, Physiology, quantise
from fcpower_bids.imaging.atlas.builtin import SPACING, builtin_labels

STEP = 4
BOX = (slice(11, 88, STEP), slice(13, 106, STEP), slice(2, 79, STEP))
"""The voxels of the 2 mm template that become the grid of invented people: 8 mm, symmetric about x = 0, brain and one
voxel around."""

GREY, NEAR = 0.3, 10.0
"""Probability of grey matter from which a voxel has a centre, and the largest distance from it in mm: farther away is
what is not cortex."""

UNSEEN_SLICES = 5
"""Slices at the top that the incomplete field of view lacks."""

BASELINES = {"grey": (9_000.0, 11_000.0), "white_matter": (8_500.0, 9_500.0), "csf": (12_000.0, 14_000.0)}


@dataclass(frozen=True)
class Head:
    """The voxels of the brain, V of them, on the demo's grid."""

    affine: FloatArray  # (4, 4)
    brain: NDArray[np.bool_]  # (X, Y, Z)
    parcel: NDArray[np.int64]  # (V,): 0 outside parcels, else the label of the built-in parcellation
    # (V,): of the other voxels, which are white matter; the rest is cerebrospinal fluid
    white_matter: NDArray[np.bool_]

    @property
    def csf(self) -> NDArray[np.bool_]:
        """Which voxels are neither a parcel nor white matter."""
        return (self.parcel == 0) & ~self.white_matter

    def hide_top(self) -> Head:
        """The same head in a field of view that ends below the top of the brain."""
        seen = self.brain.copy()
        seen[:, :, -UNSEEN_SLICES:] = False
        kept = seen[self.brain]
        return Head(self.affine, seen, self.parcel[kept], self.white_matter[kept])


def load_head(labels: NDArray[np.integer] | None = None, step: int = STEP) -> Head:
    """Cut the demo's grid out of the templates that nilearn carries; ``labels`` of the 2 mm template, else built-in."""
    # loads nibabel or nilearn, which are slow to load
    from nilearn.datasets import load_mni152_brain_mask, load_mni152_wm_template

    built_in, fine = builtin_labels()
    box = tuple(slice(side.start, side.stop, step) for side in BOX)
    parcels = (built_in if labels is None else labels)[box].astype(np.int64)
    # The millimetre templates have the origin of the 2 mm parcellation, so every second voxel of them is its grid.
    mask, white = (
        np.asarray(load(resolution=1).dataobj)[::SPACING, ::SPACING, ::SPACING][box]
        for load in (load_mni152_brain_mask, load_mni152_wm_template)
    )
    brain = (mask > 0) | (parcels > 0)
    affine = fine @ np.diag([step, step, step, 1.0])
    affine[:3, 3] = (fine @ [*(side.start for side in box), 1.0])[:3]
    return Head(affine, brain, parcels[brain], (white[brain] > 0.5) & (parcels[brain] == 0))


def label_by_centres(centres: FloatArray) -> tuple[NDArray[np.int16], FloatArray]:
    """Give grey matter to the nearest of P centres (P, 3) in mm of its hemisphere; labels 1 to P and the affine."""
    # loads nibabel or nilearn, which are slow to load
    from nilearn.datasets import load_mni152_gm_template

    affine = builtin_labels()[1]
    grey = np.asarray(load_mni152_gm_template(resolution=1).dataobj)[::SPACING, ::SPACING, ::SPACING] > GREY
    voxels = np.argwhere(grey)
    places = voxels @ affine[:3, :3].T + affine[:3, 3]
    labels = np.zeros(grey.shape, dtype=np.int16)
    for side in (-1, 1):
        own, here = np.flatnonzero(np.sign(centres[:, 0]) == side), np.flatnonzero(np.sign(places[:, 0]) == side)
        squares = (places[here] ** 2).sum(axis=1)[:, None] + (centres[own] ** 2).sum(axis=1)
        squares -= 2 * places[here] @ centres[own].T
        near = squares.min(axis=1) < NEAR**2
        labels[tuple(voxels[here].T)] = np.where(near, own[squares.argmin(axis=1)] + 1, 0)
    return labels, affine


def paint_recording(
    head: Head, painted: FloatArray, physiology: Physiology, design: DemoDesign, rng: np.random.Generator
) -> FloatArray:
    """Give every voxel its series, shape (V, T): the mean over the seen voxels of a parcel is the painted series."""
    inside = head.parcel > 0
    voxels = np.empty((len(head.parcel), len(painted)))
    voxels[inside] = painted.T[head.parcel[inside] - 1]
    for tissue, sources in (("white_matter", physiology.white_matter), ("csf", physiology.csf)):
        voxels[getattr(head, tissue)] = _mix_tissue(sources, physiology, int(getattr(head, tissue).sum()), rng)
    noise = quantise(design.noise * SIGNAL_SD * rng.standard_normal(voxels.shape))
    return voxels + _balance(noise, head.parcel) + _draw_baselines(head, rng)[:, None]


def _mix_tissue(sources: FloatArray, physiology: Physiology, n_voxels: int, rng: np.random.Generator) -> FloatArray:
    """The first source alike in every voxel, the others in random proportions that fall from source to source."""
    fall = 0.7 ** np.arange(sources.shape[1] - 1)
    weights = np.column_stack([np.ones(n_voxels), fall * rng.standard_normal((n_voxels, len(fall)))])
    return quantise(SIGNAL_SD * weights @ sources.T + physiology.everywhere)


def _balance(values: FloatArray, parcel: NDArray[np.int64]) -> FloatArray:
    """Take the mean over each parcel out of it, staying on multiples of the quantum, so that exactly zero is left."""
    balanced = values.copy()
    for label in np.unique(parcel[parcel > 0]):
        members = np.flatnonzero(parcel == label)
        balanced[members] -= quantise(values[members].mean(axis=0))
        # The remainder of rounding, a few quanta at most, goes to one voxel.
        balanced[members[0]] -= balanced[members].sum(axis=0)
    return balanced


def _draw_baselines(head: Head, rng: np.random.Generator) -> FloatArray:
    """One brightness per voxel; in each parcel they average to 10,000, where grey matter is painted around."""
    baselines = np.empty(len(head.parcel))
    masks = {"grey": head.parcel > 0, "white_matter": head.white_matter, "csf": head.csf}
    for tissue, (low, high) in BASELINES.items():
        baselines[masks[tissue]] = rng.uniform(low, high, int(masks[tissue].sum()))
    middle = sum(BASELINES["grey"]) / 2
    balanced = _balance(quantise(baselines)[:, None], head.parcel)[:, 0]
    return balanced + np.where(masks["grey"], middle, 0.0)


def encode_nifti(volume: NDArray[np.generic], affine: FloatArray, repetition_time: float = 0.0) -> bytes:
    """Compressed NIfTI without a time stamp; ``volume`` is (X, Y, Z) or (X, Y, Z, T)."""
    import nibabel as nib  # slow to load

    image = nib.Nifti1Image(volume, affine)
    image.set_sform(affine, code="mni")
    image.set_qform(affine, code="mni")
    image.header.set_xyzt_units("mm", "sec")
    if volume.ndim == 4:
        image.header.set_zooms((*image.header.get_zooms()[:3], repetition_time))
    return gzip.compress(image.to_bytes(), compresslevel=4, mtime=0)


def unmask(voxels: FloatArray, brain: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Put the series of the brain's voxels (V, T) back on the grid, zero elsewhere; (X, Y, Z, T)."""
    volume = np.zeros((*brain.shape, voxels.shape[1]), dtype=np.float32, order="F")
    volume[brain] = voxels
    return volume
