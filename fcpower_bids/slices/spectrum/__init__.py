"""The spectrum of connectomes, and the source of the gain of FC^alpha."""

from fcpower_bids.plugins import Slice

SLICE = Slice(
    options={"spectrum": "fcpower_bids.slices.spectrum.options:FilterChoices"},
    analyses={
        "transform_screen": "fcpower_bids.slices.spectrum.screen:analyse_transforms",
        "spectral_controls": "fcpower_bids.slices.spectrum.controls:analyse_controls",
        "spectrum_geometry": "fcpower_bids.slices.spectrum.geometry:analyse_geometry",
    },
    sections={
        "screen": "fcpower_bids.slices.spectrum.page:SCREEN_PART",
        "controls": "fcpower_bids.slices.spectrum.page:CONTROLS_PART",
        "spectrum": "fcpower_bids.slices.spectrum.geometry_page:PART",
    },
    methods={
        "transform_screen": "fcpower_bids.slices.spectrum.page:METHODS_SCREEN",
        "spectral_controls": "fcpower_bids.slices.spectrum.page:METHODS_CONTROLS",
        "spectrum_geometry": "fcpower_bids.slices.spectrum.geometry_page:METHODS",
    },
)
