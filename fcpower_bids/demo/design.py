"""Design of the demo dataset."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.builtin import SPACES

FMRIPREP_VERSIONS = ("25.1.0", "1.4.0")
"""The generations of file and column names: today's, and ``desc-confounds_regressors``."""

FEWEST_VOLUMES = 40


@dataclass(frozen=True)
class DemoDesign:
    """Size, difficulty and naming of a demo dataset."""

    # subjects, sessions, runs: how many of each; every combination is one recording
    subjects: int = 24
    sessions: int = 2
    runs: int = 1
    volumes: int = 180  # volumes per recording
    repetition_time: float = 2.5  # seconds between volumes
    # standard deviation of the voxel noise in units of the signal's; it averages to exactly zero over each parcel
    noise: float = 0.5
    # strength of what the confounds explain (motion, tissue signals, drift, first volumes) in grey matter; 1 is
    # lifelike, 0 leaves the clean series
    nuisance: float = 1.0
    # whether participant 01 has one run more, 02 lacks the top of the brain, 03 moves a lot and the last session of 04
    # is nearly all motion (each where the design has such a participant)
    troubles: bool = True
    space: str = "MNI152NLin2009cAsym"  # template space in the file names
    fmriprep_version: str = "25.1.0"  # whose file and column names to use, one of ``FMRIPREP_VERSIONS``
    seed: int = 0  # same seed and design, same bytes

    def __post_init__(self) -> None:
        wrong = [message for fails, message in self._find_faults() if fails]
        if wrong:
            raise UsageError("The demo dataset cannot be made: " + "; ".join(wrong) + ".")

    @classmethod
    def tiny(cls, **changes: Any) -> DemoDesign:
        """Two participants with two sessions of 80 volumes and no troubles: made in about a second, for tests."""
        return cls(**({"subjects": 2, "volumes": 80, "troubles": False} | changes))

    def _find_faults(self) -> list[tuple[bool, str]]:
        return [
            (self.subjects < 1 or self.runs < 1, "it needs at least one participant and one run"),
            (not 1 <= self.sessions <= len(ascii_lowercase), "sessions are lettered, so there are 1 to 26"),
            (self.volumes < FEWEST_VOLUMES, f"a recording needs at least {FEWEST_VOLUMES} volumes"),
            (not 0.1 <= self.repetition_time <= 5, "the repetition time must be 0.1 to 5 seconds"),
            (self.noise < 0 or self.nuisance < 0, "noise and nuisance are 0 or more"),
            (self.space not in SPACES, f"the space must be {' or '.join(SPACES)}"),
            (
                self.fmriprep_version not in FMRIPREP_VERSIONS,
                f"the fMRIPrep version must be one of {', '.join(FMRIPREP_VERSIONS)}",
            ),
            (self.seed < 0, "the seed is 0 or more"),
        ]

    @property
    def participants(self) -> tuple[str, ...]:
        """Participant labels without ``sub-``."""
        return tuple(f"{number:02d}" for number in range(1, self.subjects + 1))

    def list_recordings(self) -> list[tuple[int, str, int]]:
        """Every recording as (index of the participant, session letter, run), in the order of the truth."""
        return [
            (person, session, run)
            for person in range(self.subjects)
            for session in ascii_lowercase[: self.sessions]
            for run in range(1, self.runs + 1 + self._has_extra_run(person, session))
        ]

    def _has_extra_run(self, person: int, session: str) -> int:
        return int(self.troubles and person == 0 and session == "a")

    def is_incomplete(self, person: int) -> bool:
        """Whether the field of view of this participant misses the top of the brain."""
        return self.troubles and person == 1

    def share_of_spikes(self, person: int, session: str) -> float:
        """Fraction of the volumes at which the head jumps."""
        if self.troubles and person == 2:
            return 0.25
        if self.troubles and person == 3 and session == ascii_lowercase[self.sessions - 1]:
            return 0.85
        return 0.015
