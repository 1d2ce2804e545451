"""Which of the connectomes that are there make up the cohort, whether they belong together, and how they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fcpower_bids.cohort.inclusion import Connectome
from fcpower_bids.cohort.recordings import LeftOut, cleaning_choices, describe_choices, digest_choices, selected_of
from fcpower_bids.errors import DatasetError
from fcpower_bids.imaging.atlas_files import BUILTIN, ENTITIES, EXTENSIONS, declared_atlases, parse_name
from fcpower_bids.inputs.discover import FILE_KEYS, Filter, apply_filters, note_unmatched, read_filters
from fcpower_bids.inputs.sources import Source, values_of
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.records import is_in_space, join
from fcpower_bids.settings import Method, Settings

ACQUISITION_KEYS = frozenset({"sub", "ses", "task", "acq", "ce", "dir", "run"})
"""Entities that distinguish acquisitions; the others distinguish versions of one acquisition."""


def choose_connectomes(connectomes: Sequence[Connectome], settings: Settings) -> tuple[list[Connectome], list[str]]:
    """Choose the connectomes that the user wants, each acquisition once. Raises DatasetError."""
    kept, notes = _filter(connectomes, settings)
    kept, about_atlas = _choose_atlas(kept, settings)
    notes += about_atlas
    spaces, folder = {connectome.space for connectome in kept}, settings.output_dir
    kept = _in_spaces(kept, settings.inputs.space)
    if not kept:
        wanted, there = " ".join(settings.inputs.space), ", ".join(sorted(spaces))
        raise DatasetError(f"{folder} has no FC in --space {wanted}, only in {there}.")
    if len({connectome.space for connectome in kept}) > 1:
        counts = _count(connectome.space for connectome in kept)
        raise DatasetError(f"{folder} has FC in several spaces: {counts}. Name one with --space.")
    tasks = [connectome.entity("task") or "(none)" for connectome in kept]
    if len(set(tasks)) > 1 and not any(condition.key == "task" for condition in read_filters(settings)):
        raise DatasetError(
            f"{folder} has FC of several tasks: {_count(tasks)}. Name one with --task-id; several names are combined "
            "like runs."
        )
    seen: dict[Hashable, Connectome] = {}
    for connectome in kept:  # two files of one acquisition (two resolutions, say) would count a recording twice
        acquisition = values_of(tuple(pair for pair in connectome.entities if pair[0] in ACQUISITION_KEYS))
        other = seen.setdefault((connectome.site, acquisition), connectome)
        if other is not connectome:
            keys = sorted({key for key, _ in set(connectome.entities) ^ set(other.entities)})
            raise DatasetError(
                f"{other.path} and {connectome.path.name} are the same acquisition and differ in {', '.join(keys)} "
                f"only. Choose one with --bids-filter-file, or remove the other."
            )
    return kept, notes


def asked_for(connectomes: Sequence[Connectome], settings: Settings) -> list[Connectome]:
    """Connectomes that the selection, the atlases and the spaces of the command allow, several atlases among them."""
    kept, _ = _filter(connectomes, settings)
    if settings.method.atlas != Method.atlas:
        names = sorted({connectome.atlas_name for connectome in kept})
        atlases = {name for spec in settings.method.atlas for name in match_atlases(spec, names)}
        kept = [connectome for connectome in kept if connectome.atlas_name in atlases]
    return _in_spaces(kept, settings.inputs.space)


def _in_spaces(connectomes: list[Connectome], spaces: Sequence[str]) -> list[Connectome]:
    """Those in one of these spaces; all where none is named."""
    if not spaces:
        return connectomes
    return [scan for scan in connectomes if any(is_in_space(scan.labels, space) for space in spaces)]


def would_take_part(left_out: Sequence[LeftOut], settings: Settings) -> list[LeftOut]:
    """Recordings that are left out, but would be asked for; of a whole person or session only its labels count."""
    conditions, nowhere = _conditions(settings), settings.output_dir
    asked = []
    for recording in left_out:
        source = Source(nowhere, nowhere, "bold", tuple(recording.labels.items()), "bold", ".tsv")
        known = (item for item in conditions if item.key in source.labels or "task" in source.labels)
        if all(condition.accepts(source) for condition in known):
            asked.append(recording)
    return asked


def _conditions(settings: Settings) -> list[Filter]:
    return [condition for condition in read_filters(settings) if condition.key not in ("desc", *FILE_KEYS)]


def _filter(connectomes: Sequence[Connectome], settings: Settings) -> tuple[list[Connectome], list[str]]:
    """Apply the selection of the command line and of the filter file, as the participant level does."""
    conditions = _conditions(settings)
    sources = [
        Source(connectome.path, connectome.root, "bold", tuple(connectome.labels.items()), "bold", ".tsv")
        for connectome in connectomes
    ]
    kept = {source.path for source in apply_filters(sources, conditions)}
    return [connectome for connectome in connectomes if connectome.path in kept], note_unmatched(sources, conditions)


def _choose_atlas(connectomes: list[Connectome], settings: Settings) -> tuple[list[Connectome], list[str]]:
    names = sorted({connectome.atlas_name for connectome in connectomes})
    asked = settings.method.atlas != Method.atlas
    matching = sorted({name for spec in settings.method.atlas for name in match_atlases(spec, names)})
    if len(matching) == 1 and len(names) > 1:
        note = f"Of the atlases {', '.join(names)} the cohort uses {matching[0]} (--atlas)."
        return [connectome for connectome in connectomes if connectome.atlas_name == matching[0]], [note]
    if len(names) == 1 and (matching or not asked):
        return connectomes, []
    counts = _count(connectome.atlas_name for connectome in connectomes)
    if not matching and asked:
        raise DatasetError(
            f"{settings.output_dir} has no FC of --atlas {' '.join(settings.method.atlas)}, only of {counts}. Name "
            "that one."
        )
    raise DatasetError(
        f"{settings.output_dir} has FC of several atlases: {counts}. Name one with --atlas, for example "
        f"--atlas {names[0]}; people are compared within one atlas only."
    )


def match_atlases(spec: str, names: Sequence[str]) -> list[str]:
    """Which written atlases a specification means: that of this name, declared or of the outputs, or of this file."""
    declared, path = declared_atlases().get(spec), Path(spec.partition(":")[0])
    entities = ENTITIES if spec in BUILTIN else declared.entities if declared else ()
    exact = {spec, f"atlas-{spec}", join(entities)}
    if path.name.endswith(EXTENSIONS):
        exact.add(join(parse_name(path).entities))
    return [name for name in names if name in exact]


def check_alike(connectomes: Sequence[Connectome]) -> list[str]:
    """Check that all connectomes were made alike, and return notes on harmless differences. Raises DatasetError."""
    _same(connectomes, "confound strategy", lambda connectome: connectome.facts.get("NuisanceStrategy"))

    def band(connectome: Connectome) -> str | None:
        edges = connectome.facts.get("SoftwareFilters", {}).get("Butterworth", {})
        return f"{edges.get('HighPassHz')} to {edges.get('LowPassHz')}" if edges else None

    _same(connectomes, "pass-band in Hz", band)
    notes = _other_choices(connectomes)
    powers = [set(connectome.powers) for connectome in connectomes if connectome.powers]
    if powers and not set.intersection(*powers):
        counts = _count("+".join(connectome.powers) for connectome in connectomes if connectome.powers)
        raise DatasetError(
            f"The exponents of FC^alpha differ between people: {counts}. Run the participant level for all with one "
            "--alpha."
        )
    for words, key in (("participant-level settings", "ConfigurationHash"), ("versions", "SoftwareVersion")):
        values = [str(connectome.facts.get(key, "unknown")) for connectome in connectomes]
        if len(set(values)) > 1:
            notes.append(f"The recordings were made with {len(set(values))} {words}: {_count(values)}.")
    files = [str(connectome.facts.get("Atlas", {}).get("Sha256", "unknown"))[:12] for connectome in connectomes]
    if len(set(files)) > 1:
        notes.append(
            f"The recordings were made with {len(set(files))} files of the atlas: {_count(files)}. Unless they are of "
            "one parcellation at several resolutions, parcels of one name lie elsewhere in some of them: run the "
            "participant level for all with one file."
        )
    return notes


def _other_choices(connectomes: Sequence[Connectome]) -> list[str]:
    """Refuse other choices of the cleaning in one folder but the least length, and note them between sites."""
    chosen: dict[str, tuple[Connectome, dict[str, Any]]] = {}
    for connectome in connectomes:
        choices = {name: value for name, value in cleaning_choices(connectome).items() if name != "min_time"}
        if choices:
            chosen.setdefault(digest_choices(choices), (connectome, choices))
    if len(chosen) < 2:
        return []
    (first, before), (second, now), *_ = chosen.values()
    sentence = f"{first.recording} and {second.recording} were cleaned otherwise ({describe_choices(before, now)})"
    if len({connectome.site for connectome in connectomes}) > 1:
        return [f"{sentence}."]
    raise DatasetError(
        f"{sentence}. Run the participant level for all with one choice and --replace, or leave the others out with "
        "--exclude-file."
    )


def cleaning_of(connectomes: Sequence[Connectome]) -> dict[str, Any]:
    """How the series of the cohort were cleaned, by their sidecars: strategy, pass-band, censoring; what is known."""
    facts = [connectome.facts for connectome in connectomes]
    strategy, band = facts[0].get("NuisanceStrategy"), facts[0].get("SoftwareFilters", {}).get("Butterworth", {})
    thresholds = {
        sidecar["CensoringThresholdMillimetres"] for sidecar in facts if "CensoringThresholdMillimetres" in sidecar
    }
    cleaning: dict[str, Any] = {} if strategy in (None, UNKNOWN_STRATEGY) else {"NuisanceStrategy": strategy}
    if band:
        cleaning["PassBandHz"] = [band.get("HighPassHz"), band.get("LowPassHz")]
    return cleaning | ({"CensoringThresholdsMillimetres": sorted(thresholds)} if thresholds else {})


def _same(connectomes: Sequence[Connectome], what: str, value: Callable[[Connectome], Any]) -> None:
    first: dict[str, Connectome] = {}
    for connectome in connectomes:
        first.setdefault(str(value(connectome)), connectome)
    if len(first) > 1:
        labels = ", ".join(f"{label} ({connectome.path.name})" for label, connectome in first.items())
        raise DatasetError(
            f"The {what} differs between recordings: {labels}. Run the participant level for all with one choice, or "
            "leave the others out with --exclude-file."
        )


def _count(labels: Iterable[str]) -> str:
    return ", ".join(f"{label} ({count} recordings)" for label, count in sorted(Counter(labels).items()))


UNKNOWN_STRATEGY = "unknown"
OWN_ATLAS = "OfTheAtlasOfTheCohort"


def read_embedding_facts(labels: Collection[str], settings: Settings) -> dict[str, dict[str, Any]]:
    """Read the first sidecar of every embedding of the cohort; `load_cohort` has checked that the others agree."""
    facts: dict[str, dict[str, Any]] = {}
    if not labels:
        return facts
    for connectome in choose_connectomes(selected_of(settings).connectomes, settings)[0]:
        for label in set(connectome.encoders) & set(labels) - set(facts):
            sidecar = connectome.embedding(label).with_suffix(".json")
            if sidecar.is_file():
                facts[label] = {**read_json(sidecar), OWN_ATLAS: dict(connectome.embeddings)[label] == connectome.atlas}
    return facts


# --- How connectomes were made --------------------------------------------------------------------------------------


GRAVE = ("atlas", "nuisance strategy", "band")
"""Preprocessing that changes the numbers of a brain: a model is applied across these only on request."""
OTHERWISE = "other choices of the cleaning"
NAMED = ("space", "file of the atlas", "censoring threshold", OTHERWISE)
ELSEWHERE_NAMED = frozenset({"strategy", "high_pass", "low_pass", "filter_order", "padding", "fd_thresh", "min_time"})
"""Choices of the cleaning that the other entries state, and the least length, which changes no number."""


def preprocessing_of(connectome: Connectome) -> dict[str, str]:
    """Describe how a connectome was made; facts missing from its sidecar are ``unknown``."""
    facts = connectome.facts
    band = facts.get("SoftwareFilters") or "none"
    if isinstance(band, Mapping):
        band = "; ".join(f"{name} {_choices(how)}" for name, how in sorted(band.items()))
    choices, strategy = cleaning_choices(connectome), str(facts.get("NuisanceStrategy", "unknown"))
    if str(choices.get("strategy")).startswith(f"{strategy} ("):  # a file of one's own, which has a digest there
        strategy = choices["strategy"]
    others = {name.replace("_", "-"): choices[name] for name in sorted(choices.keys() - ELSEWHERE_NAMED)}
    return {
        "atlas": connectome.atlas_name,
        "nuisance strategy": strategy,
        "band": str(band),
        "space": connectome.space,
        "file of the atlas": str(facts.get("Atlas", {}).get("Sha256", ""))[:8] or "not stated",
        "censoring threshold": str(facts.get("CensoringThresholdMillimetres", "none")),
        OTHERWISE: " ".join(f"--{name} {value}" for name, value in others.items()) or "not stated",
    }


def _choices(how: Any) -> str:
    """``(high pass 0.01 Hz, low pass 0.08 Hz, order 2, ...)``."""
    if not isinstance(how, Mapping):
        return f"({how})"
    limits = {"HighPassHz": "high pass", "LowPassHz": "low pass"}
    words = []
    for key, value in sorted(how.items()):
        name = limits.get(key, key.lower())
        words.append(f"no {name}" if value is None else f"{name} {value}{' Hz' if key in limits else ''}")
    return f"({', '.join(words)})"


def gather_preprocessing(those: Iterable[Connectome]) -> dict[str, list[str]]:
    """Return all ways in which connectomes were made, by what differs."""
    ways = [preprocessing_of(connectome) for connectome in those]
    return {name: sorted({made[name] for made in ways}) for name in (*GRAVE, *NAMED)}


def differences(connectome: Connectome, of_model: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return differences from the connectomes of a model: those that change numbers, and those only worth naming."""
    facts = preprocessing_of(connectome)
    unlike = {
        name: f"{name} {facts[name]}, the model's {' or '.join(of_model[name])}"
        for name in facts
        if of_model.get(name) and facts[name] not in of_model[name]
    }
    return [unlike[name] for name in GRAVE if name in unlike], [unlike[name] for name in NAMED if name in unlike]
