"""Find the recordings to process, choose those that the user wants, and say what keeps others from being processed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs.roots import OWN_FOLDER, derivative_root, input_type_of, raw_roots
from fcpower_bids.inputs.sources import (
    CLEANED,
    CONFOUNDS,
    GRID_KEYS,
    PATTERN,
    Sidecars,
    Source,
    drop,
    hcp_sources,
    inspect_series,
    list_files,
    list_func_folders,
    read_source,
)
from fcpower_bids.outputs.dataset import ENTITY_ORDER
from fcpower_bids.outputs.status import FAILED, SKIPPED, explain
from fcpower_bids.outputs.tables import program_names
from fcpower_bids.records import Entities, Recording, is_in_space, join, value_of
from fcpower_bids.settings import Settings
from fcpower_bids.store import load_json

LONG_NAMES = {
    **{"subject": "sub", "template": "tpl", "session": "ses", "acquisition": "acq", "nucleus": "nuc", "volume": "voi"},
    **{"ceagent": "ce", "tracer": "trc", "reconstruction": "rec", "direction": "dir", "modality": "mod"},
    **{"inversion": "inv", "mtransfer": "mt", "processing": "proc", "hemisphere": "hemi", "segmentation": "seg"},
    **{"resolution": "res", "density": "den", "description": "desc"},
}
FILE_KEYS = ("suffix", "extension", "datatype")
ANY = "*"


@dataclass(frozen=True)
class Filter:
    """One condition on one entity."""

    origin: str  # where the user stated it: an option of the command line, or the filter file
    key: str  # short name of the entity, or ``suffix``, ``extension``, ``datatype``
    values: tuple[str | None, ...]  # accepted labels; None accepts the absence of the entity, ``*`` any label

    def accepts(self, series: Source) -> bool:
        """Whether the series fulfils the condition."""
        label = _label(series, self.key)
        return label in self.values or (label is not None and ANY in self.values)

    @property
    def words(self) -> str:
        """The condition as the user gave it."""
        return f"{self.origin} {' '.join('null' if value is None else value for value in self.values)}"


def read_filters(settings: Settings) -> tuple[Filter, ...]:
    """Collect the conditions of the command line (without ``--space``) and of the filter file. Raises UsageError."""
    options = (
        ("--participant-label", "sub", settings.inputs.participant_label),
        ("--session-label", "ses", settings.inputs.session_label),
        ("--task-id", "task", settings.inputs.task_id),
    )
    stated = [_filter(flag, key, labels) for flag, key, labels in options if labels]
    file = settings.inputs.bids_filter_file
    return (*stated, *(read_filter_file(file) if file else ()))


def _filter(origin: str, key: str, labels: Iterable[Any]) -> Filter:
    """A condition as the user states it, where labels may begin with their key."""
    values = (None if label is None else value_of(key, str(label).removeprefix(f"{key}-")) for label in labels)
    return Filter(origin, key, tuple(values))


def read_filter_file(path: Path) -> tuple[Filter, ...]:
    """Read the conditions for ``bold`` from a JSON file as fMRIPrep takes it. Raises UsageError."""
    try:
        content = load_json(path)
    except OSError as error:
        raise UsageError(f"The filter file {path} cannot be read ({error.strerror}). Check its path.") from error
    except ValueError as error:
        raise UsageError(f"The filter file {path} is not valid JSON ({error}). Correct it there.") from error
    conditions = content.get("bold") if isinstance(content, dict) else None
    if not isinstance(conditions, dict):
        raise UsageError(f'The filter file {path} says nothing about BOLD. Write {{"bold": {{"task": "rest"}}}}.')
    return tuple(_condition(path, name, value) for name, value in conditions.items())


def _condition(path: Path, name: str, value: Any) -> Filter:
    key = LONG_NAMES.get(name, name)
    known = (*ENTITY_ORDER, *FILE_KEYS)
    if key not in known:
        names = ", ".join(known)
        raise UsageError(f"The filter file {path} asks for '{name}', which is no BIDS entity. Entities are {names}.")
    values = value if isinstance(value, list) else [value]
    if not values or not all(item is None or isinstance(item, (str, int)) for item in values):
        raise UsageError(f"The filter file {path} must give '{name}' a label, null, \"*\" or a list of these.")
    return _filter(f"{path.name}: {name}", key, values)


def apply_filters(series: Sequence[Source], filters: Iterable[Filter]) -> list[Source]:
    """Keep the series that fulfil all conditions. Raises DatasetError."""
    kept = list(series)
    for condition in filters:
        passing = [source for source in kept if condition.accepts(source)]
        if not passing and condition.key == "sub":
            label, there = str(condition.values[0]), {source.labels["sub"] for source in kept}
            raise DatasetError(f"There is no sub-{label}: {label_remedy(label, there)}")
        if not passing:
            raise DatasetError(
                f"No BOLD series is left: none of {len(kept)} passes {condition.words}. "
                f"They have {condition.key} {_labels_there(kept, condition.key)}: ask for one of these."
            )
        kept = passing
    return kept


def note_unmatched(series: Sequence[Source], filters: Iterable[Filter]) -> list[str]:
    """Say which labels the user asked for that no series has."""
    notes = []
    for condition in filters:
        there = {_label(source, condition.key) for source in series}
        missing = [value for value in condition.values if value not in there and value not in (ANY, None)]
        if missing and condition.key != "sub":
            notes.append(
                f"{condition.origin} {' '.join(map(str, missing))} matches nothing; "
                f"there are {condition.key} {_labels_there(series, condition.key)}."
            )
    return notes


def _label(series: Source, key: str) -> str | None:
    if key == "desc":
        return "preproc" if "preproc" in series.path.name else None
    if key in FILE_KEYS:
        return {"suffix": "bold", "extension": series.extension, "datatype": "func"}[key]
    label = series.labels.get(key)
    return None if label is None else value_of(key, label)


def _labels_there(series: Sequence[Source], key: str) -> str:
    return _first_of({_label(source, key) or "(none)" for source in series})


def _first_of(labels: Collection[str]) -> str:
    return ", ".join(sorted(labels)[:20]) + (f" and {len(labels) - 20} more" if len(labels) > 20 else "")


def label_remedy(label: str, there: Collection[str]) -> str:
    """Say which labels there are, the first ones of many; blanks divide them on the command line."""
    divided = " Labels are divided by blanks." if "," in label else ""
    return f"correct --participant-label.{divided} There are {_first_of(there) or 'none'}."


PATTERNS = "sub-*/[ses-*/]func/*_desc-preproc_bold.nii[.gz] and *_bold.dtseries.nii"
DEFAULT_SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym", "fsLR")


@dataclass(frozen=True)
class Problem:
    """Why a recording, or all of a participant, is not processed."""

    recording: str  # name of the recording, the run or the participant
    sentence: str  # faults of files, with the remedy
    kind: str = FAILED  # ``failed``, or ``skipped`` for what the user's own choices left out


@dataclass(frozen=True)
class Discovery:
    """Recordings to process."""

    recordings: tuple[Recording, ...]  # sorted by name
    problems: tuple[Problem, ...]  # recordings that cannot be processed; the others go on
    notes: tuple[str, ...]  # notes that need no action
    derivatives: Path  # the dataset that was looked into


def find_recordings(settings: Settings) -> Discovery:
    """Find the recordings that the settings ask for and look at their files. Raises DatasetError, UsageError."""
    filters = read_filters(settings)
    asked = frozenset(label.removeprefix("sub-") for label in settings.inputs.participant_label)
    root = derivative_root(settings)[1]
    kind = input_type_of(root, settings.inputs.input_type)
    sources, problems = _collect_sources(settings, root, kind, asked)
    there = [source for source in sources if source.kind == "bold"]
    problems += _absent_participants(asked, root, {source.labels["sub"] for source in there})
    if not there:
        raise DatasetError(_nothing_found(root, kind, problems))
    seen = "" if settings.inputs.input_type else ", by its folders; --input-type says otherwise"
    spoken = {
        "hcp": f"is read as HCP minimal preprocessing (hcp{seen}).",
        "nibabies": "was written by NiBabies: heads are small, consider --head-radius 35 or auto.",
    }
    notes = [f"{root} {spoken[kind]}"] if kind in spoken else []
    notes += note_unmatched(there, filters)
    kept, alone = drop_single_echoes(apply_filters(there, filters), filters, notes)
    if not kept:
        raise DatasetError(_nothing_found(root, kind, alone))
    kept = prefer_cleaned(kept, filters, notes)
    chosen, missing = kept, dict[str, str]()
    if settings.inputs.space or not any(condition.key == "space" for condition in filters):
        chosen, missing = choose_spaces(kept, settings.inputs.space)
    problems += [*alone, *(Problem(run, sentence) for run, sentence in missing.items())]
    left_out = (asked & {source.labels["sub"] for source in there}) - {source.labels["sub"] for source in kept}
    problems += [
        Problem(f"sub-{label}", f"None of the series of sub-{label} passes the other filters: it is left out.", SKIPPED)
        for label in sorted(left_out)
    ]
    chosen, clashes = _without_clashes(chosen)
    sidecars = Sidecars(raw_roots(settings, root))
    ready, faults = _inspect(chosen, sources, sidecars, settings.output_dir)
    if sidecars.unfetched:
        first, count = min(sidecars.unfetched), len(sidecars.unfetched)
        notes.append(
            f"{first}{f' and {count - 1} more' if count > 1 else ''} stand for content that is not there; repetition "
            "times are those of the headers. Fetch them (datalad get, git annex get) to have them compared."
        )
    ordered = sorted([*problems, *clashes, *faults], key=lambda problem: (problem.recording, problem.sentence))
    return Discovery(tuple(ready), tuple(ordered), tuple(notes), root)


def _collect_sources(
    settings: Settings, root: Path, kind: str, asked: Collection[str]
) -> tuple[list[Source], list[Problem]]:
    """Read the names of all files that can matter, in the order of their paths."""
    # A kept index holds everybody, so that jobs for different participants share it.
    subjects = asked or None if settings.inputs.bids_database_dir is None else None
    if kind == "hcp":
        return hcp_sources(root, subjects), []
    sources, closed = list[Source](), list_func_folders(root, subjects)[1]
    problems = [
        Problem(folder.relative_to(root).parts[0], f"{folder} may not be read: give yourself read access to it.")
        for folder in closed
    ]
    for path in list_files(root, subjects, closed, settings.inputs.bids_database_dir):
        try:
            source = read_source(path, root)
        except DatasetError as error:
            problems.append(Problem(path.name.partition(".")[0], f"{path}: {error} Rename it."))
        else:
            sources += [source] if source else []
    return sources, problems


def _absent_participants(asked: Collection[str], root: Path, present: Collection[str]) -> list[Problem]:
    """Participants without any series: named by the user, or with a folder in the derivatives."""
    if asked and set(asked) <= set(present):
        return []
    listed = {path.name[4:] for path in root.glob("sub-*") if path.is_dir() or path.is_symlink()}
    problems = []
    for label in sorted(set(asked or listed) - set(present)):
        sentence = f"There is no sub-{label} in {root}: {label_remedy(label, listed | set(present))}"
        if label in listed:
            sentence = (
                f"sub-{label} has a folder in {root} but no preprocessed BOLD series: did fMRIPrep finish? "
                "A link must lead to its content."
            )
        problems.append(Problem(f"sub-{label}", sentence, FAILED if asked else SKIPPED))
    return problems


def _nothing_found(root: Path, kind: str, problems: Sequence[Problem]) -> str:
    patterns = PATTERN if kind == "hcp" else PATTERNS
    reasons = " ".join(problem.sentence for problem in problems[:2])
    remedy = reasons or "Give the folder that fMRIPrep wrote to, as the input folder or with --derivatives."
    if any(next(root.glob(f"sub-*/**/*_{ends}"), None) for ends in ("timeseries.tsv", "relmat.*")):
        maker = next((name for name in program_names(root) if name and name.lower() != "fmriprep"), "")
        group = f"{root} was made by {maker}: its results are read at group level, 'group -d {root}'."
        remedy = OWN_FOLDER.format(root, root) if maker == "fcpower_bids" else group if maker else remedy
    return f"There is no preprocessed BOLD series in {root} (looked for {patterns}). {remedy}"


def drop_single_echoes(
    series: Sequence[Source], filters: Iterable[Filter], notes: list[str]
) -> tuple[list[Source], list[Problem]]:
    """Leave out the series of single echoes, unless the user asked for echoes; note it.

    Returns the others, and the runs of which there are single echoes and not what fMRIPrep combines them to.
    """
    dropped = [source for source in series if "echo" in source.labels]
    if not dropped or any(condition.key == "echo" for condition in filters):
        return list(series), []
    kept = [source for source in series if "echo" not in source.labels]
    notes.append(
        f"{dropped[0].path} and {len(dropped) - 1} more hold single echoes and are not processed: their optimal "
        "combination is (to use an echo itself, name it in --bids-filter-file)."
    )
    unshared = {"echo", *GRID_KEYS}
    alone = {drop(source.entities, unshared) for source in dropped} - {
        drop(source.entities, unshared) for source in kept
    }
    sentence = (
        "There are single echoes of it and not their combination: run fMRIPrep again, or use an echo with "
        '--bids-filter-file ({"bold": {"echo": 2}}).'
    )
    return kept, [Problem(join(run), sentence, SKIPPED) for run in sorted(alone)]


def prefer_cleaned(series: Sequence[Source], filters: Iterable[Filter], notes: list[str]) -> list[Source]:
    """Of a run that is there before and after ICA-FIX take the latter, unless the user asked by ``proc``; note it."""
    unshared = GRID_KEYS | {"proc"}
    runs = {drop(source.entities, unshared) for source in series if CLEANED in source.entities}
    if not runs or any(condition.key == "proc" for condition in filters):
        return list(series)
    kept = [source for source in series if CLEANED in source.entities or drop(source.entities, unshared) not in runs]
    rest = f"; {len(series) - len(kept)} without it are left out" if len(kept) < len(series) else ""
    notes.append(
        f"{sum(CLEANED in scan.entities for scan in kept)} series are taken as ICA-FIX left them (proc-fix){rest}. It "
        "has regressed motion already: consider --strategy none."
    )
    return kept


def choose_spaces(series: Sequence[Source], wanted: Sequence[str]) -> tuple[list[Source], dict[str, str]]:
    """Choose the spaces of each run, and return why others have none. Raises DatasetError."""
    runs: dict[str, list[Source]] = defaultdict(list)
    for source in series:
        runs[join(source.run)].append(source)
    chosen: list[Source] = []
    missing: dict[str, str] = {}
    for name, members in runs.items():
        there = {source.space for source in members}
        spaces = wanted or [space for space in DEFAULT_SPACES if space in there][:1]
        chosen += [source for source in members if any(is_in_space(source.labels, space) for space in spaces)]
        lacking = [
            space
            for space in spaces or DEFAULT_SPACES
            if not any(is_in_space(source.labels, space) for source in members)
        ]
        if lacking:
            of_surface = lacking[0].partition(":")[0] == "fsLR"
            option = "--cifti-output 91k" if of_surface else f"--output-spaces {lacking[0]}"
            missing[name] = (
                f"{members[0].path.parent} has no series of {name} in {' or '.join(lacking)}, only in "
                f"{', '.join(sorted(there))}. Run fMRIPrep with {option}, or name a space that is there with --space."
            )
    if not chosen:
        more = f" So it is for {len(missing)} runs in all." if len(missing) > 1 else ""
        raise DatasetError(next(iter(missing.values())) + more)
    return chosen, missing


def _without_clashes(chosen: Collection[Source]) -> tuple[list[Source], list[Problem]]:
    """Leave out inputs that would be written to one output. Raises DatasetError."""
    by_name: dict[str, list[Source]] = defaultdict(list)
    for source in chosen:
        by_name[source.name].append(source)
    clashes = {
        name: f"{source.path} and {others[0].path} have the same entities, so their outputs would have the same "
        "names. Remove one of them, or choose with --bids-filter-file."
        for name, (source, *others) in by_name.items()
        if others
    }
    if clashes and len(clashes) == len(by_name):
        raise DatasetError(next(iter(clashes.values())))
    problems = [Problem(name, sentence) for name, sentence in clashes.items()]
    return [source for source in chosen if source.name not in clashes], problems


def _inspect(
    chosen: Iterable[Source], sources: Iterable[Source], sidecars: Sidecars, output_dir: Path
) -> tuple[list[Recording], list[Problem]]:
    """Look at the files of each series: masks lie on its grid, confounds are of the run, neither is made per echo."""

    def key(source: Source, kind: str) -> tuple[str, Entities]:
        return kind, drop(source.entities, {"echo", *(GRID_KEYS if kind == "confounds" else ())})

    companions: dict[tuple[str, Entities], Path] = {}  # the newest of several confounds tables
    for source in sorted(
        sources, key=lambda source: CONFOUNDS.index(source.suffix) if source.kind == "confounds" else 0
    ):
        if source.kind != "bold":
            companions.setdefault(key(source, source.kind), source.path)
    ready: list[Recording] = []
    faults: list[Problem] = []
    for series in sorted(chosen, key=lambda source: source.name):
        mask, confounds = (companions.get(key(series, kind)) for kind in ("mask", "confounds"))
        try:
            ready.append(inspect_series(series, mask, confounds, sidecars))
        except Exception as error:  # of one recording: the others go on
            faults.append(Problem(series.name, explain(error, output_dir, f"{series.name}_inputs")))
    return ready, faults
