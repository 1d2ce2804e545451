"""A plan, fixed beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, refines


@dataclass(frozen=True)
class PlanChoices(Choices):
    """Where the plan is."""

    plan: Path | None = refines(None, "file of choices fixed beforehand: results that keep to it are called planned")


def check_plan(settings: PlanChoices) -> Iterator[str]:
    """Refuse a plan that cannot be read, or whose entries are no choices."""
    if settings.plan is None:
        return
    from fcpower_bids.outputs.tables import read_toml  # most command lines have no plan

    try:
        content = read_toml(settings.plan)
    except Exception as error:
        yield f"The plan {settings.plan} cannot be read: {error}"
        return
    for name in content:
        if not hasattr(settings, name) or name in ("plan", "name"):
            yield f"The plan {settings.plan} has '{name}', which is no choice; take it out, or see --help."
