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

_BOTH: Mapping[str, tuple[Callable[..., Any], Callable[..., dict[str, Table]]]] = {
    "prediction": (prediction.prepare, prediction.analyse_prediction),
    "fingerprinting": (fingerprinting.prepare, fingerprinting.analyse_fingerprinting),
    "alpha_selection": (open_study, alpha.analyse_alpha),
    "qc_fc": (qc_fc.prepare, qc_fc.analyse_qc_fc),
    "edges": (edges.prepare, edges.analyse_edges),
    "transform_screen": (transform_screen.prepare, transform_screen.analyse_transforms),
    "spectral_controls": (spectral_controls.prepare, spectral_controls.analyse_controls),
    "spectrum_geometry": (spectrum_geometry.prepare, spectrum_geometry.analyse_geometry),
    "learning_curves": (curves.prepare, curves.analyse_learning_curves),
    "encoder_comparison": (comparisons.prepare_encoders, comparisons.analyse_encoders),
    "parcellation_sweep": (comparisons.prepare_parcellations, comparisons.analyse_parcellations),
}
FIRST_LOOKS = {name: look for name, (look, _) in _BOTH.items()}
ANALYSES = {name: analyse for name, (_, analyse) in _BOTH.items()}
