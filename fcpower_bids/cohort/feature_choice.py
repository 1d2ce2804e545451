"""Which of the connectomes that are there make up the cohort, whether they belong together, and how they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from fcpower_bids.cohort.inclusion import Connectome
from fcpower_bids.cohort.recordings import cleaning_choices, describe_choices, digest_choices
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.imaging.atlas_files import (
    BUILTIN,
    ENTITIES,
    EXTENSIONS,
    NAMING,
    AtlasFile,
    declared_atlases,
    declared_merge,
    label_images,
    merged_entities,
    parse_name,
    parse_selector,
    split_parts,
)
from fcpower_bids.inputs.discover import FILE_KEYS, Filter, apply_filters, note_unmatched, read_filters
from fcpower_bids.inputs.sources import Source, values_of
from fcpower_bids.records import Entities, is_in_space, join
from fcpower_bids.settings import Method, Settings

ACQUISITION_KEYS = frozenset({"sub", "ses", "task", "acq", "ce", "dir", "run"})
"""Entities that distinguish acquisitions; the others distinguish versions of one acquisition."""


def choose_connectomes(connectomes: Sequence[Connectome], settings: Settings) -> tuple[list[Connectome], list[str]]:
    """Choose the connectomes that the user wants, each acquisition once. Raises DatasetError."""
    kept, notes = asked_for(connectomes, settings)
    there = sorted({connectome.atlas_name for connectome in connectomes})
    default = [name for spec in settings.method.atlas for name in match_atlases(spec, there)]
    if len(default) == 1:
        chosen = [connectome for connectome in kept if connectome.atlas_name in default]
        if kept and not chosen:
            raise DatasetError(
                f"{settings.output_dir} has no such FC of {default[0]}, only of "
                f"{_count(f'{connectome.atlas_name} in {connectome.space}' for connectome in kept)}. Name these."
            )
        kept = chosen
    names = sorted({connectome.atlas_name for connectome in kept})
    if len(names) == 1 < len({connectome.atlas_name for connectome in connectomes}):
        notes.append(f"Of several atlases the cohort uses {names[0]} (--atlas).")
    for what, option, labels in (
        ("atlases", "--atlas", [connectome.atlas_name for connectome in kept]),
        ("spaces", "--space", [connectome.space for connectome in kept]),
        (
            "tasks",
            "--task-id (several that are named are combined like runs)",
            [connectome.entity("task") or "(none)" for connectome in kept],
        ),
    ):
        named = what == "tasks" and any(condition.key == "task" for condition in read_filters(settings))
        if len(set(labels)) > 1 and not named:
            raise DatasetError(
                f"{settings.output_dir} has FC of several {what}: {_count(labels)}. Name one with {option}."
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


def asked_for(connectomes: Sequence[Connectome], settings: Settings) -> tuple[list[Connectome], list[str]]:
    """Connectomes that selection, atlases and spaces of the command allow, and notes. Raises DatasetError."""
    conditions = _conditions(settings)
    sources = [
        Source(connectome.path, connectome.root, "bold", tuple(connectome.labels.items()), "bold", ".tsv")
        for connectome in connectomes
    ]
    passing = {source.path for source in apply_filters(sources, conditions)}
    kept = [connectome for connectome in connectomes if connectome.path in passing]
    names = {connectome.atlas_name for connectome in kept}
    unmet: list[str] = []
    if settings.method.atlas != Method.atlas:
        matches = {spec: match_atlases(spec, sorted(names)) for spec in settings.method.atlas}
        names, unmet = set(chain(*matches.values())), [spec for spec, those in matches.items() if not those]
    chosen = [connectome for connectome in kept if connectome.atlas_name in names]
    if asked := settings.inputs.space:  # with its modifiers, such as res-2
        chosen = [scan for scan in chosen if any(is_in_space(scan.labels, space) for space in asked)]
    if kept and (unmet or not chosen):
        there = _count(f"{connectome.atlas_name} in {connectome.space}" for connectome in kept)
        which = f"--atlas {unmet[0]}" if unmet else "this --atlas and --space"
        raise DatasetError(f"{settings.output_dir} has no FC of {which}, only of {there}. Name these.")
    return chosen, note_unmatched(sources, conditions)


def would_take_part(left_out: Sequence[Connectome], settings: Settings) -> list[Connectome]:
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


def match_atlases(spec: str, names: Sequence[str]) -> list[str]:
    """Which written atlases a specification means: those of this name, or else those that a selector or parts allow."""
    meant = _entities_in(spec)
    if exact := [name for name in names if name in (spec, f"atlas-{spec}", join(meant))]:
        return exact
    if len(split_parts(spec)) == 1 and spec.partition(":")[0].endswith(EXTENSIONS):
        return []
    return [name for name in names if meant and set(meant) <= {chunk.partition("-")[::2] for chunk in name.split("_")}]


def _entities_in(spec: str) -> Entities:
    """Entities that the name of an atlas has by its specification, some of them where it is a selector or merged."""
    declared, (head, _, qualifier) = declared_atlases().get(spec), spec.partition(":")
    if spec in BUILTIN or declared:
        return declared.entities if declared else ENTITIES
    if len(parts := split_parts(spec)) > 1:
        of_parts = [dict(_entities_in(part)) for part in parts]
        scales = [chunks.get("scale", "") for chunks in of_parts]
        n_parcels = [("scale", str(sum(map(int, scales))))] if all(map(str.isdigit, scales)) else []
        named = merged_entities(of_parts)
        return declared_merge(parts) or (*named, *(n_parcels if named else ()))
    if head.endswith(EXTENSIONS):
        return parse_name(Path(head)).entities
    if not qualifier and (folder := Path(head).expanduser()).is_dir():
        there = {file.entities for file in label_images(folder)}
        return there.pop() if len(there) == 1 else ()
    with suppress(UsageError):
        selector = parse_selector(qualifier or spec)
        pairs = AtlasFile(Path(spec), selector).entities if "atlas" in selector else selector.items()
        return tuple(pair for pair in pairs if pair[0] in NAMING)
    return ()


def check_alike(connectomes: Sequence[Connectome]) -> list[str]:
    """Check that all connectomes were made alike, and return notes on harmless differences. Raises DatasetError."""
    _same(connectomes, "confound strategy", lambda connectome: connectome.facts.get("NuisanceStrategy"))
    _same(connectomes, "pass-band in Hz", lambda connectome: " to ".join(map(str, band_in(connectome.facts))) or None)
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
    names = (f"{scan.recording}{f' of {scan.site}' * bool(scan.site)}" for scan in (first, second))
    sentence = f"{' and '.join(names)} were cleaned otherwise ({describe_choices(before, now)})"
    if len({connectome.site for connectome in connectomes}) > 1:
        return [f"{sentence}."]
    raise DatasetError(
        f"{sentence}. Run the participant level for all with one choice and --replace, or leave the others out with "
        "--exclude-file."
    )


def band_in(sidecar: Mapping[str, Any]) -> list[float | None]:
    """Edges of the pass-band in Hz that a sidecar states, None for an open one; nothing where it states no band."""
    filters = sidecar.get("SoftwareFilters")
    band = filters.get("Butterworth") if isinstance(filters, Mapping) else None
    return [band.get(key) for key in ("HighPassHz", "LowPassHz")] if isinstance(band, Mapping) and band else []


def cleaning_of(connectomes: Sequence[Connectome]) -> dict[str, Any]:
    """How the series of the cohort were cleaned, by their sidecars: strategy, pass-band, censoring; what is known."""
    facts = [connectome.facts for connectome in connectomes]
    strategy = facts[0].get("NuisanceStrategy")
    thresholds = {
        sidecar["CensoringThresholdMillimetres"] for sidecar in facts if "CensoringThresholdMillimetres" in sidecar
    }
    cleaning: dict[str, Any] = {} if strategy in (None, UNKNOWN_STRATEGY) else {"NuisanceStrategy": strategy}
    if band := band_in(facts[0]):
        cleaning["PassBandHz"] = band
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


# --- How connectomes were made --------------------------------------------------------------------------------------


GRAVE = ("atlas", "nuisance strategy", "band")
"""Preprocessing that changes the numbers of a brain: a model is applied across these only on request."""
OTHERWISE = "other choices of the cleaning"
NAMED = ("task", "space", "file of the atlas", "censoring threshold", OTHERWISE)
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
        "task": connectome.entity("task") or "not stated",
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
