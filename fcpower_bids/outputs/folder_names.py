"""Texts without the folders of a machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from fcpower_bids.outputs.dataset import linked_folders

PLACE = re.compile(r"(?<![\w./~-])(?!//)(?:[A-Za-z]:)?[/\\](?:[\w.@+~ -]*[\w.@+~-][/\\])+([\w.@+~-]*)")
"""An absolute path; its last part may stay."""
NAMED = re.compile(r"(?<![\w./~:-])/(?:[\w.@+~-]+/)*([\w.@+~-]*[\w@+~-])")
"""An absolute path in a sentence, where a blank ends it."""


def without_folders(text: str) -> str:
    """Return a text with its absolute paths shortened to their last part."""
    return PLACE.sub(r"\1", text.replace("file:///", "/"))


def describe_without_folders(text: str, folders: Iterable[str]) -> str:
    """Return a sentence whose files are named from their dataset on, or by their last part elsewhere."""
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(folder, Path(folder).name)
    return NAMED.sub(r"\1", text)


def known_folders(output_dir: Path, *others: Path) -> list[str]:
    """Return the folders of the user that the outputs may name; the longest first, so that none hides another."""
    places = [output_dir, *others, Path.cwd(), *linked_folders(output_dir)]
    with_home = [*places, Path(os.environ["HOME"])] if os.environ.get("HOME") else places
    found = {str(one) for place in with_home for one in (place.absolute(), place.resolve())}
    return sorted((root for root in found if len(Path(root).parts) > 2), key=len, reverse=True)
