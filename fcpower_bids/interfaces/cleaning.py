"""Parcel means to cleaned series."""

from __future__ import annotations

from pathlib import Path

from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, traits

from fcpower_bids.imaging.confounds.cleaning import clean_recording
from fcpower_bids.imaging.series.streaming import VolumeFigures
from fcpower_bids.interfaces.bundles import load_bundle, save_bundle, save_cleaning, settings_of
from fcpower_bids.interfaces.step import Step
from fcpower_bids.records import Recording

CHOICES = (
    *("strategy", "high_pass", "low_pass", "filter_order", "padding", "convention", "dummy_scans", "fd_thresh"),
    *("head_radius", "motion_filter_type", "band_stop_min", "band_stop_max", "motion_filter_order"),
    *("min_time", "min_coverage", "compact"),
)


class BandpassInputSpec(BaseInterfaceInputSpec):
    """Parcel means, confounds, and how to clean."""

    parcels = traits.List(File(exists=True), mandatory=True, desc="of Parcellate, one per atlas")
    repetition_time = traits.Float(mandatory=True, desc="seconds between volumes")
    confounds = File(exists=True, desc="confounds table of fMRIPrep [none]")
    confounds_metadata = File(exists=True, desc="its JSON, for aCompCor")
    strategy = traits.Str("24P", usedefault=True, desc="confound strategy: a shipped name or a YAML file")
    high_pass = traits.Float(0.01, usedefault=True, desc="lower edge of the pass-band in Hz, 0 for none")
    low_pass = traits.Float(0.08, usedefault=True, desc="upper edge of the pass-band in Hz, 0 for none")
    filter_order = traits.Int(desc="order of the Butterworth filter [of the convention]")
    padding = traits.Str(desc="how a series goes on beyond its ends in the filter [of the convention]")
    convention = traits.Str("fcpower", usedefault=True, desc="whose steps are followed: fcpower, nilearn or xcp_d")
    dummy_scans = traits.Str("auto", usedefault=True, desc="volumes to drop at the start: a number or 'auto'")
    fd_thresh = traits.Float(0.5, usedefault=True, desc="censor volumes with more displacement in mm, 0 for none")
    head_radius = traits.Str(desc="radius of the head in mm, or 'auto' [displacement as in the table]")
    mask = File(exists=True, desc="brain mask, for head_radius 'auto' alone")
    motion_filter_type = traits.Str(desc="filter of the motion parameters: notch or lp [none]")
    band_stop_min = traits.Float(desc="its lower edge in breaths per minute")
    band_stop_max = traits.Float(desc="its upper edge in breaths per minute")
    motion_filter_order = traits.Int(4, usedefault=True, desc="its order, over all passes")
    min_time = traits.Float(120.0, usedefault=True, desc="seconds that must be left after censoring")
    min_coverage = traits.Float(0.5, usedefault=True, desc="share of a parcel's voxels that must have signal")
    compact = traits.Bool(False, usedefault=True, desc="round the series to single precision, as they are stored")
    source = traits.Str("the series", usedefault=True, nohash=True, desc="the series, for messages")


class BandpassOutputSpec(TraitedSpec):
    """Treatment of the volumes, and the cleaned series."""

    cleaning = File(exists=True, desc="volumes kept, motion, design, degrees of freedom (records.Cleaning)")
    series = traits.List(File(exists=True), desc="cleaned, z-scored series (T, P) per atlas; none when excluded")
    excluded = traits.Str(desc="why the recording does not pass the quality limits; empty when it does")


class Bandpass(Step):
    """Dummy scans, censoring, band-pass, confound regression, z-score, in the order of `core.signal.timeseries`.

    They are one node because their order is one decision: series and confounds are interpolated over censored volumes
    and filtered alike, then censored, then the confounds are regressed.
    """

    input_spec = BandpassInputSpec
    output_spec = BandpassOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        given = self.inputs
        bundles = [load_bundle(path) for path in given.parcels]
        recording = Recording(
            Path(given.source),
            (),
            given.repetition_time,
            self.path("mask"),
            confounds=self.path("confounds"),
            confounds_metadata=self.path("confounds_metadata"),
        )
        parcels = [(arrays["series"], arrays["coverage"]) for arrays, _ in bundles]
        choices = {name: self.given(name) for name in CHOICES}
        names = [facts["atlas"] for _, facts in bundles]
        measured = VolumeFigures(*(bundles[0][0][name] for name in VolumeFigures._fields))
        cleaning, series = clean_recording(recording, names, parcels, settings_of(choices), measured)
        self._results["cleaning"] = save_cleaning(folder / "cleaning.npz", cleaning, choices)
        self._results["excluded"] = cleaning.excluded
        self._results["series"] = [
            save_bundle(
                folder / f"series_{facts['atlas']}.npz",
                {"series": one.clean},
                {**facts, "repetition_time": given.repetition_time, "flat": one.flat, "stray": one.stray},
            )
            for one, (_, facts) in zip(series, bundles, strict=True)
            if not cleaning.excluded
        ]
