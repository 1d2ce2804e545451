"""The steps of one recording as nipype interfaces: load, call one function, save."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from nipype.interfaces.base import BaseInterfaceInputSpec, File, SimpleInterface, TraitedSpec, isdefined, traits

from fcpower_bids.interfaces.bundles import load_bundle, load_series, save_bundle, save_series
from fcpower_bids.outputs.crashes import explain
from fcpower_bids.outputs.status import FAILED, RUNNING, Status, peak_megabytes, read_status, write_status

LAST_STAGES = ("write", "combine")
"""Steps whose work includes the final status."""


class RecordingInputSpec(BaseInterfaceInputSpec):
    """What every step knows."""

    recording = traits.Any(mandatory=True, desc="the recording (records.Recording)")
    atlases = traits.Any(mandatory=True, desc="its atlases (tuple of records.Atlas)")
    settings = traits.Any(mandatory=True, desc="choices that change numbers (Settings.method_only)")
    # nipype sees names, not what is in the files: without this a kept step would answer for a file since replaced.
    fingerprint = traits.Str(mandatory=True, desc="what the results depend on (derivatives.status.fingerprint)")
    output_dir = traits.Any(mandatory=True, nohash=True, desc="where the status is written")
    bundle = File(exists=True, desc="what the step before has written")


class BundleOutputSpec(TraitedSpec):
    """One file with everything that the next step needs."""

    bundle = File(exists=True, desc="arrays and facts of this step")


class RecordingStep(SimpleInterface):
    """One step; an error becomes the status of the recording before nipype sees it."""

    input_spec = RecordingInputSpec
    output_spec = BundleOutputSpec
    stage = ""

    def _run_interface(self, runtime: Any) -> Any:
        before = read_status(Path(self.inputs.output_dir), self.inputs.recording.name)
        self._spent = before.seconds if before is not None and before.state == RUNNING else 0.0
        self._started = time.perf_counter()
        self._note(RUNNING)
        try:
            self._results["bundle"] = str(self.work(Path(runtime.cwd)))
        except Exception as error:
            reason = explain(error, Path(self.inputs.output_dir), f"{self.inputs.recording.name}_{self.stage}")
            with suppress(OSError):  # the disk may be full
                self._note(FAILED, reason)
            raise
        if self.stage not in LAST_STAGES:
            self._note(RUNNING)
        runtime.peak_mb = peak_megabytes()
        return runtime

    def _note(self, state: str, reason: str = "") -> None:
        recording, output_dir = self.inputs.recording.name, Path(self.inputs.output_dir)
        write_status(output_dir, Status(recording, state, self.stage, reason, self.seconds(), peak_megabytes()))

    def seconds(self) -> float:
        """Return the computing time of this step so far and of those before it."""
        return round(self._spent + time.perf_counter() - self._started, 3)

    def work(self, folder: Path) -> Path:
        """Do the step inside ``folder`` and return the file for the next one."""
        raise AssertionError("each step says what it does")


class Parcellate(RecordingStep):
    """Parcel means of every volume, all atlases in one pass over the data."""

    stage = "parcellate"

    def work(self, folder: Path) -> Path:  # noqa: D102
        # a step loads what it needs, no more
        from fcpower_bids.imaging.series.parcellation import parcellate

        found = parcellate(self.inputs.recording.bold, self.inputs.recording.mask, self.inputs.atlases)
        arrays = {f"{i}/series": one.series for i, one in enumerate(found)}
        arrays |= {f"{i}/coverage": one.coverage for i, one in enumerate(found)}
        return save_bundle(folder / "parcels.npz", arrays, {})


class Clean(RecordingStep):
    """Dummy scans, censoring, band-pass, confound regression, z-score."""

    stage = "clean"

    def work(self, folder: Path) -> Path:  # noqa: D102
        from fcpower_bids.imaging.confounds.cleaning import clean_recording  # a step loads what it needs, no more

        arrays, _ = load_bundle(Path(self.inputs.bundle))
        parcels = [(arrays[f"{i}/series"], arrays[f"{i}/coverage"]) for i in range(len(self.inputs.atlases))]
        cleaning, series = clean_recording(self.inputs.recording, self.inputs.atlases, parcels, self.inputs.settings)
        return save_series(folder / "clean.npz", cleaning, series)


class Connect(RecordingStep):
    """FC and its transforms, for every atlas; an excluded recording has none."""

    stage = "connect"

    def work(self, folder: Path) -> Path:  # noqa: D102
        from fcpower_bids.transforms.connectomes import connect  # a step loads what it needs, no more

        cleaning, series = load_series(Path(self.inputs.bundle))
        arrays: dict[str, Any] = {}
        facts: dict[str, Any] = {}
        for i, (one, atlas) in enumerate(zip(series, self.inputs.atlases, strict=True)):
            for name, (matrix, about) in connect(one.clean, atlas.names, self.inputs.settings).items():
                arrays[f"{i}/{name}"], facts[f"{i}/{name}"] = matrix, about
        return save_bundle(folder / "connectomes.npz", arrays, {} if cleaning.excluded else facts)


class SinkInputSpec(RecordingInputSpec):
    """The sink knows the input datasets and what the steps before have written."""

    datasets = traits.Any(mandatory=True, desc="input datasets by the name that BIDS URIs use (tuple of pairs)")
    connectomes = File(exists=True, mandatory=True, desc="FC and its transforms")
    embedding = File(exists=True, desc="embeddings, when there is an encoder")


class Sink(RecordingStep):
    """Measures and every file of the recording, then its final status."""

    input_spec = SinkInputSpec
    stage = "write"
    _always_run = True  # what it writes is not where nipype would see that it is gone

    def work(self, folder: Path) -> Path:  # noqa: D102
        from fcpower_bids.outputs.recording import Results, finish_recording  # a step loads what it needs, no more
        from fcpower_bids.reports.person.previews import write_previews

        given = self.inputs
        results = Results(
            given.recording,
            given.atlases,
            given.settings,
            dict(given.datasets),
            *load_series(Path(given.bundle)),
            load_bundle(Path(given.connectomes)),
            load_bundle(Path(given.embedding)) if isdefined(given.embedding) else ({}, {}),
        )
        write_previews(Path(given.output_dir), results)
        status = finish_recording(Path(given.output_dir), results, given.fingerprint, self.seconds)
        return save_bundle(folder / "written.npz", {}, {"outputs": status.outputs})
