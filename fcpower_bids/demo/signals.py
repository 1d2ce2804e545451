"""Design of the demo, and what a recording holds: series, motion, tissue, voxels and the confounds measured on them."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.series import HEAD_RADIUS, framewise_displacement
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import SPACING, builtin_labels

FEWEST_VOLUMES = 40


@dataclass(frozen=True)
class DemoDesign:
    """Size, difficulty and naming of a demo dataset; every combination of the first three is one recording."""

    subjects: int = 24
    sessions: int = 2
    runs: int = 1
    volumes: int = 180  # of each recording
    repetition_time: float = 2.5  # seconds between volumes
    noise: float = 0.5  # SD of the voxel noise over that of the signal; its mean over each parcel is exactly zero
    nuisance: float = 1.0  # strength of motion, tissue signals, drift, first volumes: 1 is lifelike, 0 is none
    # whether participant 01 has one run more, 02 lacks the top of the brain, 03 moves a lot and the last session of 04
    # is nearly all motion (each where the design has such a participant)
    troubles: bool = True
    space: str = "MNI152NLin2009cAsym"  # template space in the file names
    seed: int = 0  # same seed and design, same bytes

    def __post_init__(self) -> None:
        faults = [
            (self.subjects < 1, "it needs at least one participant"),
            (not 1 <= self.sessions <= len(ascii_lowercase), "sessions are lettered, so there are 1 to 26"),
            (self.volumes < FEWEST_VOLUMES, f"a recording needs at least {FEWEST_VOLUMES} volumes"),
            (self.seed < 0, "the seed is 0 or more"),
        ]
        if wrong := [message for fails, message in faults if fails]:
            raise UsageError("The demo dataset cannot be made: " + "; ".join(wrong) + ".")

    @classmethod
    def tiny(cls, **changes: Any) -> DemoDesign:
        """Two participants with two sessions of 80 volumes and no troubles: made in about a second, for tests."""
        return cls(**({"subjects": 2, "volumes": 80, "troubles": False} | changes))

    @property
    def participants(self) -> tuple[str, ...]:
        """Participant labels without ``sub-``."""
        return tuple(f"{number:02d}" for number in range(1, self.subjects + 1))

    def list_recordings(self) -> list[tuple[int, str, int]]:
        """Every recording as (index of the participant, session letter, run), in the order of the truth."""
        return [
            (person, session, run)
            for person in range(self.subjects)
            for session in ascii_lowercase[: self.sessions]
            for run in range(1, self.runs + 1 + (self.troubles and person == 0 and session == "a"))
        ]

    def share_of_spikes(self, person: int, session: str) -> float:
        """Fraction of the volumes at which the head jumps."""
        last = session == ascii_lowercase[self.sessions - 1]
        troubled = 0.25 if person == 2 else 0.85 if person == 3 and last else SPIKES
        return troubled if self.troubles else SPIKES


SPIKES = 0.015
SIGNAL_SD = 100.0
"""Standard deviation of a clean parcel series, about 1 % of the baseline of 10,000, as in real BOLD."""
QUANTUM = 2.0
"""Every painted number is a multiple of this, so float32 holds it without error and the files compress well."""
BAND = (0.011, 0.078)
"""Hz; inside the default pass-band, so that filtering leaves the clean series almost alone."""
OUTLIER_DISPLACEMENT = 0.5
FIRST_VOLUMES = (15 * SIGNAL_SD, 5 * SIGNAL_SD)
"""How much brighter the volumes are that come before the steady state."""
N_SOURCES = 5


class Physiology(NamedTuple):
    """Nuisance signals of one recording; T volumes."""

    motion: FloatArray  # (T, 6): trans_x, trans_y, trans_z in mm, rot_x, rot_y, rot_z in radians
    displacement: FloatArray  # (T,): framewise displacement in mm; 0 at the first volume
    # (T, 5) each: sources of the two tissues, unit variance; the first is in every voxel, the others in some
    white_matter: FloatArray
    csf: FloatArray
    everywhere: FloatArray  # (T,): signal of the whole brain: jumps at spikes, slow drift, bright first volumes


def quantise(values: FloatArray) -> FloatArray:
    """Round to multiples of ``QUANTUM``."""
    return np.round(values / QUANTUM) * QUANTUM


def draw_clean_series(
    connectome: FloatArray, n_volumes: int, repetition_time: float, rng: np.random.Generator
) -> FloatArray:
    """Draw parcel series with a given true correlation, all of it in the pass-band; shape (T, P), a priori SD 100."""
    frequencies = np.fft.rfftfreq(n_volumes, repetition_time)
    band = (frequencies > BAND[0]) & (frequencies < BAND[1])
    spectrum = np.zeros((len(frequencies), len(connectome)), dtype=complex)
    real, imaginary = rng.standard_normal((2, int(band.sum()), len(connectome)))
    spectrum[band] = real + 1j * imaginary
    # A sum of m cosines whose two coefficients have unit variance, as irfft scales them, has variance 4 m / T^2.
    white = np.fft.irfft(spectrum, n_volumes, axis=0) * n_volumes / (2 * np.sqrt(band.sum()))
    values, vectors = np.linalg.eigh(connectome)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return quantise(SIGNAL_SD * white @ root)


def draw_physiology(n_volumes: int, share_of_spikes: float, nuisance: float, rng: np.random.Generator) -> Physiology:
    """Draw head motion with the given share of spikes, tissue signals, drift and the approach to the steady state."""
    motion = draw_motion(n_volumes, share_of_spikes, rng)
    displacement = np.nan_to_num(framewise_displacement(motion))
    white_matter, csf = rng.standard_normal((2, n_volumes, N_SOURCES))
    phase = np.pi * (np.arange(n_volumes) + 0.5) / n_volumes
    drift = np.cos(phase[:, None] * [1, 2]) @ rng.normal(0, 1.5, 2)
    everywhere = SIGNAL_SD * (drift - 2 * (displacement > OUTLIER_DISPLACEMENT))
    everywhere[: len(FIRST_VOLUMES)] += FIRST_VOLUMES
    return Physiology(motion, displacement, _standardise(white_matter), _standardise(csf), nuisance * everywhere)


def draw_motion(n_volumes: int, share_of_spikes: float, rng: np.random.Generator) -> FloatArray:
    """Draw six motion parameters: slow wandering, and jumps of 0.7 to 1.5 mm; shape (T, 6), mm and radians."""
    steps = rng.standard_normal((n_volumes, 6)) * np.repeat([0.02, 0.02 / HEAD_RADIUS], 3)
    n_spikes = max(1, round(share_of_spikes * n_volumes))
    spikes = rng.choice(np.arange(5, n_volumes), min(n_spikes, n_volumes - 5), replace=False)
    jumps = rng.standard_normal((len(spikes), 6))
    jumps *= (rng.uniform(0.7, 1.5, len(spikes)) / np.abs(jumps).sum(axis=1))[:, None]
    steps[spikes] += jumps * np.repeat([1.0, 1 / HEAD_RADIUS], 3)
    steps[0] = 0.0
    return np.cumsum(steps, axis=0)


def draw_nuisance(physiology: Physiology, n_parcels: int, nuisance: float, rng: np.random.Generator) -> FloatArray:
    """Mix what is not of interest into parcels, each in its own proportion; shape (T, P)."""
    sources = np.column_stack([_standardise(physiology.motion), physiology.white_matter[:, 0], physiology.csf[:, 0]])
    typical = np.repeat([0.0, 0.4], [6, 2])[:, None]
    weights = SIGNAL_SD * (typical + 0.2 * rng.standard_normal((sources.shape[1], n_parcels)))
    return quantise(nuisance * sources @ weights + physiology.everywhere[:, None])


def _standardise(series: FloatArray) -> FloatArray:
    return (series - series.mean(axis=0)) / series.std(axis=0)


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


class Head(NamedTuple):
    """The voxels of the brain, V of them, on the demo's grid."""

    affine: FloatArray  # (4, 4)
    brain: NDArray[np.bool_]  # (X, Y, Z)
    parcel: NDArray[np.int64]  # (V,): 0 outside parcels, else the label of the built-in parcellation
    white_matter: NDArray[np.bool_]  # (V,): of the other voxels, which are white matter; the rest is csf

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
        parcels, here = np.flatnonzero(np.sign(centres[:, 0]) == side), np.flatnonzero(np.sign(places[:, 0]) == side)
        squares = (places[here] ** 2).sum(axis=1)[:, None] + (centres[parcels] ** 2).sum(axis=1)
        squares -= 2 * places[here] @ centres[parcels].T
        near = squares.min(axis=1) < NEAR**2
        labels[tuple(voxels[here].T)] = np.where(near, parcels[squares.argmin(axis=1)] + 1, 0)
    return labels, affine


def paint_recording(
    head: Head, painted: FloatArray, physiology: Physiology, noise: float, rng: np.random.Generator
) -> FloatArray:
    """Give every voxel its series, shape (V, T): the mean over the seen voxels of a parcel is the painted series."""
    masks = {"grey": head.parcel > 0, "white_matter": head.white_matter, "csf": head.csf}
    voxels, baselines = np.empty((len(head.parcel), len(painted))), np.empty(len(head.parcel))
    voxels[masks["grey"]] = painted.T[head.parcel[masks["grey"]] - 1]
    for tissue, sources in (("white_matter", physiology.white_matter), ("csf", physiology.csf)):
        # the first source alike in every voxel, the others in random proportions that fall from source to source
        fall = 0.7 ** np.arange(N_SOURCES - 1)
        drawn = fall * rng.standard_normal((int(masks[tissue].sum()), len(fall)))
        weights = np.column_stack([np.ones(len(drawn)), drawn])
        voxels[masks[tissue]] = quantise(SIGNAL_SD * weights @ sources.T + physiology.everywhere)
    noises = quantise(noise * SIGNAL_SD * rng.standard_normal(voxels.shape))
    # one brightness per voxel; in each parcel they average to 10,000, where grey matter is painted around
    for tissue, (low, high) in BASELINES.items():
        baselines[masks[tissue]] = rng.uniform(low, high, int(masks[tissue].sum()))
    balanced = _balance(quantise(baselines)[:, None], head.parcel)
    middle = np.where(masks["grey"], sum(BASELINES["grey"]) / 2, 0.0)[:, None]
    return voxels + _balance(noises, head.parcel) + (balanced + middle)


def _balance(values: FloatArray, parcel: NDArray[np.int64]) -> FloatArray:
    """Take the mean over each parcel out of it, staying on multiples of the quantum, so that exactly zero is left."""
    balanced = values.copy()
    for label in np.unique(parcel[parcel > 0]):
        members = np.flatnonzero(parcel == label)
        balanced[members] -= quantise(values[members].mean(axis=0))
        # The remainder of rounding, a few quanta at most, goes to one voxel.
        balanced[members[0]] -= balanced[members].sum(axis=0)
    return balanced


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


Columns = dict[str, FloatArray]

MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
CUTOFF_SECONDS = 128.0
FEWEST_COMPONENTS, EXPLAINED = 5, 0.5
DECIMALS = 6
"""Of principal components. BLAS kernels disagree by 2e-15 about them, so the table is the same on every processor."""


def build_confounds(head: Head, voxels: FloatArray, physiology: Physiology, design: DemoDesign) -> Columns:
    """Measure the confounds that strategies read, under the names of fMRIPrep, on voxels (V, T): (T,) each."""
    n_volumes, n_first = voxels.shape[1], len(FIRST_VOLUMES) if design.nuisance > 0 else 0
    columns: Columns = {}
    for name, members in (("global_signal", ...), ("csf", head.csf), ("white_matter", head.white_matter)):
        columns |= _expand(name, voxels[members].mean(axis=0))
    # DVARS of the brain (intensity units) and framewise displacement (mm); NaN at first
    columns["dvars"] = np.append(np.nan, np.sqrt(np.mean(np.diff(voxels, axis=1) ** 2, axis=0)))
    columns["framewise_displacement"] = np.append(np.nan, physiology.displacement[1:])
    # unit-norm cosines slower than 128 s (K, T), without the constant; zero before the steady state
    n_steady = n_volumes - n_first
    order = int(2 * n_steady * design.repetition_time / CUTOFF_SECONDS)
    phase = np.pi * (np.arange(n_steady) + 0.5) / n_steady
    cosines = np.zeros((order, n_volumes))
    cosines[:, n_first:] = np.sqrt(2 / n_steady) * np.cos(np.outer(np.arange(1, order + 1), phase))
    for letter, members in (("c", head.csf), ("w", head.white_matter)):
        columns |= _find_components(voxels[members], cosines, n_first, letter)
    columns |= {f"cosine{index:02d}": cosine for index, cosine in enumerate(cosines)}
    columns |= {f"non_steady_state_outlier{index:02d}": np.eye(1, n_volumes, index)[0] for index in range(n_first)}
    for index, name in enumerate(MOTION):
        columns |= _expand(name, physiology.motion[:, index])
    return columns


def _expand(name: str, series: FloatArray) -> Columns:
    """A column with its derivative and the squares of both."""
    derivative = np.diff(series, prepend=np.nan)
    squares = {f"{name}_power2": series**2, f"{name}_derivative1_power2": derivative**2}
    return {name: series, f"{name}_derivative1": derivative} | squares


def _find_components(voxels: FloatArray, cosines: FloatArray, n_first: int, letter: str) -> Columns:
    """Principal components of high-passed, standardised voxels, enough for half of their variance and at least five."""
    series, slow = voxels[:, n_first:], cosines[:, n_first:]
    series = series - series.mean(axis=1, keepdims=True)
    series = series - (series @ slow.T) @ slow
    series /= series.std(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(series.T @ series)
    values, vectors = values[::-1], vectors[:, ::-1]
    enough = int(np.searchsorted(np.cumsum(values / values.sum()), EXPLAINED)) + 1
    columns: Columns = {}
    for index in range(max(enough, FEWEST_COMPONENTS)):
        # The largest entry is positive, so that the table does not depend on the LAPACK at hand; adding 0 takes the
        # sign from what rounds to zero.
        sign = np.sign(vectors[np.argmax(np.abs(vectors[:, index])), index])
        component = np.round(sign * vectors[:, index], DECIMALS) + 0.0
        columns[f"{letter}_comp_cor_{index:02d}"] = np.concatenate([np.zeros(n_first), component])
    return columns
