"""The closed-form student of a corpus, fitted in one step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fcpower_bids.core.filters.student import fit_student, principal_coordinates
from fcpower_bids.encoders.closed_form import ClosedForm, ClosedFormConfig, power_edges_of
from fcpower_bids.encoders.residual import ResidualConfig, ResidualFBert
from fcpower_bids.errors import UsageError
from fcpower_bids.slices.pretraining.configuration import PretrainConfig
from fcpower_bids.slices.pretraining.corpus.opened import Corpus
from fcpower_bids.slices.pretraining.engine import EVALUATION

MOST_BYTES = 10**9
"""Size of the features that are held: windows are drawn evenly where there are more."""
BATCH = 64
PARTS = 5
"""Of the families, in cross-fitting."""


@dataclass(frozen=True, eq=False)
class Fitting:
    """Windows of training recordings, and the coordinates that they are mapped to."""

    features: NDArray[np.float32]  # (n, E): edges of FC^alpha of each window
    coordinates: NDArray[np.float64]  # (n, at most d): of the recording of each window
    rows: NDArray[np.intp]  # (n,): that recording
    corpus: Corpus
    d: int

    @classmethod
    def of(cls, corpus: Corpus, rows: NDArray[np.intp], config: PretrainConfig) -> Fitting:
        """Read the windows of these recordings."""
        chosen, starts = spread_windows(corpus, rows, config)
        features = np.concatenate(
            [
                power_edges_of(corpus.windows(chosen[i], starts[i], config.window), corpus.alpha).float().cpu().numpy()
                for i in (slice(first, first + BATCH) for first in range(0, len(chosen), BATCH))
            ]
        )
        recordings, member = np.unique(chosen, return_inverse=True)
        kernel = corpus.kernel_of(recordings).cpu().double().numpy()
        d = config.model_config(len(corpus.parcel_names)).d
        return cls(features, principal_coordinates(kernel, d)[member], chosen, corpus, d)

    def fit(self, kept: NDArray[np.bool_] | None = None) -> ClosedForm:
        """Fit the student to all windows, or to those that are kept. Raises Unfit."""
        kept = np.ones(len(self.rows), dtype=bool) if kept is None else kept
        mean, weights = fit_student(self.features[kept], self.coordinates[kept])
        return ClosedForm.of(mean, weights, len(self.corpus.parcel_names), self.corpus.alpha)


def fit_closed_form(corpus: Corpus, rows: NDArray[np.intp], config: PretrainConfig) -> ClosedForm:
    """Fit the student to windows of these recordings; at most as many numbers long as F-BERT of the same sizes."""
    return Fitting.of(corpus, rows, config).fit()


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Closed forms each fitted without one part of the families, since a student learns nothing from what they saw."""

    forms: tuple[ClosedForm, ...]
    part: NDArray[np.intp]  # of each recording of the corpus

    @torch.no_grad()
    def __call__(self, x: Tensor, rows: NDArray[np.intp]) -> Tensor:
        """Coordinates (b, d) of windows (b, T, P) of these recordings."""
        out = torch.empty(len(x), self.forms[0].config.d, device=x.device)
        for part in np.unique(self.part[rows]):
            members = torch.from_numpy(np.flatnonzero(self.part[rows] == part)).to(x.device)
            out[members] = self.forms[part](x[members]).to(out)
        return out


def make_residual(corpus: Corpus, rows: NDArray[np.intp], config: PretrainConfig) -> tuple[ResidualFBert, CrossFitted]:
    """Make a student that is the closed form of these recordings, and the closed forms that it learns from."""
    shape = asdict(config.model_config(len(corpus.parcel_names)))
    model = ResidualConfig(**shape, exponent=corpus.alpha).build(config.seed)
    fitting = Fitting.of(corpus, rows, config)
    model.begin(fitting.fit(), fitting.features)
    families = np.unique(corpus.families[rows], return_inverse=True)[1]
    part_of = np.random.default_rng((config.seed, EVALUATION, PARTS)).permutation(families.max() + 1) % PARTS
    part = np.zeros(len(corpus), dtype=np.intp)
    part[rows] = part_of[families]
    forms = (fitting.fit(part[fitting.rows] != k).widened(model.config.d) for k in range(PARTS))
    return model, CrossFitted(tuple(form.to(corpus.kernel.device) for form in forms), part)


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
