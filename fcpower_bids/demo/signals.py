"""Time series of one recording before they are painted: brain activity, head motion, tissue signals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcpower_bids.core.arrays import FloatArray

SIGNAL_SD = 100.0
"""Standard deviation of a clean parcel series, about 1 % of the baseline of 10,000, as in real BOLD."""

QUANTUM = 2.0
"""Every painted number is a multiple of this, so float32 holds it without error and the files compress well."""

BAND = (0.011, 0.078)
"""Hz; inside the default pass-band, so that filtering leaves the clean series almost alone."""

HEAD_RADIUS = 50.0
OUTLIER_DISPLACEMENT = 0.5
FIRST_VOLUMES = (15 * SIGNAL_SD, 5 * SIGNAL_SD)
"""How much brighter the volumes are that come before the steady state."""

N_SOURCES = 5


@dataclass(frozen=True)
class Physiology:
    """Nuisance signals of one recording; T volumes."""

    motion: FloatArray  # (T, 6): trans_x, trans_y, trans_z in mm, rot_x, rot_y, rot_z in radians
    displacement: FloatArray  # (T,): framewise displacement in mm; 0 at the first volume
    # white_matter, csf: (T, 5): sources of the two tissues, unit variance; the first is in every voxel, the others in
    # some
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
    displacement = measure_displacement(motion)
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


def measure_displacement(motion: FloatArray) -> FloatArray:
    """Framewise displacement in mm (Power et al. 2012), shape (T,); 0 at the first volume."""
    moved = np.abs(np.diff(motion, axis=0, prepend=motion[:1]))
    return moved[:, :3].sum(axis=1) + HEAD_RADIUS * moved[:, 3:].sum(axis=1)


def draw_nuisance(physiology: Physiology, n_parcels: int, nuisance: float, rng: np.random.Generator) -> FloatArray:
    """Mix what is not of interest into parcels, each in its own proportion; shape (T, P)."""
    sources = np.column_stack([_standardise(physiology.motion), physiology.white_matter[:, 0], physiology.csf[:, 0]])
    typical = np.repeat([0.0, 0.4], [6, 2])[:, None]
    weights = SIGNAL_SD * (typical + 0.2 * rng.standard_normal((sources.shape[1], n_parcels)))
    return quantise(nuisance * sources @ weights + physiology.everywhere[:, None])


def _standardise(series: FloatArray) -> FloatArray:
    return (series - series.mean(axis=0)) / series.std(axis=0)
