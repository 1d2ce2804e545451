"""Atlases known by a short name: one JSON file per family in ``data/atlases``, nothing else to register."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from fcpower_bids.records import Entities


@dataclass(frozen=True)
class Declaration:
    """Declaration of one short name in ``data/atlases/*.json``."""

    name: str  # spelling of the user
    entities: Entities  # how outputs and BIDS-Atlas folders name it
    # ``atlas`` and ``desc`` in TemplateFlow; empty where it has none
    templateflow: Mapping[str, str] = field(default_factory=dict)
    spaces: tuple[str, ...] = ()  # templates in which TemplateFlow has it
    parts: tuple[str, ...] = ()  # short names to merge, in order; empty for an atlas of its own
    network: str = "n/a"  # network of every parcel, where the table of the atlas knows none; or "n/a"
    # licence, citation: as stated by the authors
    licence: str = "n/a"
    citation: str = "n/a"
    where: str = ""  # how to get an atlas that TemplateFlow does not have
    also: Mapping[str, str] = field(default_factory=dict)  # entities of the same atlas in the folders of other programs
    dlabel: str = ""  # file name under which its authors give it in fsLR; empty where it has none
    # folder of the web in which that file is, at a commit that cannot change; empty where there is none
    address: str = ""

    @property
    def selectors(self) -> tuple[dict[str, str], ...]:
        """Entities that a file of this atlas may have in a folder: ours, those of others, those of TemplateFlow."""
        return tuple(dict(one) for one in (dict(self.entities), self.also, self.templateflow) if one)


@cache
def declared_atlases() -> dict[str, Declaration]:
    """Return every declared atlas by its short name."""
    declared: dict[str, Declaration] = {}
    folder = files("fcpower_bids") / "data" / "atlases"
    for source in sorted(folder.iterdir(), key=lambda file: file.name):
        if source.name.endswith(".json"):
            family = json.loads(source.read_text(encoding="utf-8"))
            shared = {key: family[key] for key in ("licence", "citation", "where", "address") if key in family}
            for name, entry in family["atlases"].items():
                declared[name] = Declaration(
                    name=name,
                    entities=tuple(entry["entities"].items()),
                    templateflow=entry.get("templateflow", {}),
                    spaces=tuple(entry.get("spaces", ())),
                    parts=tuple(entry.get("parts", ())),
                    network=entry.get("network", "n/a"),
                    also=entry.get("also", {}),
                    dlabel=entry.get("dlabel", ""),
                    **shared,
                )
    return declared
