"""Nodes of a recording, and their base: voxels to parcels, parcel means to cleaned series, series to connectomes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, File, SimpleInterface, TraitedSpec, isdefined, traits

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.loading import open_atlas
from fcpower_bids.imaging.confounds.cleaning import clean_recording
from fcpower_bids.imaging.series.parcellation import parcellate
from fcpower_bids.imaging.series.slices import VolumeFigures
from fcpower_bids.interfaces.bundles import SLICES, load_bundle, load_values, save_bundle, save_cleaning, settings_of
from fcpower_bids.records import Recording
from fcpower_bids.resources import peak_megabytes
from fcpower_bids.settings import CLEANING
from fcpower_bids.transforms.connectomes import FC, connectivity_of, recording_transform, transform_recording


class Step(SimpleInterface):
    """A node that works in its own folder and keeps the error that ended it; nipype would keep its text only."""

    error: BaseException | None = None

    def _run_interface(self, runtime: Any) -> Any:
        self.error = None
        try:
            self.work(Path(runtime.cwd))
        except BaseException as error:
            self.error = error
            raise
        runtime.peak_mb = peak_megabytes()
        return runtime

    def work(self, folder: Path) -> None:
        """Read ``self.inputs``, write into ``folder``, set ``self._results``."""
        raise AssertionError("each node says what it does")

    def given(self, name: str) -> Any:
        """Return an input, or None where it was not given."""
        value = getattr(self.inputs, name)
        return value if isdefined(value) else None

    def path(self, name: str) -> Path | None:
        """Return an input that is a file or folder, or None where it was not given."""
        value = self.given(name)
        return None if value is None else Path(value)


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
    source = traits.Str("the series", usedefault=True, nohash=True, desc="the series, for messages")


class BandpassOutputSpec(TraitedSpec):
    """Treatment of the volumes, and the cleaned series."""

    cleaning = File(exists=True, desc="volumes kept, motion, design, degrees of freedom (records.Cleaning)")
    series = traits.List(File(exists=True), desc="cleaned, z-scored series (T, P) per atlas; none when excluded")
    excluded = traits.Str(desc="why the recording does not pass the quality limits; empty when it does")


class Bandpass(Step):
    """Dummy scans, censoring, band-pass, regression, z-score: one node, because their order is one decision."""

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
        choices = {name: self.given(name) for name in CLEANING}
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


class ParcellateInputSpec(BaseInterfaceInputSpec):
    """One recording and its atlases."""

    bold = File(exists=True, mandatory=True, desc="preprocessed BOLD series: 4-D NIfTI or CIFTI dtseries")
    mask = File(exists=True, desc="brain mask on its grid (NIfTI only) [the whole grid]")
    atlases = traits.List(
        File(exists=True), mandatory=True, desc="label images with their tables, or files of imaging.atlas.described"
    )
    states = traits.List(traits.Str(), desc="checksums of the files, which nipype does not compute")


class ParcellateOutputSpec(TraitedSpec):
    """One file per atlas."""

    parcels = traits.List(File(exists=True), desc="series (T, P) and coverage (P,) under each atlas")


class Parcellate(Step):
    """Parcel means of every volume, all atlases in one pass."""

    input_spec = ParcellateInputSpec
    output_spec = ParcellateOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        atlases = [open_atlas(Path(path)) for path in self.inputs.atlases]
        self._results["parcels"] = []
        for atlas, one in zip(atlases, parcellate(Path(self.inputs.bold), self.path("mask"), atlases), strict=True):
            arrays = {name: values for name, values in one._asdict().items() if isinstance(values, np.ndarray)}
            shown = {} if one.slices is None else one.slices._asdict()
            arrays |= one.figures._asdict() | {f"{SLICES}{name}": values for name, values in shown.items()}
            facts = {"atlas": atlas.name, "parcels": atlas.names}
            self._results["parcels"].append(save_bundle(folder / f"parcels_{atlas.name}.npz", arrays, facts))


class ConnectivityInputSpec(BaseInterfaceInputSpec):
    """Cleaned series."""

    series = traits.List(File(exists=True), mandatory=True, desc="of Bandpass, or .npy or .tsv (T, P), one per atlas")


class ConnectivityOutputSpec(TraitedSpec):
    """One file per atlas."""

    connectivity = traits.List(File(exists=True), desc="Pearson FC (P, P) under each atlas")


class Connectivity(Step):
    """FC: the Pearson correlation of the parcel series."""

    input_spec = ConnectivityInputSpec
    output_spec = ConnectivityOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        self._results["connectivity"] = []
        for path in self.inputs.series:
            values, facts = load_values(path, "series")
            matrix, about = connectivity_of(values, facts["parcels"])
            saved = {"atlas": facts["atlas"], "parcels": facts["parcels"], "transform": FC, "about": about}
            written = save_bundle(folder / f"{FC}_{facts['atlas']}.npz", {"matrix": matrix}, saved)
            self._results["connectivity"].append(written)


class TransformInputSpec(BaseInterfaceInputSpec):
    """FC, the series for transforms that need it, and the transform."""

    series = traits.List(File(exists=True), desc="of Bandpass, for transforms of the series")
    connectivity = traits.List(
        File(exists=True), mandatory=True, desc="of Connectivity, or .npy or .tsv (P, P), one per atlas"
    )
    transform = traits.Str(mandatory=True, desc="a stateless entry of fcpower_bids.transforms.TRANSFORMS")
    parameters = traits.Dict(key_trait=traits.Str(), usedefault=True, desc="its parameters by name")


class TransformOutputSpec(TraitedSpec):
    """One file per atlas."""

    transformed = traits.List(File(exists=True), desc="transformed connectome (P, P) under each atlas")


class Transform(Step):
    """A connectome or series to a symmetric matrix of the same parcels."""

    input_spec = TransformInputSpec
    output_spec = TransformOutputSpec

    def chosen(self) -> tuple[str, Mapping[str, Any]]:
        """Return the name of the transform and its parameters."""
        return self.inputs.transform, self.inputs.parameters

    def work(self, folder: Path) -> None:  # noqa: D102
        name, parameters = self.chosen()
        transform, needed, rows = recording_transform(name, parameters), self.inputs.get().get("series"), np.empty(0)
        if transform.needs == "series" and not isdefined(needed):
            raise UsageError(f"The transform '{name}' needs the series: connect that port too.")
        self._results["transformed"] = []
        for number, path in enumerate(self.inputs.connectivity):
            values, facts = load_values(path, "matrix")
            if transform.needs == "series":
                rows = load_values(needed[number], "series")[0]
            matrix, about = transform_recording(transform, values, rows, facts["parcels"])
            saved = {"atlas": facts["atlas"], "parcels": facts["parcels"], "transform": name, "about": about}
            saved["label"] = transform.label
            written = save_bundle(folder / f"{name}_{facts['atlas']}.npz", {"matrix": matrix}, saved)
            self._results["transformed"].append(written)


class PowerInputSpec(BaseInterfaceInputSpec):
    """FC and the exponent."""

    connectivity = traits.List(
        File(exists=True), mandatory=True, desc="of Connectivity, or .npy or .tsv (P, P), one per atlas"
    )
    alpha = traits.Float(ALPHA_STAR, usedefault=True, desc="exponent of the eigenvalues; 1 is FC itself")


class Power(Transform):
    """FC^alpha: the eigenvalues of FC raised to alpha, its eigenvectors kept (the paper, Equation 1)."""

    input_spec = PowerInputSpec

    def chosen(self) -> tuple[str, Mapping[str, Any]]:  # noqa: D102
        return "power", {"alpha": self.inputs.alpha}
