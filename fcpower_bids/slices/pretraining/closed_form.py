"""The closed-form student of a corpus, fitted in one step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fcpower_bids.core.filters.student import fit_student, power_edges, principal_coordinates
from fcpower_bids.encoders.closed_form import ClosedForm, ClosedFormConfig
from fcpower_bids.errors import UsageError
from fcpower_bids.slices.pretraining.configuration import PretrainConfig
from fcpower_bids.slices.pretraining.corpus.opened import Corpus
from fcpower_bids.slices.pretraining.engine import EVALUATION

MOST_BYTES = 10**9
"""Size of the features that are held: windows are drawn evenly where there are more."""
BATCH = 64


def fit_closed_form(corpus: Corpus, rows: NDArray[np.intp], config: PretrainConfig) -> ClosedForm:
    """Fit the student to windows of these recordings, as many numbers long as F-BERT of the same configuration.

    Raises Unfit.
    """
    n_parcels = len(corpus.parcel_names)
    chosen, starts = spread_windows(corpus, rows, config)
    features = np.concatenate(
        [
            power_edges(corpus.windows(chosen[i], starts[i], config.window).cpu().numpy(), corpus.alpha).astype("f4")
            for i in (slice(first, first + BATCH) for first in range(0, len(chosen), BATCH))
        ]
    )
    recordings, member = np.unique(chosen, return_inverse=True)
    kernel = corpus.kernel_of(recordings).cpu().double().numpy()
    coordinates = principal_coordinates(kernel, config.model_config(n_parcels).d)
    mean, weights = fit_student(features, coordinates[member])
    return ClosedForm.of(mean, weights, n_parcels, corpus.alpha)


def spread_windows(
    corpus: Corpus, rows: NDArray[np.intp], config: PretrainConfig
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return recordings and starts of windows that share no volume, one of each recording before a second of any."""
    n_parcels = len(corpus.parcel_names)
    most = max(2, MOST_BYTES // (4 * n_parcels * (n_parcels - 1) // 2))
    order = np.random.default_rng((config.seed, EVALUATION, len(rows))).permutation(rows)
    places, apart = corpus.places(config.window), corpus.windows_apart(config.window)
    found: list[tuple[int, int]] = []
    for view in range(int(apart[rows].max(initial=0))):
        having = order[apart[order] > view]
        found += [(row, round(view * (places[row] - 1) / max(1, apart[row] - 1))) for row in having]
        if len(found) >= most:
            break
    chosen = np.array(found[:most], dtype=np.intp).reshape(-1, 2)
    return chosen[:, 0], chosen[:, 1]


def refuse_closed_form(output: Path) -> None:
    """A folder has one model: a closed form is not replaced by a training. Raises UsageError."""
    path = output / "model" / "config.json"
    try:
        kind = json.loads(path.read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError):
        return
    if kind == ClosedFormConfig.model_type:
        raise UsageError(
            f"{output} holds a closed-form student; give another output folder, and the corpus with --corpus."
        )
