"""Every choice that a user can make, once: the command line, the configuration file and the sidecars follow from it.

A part is a file; `layers` says which parts each layer is given. Only the command line and the workflows have them all.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING

from fcpower_bids import plugins
from fcpower_bids.options import Choices
from fcpower_bids.settings.embedding import Embedding
from fcpower_bids.settings.group import GroupLevel
from fcpower_bids.settings.layers import METHOD_SECTIONS, Analysis, Assembly, Inputs, Participant, ParticipantOutputs
from fcpower_bids.settings.levels import LEVELS, is_read, overridden
from fcpower_bids.settings.method import Method
from fcpower_bids.settings.places import Places
from fcpower_bids.settings.run import Messages, Resources, Run, Seed
from fcpower_bids.settings.selection import Selection

__all__ = [
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
    "Resources",
    "Run",
    "Seed",
    "Selection",
    "Settings",
]

SECTIONS = {
    "selection": "Which recordings",
    "method": "Cleaning, parcels and connectomes",
    "encoder": "Embedding",
    "group": "Group level",
    **plugins.places("option_sections"),
    "resources": "Resources",
    "other": "Other",
}


if TYPE_CHECKING:

    @dataclass(frozen=True)
    class OfSlices(Choices):
        """Options of slices."""
else:  # a slice reads its own part under its own type
    OfSlices = make_dataclass("OfSlices", [], bases=(*plugins.load("options"), Choices), frozen=True)


@dataclass(frozen=True)
class Settings(
    OfSlices,
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
    """All choices of one run, written to ``logs/settings.toml``.

    Attributes are documented by their own texts, which ``--help`` and ``docs/usage.md`` show.
    """

    @property
    def checks_only(self) -> bool:
        """Whether the group level ends before its analyses: the choice of a slice."""
        return bool(getattr(self, "check", False))

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
