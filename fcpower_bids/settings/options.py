"""Declaration of an option: a field with a section of ``--help``, a text, other spellings and allowed values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def option(
    default: Any,
    section: str,
    text: str,
    *flags: str,
    choices: tuple[str, ...] | None = None,
    or_choice: str | None = None,
    reader: str | None = None,
    question: bool | None = None,
    in_file: bool = False,
) -> Any:
    """Declare one choice; with `in_file` it is set in the file of ``--config-file`` alone."""
    about: dict[str, Any] = {"section": section, "text": text, "flags": flags, "choices": choices}
    about |= {"or_choice": or_choice, "reader": reader, "question": question, "in_file": in_file}
    return dataclasses.field(default=default, metadata=about)


def asks(default: Any, text: str, **about: Any) -> Any:
    """Declare an option of the group level that changes the question: people, target or score."""
    return option(default, "group", text, question=True, **about)


def refines(default: Any, text: str, **about: Any) -> Any:
    """Declare an option of the group level that changes the answer, not the question."""
    return option(default, "group", text, question=False, **about)


@dataclass(frozen=True)
class Choices:
    """A part of the choices of a run; immutable, equal by value."""

    def as_dict(self) -> dict[str, Any]:
        """Return the choices as plain JSON and TOML values; unset ones are left out."""
        plain = {field.name: plain_value(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return {name: value for name, value in plain.items() if value is not None}

    def of_sections(self, *sections: str) -> dict[str, Any]:
        """Return the values of some sections by name, as plain values."""
        return {
            field.name: plain_value(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.metadata.get("section") in sections
        }

    def question(self) -> dict[str, Any]:
        """Return the options that make the question, as plain values."""
        fields = dataclasses.fields(self)
        return {each.name: plain_value(getattr(self, each.name)) for each in fields if each.metadata.get("question")}


def plain_value(value: Any) -> Any:
    """Return a value as JSON and TOML have it: paths as text, tuples as lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return value
