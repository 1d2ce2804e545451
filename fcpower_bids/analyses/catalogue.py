"""The analyses by name, and the first look of each, which raises `errors.Unfit` as the analysis would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fcpower_bids.analyses import (
    alpha,
    comparisons,
    curves,
    edges,
    fingerprinting,
    prediction,
    qc_fc,
    spectral_controls,
    spectrum_geometry,
    transform_screen,
)
from fcpower_bids.records import Looked, Table
from fcpower_bids.settings import Settings

# what is read to the first `yield` is the first look
_EVERY: Mapping[str, Callable[..., Looked]] = {
    "prediction": prediction.analyse_prediction,
    "fingerprinting": fingerprinting.analyse_fingerprinting,
    "alpha_selection": alpha.analyse_alpha,
    "qc_fc": qc_fc.analyse_qc_fc,
    "edges": edges.analyse_edges,
    "transform_screen": transform_screen.analyse_transforms,
    "spectral_controls": spectral_controls.analyse_controls,
    "spectrum_geometry": spectrum_geometry.analyse_geometry,
    "learning_curves": curves.analyse_learning_curves,
    "encoder_comparison": comparisons.analyse_encoders,
    "parcellation_sweep": comparisons.analyse_parcellations,
}


def _look(analyse: Callable[..., Looked], given: Any, settings: Settings) -> None:
    next(analyse(given, settings))


def _finish(analyse: Callable[..., Looked], given: Any, settings: Settings) -> dict[str, Table]:
    *_, tables = analyse(given, settings)
    return tables


FIRST_LOOKS = {name: partial(_look, analyse) for name, analyse in _EVERY.items()}
ANALYSES = {name: partial(_finish, analyse) for name, analyse in _EVERY.items()}
