"""The combination of runs as a nipype interface."""

from __future__ import annotations

from pathlib import Path

from nipype.interfaces.base import traits

from fcpower_bids.interfaces.bundles import save_bundle
from fcpower_bids.interfaces.recording import RecordingInputSpec, RecordingStep
from fcpower_bids.outputs.status import DONE, Status, peak_megabytes, write_status


class CombineInputSpec(RecordingInputSpec):
    """``recording`` is the combination; ``runs`` are its parts."""

    runs = traits.Any(mandatory=True, desc="the finished runs (tuple of records.Recording)")


class Combine(RecordingStep):
    """Combine what was written of the runs of one session and task."""

    input_spec = CombineInputSpec
    stage = "combine"
    _always_run = True  # what it writes is not where nipype would see that it is gone

    def work(self, folder: Path) -> Path:  # noqa: D102
        from fcpower_bids.outputs.combination import combine_runs  # a step loads what it needs, no more

        given, output_dir = self.inputs, Path(self.inputs.output_dir)
        paths = combine_runs(output_dir, given.runs, given.atlases, given.settings)
        names = tuple(path.relative_to(output_dir).as_posix() for path in paths)
        write_status(
            output_dir,
            Status(
                given.recording.name, DONE, self.stage, "", self.seconds(), peak_megabytes(), given.fingerprint, names
            ),
        )
        return save_bundle(folder / "written.npz", {}, {"outputs": names})
