"""Group analyses: arrays and tables in, long tables out.

No file of a dataset is read or written.

An analysis is a function ``(cohort, settings) -> {name of the table: Table}``; ``data/tables.tsv`` declares them.
It raises `errors.Unfit` with one plain sentence where the cohort cannot answer the question; ``prepare`` in its module
is its first look, which finds that out before anything is computed. A new one is one file, and one line here.
"""

from importlib import import_module
from typing import Any

from fcpower_bids.registry import Registry
from fcpower_bids.settings import Analysis

ANALYSES = Registry(
    "analysis",
    {
        "prediction": "fcpower_bids.analyses.prediction:analyse_prediction",
        "fingerprinting": "fcpower_bids.analyses.fingerprinting:analyse_fingerprinting",
        "alpha_selection": "fcpower_bids.analyses.alpha:analyse_alpha",
        "qc_fc": "fcpower_bids.analyses.qc_fc:analyse_qc_fc",
        "edges": "fcpower_bids.analyses.edges:analyse_edges",
        "transform_screen": "fcpower_bids.analyses.spectrum.screen:analyse_transforms",
        "spectral_controls": "fcpower_bids.analyses.spectrum.controls:analyse_controls",
        "spectrum_geometry": "fcpower_bids.analyses.spectrum.geometry:analyse_geometry",
        "learning_curves": "fcpower_bids.analyses.curves:analyse_learning_curves",
        "encoder_comparison": "fcpower_bids.analyses.encoder_comparison:analyse_encoders",
        "parcellation_sweep": "fcpower_bids.analyses.sweep:analyse_parcellations",
    },
)

OF_COHORTS = frozenset({"parcellation_sweep"})
"""Analyses that take a mapping of atlas to cohort instead of one cohort."""
ALL = "all"
"""Stands for every analysis in ``--analyses``."""
DEFAULT = ("prediction", "fingerprinting", "qc_fc")
"""Analyses that run where none is named, as far as the cohort has what they need."""


def check_choices(name: str, cohort: Any, settings: Analysis) -> None:
    """Raise Unfit as an analysis would after its first look, which is ``prepare`` in its module."""
    import_module(ANALYSES[name].__module__).prepare(cohort, settings)


def analyses_to_run(settings: Analysis) -> tuple[str, ...]:
    """Names of the analyses asked for (none: `DEFAULT`; ``all``: every one), and of the exponent's choice."""
    asked = settings.analyses or DEFAULT
    chosen = tuple(dict.fromkeys(analysis for name in asked for analysis in (ANALYSES if name == ALL else (name,))))
    rule = settings.alpha_selection
    needed = rule in ("grid", "align") or (rule == "nested" and "prediction" not in chosen)
    return tuple(dict.fromkeys((*chosen, "alpha_selection"))) if needed else chosen
