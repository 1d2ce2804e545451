"""Encoders of others, each fed as its authors meant."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    encoders={
        "brainlm-111m": "fcpower_bids.slices.published_encoders.brainlm:load_brainlm",
        "brainlm-650m": "fcpower_bids.slices.published_encoders.brainlm:load_brainlm_650m",
        "brain-jepa": "fcpower_bids.slices.published_encoders.brain_jepa:load_brain_jepa",
        "brainmass": "fcpower_bids.slices.published_encoders.brainmass:load_brainmass",
        "brain-harmonix-f": "fcpower_bids.slices.published_encoders.brain_harmonix:load_brain_harmonix",
        "brain-semantoks": "fcpower_bids.slices.published_encoders.brain_semantoks:load_brain_semantoks",
    },
)
