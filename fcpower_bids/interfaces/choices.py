"""Choices of the method as the plain values that ports carry, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fcpower_bids.settings import Participant


def choices_of(settings: Participant) -> dict[str, Any]:
    """Return what changes the numbers of a recording, as far as it is not the default: text, numbers, lists."""
    chosen, plain = settings.method_only(), settings.method_only().as_dict()
    return {
        field.name: plain[field.name]
        for field in dataclasses.fields(chosen)
        if field.name in plain and field.default != getattr(chosen, field.name)
    }


def settings_of(choices: Mapping[str, Any]) -> Participant:
    """Return these choices and everything else at its default."""
    hints = get_type_hints(Participant)
    values = {name: _typed(value, hints[name]) for name, value in choices.items()}
    return Participant(**values)


def _typed(value: Any, hint: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_typed(item, get_args(hint)[0]) for item in value)
    return Path(value) if isinstance(value, str) and (hint is Path or Path in get_args(hint)) else value
