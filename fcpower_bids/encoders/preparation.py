"""Series before they are fed: resampled, cut into windows, z-scored, as tensors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Array = NDArray[np.float64]


def resample(series: Array, repetition_time: float, target: float) -> Array:
    """Interpolate linearly at multiples of `target` seconds: (T, P) to (T', P)."""
    times = np.arange(len(series)) * repetition_time
    wanted = np.arange(int(times[-1] / target + 1e-9) + 1) * target
    left = np.minimum((wanted / repetition_time).astype(int), len(series) - 2)
    share = (wanted / repetition_time - left)[:, None]
    return np.asarray((1 - share) * series[left] + share * series[left + 1])


def crops(series: Array, frames: int, n: int) -> Array:
    """Cut n evenly spaced windows from (T, P), the first at the start and the last at the end: (n, frames, P)."""
    starts = np.linspace(0, len(series) - frames, n).astype(int)
    return np.stack([series[start : start + frames] for start in starts])


def z_scored(series: Array) -> Array:
    """Centre each parcel and divide by its standard deviation (denominator T); parcels without variance become 0."""
    centred = series - series.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(centred / np.where(spread > 1e-8, spread, np.inf))


def as_tensor(array: ArrayLike) -> Tensor:
    """Make a float32 tensor."""
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
