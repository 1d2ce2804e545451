"""Fourier phase surrogates: another series with the same functional connectivity."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def surrogate_phases(n: int, length: int, generator: torch.Generator) -> Tensor:
    """Random phases (n, length // 2 + 1) in float64: uniform, 0 at frequency 0, 0 or pi at the Nyquist frequency."""
    phases = 2 * math.pi * torch.rand(n, length // 2 + 1, generator=generator, dtype=torch.float64)
    phases[:, 0] = 0
    if length % 2 == 0:
        phases[:, -1] = math.pi * (phases[:, -1] > math.pi).double()
    return phases


def phase_surrogate(x: Tensor, phases: Tensor) -> Tensor:
    """Rotate the spectrum of every parcel by the same phase per frequency.

    All cross-spectra are unchanged, hence the covariance too ("No positive pair", Appendix K of the paper).

    Parameters
    ----------
    x : Tensor, shape (n, T, P)
    phases : Tensor, shape (n, T // 2 + 1)
        From `surrogate_phases`.

    Returns
    -------
    Tensor, shape (n, T, P)
    """
    spectrum = torch.fft.rfft(x, dim=1)
    rotation = torch.polar(torch.ones_like(phases), phases).to(spectrum)
    return torch.fft.irfft(spectrum * rotation[:, :, None], n=x.shape[1], dim=1)
