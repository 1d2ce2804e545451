"""FC^alpha as a scikit-learn transformer that takes what nilearn gives: series, matrices or vectors of edges."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import ROUNDING, edge_count, rebuild_matrix, vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.connectome.spectrum import CLIP_TOLERANCE

INPUTS = ("matrices", "series", "edges")
OUTPUTS = ("edges", "matrices")
ORDERS = ("upper", "lower")
NILEARN_DIAGONAL = 0.5**0.5
"""Value of the ones of a diagonal in nilearn's vectors."""


class SpectralPower(TransformerMixin, BaseEstimator):
    """FC^alpha of every connectome by itself; nothing is learned from other people.

    Parameters
    ----------
    alpha : float
        The exponent.
    output : str
        "edges" (one triangle times sqrt(2), what a regression wants) or "matrices".
    tolerance : float
        Eigenvalues up to this share of the largest are outside the range of the matrix and stay 0.
    input : str
        Input of `transform` for each scan: "matrices" (P, P); "series" (T, P), whose Pearson correlation is taken;
        or "edges" (P (P - 1) / 2,), correlations without weights, as
        ``ConnectivityMeasure(kind="correlation", vectorize=True, discard_diagonal=True)`` of nilearn gives them.
    order : str
        Triangle that vectors of edges are, row by row: "upper", that of ``numpy.triu_indices(P, 1)``, or "lower",
        nilearn's. It holds for input and output.

    Attributes
    ----------
    n_parcels_ : int
        Number of parcels seen in `fit`.

    Notes
    -----
    Source: the paper, Equation 1. nilearn's `ConnectivityMeasure` shrinks by default (Ledoit-Wolf), which flattens the
    spectrum already; give it ``cov_estimator=EmpiricalCovariance()``.
    """

    def __init__(
        self,
        alpha: float = ALPHA_STAR,
        output: str = "edges",
        tolerance: float = CLIP_TOLERANCE,
        input: str = "matrices",
        order: str = "upper",
    ) -> None:
        self.alpha = alpha
        self.output = output
        self.tolerance = tolerance
        self.input = input
        self.order = order

    def fit(self, X: Collection[ArrayLike], y: Any = None) -> SpectralPower:
        """Remember the number of parcels of the first of n scans."""
        for name, known in (("input", INPUTS), ("output", OUTPUTS), ("order", ORDERS)):
            if getattr(self, name) not in known:
                choices = " or ".join(map(repr, known))
                raise ValueError(f"The {name} must be {choices}, not {getattr(self, name)!r}.")
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1 (1 is FC itself), not {self.alpha}.")
        self.n_parcels_ = len(next(self._connectomes(X)))
        return self

    def transform(self, X: Collection[ArrayLike]) -> FloatArray:
        """Raise the connectomes of n scans to the power alpha: (n, P (P - 1) / 2), or (n, P, P) for matrices.

        Parameters
        ----------
        X : array or sequence
            As `input` says; series may be a list of different lengths. Scans are taken one by one.
        """
        check_is_fitted(self, "n_parcels_")
        n_parcels = self.n_parcels_
        shape = (n_parcels, n_parcels) if self.output == "matrices" else (edge_count(n_parcels),)
        raised = np.empty((len(X), *shape))
        for row, connectome in enumerate(self._connectomes(X)):
            raised[row] = self._raise(connectome)
        return raised

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Name the edges after the two parcels that they join, ``A--B``.

        Parameters
        ----------
        input_features : array_like of str, shape (P,), optional
            Names of the parcels; ``x0``, ``x1``, ... without.
        """
        check_is_fitted(self, "n_parcels_")
        if self.output != "edges":
            raise ValueError("Matrices have no names of features; choose output='edges'.")
        n_parcels = self.n_parcels_
        names = (
            [f"x{i}" for i in range(n_parcels)]
            if input_features is None
            else [str(name) for name in np.asarray(input_features)]
        )
        if len(names) != n_parcels:
            raise ValueError(f"{len(names)} names do not fit {n_parcels} parcels.")
        first, second = np.triu_indices(n_parcels, 1) if self.order == "upper" else np.tril_indices(n_parcels, -1)
        return np.array([f"{names[i]}--{names[j]}" for i, j in zip(first, second, strict=True)], dtype=object)

    def _raise(self, connectome: FloatArray) -> FloatArray:
        if len(connectome) != self.n_parcels_:
            raise ValueError(f"Connectomes of {len(connectome)} parcels do not fit a transform of {self.n_parcels_}.")
        power = spectral_power(connectome, self.alpha, self.tolerance)
        if self.output == "matrices":
            return np.asarray(power)
        edges = np.asarray(vectorise_edges(power), dtype=np.float64)
        return edges if self.order == "upper" else edges[_from_upper(len(power))]

    def _connectomes(self, X: Collection[ArrayLike]) -> Iterator[FloatArray]:
        """Yield the connectomes (P, P) of all scans."""
        n_dimensions = 1 if self.input == "edges" else 2
        if not len(X):
            raise ValueError(self._expected((0,)))
        for scan in X:
            values = np.asarray(scan, dtype=np.float64)
            if values.ndim != n_dimensions or (self.input == "matrices" and len(set(values.shape)) > 1):
                raise ValueError(self._expected(getattr(X, "shape", values.shape)))
            yield self._connectome(values)

    def _connectome(self, values: FloatArray) -> FloatArray:
        if self.input == "series":
            return pearson_connectivity(values)
        if self.input == "matrices":
            _check_correlations(values)
            return values
        n_parcels = (1 + math.isqrt(1 + 8 * values.size)) // 2
        if self.order == "lower" and edge_count(n_parcels) == values.size:
            diagonal = values[np.cumsum(np.arange(1, n_parcels)) - 1]
            if n_parcels > 3 and np.allclose(diagonal, NILEARN_DIAGONAL, rtol=0, atol=1e-9):
                raise ValueError("These vectors hold the diagonal too; make them with discard_diagonal=True.")
            upper = np.empty_like(values)
            upper[_from_upper(n_parcels)] = values
            values = upper
        return np.asarray(rebuild_matrix(values, diagonal=1.0, weighted=False))

    def _expected(self, shape: tuple[int, ...]) -> str:
        wanted = {
            "matrices": "Connectomes must be an array (n, P, P)",
            "series": "Series must be n arrays (T, P)",
            "edges": "Vectors of edges must be an array (n, P (P - 1) / 2)",
        }[self.input]
        return f"{wanted} with one or more of them, not {shape}."

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = self.input == "edges", self.input != "edges"
        tags.requires_fit = False
        return tags


def _check_correlations(matrix: FloatArray) -> None:
    """Refuse a matrix (P, P) that is no correlation matrix, whose power would be another thing. Raises ValueError."""
    diagonal = np.diag(matrix)
    odd = diagonal[~np.isnan(diagonal) & ~(np.abs(diagonal - 1) <= ROUNDING)]
    if len(odd):
        raise ValueError(
            f"A connectome has {odd[0]:.3g} on its diagonal, where correlations have 1: scale a covariance first, undo "
            "Fisher z with tanh, and set the diagonal to 1."
        )
    largest = float(np.nanmax(np.abs(matrix), initial=0.0))
    if largest > 1 + ROUNDING:
        raise ValueError(
            f"A connectome has the value {largest:.3g}, which no correlation has: undo Fisher z with tanh."
        )
    if np.nanmax(np.abs(matrix - matrix.T), initial=0.0) > ROUNDING:
        raise ValueError("The two halves of a connectome differ, so it is no matrix of correlations.")


def _from_upper(n_parcels: int) -> NDArray[np.intp]:
    """Where the edges of the lower triangle, row by row, stand in the upper one."""
    first, second = np.tril_indices(n_parcels, -1)  # the edge (second, first) of the upper triangle
    return second * n_parcels - second * (second + 1) // 2 + first - second - 1
