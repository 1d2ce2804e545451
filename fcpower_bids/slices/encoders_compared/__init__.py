"""Encoders against each other and against connectivity."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    analyses={"encoder_comparison": "fcpower_bids.slices.encoders_compared.analysis:analyse_encoders"},
    sections={
        "encoder": "fcpower_bids.slices.encoders_compared.page:ENCODER_PART",
        "encoders": "fcpower_bids.slices.encoders_compared.page:COMPARISON_PART",
    },
    methods={"encoder_comparison": "fcpower_bids.slices.encoders_compared.page:METHODS"},
)
