"""The Boutiques descriptor ``boutiques.json``, generated from Settings, for platforms that start tools from one.

``python -m scripts.reference.boutiques > boutiques.json`` writes it anew.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from fcpower_bids import __version__
from fcpower_bids.cli.help import ABOUT
from fcpower_bids.cli.options import is_list, option_fields, or_choices, scalar_type
from fcpower_bids.settings import LEVELS, SECTIONS

PLACES = (
    ("bids_dir", "File", "BIDS dataset, or fMRIPrep derivatives themselves"),
    ("output_dir", "String", "output dataset (made if it is not there)"),
    ("level", "String", "what to do"),
)
KINDS = {bool: "Flag", int: "Number", float: "Number", str: "String"}
WRITTEN = ("work_dir", "bids_database_dir", "public_corpus")
"""Folders that need not be there."""


def descriptor() -> dict[str, Any]:
    """Return the descriptor: three places, and one input for each option."""
    options = [_option(field) for field in option_fields()]
    keys = [_key(name) for name, _, _ in PLACES] + [one["value-key"] for one in options]
    return {
        "name": "fcpower_bids",
        "schema-version": "0.5",
        "tool-version": __version__,
        "description": ABOUT,
        "author": "the authors in CITATION.cff",
        "command-line": " ".join(["fcpower_bids", *keys]),
        "inputs": [*map(_place, PLACES), *options],
        "groups": _groups(),
        "output-files": [
            {
                "id": "output_folder",
                "name": "Output dataset",
                "description": "Connectomes, tables and pages",
                "path-template": _key("output_dir"),
            }
        ],
        "error-codes": [
            {"code": code, "description": meaning}
            for code, meaning in (
                (1, "internal error"),
                (2, "usage"),
                (3, "input unusable"),
                (4, "some recordings or analyses failed"),
                (5, "all failed"),
                (6, "recordings excluded under --strict"),
                (7, "pretrained encoder not proven better than random weights"),
            )
        ],
        "tags": {"domain": ["neuroinformatics", "fmri"]},
    }


def descriptor_text() -> str:
    """Return what is in ``boutiques.json``."""
    return json.dumps(descriptor(), indent=2, ensure_ascii=False) + "\n"


def _key(name: str) -> str:
    return f"[{name.upper()}]"


def _place(place: tuple[str, str, str]) -> dict[str, Any]:
    name, kind, text = place
    choices = {"value-choices": list(LEVELS)} if name == "level" else {}
    about = {"id": name, "name": name, "type": kind, "description": text, "value-key": _key(name)}
    return {**about, "optional": False, **choices}


def _option(field: dataclasses.Field[Any]) -> dict[str, Any]:
    kind = scalar_type(field.name)
    one: dict[str, Any] = {
        "id": field.name,
        "name": field.name.replace("_", " "),
        "description": field.metadata["text"],
        "optional": True,
        "value-key": _key(field.name),
        "command-line-flag": "--" + field.name.replace("_", "-"),
    }
    if or_choices(field):
        return {**one, "type": "String"}  # a number, or one of a few words
    if kind is Path:
        return {**one, "type": "String" if field.name in WRITTEN else "File", **_list(field.name)}
    one |= {"type": KINDS[kind], **_list(field.name)}
    if kind is int:
        one["integer"] = True
    if field.metadata["choices"]:
        one["value-choices"] = list(field.metadata["choices"])
    if field.default not in (None, (), "", False):
        # Not as "default-value": the command would then be given every default, also of options of other levels.
        shown = field.default if isinstance(field.default, tuple) else (field.default,)
        one["description"] += f" [{' '.join(map(str, shown))}]"
    return one


def _list(name: str) -> dict[str, Any]:
    return {"list": True} if is_list(name) else {}


def _groups() -> list[dict[str, Any]]:
    by_section: dict[str, list[str]] = {}
    for field in option_fields():
        by_section.setdefault(field.metadata["section"], []).append(field.name)
    return [
        {"id": f"{section}_options", "name": SECTIONS[section], "members": names}
        for section, names in by_section.items()
    ]


if __name__ == "__main__":
    sys.stdout.write(descriptor_text())
