"""How far the controls of the spectrum go."""

from __future__ import annotations

from dataclasses import dataclass

from fcpower_bids.options import Choices, refines


@dataclass(frozen=True)
class FilterChoices(Choices):
    """Filters of the controls."""

    learned_filters: bool = refines(
        False, "spectral_controls: also learn filters inside the folds (slow)", reader="spectral_controls"
    )
