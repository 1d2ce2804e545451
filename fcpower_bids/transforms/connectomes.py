"""All connectomes of one recording: FC and the transforms that were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.connectome import covered_parcels, pearson_connectivity
from fcpower_bids.errors import RecordingError, Unfit, UsageError
from fcpower_bids.settings import Method
from fcpower_bids.transforms.stateless import STATELESS, Transform

TRANSFORMS = {row.name: row for row in STATELESS}
FC = "fc"
ESTIMATOR = "Pearson correlation"
Connectome = tuple[np.ndarray, dict[str, Any]]
"""A matrix (P, P), and what its sidecar says."""


def transform_parameters(name: str, settings: Method) -> dict[str, Any]:
    """Return the user's values of a transform's parameters, which are called like the options."""
    return {parameter: getattr(settings, parameter) for parameter in TRANSFORMS[name].parameters}


def make_transform(name: str, settings: Method) -> Transform:
    """Return a transform of single recordings with the user's parameters. Raises UsageError."""
    return recording_transform(name, transform_parameters(name, settings))


def recording_transform(name: str, parameters: Mapping[str, Any]) -> Transform:
    """Return a transform of single recordings with these parameters. Raises UsageError."""
    if (transform := TRANSFORMS.get(name)) is None:
        raise UsageError(f"There is no transform called '{name}'. Choose from: {', '.join(TRANSFORMS)}.")
    return replace(transform, parameters={**transform.parameters, **parameters})


def connectivity_of(series: np.ndarray, names: Sequence[str]) -> Connectome:
    """Compute FC from one cleaned series (T, P). Raises RecordingError."""
    with _naming(names):
        return pearson_connectivity(series), {"Estimator": ESTIMATOR}


def transform_recording(
    transform: Transform, matrix: FloatArray, series: np.ndarray, names: Sequence[str]
) -> Connectome:
    """Transform FC (P, P), or its series (T, P) where the transform needs that. Raises RecordingError."""
    source = series if transform.needs == "series" else matrix
    if not len(source):
        raise RecordingError(f"The transform '{transform.label}' needs a series, which averaged runs do not have.")
    with _naming(names):
        transformed = transform.transform(source)
        covered = covered_parcels(matrix)
        if transformed.shape != matrix.shape or not np.isfinite(transformed[np.ix_(covered, covered)]).all():
            # `Unfit` would blame the recording for it.
            raise FloatingPointError(f"The transform '{transform.label}' gave no number where FC has one.")
        return transformed, transform.metadata(source)


@contextmanager
def _naming(names: Sequence[str]) -> Iterator[None]:
    """Name the parcels of an error by which a recording is refused."""
    try:
        yield
    except Unfit as error:
        parcels = [names[i] for i in getattr(error, "parcels", ())]
        listed = f"{error} Parcels: {', '.join(parcels)}." if parcels else str(error)
        raise RecordingError(listed) from error
