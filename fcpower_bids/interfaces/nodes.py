"""Nodes of a recording, their base, and the files of arrays and JSON between them, which cannot run code."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, File, SimpleInterface, TraitedSpec, isdefined, traits

from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import open_atlas
from fcpower_bids.imaging.cleaning import clean_recording
from fcpower_bids.imaging.parcellation import parcellate
from fcpower_bids.imaging.streaming import VolumeFigures
from fcpower_bids.inputs.roots import dataset_names
from fcpower_bids.outputs.recording import Named, Results, write_recording
from fcpower_bids.outputs.tables import read_series
from fcpower_bids.records import Atlas, Cleaning, ParcelSeries, Recording, Slices
from fcpower_bids.reports.figures import write_previews
from fcpower_bids.resources import peak_megabytes
from fcpower_bids.settings import CLEANING, Method, plain_value
from fcpower_bids.store import parse_json
from fcpower_bids.transforms.connectomes import (
    FC,
    connectivity_of,
    make_transform,
    recording_transform,
    transform_recording,
)

_META = "json"
SLICES = "slices_"
"""Before the names of the arrays of `Slices` in the bundle of the parcels."""


def save_bundle(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> str:
    """Write named arrays and JSON-ready facts into one uncompressed file, and return its path."""
    np.savez(path, **{_META: np.array(json.dumps(facts))}, **arrays)  # type: ignore[arg-type]
    return str(path)


def load_bundle(path: Path | str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what :func:`save_bundle` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != _META}
        return arrays, parse_json(str(file[_META]))


def load_values(path: Path | str, name: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Read one array of a bundle and its facts, or a plain ``.npy`` or ``.tsv`` of anybody's. Raises DatasetError."""
    source = Path(path)
    if source.suffix == ".npz":
        arrays, facts = load_bundle(source)
        return arrays[name], facts
    if source.suffix == ".npy" and not source.with_suffix(".json").is_file():
        values = np.load(source, allow_pickle=False).astype(np.float64)
        names = [f"parcel{number:03d}" for number in range(1, values.shape[-1] + 1)]
    else:
        values, names = read_series(source)
    return values, {"atlas": source.name.partition(".")[0], "parcels": names}


def save_cleaning(path: Path, cleaning: Cleaning, choices: Mapping[str, Any]) -> str:
    """Write what was done to the volumes of a recording, and the choices that it was done with."""
    fields = {field.name: getattr(cleaning, field.name) for field in dataclasses.fields(cleaning)}
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    facts = {name: value for name, value in fields.items() if name not in arrays}
    return save_bundle(path, arrays, {"cleaning": facts, "choices": dict(choices)})


def load_cleaning(path: Path | str) -> tuple[Cleaning, dict[str, Any]]:
    """Read what :func:`save_cleaning` wrote: the cleaning and its choices."""
    arrays, facts = load_bundle(path)
    fields: dict[str, Any] = {**arrays}
    for name, value in facts["cleaning"].items():
        fields[name] = tuple(value) if isinstance(value, list) else value
    return Cleaning(**fields), facts["choices"]


def choices_of(settings: Method) -> dict[str, Any]:
    """Return what changes the numbers of a recording, as far as it is not the default: text, numbers, lists."""
    given = {field.name: (field.default, getattr(settings, field.name)) for field in dataclasses.fields(settings)}
    return {name: plain_value(value) for name, (default, value) in given.items() if value not in (None, default)}


def settings_of(choices: Mapping[str, Any]) -> Method:
    """Return these choices and everything else at its default."""
    hints = get_type_hints(Method)

    def typed(value: Any, hint: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(typed(item, get_args(hint)[0]) for item in value)
        return Path(value) if isinstance(value, str) and (hint is Path or Path in get_args(hint)) else value

    return Method(**{name: typed(value, hints[name]) for name, value in choices.items()})


class Step(SimpleInterface):
    """A node that works in its own folder and keeps the error that ended it; nipype would keep its text only."""

    error: BaseException | None = None

    def _run_interface(self, runtime: Any) -> Any:
        self.error = None
        try:
            self.work(Path(runtime.cwd))
            for made in self._results.values():
                if isinstance(made, list) and len(set(map(str, made))) < len(made):
                    raise UsageError("Two inputs have one name, and so have their outputs: rename one of them.")
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
    filter_order = traits.Int(2, usedefault=True, desc="order of the Butterworth filter before its two passes")
    padding = traits.Str("even", usedefault=True, desc="how a series goes on beyond its ends in the filter")
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
                {"series": of_atlas.clean},
                {**facts, "repetition_time": given.repetition_time, "flat": of_atlas.flat, "stray": of_atlas.stray},
            )
            for of_atlas, (_, facts) in zip(series, bundles, strict=True)
            if not cleaning.excluded
        ]


class ParcellateInputSpec(BaseInterfaceInputSpec):
    """One recording and its atlases."""

    bold = File(exists=True, mandatory=True, desc="preprocessed BOLD series: 4-D NIfTI or CIFTI dtseries")
    mask = File(exists=True, desc="brain mask on its grid (NIfTI only) [the whole grid]")
    atlases = traits.List(
        File(exists=True), mandatory=True, desc="label images with their tables, or files of imaging.atlas.described"
    )


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
        for atlas, parcellation in zip(
            atlases, parcellate(Path(self.inputs.bold), self.path("mask"), atlases), strict=True
        ):
            arrays = {name: values for name, values in parcellation._asdict().items() if isinstance(values, np.ndarray)}
            shown = {} if parcellation.slices is None else parcellation.slices._asdict()
            arrays |= parcellation.figures._asdict() | {f"{SLICES}{name}": values for name, values in shown.items()}
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
    transform = traits.Str(mandatory=True, desc="an entry of fcpower_bids.transforms.connectomes.TRANSFORMS")
    parameters = traits.Dict(key_trait=traits.Str(), usedefault=True, desc="its parameters by name")


class TransformOutputSpec(TraitedSpec):
    """One file per atlas."""

    transformed = traits.List(File(exists=True), desc="transformed connectome (P, P) under each atlas")


class Transform(Step):
    """A connectome or series to a symmetric matrix of the same parcels."""

    input_spec = TransformInputSpec
    output_spec = TransformOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        given, rows = self.inputs.get(), np.empty(0)
        name, needed = given.get("transform", "power"), given.get("series")
        transform = recording_transform(
            name, given["parameters"] if "parameters" in given else {"alpha": given["alpha"]}
        )
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


class SinkInputSpec(BaseInterfaceInputSpec):
    """Everything that was computed, and where it goes."""

    output_dir = traits.Str(mandatory=True, desc="output dataset")
    bold = File(exists=True, mandatory=True, desc="the series that it was made from; its name gives the entities")
    mask = File(exists=True, desc="its brain mask")
    confounds = File(exists=True, desc="its confounds table")
    entities = traits.List(traits.Tuple(traits.Str(), traits.Str()), desc="entities of the outputs [of the series]")
    datasets = traits.Dict(key_trait=traits.Str(), usedefault=True, desc="input datasets by the name in BIDS URIs")
    cleaning = File(exists=True, mandatory=True, desc="of Bandpass")
    parcels = traits.List(File(exists=True), mandatory=True, desc="of Parcellate, one per atlas")
    series = traits.List(File(exists=True), mandatory=True, desc="of Bandpass, one per atlas")
    connectivity = traits.List(File(exists=True), mandatory=True, desc="of Connectivity, one per atlas")
    connectomes = traits.List(File(exists=True), desc="of Connectivity and of transforms")
    embeddings = traits.List(File(exists=True), desc="of Embed")
    atlases = traits.List(File(exists=True), mandatory=True, desc="as for Parcellate")
    method = traits.Dict(key_trait=traits.Str(), usedefault=True, desc="choices of the method that are not default")


class SinkOutputSpec(TraitedSpec):
    """Written files."""

    files = traits.List(traits.Str(), desc="relative to output_dir")
    excluded = traits.Str(desc="why there are no connectomes; empty when there are")
    problems = traits.Dict(key_trait=traits.Str(), desc="state and reason of embeddings that there are not, by atlas")


class Sink(Step):
    """Compute the quality tables, and write tables, sidecars and previews of a recording."""

    input_spec = SinkInputSpec
    output_spec = SinkOutputSpec
    _always_run = True  # nipype would not see that its files are gone

    def work(self, folder: Path) -> None:  # noqa: D102
        given, output_dir = self.inputs, Path(self.inputs.output_dir)
        bold = Path(given.bold)
        # those in the name of the series where none are given
        pairs = self.given("entities") or re.findall(r"(?:^|_)([a-z]+)-([A-Za-z0-9+]+)", bold.name)
        entities = tuple((key, value) for key, value in pairs if key != "desc")
        # the choices of the cleaning are those that it was done with
        cleaning, choices = load_cleaning(given.cleaning)
        settings = settings_of({**given.method, **choices})
        atlases = tuple(open_atlas(Path(path)) for path in given.atlases)
        embeddings, problems = _embeddings(self.given("embeddings") or (), atlases)
        results = Results(
            Recording(bold, entities, cleaning.repetition_time, self.path("mask"), self.path("confounds")),
            atlases,
            settings,
            {name: Path(path) for name, path in given.datasets.items()},
            cleaning,
            _series(given.parcels, given.series),
            _connectomes(self.given("connectomes") or given.connectivity, atlases, settings),
            embeddings,
            problems,
            " ".join(dataset_names(Path(path)) for path in given.datasets.values()),
        )
        self._results |= write_recording(output_dir, results)
        write_previews(output_dir, results)


def _series(parcels: Iterable[str], series: Iterable[str]) -> list[ParcelSeries]:
    nothing = np.empty((0, 0))
    clean = {facts["atlas"]: (arrays["series"], facts) for arrays, facts in map(load_bundle, series)}
    of_parcels = []
    for arrays, facts in map(load_bundle, parcels):
        values, about = clean.get(facts["atlas"], (nothing, {"flat": (), "stray": ()}))
        flat, stray = tuple(about["flat"]), tuple(about["stray"])
        fields = {name: arrays[SLICES + name] for name in Slices._fields if SLICES + name in arrays}
        slices = Slices(**fields) if fields else None
        of_parcels.append(ParcelSeries(arrays["coverage"], arrays["series"], values, nothing, flat, stray, slices))
    return of_parcels


def _connectomes(paths: Iterable[str], atlases: tuple[Atlas, ...], settings: Method) -> list[Named]:
    by_atlas: dict[str, dict[str, Any]] = {atlas.name: {} for atlas in atlases}
    for arrays, facts in map(load_bundle, paths):
        name = facts["transform"]
        if name != FC and facts["label"] != (label := make_transform(name, settings).label):
            raise UsageError(
                f"Sink is given {facts['label']} but its 'method' means {label}: give it the same choices."
            )
        by_atlas[facts["atlas"]][name] = arrays["matrix"], facts["about"]
    return list(by_atlas.values())


def _embeddings(paths: Iterable[str], atlases: tuple[Atlas, ...]) -> tuple[list[Named], dict[str, tuple[str, str]]]:
    """Embeddings by the label of the encoder, and why there are none under an atlas."""
    by_atlas: dict[str, dict[str, Any]] = {atlas.name: {} for atlas in atlases}
    problems: dict[str, tuple[str, str]] = {}
    for arrays, facts in map(load_bundle, paths):
        if "problem" in facts:
            problems[facts["atlas"]] = facts["problem"]
        else:
            by_atlas[facts["atlas"]][facts["label"]] = arrays["embedding"], facts["about"]
    return list(by_atlas.values()), problems
