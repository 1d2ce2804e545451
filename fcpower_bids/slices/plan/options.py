"""A plan, fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, refines


@dataclass(frozen=True)
class PlanChoices(Choices):
    """Where the plan is."""

    plan: Path | None = refines(None, "file of choices fixed beforehand: results that keep to it are called planned")
