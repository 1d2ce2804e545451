"""The confounds table of one recording, measured on its painted voxels, with fMRIPrep's names and metadata."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.demo.design import DemoDesign
from fcpower_bids.demo.signals import FIRST_VOLUMES, OUTLIER_DISPLACEMENT, Physiology
from fcpower_bids.demo.volumes import Head

Columns = dict[str, FloatArray]
Metadata = dict[str, dict[str, Any]]

MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
CUTOFF_SECONDS = 128.0
JENKINSON_RADIUS = 80.0
OUTLIER_DVARS = 1.5
FEWEST_COMPONENTS = 5
EXPLAINED = 0.5
MOST_VARIABLE = 0.02
"""Share of the voxels, those with the largest variance."""
DECIMALS = 6
"""Of principal components. BLAS kernels disagree by 2e-15 about them, so the table is the same on every processor."""

ABSENT_BEFORE_20 = re.compile(r"csf_wm|tcompcor|rmsd|[cw]_comp_cor_\d+")


def build_confounds(
    head: Head, voxels: FloatArray, physiology: Physiology, design: DemoDesign
) -> tuple[Columns, Metadata]:
    """Measure every confound of fMRIPrep that the demo's voxels (V, T) allow: columns (T,)."""
    n_first = len(FIRST_VOLUMES) if design.nuisance > 0 else 0
    tissue = head.csf | head.white_matter
    variance = voxels[:, n_first:].var(axis=1)
    restless = variance >= np.quantile(variance, 1 - MOST_VARIABLE)
    columns: Columns = {}
    for name, members in (("global_signal", ...), ("csf", head.csf), ("white_matter", head.white_matter)):
        columns |= _expand(name, voxels[members].mean(axis=0), scale_derivative_first=True)
    columns |= {"csf_wm": voxels[tissue].mean(axis=0), "tcompcor": voxels[restless].mean(axis=0)}
    columns |= _measure_displacements(voxels, physiology)
    metadata: Metadata = {name: {"Method": "Mean"} for name in ("csf", "global_signal", "white_matter")}
    cosines = _draw_cosines(voxels.shape[1], design.repetition_time, n_first)
    masks = {"t": (restless, None), "c": (head.csf, "CSF"), "w": (head.white_matter, "WM"), "a": (tissue, "combined")}
    for letter, (members, mask) in masks.items():
        components, described = _find_components(voxels[members], cosines, n_first, letter, mask)
        columns |= components
        metadata |= described
    columns |= {f"cosine{index:02d}": cosine for index, cosine in enumerate(cosines)}
    columns |= _mark("non_steady_state_outlier", np.arange(n_first), voxels.shape[1])
    for index, name in enumerate(MOTION):
        columns |= _expand(name, physiology.motion[:, index], scale_derivative_first=False)
    jumps = (columns["framewise_displacement"] > OUTLIER_DISPLACEMENT) | (columns["std_dvars"] > OUTLIER_DVARS)
    steady = np.arange(voxels.shape[1]) > n_first
    columns |= _mark("motion_outlier", np.flatnonzero(jumps & steady), voxels.shape[1])
    return columns, metadata


def of_release(columns: Columns, metadata: Metadata, version: str) -> tuple[Columns, Metadata]:
    """Keep the columns that a release of fMRIPrep wrote."""
    if version.startswith("1."):
        kept = {name: values for name, values in columns.items() if not ABSENT_BEFORE_20.fullmatch(name)}
        return kept, {name: entry for name, entry in metadata.items() if name in kept}
    return columns, metadata


def encode_confounds(columns: Columns) -> str:
    """The TSV text: ten digits, "n/a" for NaN."""
    rows = zip(*columns.values(), strict=True)
    cells = (["n/a" if np.isnan(value) else f"{value:.10g}" for value in row] for row in rows)
    return "\n".join("\t".join(row) for row in (list(columns), *cells)) + "\n"


def _expand(name: str, series: FloatArray, scale_derivative_first: bool) -> Columns:
    """A column with its derivative and the squares of both, in the two orders that fMRIPrep writes."""
    derivative = np.diff(series, prepend=np.nan)
    square = {f"{name}_power2": series**2}
    derivative_square = {f"{name}_derivative1_power2": derivative**2}
    squares = derivative_square | square if scale_derivative_first else square | derivative_square
    return {name: series, f"{name}_derivative1": derivative} | squares


def _measure_displacements(voxels: FloatArray, physiology: Physiology) -> Columns:
    """DVARS of the brain (intensity units), framewise displacement and RMS displacement (mm); NaN at first."""
    dvars = np.sqrt(np.mean(np.diff(voxels, axis=1) ** 2, axis=0))
    moved = np.diff(physiology.motion, axis=0)
    # Jenkinson 1999 for small angles: the trace of the squared rotation difference is twice the squared angles.
    squared = (moved[:, :3] ** 2).sum(axis=1) + 0.4 * JENKINSON_RADIUS**2 * (moved[:, 3:] ** 2).sum(axis=1)
    measured = {
        "std_dvars": dvars / np.median(dvars),
        "dvars": dvars,
        "framewise_displacement": physiology.displacement[1:],
        "rmsd": np.sqrt(squared),
    }
    return {name: np.concatenate([[np.nan], values]) for name, values in measured.items()}


def _draw_cosines(n_volumes: int, repetition_time: float, n_first: int) -> FloatArray:
    """Unit-norm cosines slower than 128 s (K, T), without the constant; zero before the steady state."""
    n_steady = n_volumes - n_first
    order = int(2 * n_steady * repetition_time / CUTOFF_SECONDS)
    phase = np.pi * (np.arange(n_steady) + 0.5) / n_steady
    cosines = np.zeros((order, n_volumes))
    cosines[:, n_first:] = np.sqrt(2 / n_steady) * np.cos(np.outer(np.arange(1, order + 1), phase))
    return cosines


def _find_components(
    voxels: FloatArray, cosines: FloatArray, n_first: int, letter: str, mask: str | None
) -> tuple[Columns, Metadata]:
    """Principal components of high-passed, standardised voxels, enough for half of their variance and at least five."""
    series, slow = voxels[:, n_first:], cosines[:, n_first:]
    series = series - series.mean(axis=1, keepdims=True)
    series = series - (series @ slow.T) @ slow
    series /= series.std(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(series.T @ series)
    values, vectors = values[::-1], vectors[:, ::-1]
    share = values / values.sum()
    enough = int(np.searchsorted(np.cumsum(share), EXPLAINED)) + 1
    columns: Columns = {}
    metadata: Metadata = {}
    for index in range(max(enough, FEWEST_COMPONENTS)):
        name = f"{letter}_comp_cor_{index:02d}"
        # The largest entry is positive, so that the table does not depend on the LAPACK at hand; adding 0 takes the
        # sign from what rounds to zero.
        sign = np.sign(vectors[np.argmax(np.abs(vectors[:, index])), index])
        columns[name] = np.concatenate([np.zeros(n_first), np.round(sign * vectors[:, index], DECIMALS) + 0.0])
        metadata[name] = {
            "CumulativeVarianceExplained": round(float(share[: index + 1].sum()), DECIMALS),
            **({"Mask": mask} if mask else {}),
            "Method": "aCompCor" if mask else "tCompCor",
            "Retained": True,
            "SingularValue": round(float(np.sqrt(values[index])), DECIMALS),
            "VarianceExplained": round(float(share[index]), DECIMALS),
        }
    return columns, metadata


def _mark(name: str, volumes: NDArray[np.int64], n_volumes: int) -> Columns:
    """One column per volume, 1 there and 0 elsewhere."""
    return {f"{name}{index:02d}": np.eye(1, n_volumes, int(volume))[0] for index, volume in enumerate(volumes)}
