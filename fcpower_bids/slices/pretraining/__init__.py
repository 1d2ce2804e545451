"""Pretraining of F-BERT: a corpus, a student, a verdict against random weights."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"pretraining": "fcpower_bids.slices.pretraining.options:Pretraining"},
    option_sections={"pretrain": "Pretraining"},
    checks={"pretraining": "fcpower_bids.slices.pretraining.options:check_training"},
    levels={
        "pack": "fcpower_bids.slices.pretraining.options:PACK",
        "pretrain": "fcpower_bids.slices.pretraining.options:PRETRAIN",
    },
)
