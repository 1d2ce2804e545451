"""Fitted models for new people: predictions with intervals, a page per person."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"models": "fcpower_bids.slices.clinic.options:ModelChoices"},
    checks={"models": "fcpower_bids.slices.clinic.options:check_models"},
    after_analyses={"models": "fcpower_bids.slices.clinic.folder:save_models"},
    tables={
        "`--save-models`": "fcpower_bids.slices.clinic.folder:TABLES",
        "`fcpower_bids predict`": "fcpower_bids.slices.clinic.predict:TABLES",
    },
    commands={"predict": "fcpower_bids.slices.clinic.predict_command"},
    usage=("predict model [model ...] output_dir [--participant-label LABEL ...]",),
)
