"""One row per recording: its status and the reason, from a JSON of its own each, which parallel jobs need."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from traceback import format_exception
from typing import TypeVar

import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.encoders import embedding_label, further_files
from fcpower_bids.errors import DatasetError, FcPowerError
from fcpower_bids.outputs.tables import read_json, write_json, write_table
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.schema import TABLES
from fcpower_bids.settings import Method
from fcpower_bids.store import LOCKS, explain_refusal, is_inner, known_digest, lock, may_write, stored_path, write_text

DONE, RUNNING, SKIPPED, EXCLUDED, FAILED = "done", "running", "skipped", "excluded", "failed"
STATES = (DONE, SKIPPED, EXCLUDED, FAILED, RUNNING)
EMBEDDING = "_embedding"
"""End of the name of a status that is about an embedding only; the recording has one of its own."""
TRAILER = 8
"""Bytes at the end of a gzip stream: checksum and size of what was compressed."""
END = 2**18
"""Bytes at both ends of a file by which its content is known again."""
TABLE, STATUSES = "logs/status.tsv", "logs/status"
RECORDED = re.compile(r"(sub-[A-Za-z0-9_+-]+)\.json")
"""Files of statuses: no copy that a client of a synchronised folder has made, such as ``NAME (1).json``."""
ENCODER_FILES = (".safetensors", ".bin", ".pth", ".pt", ".tar", ".json", ".csv", ".tsv", ".dat")
"""Endings of weights, configurations and auxiliary tables; other files in their folder are nothing to an encoder."""


WHOLE = ("_relmat.tsv", "_relmat.npy", "_timeseries.tsv", "_timeseries.npy")
"""Outputs that are looked at for a cut: series and connectomes."""

STATUS_TABLE = TABLES["logs/status"]


@dataclass(frozen=True)
class Status:
    """The status of one recording."""

    recording: str  # its name
    state: str  # ``done``, ``skipped``, ``excluded`` or ``failed``; ``running`` while it is at work
    stage: str = ""  # the step that it reached
    reason: str = ""  # plain words; empty for ``done``
    seconds: float = 0.0  # computing time
    peak_mb: float = 0.0  # largest resident memory of the process that worked on it, in MB
    # configuration, version, inputs and atlases: when it is the same, the work need not be done again
    fingerprint: str = ""
    outputs: tuple[str, ...] = ()  # files written, relative to the output folder
    # bytes of series and connectomes when they were written: one that is cut at the end of a line shows by these
    sizes: Mapping[str, int] = field(default_factory=dict)
    process: int = 0  # number of the process that is at work on it
    inputs: str = ""  # content of the files that it was made from: where it is another, nothing of it is used


def fingerprint(recording: Recording, settings: Method, atlases: Sequence[Atlas], dataset: str | None) -> str:
    """All that the results of a recording depend on, in one string: choices, version, files, atlas content.

    With an encoder the name of the dataset too, by which the people of its training are known.
    """
    files = (recording.bold, recording.mask, recording.confounds, recording.confounds_metadata)
    inputs = ";".join(file_state(file) for file in files if file is not None and file.exists())
    method = f"{__version__};{settings.configuration_hash()};{settings.random_seed};{weights_state(settings)}"
    parcels = []
    for atlas in atlases:
        digest = hashlib.sha256(bytes.fromhex(known_digest(atlas.image)))
        digest.update(repr((atlas.labels, atlas.names, atlas.networks, atlas.hemispheres)).encode())
        parcels.append(digest.hexdigest()[:16])
    of_encoder = f";{dataset or ''}" if settings.encoder else ""
    return f"{method};{recording.repetition_time};{inputs};{','.join(parcels)}{of_encoder}"


def file_state(file: Path) -> str:
    """Size and time, and the checksum that a gzip stream ends with: it costs no reading of the content."""
    stat = file.stat()
    mark = ""
    if file.name.endswith(".gz") and stat.st_size >= TRAILER:
        with file.open("rb") as stream:
            stream.seek(-TRAILER, os.SEEK_END)
            mark = stream.read().hex()
    return f"{stat.st_size},{stat.st_mtime_ns},{mark}"


def input_mark(recording: Recording) -> str:
    """Digest of size, beginning and end of the files of a recording, whatever their times: a copy has the same."""
    digest = hashlib.sha256()
    files = (recording.bold, recording.mask, recording.confounds, recording.confounds_metadata)
    for file in (file for file in files if file is not None and file.exists()):
        size = file.stat().st_size
        digest.update(str(size).encode())
        with file.open("rb") as stream:
            digest.update(stream.read(END))
            stream.seek(max(0, size - END))
            digest.update(stream.read())
    return digest.hexdigest()[:16]


def weights_state(settings: Method) -> str:
    """Return size and time of what the encoder is made from, so that other files under an old name are noticed."""
    if settings.encoder is None:
        return ""
    path, files = Path(settings.encoder_weights or "").expanduser(), list[Path]()
    if settings.encoder_weights and path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and file.suffix in ENCODER_FILES)
    elif path.is_file():  # an id of the hub is neither
        files = [path, *further_files(settings.encoder, path).values()]
    return ",".join(f"{file.stat().st_size},{file.stat().st_mtime_ns}" for file in files)


def embedding_name(recording: str, atlas: str, settings: Method) -> str:
    """Name of the status of an embedding, which names the encoder."""
    return f"{recording}_{atlas}_desc-{embedding_label(settings)}{EMBEDDING}"


def embedding_names(recording: str, atlases: Iterable[Atlas], settings: Method) -> dict[str, str]:
    """Names of the statuses of the embeddings that were asked for, by atlas."""
    names = (atlas.name for atlas in (atlases if settings.encoder else ()))
    return {atlas: embedding_name(recording, atlas, settings) for atlas in names}


def status_path(output_dir: Path, recording: str) -> Path:
    """Return the file with the status of one recording."""
    return output_dir / STATUSES / f"{recording}.json"


def write_status(output_dir: Path, status: Status) -> Status:
    """Record the status of one recording in one step, with the sizes of its files; return it as it was written."""
    sizes = {
        name: path.stat().st_size
        for name in status.outputs
        if name.endswith(WHOLE) and (path := stored_path(output_dir, name)).is_file()
    }
    status = replace(status, sizes=sizes)
    # that it is at work need not outlive the machine
    write_json(status_path(output_dir, status.recording), asdict(status), flush=status.state != RUNNING)
    return status


def read_status(output_dir: Path, recording: str) -> Status | None:
    """Return the recorded status, or None where there is none that can be read."""
    try:
        content = read_json(status_path(output_dir, recording))
        known = {field.name: content[field.name] for field in fields(Status) if field.name in content}
        status = Status(**{**known, "outputs": tuple(content["outputs"])})
    except (DatasetError, TypeError, KeyError):
        return None
    is_sound = status.recording == recording and status.state in STATES and isinstance(status.sizes, dict)
    is_sound = is_sound and all(map(is_inner, status.outputs))
    return status if is_sound else None


def current_status(output_dir: Path, recording: str, needed: str = "") -> Status | None:
    """Return what is true of a recording now, whatever was noted when it ended: its files may be gone, or cut since.

    A damaged status says so; None where there is none.
    """
    status = read_status(output_dir, recording)
    if status is None:
        if not status_path(output_dir, recording).exists():
            return None
        reason = f"logs/status/{recording}.json cannot be read; run the participant level again."
        return Status(recording, FAILED, reason=reason)
    for name in status.outputs if status.state in (DONE, EXCLUDED) else ():
        if needed not in name:
            continue
        fault, noted = "", status.sizes.get(name)
        try:
            there = (output_dir / name).stat().st_size if (output_dir / name).is_file() else None
            if there is None:
                fault = "is gone"
            elif name.endswith(WHOLE) and there != noted:
                fault = "is cut short" if there < (noted or 0) else "was changed"
        except OSError:
            fault = "cannot be read"
        if fault:
            return replace(status, state=FAILED, reason=f"{name} {fault}: run the participant level again.")
    return status


def read_statuses(output_dir: Path) -> list[Status]:
    """Return what is true now of every recording that a run has looked at."""
    names = (name for name in recorded(output_dir) if not name.endswith(EMBEDDING))
    return [status for name in names if (status := current_status(output_dir, name)) is not None]


def is_finished(
    output_dir: Path, recording: Recording, atlases: Sequence[Atlas], settings: Method, dataset: str | None
) -> bool:
    """Whether a recording was finished with this fingerprint, its files are whole, and no embedding failed."""
    now = current_status(output_dir, recording.name)
    if now is None or now.state not in (DONE, EXCLUDED):
        return False
    if now.fingerprint != fingerprint(recording, settings, atlases, dataset):
        return False
    names = embedding_names(recording.name, atlases, settings).values()
    embedded = (read_status(output_dir, name) for name in names)
    return not any(status is not None and status.state == FAILED for status in embedded)


def forget_embeddings(output_dir: Path, recordings: Collection[str], asked: Collection[str]) -> None:
    """Remove the statuses of embeddings of recordings that a run asks for no more: those of another encoder."""
    for name in recorded(output_dir):
        if name.endswith(EMBEDDING) and name not in asked and name.partition("_atlas-")[0] in recordings:
            status_path(output_dir, name).unlink(missing_ok=True)


def forget_found(output_dir: Path, names: Collection[str], refused: Collection[str], everything: bool) -> None:
    """Remove what was noted of a person or scan of which nothing could be used, now that recordings of it are found.

    Of a run that selects nothing (`everything`) also what was noted of what it does not find.
    """
    found = [set(name.split("_")) for name in names]
    for name in set(recorded(output_dir)).difference(names, refused):
        if "_space-" in name or name.endswith(EMBEDDING):
            continue
        parts, status = set(name.split("_")), read_status(output_dir, name)
        if status and status.state in (FAILED, SKIPPED) and (everything or any(parts < others for others in found)):
            status_path(output_dir, name).unlink(missing_ok=True)


def write_status_table(output_dir: Path) -> pd.DataFrame:
    """Put ``logs/status.tsv`` together from the statuses of all recordings; where it may not be written, its rows."""
    path, columns = output_dir / TABLE, list(STATUS_TABLE.columns)
    writes = may_write(path.parent)
    # One after the other: the last to write has seen what all others wrote.
    with lock(output_dir / LOCKS / path.name) if writes else nullcontext():
        statuses = [status for name in recorded(output_dir) if (status := current_status(output_dir, name))]
        rows = [{name: getattr(status, name) for name in columns} for status in statuses]
        table = pd.DataFrame(rows, columns=columns)
        if writes:
            write_table(path, table, STATUS_TABLE)
    return table


def recorded(output_dir: Path) -> list[str]:
    """Names of the recordings that have a status, sorted."""
    try:
        with os.scandir(output_dir / STATUSES) as entries:
            matches = [RECORDED.fullmatch(entry.name) for entry in entries]
    except FileNotFoundError:
        return []
    return sorted(match[1] for match in matches if match is not None)


def explain(error: Exception, output_dir: Path, name: str) -> str:
    """Describe an error in a sentence; only errors made for people, and the system's, are quoted as they are."""
    if isinstance(error, FcPowerError):
        return str(error)
    if isinstance(error, MemoryError):
        return "There was not enough memory. Give more, or --nprocs 1."
    if (refused := explain_refusal(error)) is not None:
        return refused
    if isinstance(error, IsADirectoryError) and (taken := error.filename2 or error.filename):
        return (
            f"{taken} is a folder, and the run keeps a file of that name. Move it away, and run the same command again."
        )
    path = output_dir / "logs" / "crashes" / f"{name}.txt"
    with suppress(OSError):  # the sentence matters more
        write_text(path, "".join(format_exception(error)))
    where = path.relative_to(output_dir).as_posix()
    last = (str(error).strip().splitlines() or [""])[-1]  # nipype puts a whole traceback into its message
    what = " ".join(f"{type(error).__name__}: {last}".split())
    if isinstance(error, OSError) and error.errno is not None:
        return f"The system refused to read or write ({what}). Mend that, and run the same command again; see {where}."
    return f"Internal error, please report it with {where} ({what})."


def forget_crashes(output_dir: Path, recording: str) -> None:
    """Remove the tracebacks of a recording that is finished now."""
    for path in (output_dir / "logs" / "crashes").glob(f"{glob.escape(recording)}_*.txt"):
        if "-" not in path.stem.removeprefix(recording):  # else of another, whose name goes on
            path.unlink(missing_ok=True)


MOST_ALIKE = 5
"""Recordings with the same problem that are still listed one by one."""
OWN = re.compile(r"\S*/\S*|\bsub-\S+|\d+(?:\.\d+)?")
"""Differences between two recordings with one problem: paths, names and numbers."""

Reason = TypeVar("Reason")


def group_alike(reasons: Sequence[Reason], text: Callable[[Reason], str], most: int = MOST_ALIKE) -> list[list[Reason]]:
    """Put together what says the same but for paths, names and numbers."""
    groups: dict[str, list[Reason]] = {}
    for reason in reasons:
        groups.setdefault(OWN.sub("*", text(reason)), []).append(reason)
    return [
        part
        for group in groups.values()
        for part in ([[reason] for reason in group] if len(group) <= most else [group])
    ]


def describe_reasons(statuses: Iterable[Status], every_one: bool = False) -> list[str]:
    """Return one line per recording, or per many with the same problem."""
    given = list(statuses)
    groups = group_alike(
        given, lambda status: f"{status.state} {status.stage} {status.reason}", len(given) if every_one else MOST_ALIKE
    )
    lines = []
    for first, *others in groups:
        kind = "embeddings" if first.recording.endswith(EMBEDDING) else "recordings"
        who = f"{1 + len(others)} {kind}, the first is {first.recording}" if others else first.recording
        lines.append(f"{first.state}: {who} at {first.stage}: {first.reason}")
    return lines
