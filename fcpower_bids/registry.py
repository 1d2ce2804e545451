"""A registry maps a name to an object that is imported when it is first asked for, so that ``--help`` is light."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from fcpower_bids.errors import UsageError


class Registry(Mapping[str, Any]):
    """Names and what they stand for (``"package.module:attribute"``), imported lazily; `kind` is the user's word."""

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind, self._entries = kind, dict(entries)

    def __getitem__(self, name: str) -> Any:
        """Import and return the entry; an unknown name is a usage error that lists the known ones."""
        if name not in self._entries:
            raise UsageError(f"There is no {self.kind} called '{name}'. Choose from: {', '.join(self)}.")
        module, _, attribute = self._entries[name].partition(":")
        return getattr(import_module(module), attribute)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
