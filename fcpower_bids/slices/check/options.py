"""Whether the check is all that is done."""

from __future__ import annotations

from dataclasses import dataclass

from fcpower_bids.options import Choices, refines


@dataclass(frozen=True)
class CheckChoices(Choices):
    """The check by itself."""

    check: bool = refines(False, "only look for what would mislead (group/check.tsv), then stop")
