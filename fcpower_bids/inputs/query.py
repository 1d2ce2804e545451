"""Find the recordings to process, and say what keeps others from being processed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.layout import list_files, list_func_folders
from fcpower_bids.inputs.pipelines import (
    PIPELINES,
    find_sources,
    input_type_of,
    note_pipelines,
    prefer_cleaned,
)
from fcpower_bids.inputs.preflight import inspect_series
from fcpower_bids.inputs.roots import OWN_FOLDER, derivative_roots, raw_roots
from fcpower_bids.inputs.selection import (
    Filter,
    apply_filters,
    choose_spaces,
    drop_single_echoes,
    label_remedy,
    note_unmatched,
    read_filters,
)
from fcpower_bids.inputs.sources import CONFOUNDS, GRID_KEYS, Sidecars, Source, drop, read_source
from fcpower_bids.outputs.status import explain
from fcpower_bids.outputs.tables import program_names
from fcpower_bids.records import Entities, Recording
from fcpower_bids.settings import Inputs, Selection

FAILED, SKIPPED = "failed", "skipped"
STAGE = "inputs"
PATTERNS = "sub-*/[ses-*/]func/*_desc-preproc_bold.nii[.gz] and *_bold.dtseries.nii"


@dataclass(frozen=True)
class Problem:
    """Why a recording, or all of a participant, is not processed."""

    recording: str  # name of the recording, the run or the participant
    sentence: str  # faults of files, with the remedy
    kind: str = FAILED  # ``failed``, or ``skipped`` for what the user's own choices left out
    # which of ``bold``, ``mask``, ``confounds``, ``TR`` are usable; None where nothing was looked at
    found: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Discovery:
    """Recordings to process."""

    recordings: tuple[Recording, ...]  # sorted by name
    problems: tuple[Problem, ...]  # recordings that cannot be processed; the others go on
    notes: tuple[str, ...]  # notes that need no action
    derivatives: tuple[Path, ...]  # datasets that were looked into
    volumes: tuple[int, ...]  # volumes of each recording


def find_recordings(settings: Inputs) -> Discovery:
    """Find the recordings that the settings ask for and look at their files. Raises DatasetError, UsageError."""
    filters = read_filters(settings)
    roots = tuple(derivative_roots(settings).values())
    types = {root: input_type_of(root, settings.input_type) for root in roots}
    sources, problems = _collect_sources(settings, types)
    there = [source for source in sources if source.kind == "bold"]
    problems += _absent_participants(settings, roots, there)
    if not there:
        raise DatasetError(_nothing_found(types, problems))
    kept, echo_notes = drop_single_echoes(apply_filters(there, filters), filters)
    problems += _echoes_alone(apply_filters(there, filters), kept)
    kept, fix_notes = prefer_cleaned(kept, filters)
    chosen, missing, space_notes = _choose(kept, filters, settings)
    problems += [Problem(run, sentence) for run, sentence in missing.items()]
    named = (_participants(settings) or frozenset()) & {source.labels["sub"] for source in there}
    left_out = sorted(named - {source.labels["sub"] for source in kept})
    sentence = "None of the series of sub-{} passes the other filters: it is left out."
    problems += [Problem(f"sub-{label}", sentence.format(label), SKIPPED) for label in left_out]
    chosen, clashes = _without_clashes(chosen, settings)
    problems += clashes
    sidecars = Sidecars(raw_roots(settings, roots))
    recordings, volumes, faults = _inspect(chosen, sources, sidecars, settings.output_dir)
    type_notes = note_pipelines(types.items(), settings.input_type is not None)
    notes = [*type_notes, *note_unmatched(there, filters), *echo_notes, *fix_notes, *space_notes]
    if sidecars.unfetched:
        first, count = min(sidecars.unfetched), len(sidecars.unfetched)
        notes.append(
            f"{first}{f' and {count - 1} more' if count > 1 else ''} stand for content that is not there; repetition "
            "times are those of the headers. Fetch them (datalad get, git annex get) to have them compared."
        )
    ordered = tuple(sorted([*problems, *faults], key=lambda problem: (problem.recording, problem.sentence)))
    return Discovery(recordings, ordered, tuple(notes), roots, volumes)


def _collect_sources(settings: Inputs, types: Mapping[Path, str]) -> tuple[list[Source], list[Problem]]:
    """Read the names of all files that can matter, in the order of their paths."""
    # A kept index holds everybody, so that jobs for different participants share it.
    subjects = _participants(settings) if settings.bids_database_dir is None else None
    sources: list[Source] = []
    problems: list[Problem] = []
    for root, kind in types.items():
        if kind in PIPELINES:
            sources += find_sources(root, kind, subjects)
            continue
        closed = list_func_folders(root, subjects)[1]
        problems += [
            Problem(folder.relative_to(root).parts[0], f"{folder} may not be read: give yourself read access to it.")
            for folder in closed
        ]
        for path in list_files(root, subjects, closed, settings.bids_database_dir):
            try:
                source = read_source(path, root)
            except DatasetError as error:
                problems.append(Problem(path.name.partition(".")[0], f"{path}: {error} Rename it."))
                continue
            sources += [source] if source else []
    return sources, problems


def _participants(settings: Selection) -> frozenset[str] | None:
    return frozenset(label.removeprefix("sub-") for label in settings.participant_label) or None


def _absent_participants(settings: Inputs, roots: Sequence[Path], there: Iterable[Source]) -> list[Problem]:
    """Participants without any series: named by the user, or with a folder in the derivatives."""
    asked = _participants(settings)
    found = {source.labels["sub"] for source in there}
    if asked is not None and asked <= found:
        return []
    folders = [path for root in roots for path in root.glob("sub-*") if path.is_dir() or path.is_symlink()]
    listed = {path.name[4:] for path in folders}
    dead = {path.name[4:]: path for path in folders if not path.exists()}
    where = " or ".join(map(str, roots))
    problems = []
    for label in sorted((asked or listed) - found):
        if label in dead:
            sentence = f"{dead[label]} is a link to a folder that is not there: get its content, or mend the link."
        elif label in listed:
            sentence = f"sub-{label} has a folder in {where} but no preprocessed BOLD series: did fMRIPrep finish?"
        else:
            sentence = f"There is no sub-{label} in {where}: {label_remedy(label, listed | found)}"
        problems.append(Problem(f"sub-{label}", sentence, FAILED if asked else SKIPPED))
    return problems


def _nothing_found(types: Mapping[Path, str], problems: Sequence[Problem]) -> str:
    where = " or ".join(map(str, types))
    patterns = " and ".join(PIPELINES[kind].pattern for kind in types.values() if kind in PIPELINES) or PATTERNS
    reasons = " ".join(problem.sentence for problem in problems[:10])
    remedy = reasons or "Give the folder that fMRIPrep wrote to, as the input folder or with --derivatives."
    for root in types:
        has_tables = any(next(root.glob(f"sub-*/**/*_{ends}"), None) for ends in ("timeseries.tsv", "relmat.*"))
        names = program_names(root) if has_tables else []
        if maker := next((name for name in names if name and name.lower() != "fmriprep"), ""):
            remedy = f"{root} was made by {maker}: its results are read at group level, 'group -d {root}'."
            if maker == "fcpower_bids":
                remedy = OWN_FOLDER.format(root, root)
    return f"There is no preprocessed BOLD series in {where} (looked for {patterns}). {remedy}"


def _echoes_alone(passed: Iterable[Source], kept: Iterable[Source]) -> list[Problem]:
    """Runs of which there are single echoes, and not what fMRIPrep combines them to."""
    unshared = {"echo", *GRID_KEYS}
    combined = {drop(source.entities, unshared) for source in kept}
    runs = {drop(source.entities, unshared) for source in passed if "echo" in source.labels} - combined
    sentence = (
        "There are single echoes of it and not their combination: run fMRIPrep again, or use an echo with "
        '--bids-filter-file ({"bold": {"echo": 2}}).'
    )
    return [Problem("_".join(f"{key}-{value}" for key, value in run), sentence, SKIPPED) for run in sorted(runs)]


def _choose(
    kept: list[Source], filters: Iterable[Filter], settings: Inputs
) -> tuple[list[Source], dict[str, str], list[str]]:
    if any(condition.key == "space" for condition in filters) and not settings.space:
        return kept, {}, []
    chosen, missing, notes = choose_spaces(kept, settings.space)
    if not chosen:
        more = f" So it is for {len(missing)} runs in all." if len(missing) > 1 else ""
        raise DatasetError(next(iter(missing.values())) + more)
    return chosen, missing, notes


def _without_clashes(chosen: Collection[Source], settings: Inputs) -> tuple[list[Source], list[Problem]]:
    """Leave out inputs that would be written to one output. Raises DatasetError."""
    by_name: dict[Entities, list[Source]] = defaultdict(list)
    for source in chosen:
        by_name[source.entities].append(source)
    clashes: dict[Entities, str] = {}
    for entities, (source, *others) in by_name.items():
        if others:
            clashes[entities] = (
                f"{source.path} and {others[0].path} have the same entities, so their outputs would have the same "
                "names. Remove one of them, or choose with --derivatives or --bids-filter-file."
            )
    if len(clashes) == len(by_name) and clashes:
        raise DatasetError(next(iter(clashes.values())))
    problems = [Problem(by_name[entities][0].name, sentence) for entities, sentence in clashes.items()]
    return [source for source in chosen if source.entities not in clashes], problems


def _inspect(
    chosen: Iterable[Source], sources: Iterable[Source], sidecars: Sidecars, output_dir: Path
) -> tuple[tuple[Recording, ...], tuple[int, ...], list[Problem]]:
    companions = _companions(sources)
    ready: list[tuple[Recording, int]] = []
    faults: list[Problem] = []
    for series in sorted(chosen, key=lambda source: source.name):
        mask, confounds = (companions.get(_key(series, kind)) for kind in ("mask", "confounds"))
        try:
            seen = inspect_series(series, mask, confounds, sidecars)
        except Exception as error:  # of one recording: the others go on
            faults.append(Problem(series.name, explain(error, output_dir, f"{series.name}_{STAGE}")))
            continue
        if seen.recording is None:
            faults.append(Problem(series.name, " ".join(seen.sentences), found=seen.found))
        else:
            ready.append((seen.recording, seen.volumes))
    return tuple(recording for recording, _ in ready), tuple(volumes for _, volumes in ready), faults


def _companions(sources: Iterable[Source]) -> dict[tuple[Path, str, Entities], Path]:
    """Masks and confounds by what they share with their series; the newest of several confounds tables."""
    companions: dict[tuple[Path, str, Entities], Path] = {}
    newest_first = sorted(
        sources, key=lambda source: CONFOUNDS.index(source.suffix) if source.kind == "confounds" else 0
    )
    for source in newest_first:
        if source.kind != "bold":
            companions.setdefault(_key(source, source.kind), source.path)
    return companions


def _key(source: Source, kind: str) -> tuple[Path, str, Entities]:
    """Masks lie on the grid of their series; confounds belong to the run; neither is made per echo."""
    unshared = {"echo"} | (GRID_KEYS if kind == "confounds" else frozenset())
    return source.root, kind, drop(source.entities, unshared)
