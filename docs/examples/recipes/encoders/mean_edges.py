"""The strength of every parcel as an embedding: a baseline without weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fcpower_bids.errors import RecordingError


class MeanEdges:
    """Mean correlation of each parcel with the others."""

    def embed(
        self,
        series: Sequence[ArrayLike],
        parcel_names: Sequence[str],
        repetition_time: float | Sequence[float],
        read: str = "sequence",
    ) -> NDArray[np.float32]:
        """Embed n recordings (T_i, P): array (n, P)."""
        return np.asarray([self._strengths(np.asarray(one), len(parcel_names)) for one in series], dtype=np.float32)

    def _strengths(self, series: NDArray[np.float64], n_parcels: int) -> NDArray[np.float64]:
        if len(series) < 3 or series.shape[1] != n_parcels or not (np.ptp(series, axis=0) > 0).all():
            raise RecordingError(
                "Every parcel needs 3 volumes and a signal that varies; choose another atlas with --atlas."
            )
        return np.asarray(np.corrcoef(series.T).mean(axis=0))

    def provenance(self, read: str = "sequence") -> dict[str, Any]:
        """Say what the numbers are."""
        return {"name": "mean-edges", "read": read, "licence": "n/a"}


def load_mean_edges(weights: object, **options: Any) -> MeanEdges:
    """Load nothing: there are no weights."""
    return MeanEdges()
