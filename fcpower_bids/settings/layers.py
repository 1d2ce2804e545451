"""Settings of each layer: the parts that it needs, and no others."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from fcpower_bids.settings.embedding import Embedding
from fcpower_bids.settings.group import GroupLevel
from fcpower_bids.settings.method import Method
from fcpower_bids.settings.places import Places
from fcpower_bids.settings.run import Messages, Resources, Seed
from fcpower_bids.settings.selection import Selection

METHOD_SECTIONS = ("method", "encoder")
"""Sections whose values change the numbers of the participant level; they make up the configuration hash."""


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
