"""Atlases in folders: BIDS-Atlas style datasets, and what the name of one file says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fcpower_bids.errors import UsageError
from fcpower_bids.records import Entities, space_of
from fcpower_bids.store import load_json

EXTENSIONS = (".dlabel.nii", ".nii.gz", ".nii")
NAMING = ("atlas", "seg", "scale")
SPATIAL = ("tpl", "space", "cohort", "res", "den", "hemi")
PREFERRED_RESOLUTIONS = ("02", "2", "01", "1")
PREFERRED_DENSITIES = ("91k", "32k")


class AtlasFile(NamedTuple):
    """A label image and what its name says."""

    path: Path
    chunks: dict[str, str]

    @property
    def space(self) -> str | None:
        """The template, if the name declares one."""
        return space_of(self.chunks)

    @property
    def entities(self) -> Entities:
        """Entities for output names; ``atlas-HOSPA_desc-th25`` becomes ``atlas-HOSPAth25``; else the stem."""
        if "atlas" not in self.chunks:
            return (("atlas", _alphanumeric(_own_words(self.path)) or _alphanumeric(stem_of(self.path))),)
        label = self.chunks["atlas"] + self.chunks.get("desc", "")
        return (("atlas", label), *((key, self.chunks[key]) for key in NAMING[1:] if key in self.chunks))

    @property
    def is_cifti(self) -> bool:
        """Whether it is a CIFTI ``dlabel``."""
        return self.path.name.endswith(".dlabel.nii")


def parse_name(path: Path) -> AtlasFile:
    """Read the ``key-value`` chunks of a file name."""
    pairs = (chunk.split("-", 1) for chunk in stem_of(path).split("_") if "-" in chunk)
    return AtlasFile(path, {key: value for key, value in pairs if key.isalpha() and value.isalnum()})


def stem_of(path: Path) -> str:
    """Return the name of an image without its extension."""
    extension = next((extension for extension in EXTENSIONS if path.name.endswith(extension)), path.suffix)
    return path.name.removesuffix(extension)


def parse_selector(selector: str) -> dict[str, str]:
    """Read ``Schaefer2018_seg-7n_scale-400``, with or without ``atlas-`` in front. Raises UsageError."""
    first, *others = selector.split("_")
    chunks = [first if "-" in first else f"atlas-{first}", *others]
    if not all(re.fullmatch(r"[A-Za-z]+-[A-Za-z0-9]+", chunk) for chunk in chunks):
        raise UsageError(f"'{selector}' does not select an atlas: write it like Schaefer2018_seg-7n_scale-400.")
    return dict(chunk.split("-", 1) for chunk in chunks)


def find_files(folder: Path, selector: Mapping[str, str], space: str, cifti: bool) -> list[AtlasFile]:
    """Return the label images of a dataset that match, one per atlas (2 mm preferred), ordered by name."""
    best: dict[Entities, AtlasFile] = {}
    for found in label_images(folder):
        fits = found.space == space and found.is_cifti == cifti and selector.items() <= found.chunks.items()
        if fits and (found.entities not in best or _rank(found) < _rank(best[found.entities])):
            best[found.entities] = found
    return [best[entities] for entities in sorted(best)]


def pick_file(folder: Path, selector: Mapping[str, str], space: str, cifti: bool) -> AtlasFile:
    """Return the one label image of a dataset that matches. Raises UsageError."""
    found = find_files(folder, selector, space, cifti)
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(_selector_of(one) for one in found)
        raise UsageError(f"{folder} has several atlases in {space}: add one of them after a colon: {choices}.")
    kind = "CIFTI (dlabel)" if cifti else "NIfTI"
    others = {f"{_selector_of(one)} in {one.space}" for one in label_images(folder) if one.is_cifti == cifti}
    there = "; ".join(sorted(others)) or "none"
    wanted = "".join(f" {key}-{value}" for key, value in selector.items())
    raise UsageError(f"{folder} has no {kind} label image (*_dseg){wanted} in space {space}. It has: {there}.")


def label_images(folder: Path) -> list[AtlasFile]:
    """Return every ``dseg`` of a folder and of those below it."""
    paths = [path for extension in EXTENSIONS for path in folder.rglob(f"*_dseg{extension}")]
    return [parse_name(path) for path in sorted(set(paths))]


def table_beside(image: Path) -> Path | None:
    """Return the TSV of an image's name, or of fewer entities, in its folder or two above; the nearest; or None."""
    stem = stem_of(image)
    if (same := image.with_name(f"{stem}.tsv")).is_file():
        return same
    known = parse_name(image).chunks.items()
    if "atlas" not in dict(known):
        return None
    for folder in image.absolute().parents[:3]:
        tables = [parse_name(path) for path in sorted(folder.glob("*_dseg.tsv"))]
        fitting = [one for one in tables if "atlas" in one.chunks and one.chunks.items() <= known]
        if fitting:
            return max(fitting, key=lambda one: len(one.chunks)).path
    return None


def describe_dataset(folder: Path, atlas: str) -> tuple[str, str]:
    """Return licence and citation from ``atlas-<label>_description.json`` or ``dataset_description.json``."""
    for name in (f"atlas-{atlas}_description.json", "dataset_description.json"):
        for path in (folder / name, folder.parent / name):
            try:
                description = load_json(path)
            except (OSError, ValueError):
                continue
            references = description.get("ReferencesAndLinks") or ["n/a"]
            references = references if isinstance(references, list) else [references]
            return str(description.get("License") or "n/a"), "; ".join(map(str, references))
    return "n/a", "n/a"


def _selector_of(found: AtlasFile) -> str:
    chunks = [f"{key}-{value}" for key, value in found.chunks.items() if key not in SPATIAL]
    return "_".join(chunks).removeprefix("atlas-")


def _rank(found: AtlasFile) -> tuple[int, str]:
    resolution = found.chunks.get("res") or found.chunks.get("den") or ""
    order = (*PREFERRED_RESOLUTIONS, *PREFERRED_DENSITIES)
    return (order.index(resolution) if resolution in order else len(order), found.path.name)


def _own_words(path: Path) -> str:
    chunks = stem_of(path).split("_")
    return "".join(chunk for chunk in chunks if chunk != "dseg" and chunk.split("-")[0] not in SPATIAL)


def _alphanumeric(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text)
