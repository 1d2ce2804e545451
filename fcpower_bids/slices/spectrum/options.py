"""How far the controls of the spectrum go."""

from __future__ import annotations

from dataclasses import dataclass

from fcpower_bids.options import Choices, refines


@dataclass(frozen=True)
class FilterChoices(Choices):
    """Filters of the controls."""

    slow_controls: bool = refines(
        False,
        "spectral_controls: also filters learned inside the folds, and distances with a decomposition for each pair",
        reader="spectral_controls",
    )
