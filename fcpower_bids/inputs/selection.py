"""Which of the series that are there the user wants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs.sources import INDEX_KEYS, Source
from fcpower_bids.outputs.names import ENTITY_ORDER
from fcpower_bids.settings import Selection
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


def read_filters(settings: Selection) -> tuple[Filter, ...]:
    """Collect the conditions of the command line (without ``--space``) and of the filter file. Raises UsageError."""
    options = (
        ("--participant-label", "sub", settings.participant_label),
        ("--session-label", "ses", settings.session_label),
        ("--task-id", "task", settings.task_id),
    )
    stated = [
        Filter(flag, key, tuple(_normal(key, label) for label in labels)) for flag, key, labels in options if labels
    ]
    return tuple(stated) + (read_filter_file(settings.bids_filter_file) if settings.bids_filter_file else ())


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
        close = get_close_matches(name, (*LONG_NAMES, *known), n=1)
        hint = f" Did you mean '{close[0]}'?" if close else f" Entities are {', '.join(known)}."
        raise UsageError(f"The filter file {path} asks for '{name}', which is no BIDS entity.{hint}")
    values = value if isinstance(value, list) else [value]
    if not values or not all(item is None or isinstance(item, (str, int)) for item in values):
        raise UsageError(f"The filter file {path} must give '{name}' a label, null, \"*\" or a list of these.")
    return Filter(
        f"{path.name}: {name}", key, tuple(None if item is None else _normal(key, str(item)) for item in values)
    )


def apply_filters(series: Sequence[Source], filters: Iterable[Filter]) -> list[Source]:
    """Keep the series that fulfil all conditions. Raises DatasetError."""
    kept = list(series)
    for condition in filters:
        passing = [one for one in kept if condition.accepts(one)]
        if not passing and condition.key == "sub":
            label, there = str(condition.values[0]), {one.labels["sub"] for one in kept}
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
        there = {_label(one, condition.key) for one in series}
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
    return None if label is None else _normal(key, label)


def _normal(key: str, label: str) -> str:
    """Strip a leading ``key-``; numbers lose their leading zeros."""
    bare = label.removeprefix(f"{key}-")
    return str(int(bare)) if key in INDEX_KEYS and bare.isdecimal() else bare


def _labels_there(series: Sequence[Source], key: str) -> str:
    labels = sorted({_label(one, key) or "(none)" for one in series})
    return ", ".join(labels[:20]) + (f" and {len(labels) - 20} more" if len(labels) > 20 else "")


def label_remedy(label: str, there: Collection[str]) -> str:
    """Say how a label of the command line is meant, and which there are."""
    if "," in label:
        several = " ".join(one.strip().removeprefix("sub-") for one in label.split(","))
        return f"labels are divided by blanks, so write --participant-label {several}."
    bare = {one.lstrip("0").casefold(): one for one in there}
    close = bare.get(label.lstrip("0").casefold()) or next(iter(get_close_matches(label, there, n=1, cutoff=0.8)), None)
    meant = f" Did you mean {close}?" if close else ""
    return f"correct --participant-label.{meant} There are {', '.join(sorted(there)) or 'none'}."
