"""A registry maps a name to an object that is imported when it is first asked for, so that ``--help`` is light."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from fcpower_bids.errors import UsageError


def load(place: str) -> Any:
    """Import what a place names (``"package.module:attribute"``)."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


class Registry(Mapping[str, Any]):
    """Names and what they stand for (``"package.module:attribute"``), imported lazily; `kind` is the user's word."""

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Any:
        """Import and return the entry; an unknown name is a usage error that lists the known ones."""
        if name not in self._entries:
            known = ", ".join(self._entries)
            raise UsageError(f"There is no {self.kind} called '{name}'. Choose from: {known}.")
        return getattr(self.module(name), self._entries[name].partition(":")[2])

    def module(self, name: str) -> ModuleType:
        """Import and return the module of an entry."""
        return import_module(self.place(name))

    def place(self, name: str) -> str:
        """Return the name of the module of an entry, without importing it."""
        return self._entries[name].partition(":")[0]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}: {', '.join(self._entries)})"
