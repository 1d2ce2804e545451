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
    """Declaration of one short name in ``data/atlases/*.json``.

    Attributes
    ----------
    name : str
        Spelling of the user.
    entities : Entities
        How outputs and BIDS-Atlas folders name it.
    templateflow : mapping
        ``atlas`` and ``desc`` in TemplateFlow; empty where it has none.
    spaces : tuple of str
        Templates in which TemplateFlow has it.
    parts : tuple of str
        Short names to merge, in order; empty for an atlas of its own.
    network : str
        Network of every parcel, where the table of the atlas knows none; or "n/a".
    licence, citation : str
        As stated by the authors.
    where : str
        How to get an atlas that TemplateFlow does not have.
    also : mapping
        Entities of the same atlas in the folders of other programs.
    dlabel : str
        File name under which its authors give it in fsLR; empty where it has none.
    address : str
        Folder of the web in which that file is, at a commit that cannot change; empty where there is none.
    """

    name: str
    entities: Entities
    templateflow: Mapping[str, str] = field(default_factory=dict)
    spaces: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    network: str = "n/a"
    licence: str = "n/a"
    citation: str = "n/a"
    where: str = ""
    also: Mapping[str, str] = field(default_factory=dict)
    dlabel: str = ""
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
