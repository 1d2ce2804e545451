"""Connectomes of a few directions of the parcels: which directions keep most, and FC among them."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.linalg import blas

from fcpower_bids.core.connectome.connectivity import Array, standardise


def coskewness_gram(series: Array) -> Array:
    """Inner products between parcels of their unfolded co-skewness, shape (P, P).

    The co-skewness of a z-scored series X, shape (T, P), is the tensor S_ijk = sum_t x_ti x_tj x_tk / T. Unfolded to a
    matrix (P, P**2) its Gram matrix is ``X' ((X X') o (X X')) X / T**2``, without the tensor.

    Source: Marraffini et al. 2026 (arXiv:2606.04010) for the use of the subspace that best keeps it.
    """
    standard = standardise(series)
    n_volumes = len(standard)
    # With L the lower triangle of the squared products and half their diagonal, X'(L + L')X = X'LX + (X'LX)'.
    lower = blas.dsyrk(1.0, standard.T, trans=1, lower=1)
    np.square(lower, out=lower)
    lower.flat[:: n_volumes + 1] /= 2
    half = standard.T @ blas.dtrmm(1.0, lower, standard, lower=1)
    return np.asarray((half + half.T) / n_volumes**2)


def leading_directions(gram: Array, n_directions: int) -> Array:
    """Orthonormal directions, shape (P, n_directions), that keep most of a symmetric positive semidefinite matrix."""
    n = len(gram)
    _, vectors = linalg.eigh(gram, subset_by_index=(n - n_directions, n - 1), check_finite=False)
    return np.asarray(vectors)[:, ::-1]


def project_connectivity(connectivity: Array, directions: Array) -> Array:
    """FC, shape (k, k), of the series projected to k directions (P, k), from FC of the parcels: no series is needed."""
    covariance = directions.T @ connectivity @ directions
    scale = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / np.outer(scale, scale))
