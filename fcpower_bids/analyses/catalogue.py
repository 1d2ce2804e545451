"""The analyses by name, and the first look of each, which raises `errors.Unfit` as the analysis would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from fcpower_bids.analyses.study import open_study
from fcpower_bids.records import Table

ANALYSES: Mapping[str, Callable[..., dict[str, Table]]] = {
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
FIRST_LOOKS: Mapping[str, Callable[..., Any]] = {
    "prediction": prediction.prepare,
    "fingerprinting": fingerprinting.prepare,
    "alpha_selection": open_study,
    "qc_fc": qc_fc.prepare,
    "edges": edges.prepare,
    "transform_screen": transform_screen.prepare,
    "spectral_controls": spectral_controls.prepare,
    "spectrum_geometry": spectrum_geometry.prepare,
    "learning_curves": curves.prepare,
    "encoder_comparison": comparisons.prepare_encoders,
    "parcellation_sweep": comparisons.prepare_parcellations,
}
