"""All connectomes of one recording: FC and the transforms that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fcpower_bids.core.connectome.connectivity import Array, covered_parcels, pearson_connectivity
from fcpower_bids.errors import RecordingError, Unfit, UsageError
from fcpower_bids.settings import Method
from fcpower_bids.transforms import TRANSFORMS

FC = "fc"


def make_transform(name: str, settings: Method) -> Any:
    """Return a transform with the user's parameters: a field that is called like an option of `Method` is that option.

    Raises
    ------
    UsageError
        If the transform is fitted on a group, which one recording is not.
    """
    transform = TRANSFORMS[name]
    if not transform.stateless:
        raise UsageError(f"The transform '{name}' is fitted on a cohort. Use it at group level, not on one recording.")
    options = {field.name for field in fields(Method)}
    chosen = [field.name for field in fields(transform) if field.name in options]
    return transform(**{key: getattr(settings, key) for key in chosen})


def connect(
    series: np.ndarray, names: Sequence[str], settings: Method, connectivity: np.ndarray | None = None
) -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """Compute FC and its transforms from one cleaned series.

    Parameters
    ----------
    series : ndarray, shape (T, P)
        Cleaned and z-scored; NaN columns are uncovered parcels. Without rows (an excluded recording): no connectome.
    names : sequence of str
        Parcels, for error messages.
    settings : Method
        Which transforms, and their parameters.
    connectivity : ndarray, shape (P, P), optional
        FC, where it is not that of the series: an average over runs.

    Returns
    -------
    dict
        ``"fc"`` and each transform: matrix (P, P) and what its sidecar says.

    Raises
    ------
    RecordingError
        If a parcel carries no information, or a transform cannot be had from this series; parcels are named.
    """
    if not len(series) and connectivity is None:
        return {}
    try:
        matrix = pearson_connectivity(series) if connectivity is None else connectivity
        connectomes = {FC: (matrix, {"Estimator": "Pearson correlation"})}
        for name in settings.transforms:
            transform = make_transform(name, settings)
            source = series if transform.needs == "series" else matrix
            if not len(source):
                raise Unfit(f"The transform '{name}' needs a series, which averaged runs do not have.")
            transformed = transform.fit([source]).transform([source])[0]
            _check_values(name, transformed, matrix)
            connectomes[name] = (transformed, transform.metadata(source))
    except Unfit as error:
        raise RecordingError(_with_names(error, names)) from error
    return connectomes


def _check_values(name: str, transformed: Array, matrix: Array) -> None:
    """Refuse to hand on what no sound FC becomes; `Unfit` would blame the recording for it."""
    covered = covered_parcels(matrix)
    if transformed.shape != matrix.shape or not np.isfinite(transformed[np.ix_(covered, covered)]).all():
        raise FloatingPointError(f"The transform '{name}' gave no number where FC has one.")


def _with_names(error: Unfit, names: Sequence[str]) -> str:
    parcels = [names[i] for i in getattr(error, "parcels", ())]
    return f"{error} Parcels: {', '.join(parcels)}." if parcels else str(error)
