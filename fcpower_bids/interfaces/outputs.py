"""The files of a recording as a BIDS derivative."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, traits

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.loading import open_atlas
from fcpower_bids.interfaces.bundles import load_bundle, load_cleaning, settings_of, slices_of
from fcpower_bids.interfaces.nodes import Step
from fcpower_bids.outputs.recording import Named, Results, write_recording
from fcpower_bids.records import Atlas, ParcelSeries, Recording
from fcpower_bids.reports.person.brains import write_previews
from fcpower_bids.settings import Participant
from fcpower_bids.transforms.connectomes import FC, make_transform


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
        )
        written = write_recording(output_dir, results)
        write_previews(output_dir, results)
        self._results |= {**written._asdict(), "files": list(written.files)}


def _series(parcels: Iterable[str], series: Iterable[str]) -> list[ParcelSeries]:
    nothing = np.empty((0, 0))
    clean = {facts["atlas"]: (arrays["series"], facts) for arrays, facts in map(load_bundle, series)}
    found = []
    for arrays, facts in map(load_bundle, parcels):
        values, about = clean.get(facts["atlas"], (nothing, {"flat": (), "stray": ()}))
        flat, stray = tuple(about["flat"]), tuple(about["stray"])
        found.append(
            ParcelSeries(arrays["coverage"], arrays["series"], values, nothing, flat, stray, slices_of(arrays))
        )
    return found


def _connectomes(paths: Iterable[str], atlases: tuple[Atlas, ...], settings: Participant) -> list[Named]:
    found: dict[str, dict[str, Any]] = {atlas.name: {} for atlas in atlases}
    for arrays, facts in map(load_bundle, paths):
        name = facts["transform"]
        if name != FC and facts["label"] != (label := make_transform(name, settings).label):
            raise UsageError(
                f"Sink is given {facts['label']} but its 'method' means {label}: give it the same choices."
            )
        found[facts["atlas"]][name] = arrays["matrix"], facts["about"]
    return list(found.values())


def _embeddings(paths: Iterable[str], atlases: tuple[Atlas, ...]) -> tuple[list[Named], dict[str, tuple[str, str]]]:
    """Embeddings by the label of the encoder, and why there are none under an atlas."""
    found: dict[str, dict[str, Any]] = {atlas.name: {} for atlas in atlases}
    problems: dict[str, tuple[str, str]] = {}
    for arrays, facts in map(load_bundle, paths):
        if "problem" in facts:
            problems[facts["atlas"]] = facts["problem"]
        else:
            found[facts["atlas"]][facts["label"]] = arrays["embedding"], facts["about"]
    return list(found.values()), problems
