"""Outputs for others: a copy without names, and the outputs of jobs or sites put together."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    commands={
        "export": "fcpower_bids.slices.sharing.export_command",
        "combine": "fcpower_bids.slices.sharing.combine_command",
    },
    usage=("export output_dir share", "combine output_dir [SITE=]source [[SITE=]source ...]"),
)
