"""Every choice that a user can make, once, in the parts that layers are given; command line and files follow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcpower_bids.settings.group import GroupLevel
from fcpower_bids.settings.levels import LEVELS, is_read, overridden
from fcpower_bids.settings.pretraining import Pretraining
from fcpower_bids.settings.run import Embedding, Messages, Method, Places, Resources, Run, Seed, Selection

__all__ = [
    "CLEANING",
    "LEVELS",
    "METHOD_SECTIONS",
    "SECTIONS",
    "Analysis",
    "Assembly",
    "Embedding",
    "GroupLevel",
    "Inputs",
    "Messages",
    "Method",
    "Participant",
    "ParticipantOutputs",
    "Places",
    "Pretraining",
    "Resources",
    "Run",
    "Seed",
    "Selection",
    "Settings",
]

METHOD_SECTIONS = ("method", "encoder")
"""Sections whose values change the numbers of the participant level; they make up the configuration hash."""
CLEANING = (
    *("strategy", "high_pass", "low_pass", "filter_order", "padding", "convention", "dummy_scans", "fd_thresh"),
    *("head_radius", "motion_filter_type", "band_stop_min", "band_stop_max", "motion_filter_order"),
    *("min_time", "min_coverage"),
)
"""Choices of the cleaning, of which an output folder has one set."""


@dataclass(frozen=True)
class Participant(Seed, Embedding, Method):
    """Settings on which the numbers of a recording depend, for its steps, files and status."""

    def method_only(self) -> Participant:
        """Return these choices alone, without what cannot change the numbers of a recording."""
        return Participant(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Participant)})

    def configuration_hash(self) -> str:
        """Eight characters that differ whenever a choice that changes participant-level numbers differs."""
        chosen = self.of_sections(*METHOD_SECTIONS)
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]

    def cleaning(self) -> dict[str, Any]:
        """Return the choices of the cleaning as sidecars state them; a strategy of one's own by name and content."""
        chosen = {name: value for name, value in self.as_dict().items() if name in CLEANING}
        path = Path(self.strategy)
        if path.is_file():
            chosen["strategy"] = f"{path.name} ({hashlib.sha256(path.read_bytes()).hexdigest()[:8]})"
        return chosen


@dataclass(frozen=True)
class ParticipantOutputs(Participant, Places):
    """The outputs of the participant level and the choices behind them: for its dataset and its pages."""


@dataclass(frozen=True)
class Inputs(Method, Selection, Places):
    """Settings of the search for recordings."""


@dataclass(frozen=True)
class Assembly(Messages, Resources, GroupLevel, Embedding, Inputs):
    """Settings of the assembly of a cohort."""


@dataclass(frozen=True)
class Analysis(Messages, Seed, Resources, GroupLevel, Embedding, Method):
    """Settings of an analysis: no file, no folder, no selection of people."""


SECTIONS = {
    "selection": "Which recordings",
    "method": "Cleaning, parcels and connectomes",
    "encoder": "Embedding",
    "group": "Group level",
    "pretrain": "Pretraining",
    "resources": "Resources",
    "other": "Other",
}


@dataclass(frozen=True)
class Settings(
    Pretraining,
    ParticipantOutputs,
    Assembly,
    Analysis,
    Messages,
    Seed,
    Run,
    Resources,
    GroupLevel,
    Embedding,
    Inputs,
):
    """All choices of one run, documented by their own texts, written to ``logs/settings.toml``."""

    def as_toml(self) -> str:
        """Return what the level uses as TOML; given back with ``--config-file`` it reproduces the run."""
        sections = {field.name: field.metadata.get("section") for field in dataclasses.fields(self)}
        chosen = self.as_dict()
        used = {
            name: value
            for name, value in chosen.items()
            if (section := sections[name]) is None or is_read(self.level, name, section)
            if name not in overridden(chosen)
        }
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in used.items()]
        return "\n".join(lines) + "\n"
