"""What ``--dry-run`` prints: every recording that was found, what it lacks, and where its results would go."""

from __future__ import annotations

from fcpower_bids.inputs.query import Discovery
from fcpower_bids.outputs.names import output_folder
from fcpower_bids.records import Recording
from fcpower_bids.settings import Places


def preflight_table(discovery: Discovery, settings: Places) -> str:
    """Return the table of ``--dry-run``: what was found of each recording, what is missing, where results would go.

    Parameters
    ----------
    discovery : Discovery
        From ``find_recordings``.
    settings : Places
        Tells the output folder.
    """
    header = ("recording", "bold", "mask", "confounds", "TR (s)", "volumes", "minutes", "output")
    rows = [_ready_row(*pair, settings) for pair in zip(discovery.recordings, discovery.volumes, strict=True)]
    rows += [_problem_row(problem.recording, problem.found, problem.kind) for problem in discovery.problems]
    lines = [_align(header, *rows), ""]
    lines += [f"{problem.recording} {problem.kind}: {problem.sentence}" for problem in discovery.problems]
    lines += [f"Note: {note}" for note in discovery.notes]
    lines += [*(f"Read from {root}" for root in discovery.derivatives), _summary(discovery)]
    return "\n".join(lines) + "\n"


def _ready_row(recording: Recording, volumes: int, settings: Places) -> tuple[str, ...]:
    minutes = f"{volumes * recording.repetition_time / 60:.1f}"
    mask = "yes" if recording.mask else "not needed"
    output = output_folder(settings.output_dir, recording).relative_to(settings.output_dir) / f"{recording.name}_*"
    timing = (f"{recording.repetition_time:g}", str(volumes), minutes)
    return (recording.name, "yes", mask, "yes", *timing, output.as_posix())


def _problem_row(name: str, found: tuple[str, ...] | None, kind: str) -> tuple[str, ...]:
    marks = ("-" if found is None else "yes" if part in found else "NO" for part in ("bold", "mask", "confounds", "TR"))
    return (name, *marks, "-", "-", f"none ({kind})")


def _align(*rows: tuple[str, ...]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _summary(discovery: Discovery) -> str:
    kinds = [problem.kind for problem in discovery.problems]
    people = {recording.subject for recording in discovery.recordings}
    seconds = zip(discovery.recordings, discovery.volumes, strict=True)
    hours = sum(volumes * recording.repetition_time for recording, volumes in seconds) / 3600
    return (
        f"{len(discovery.recordings)} recordings of {len(people)} participants ({hours:.1f} h) can be processed; "
        f"{kinds.count('failed')} have problems, {kinds.count('skipped')} are skipped."
    )
