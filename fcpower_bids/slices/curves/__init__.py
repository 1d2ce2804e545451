"""Curves over more people, longer scans and other parcellations."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"curves": "fcpower_bids.slices.curves.options:CurveChoices"},
    analyses={"learning_curves": "fcpower_bids.slices.curves.learning:analyse_learning_curves"},
    analyses_of_cohorts={"parcellation_sweep": "fcpower_bids.slices.curves.sweep:analyse_parcellations"},
    sections={
        "curves": "fcpower_bids.slices.curves.page:CURVES_PART",
        "sweep": "fcpower_bids.slices.curves.page:SWEEP_PART",
    },
    methods={
        "learning_curves": "fcpower_bids.slices.curves.page:METHODS_LEARNING",
        "identification_curves": "fcpower_bids.slices.curves.page:METHODS_IDENTIFICATION",
        "parcellation_sweep": "fcpower_bids.slices.curves.page:METHODS_SWEEP",
    },
)
