"""Tables of quality, and the files of a recording as a BIDS derivative."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, traits

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.described import open_atlas
from fcpower_bids.interfaces.bundles import load_bundle, load_cleaning, settings_of, slices_of
from fcpower_bids.interfaces.nodes import Step
from fcpower_bids.outputs.recording import Bundle, Measured, Results, measure_all, write_recording
from fcpower_bids.outputs.tables import plain
from fcpower_bids.records import Atlas, Entities, ParcelSeries, Recording
from fcpower_bids.reports.person.previews import write_previews
from fcpower_bids.store import write_text
from fcpower_bids.transforms.connectomes import FC, make_transform


class MeasureInputSpec(BaseInterfaceInputSpec):
    """Facts about a recording after its connectome."""

    cleaning = File(exists=True, mandatory=True, desc="of Bandpass")
    parcels = traits.List(File(exists=True), mandatory=True, desc="of Parcellate, one per atlas")
    series = traits.List(File(exists=True), mandatory=True, desc="of Bandpass, one per atlas")
    connectivity = traits.List(File(exists=True), mandatory=True, desc="of Connectivity, one per atlas")
    atlases = traits.List(File(exists=True), mandatory=True, desc="as for Parcellate")
    # A measure may read any of them, so it is computed again when one changes: it takes milliseconds.
    method = traits.Dict(key_trait=traits.Str(), usedefault=True, desc="choices of the method that are not default")


class MeasureOutputSpec(TraitedSpec):
    """All tables."""

    tables = File(exists=True, desc="JSON: text and metadata of every table by atlas number and measure")


class Measure(Step):
    """Every measure of ``fcpower_bids.measures.MEASURES``."""

    input_spec = MeasureInputSpec
    output_spec = MeasureOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        tables = measure_all(_results(self, Recording(Path(), (), 0.0)))
        path = folder / "tables.json"
        content = {name: [text, plain(facts)] for name, (text, facts) in tables.items()}
        write_text(path, json.dumps(content), flush=False)
        self._results["tables"] = str(path)


class SinkInputSpec(MeasureInputSpec):
    """Everything that was computed, and where it goes."""

    output_dir = traits.Str(mandatory=True, desc="output dataset")
    bold = File(exists=True, mandatory=True, desc="the series that it was made from; its name gives the entities")
    mask = File(exists=True, desc="its brain mask")
    confounds = File(exists=True, desc="its confounds table")
    entities = traits.List(traits.Tuple(traits.Str(), traits.Str()), desc="entities of the outputs [of the series]")
    datasets = traits.Dict(key_trait=traits.Str(), usedefault=True, desc="input datasets by the name in BIDS URIs")
    connectomes = traits.List(File(exists=True), desc="of Connectivity and of transforms")
    tables = File(exists=True, desc="of Measure [computed here]")
    embeddings = traits.List(File(exists=True), desc="of Embed")


class SinkOutputSpec(TraitedSpec):
    """Written files."""

    files = traits.List(traits.Str(), desc="relative to output_dir")
    excluded = traits.Str(desc="why there are no connectomes; empty when there are")
    problems = traits.Dict(key_trait=traits.Str(), desc="state and reason of embeddings that there are not, by atlas")


class Sink(Step):
    """Write tables, sidecars and previews of a recording."""

    input_spec = SinkInputSpec
    output_spec = SinkOutputSpec
    _always_run = True  # nipype would not see that its files are gone

    def work(self, folder: Path) -> None:  # noqa: D102
        given, output_dir = self.inputs, Path(self.inputs.output_dir)
        bold = Path(given.bold)
        entities = tuple((key, value) for key, value in self.given("entities") or entities_of(bold))
        recording = Recording(bold, entities, 0.0, self.path("mask"), self.path("confounds"))
        known = _results(self, recording)
        results = replace(
            known,
            datasets={name: Path(path) for name, path in given.datasets.items()},
            connectomes=_connectomes(self.given("connectomes") or given.connectivity, known),
            embeddings=_embeddings(self.given("embeddings") or (), known.atlases),
            tables=_tables(self.path("tables")),
        )
        write_previews(output_dir, results)
        for name, value in write_recording(output_dir, results)._asdict().items():
            self._results[name] = list(value) if isinstance(value, tuple) else value


def entities_of(bold: Path) -> Entities:
    """Return the entities in the name of a series, but ``desc``."""
    pairs = re.findall(r"(?:^|_)([a-z]+)-([A-Za-z0-9+]+)", bold.name)
    return tuple((key, value) for key, value in pairs if key != "desc")


def _results(step: Step, recording: Recording) -> Results:
    """Put together what the nodes before have written; the choices of the cleaning are those that it was done with."""
    given = step.inputs
    cleaning, choices = load_cleaning(given.cleaning)
    known = Results(
        replace(recording, repetition_time=cleaning.repetition_time),
        tuple(open_atlas(Path(path)) for path in given.atlases),
        settings_of({**given.method, **choices}),
        {},
        cleaning,
        _series(given.parcels, given.series),
        ({}, {}),
        ({}, {}),
    )
    return replace(known, connectomes=_connectomes(given.connectivity, known))


def _series(parcels: Iterable[str], series: Iterable[str]) -> list[ParcelSeries]:
    clean = {
        facts["atlas"]: (arrays["series"], tuple(facts["flat"]), tuple(facts["stray"]))
        for arrays, facts in map(load_bundle, series)
    }
    nothing = np.empty((0, 0))
    found = []
    for arrays, facts in map(load_bundle, parcels):
        one, flat, stray = clean.get(facts["atlas"], (nothing, (), ()))
        found.append(ParcelSeries(arrays["coverage"], arrays["series"], one, nothing, flat, stray, slices_of(arrays)))
    return found


def _connectomes(paths: Iterable[str], known: Results) -> Bundle:
    matrices, about = {}, {}
    numbers = {atlas.name: number for number, atlas in enumerate(known.atlases)}
    for arrays, facts in map(load_bundle, paths):
        name = facts["transform"]
        if name != FC and facts["label"] != (label := make_transform(name, known.settings).label):
            raise UsageError(
                f"Sink is given {facts['label']} but its 'method' means {label}: give it the same choices."
            )
        matrices[f"{numbers[facts['atlas']]}/{name}"] = arrays["matrix"]
        about[f"{numbers[facts['atlas']]}/{name}"] = facts["about"]
    return matrices, about


def _embeddings(paths: Iterable[str], atlases: tuple[Atlas, ...]) -> Bundle:
    vectors: dict[str, Any] = {}
    about: dict[str, Any] = {}
    numbers = {atlas.name: number for number, atlas in enumerate(atlases)}
    for arrays, facts in map(load_bundle, paths):
        if "problem" in facts:
            about[f"problem/{facts['atlas']}"] = facts["problem"]
            continue
        key = f"{numbers[facts['atlas']]}/{facts['label']}"
        vectors[key], about[key] = arrays["embedding"], facts["about"]
    return vectors, about


def _tables(path: Path | None) -> dict[str, Measured]:
    if path is None:
        return {}
    return {name: (text, facts) for name, (text, facts) in json.loads(path.read_text(encoding="utf-8")).items()}
