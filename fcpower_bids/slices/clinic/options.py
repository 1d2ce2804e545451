"""Which models the group level writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fcpower_bids.options import Choices, refines
from fcpower_bids.settings.group import HOLD_OUT, PERMUTE

ACCEPT = "--accept-no-skill"


@dataclass(frozen=True)
class ModelChoices(Choices):
    """Models for new people."""

    save_models: bool = refines(False, "also write a model per target that 'fcpower_bids predict' applies")
    accept_no_skill: bool = refines(False, "with --save-models: write models, too, that do no better than a guess")


def check_models(settings: ModelChoices) -> Iterator[str]:
    """Yield a sentence where the features of the models would not be those of new people."""
    if settings.save_models and getattr(settings, "sites", PERMUTE) not in (PERMUTE, HOLD_OUT):
        yield "--save-models writes models of features as they are. Leave out --sites."
    if settings.accept_no_skill and not settings.save_models:
        yield f"{ACCEPT} is about the models of --save-models. Give both, or leave it out."
