"""From what the user writes after ``--atlas`` to an :class:`~fcpower_bids.records.Atlas`.

=============================  =====================================================================================
``builtin``                    a parcellation that needs no download (for trying things out)
``Schaefer400``                a short name declared in ``data/atlases``; ``--atlas-dir`` first, then TemplateFlow
``templateflow:A_desc-D``      any other label image (dseg) of TemplateFlow
``FILE`` or ``FILE:TSV``       a label image, NIfTI or dlabel
``FOLDER`` or ``FOLDER:A_..``  a BIDS-Atlas style dataset
``A_seg-7n_scale-400``         the same, looked for in the folders of ``--atlas-dir``
``A+B``                        any of these merged, the parcels of A first
=============================  =====================================================================================
"""

from __future__ import annotations

import difflib
import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.datasets import (
    EXTENSIONS,
    AtlasFile,
    describe_dataset,
    find_files,
    parse_name,
    parse_selector,
    pick_file,
    table_beside,
)
from fcpower_bids.imaging.atlas.declarations import Declaration, declared_atlases
from fcpower_bids.imaging.atlas.label_images import (
    index_labels,
    is_cifti_labels,
    read_grayordinate_labels,
    read_volume_labels,
)
from fcpower_bids.imaging.atlas.merging import merge_atlases
from fcpower_bids.imaging.atlas.tables import AtlasTable, read_atlas_table, table_of_labels
from fcpower_bids.imaging.atlas.templateflow import prefetch_files, templateflow_atlas
from fcpower_bids.records import Atlas

LOGGER = logging.getLogger(__name__)

BUILTIN = ("builtin", "demo")
TEMPLATEFLOW = "templateflow:"
FEWEST_SIDED = 4
"""Fewest parcels of each side that show a flipped image."""


class _Request(NamedTuple):
    """Where to look, and for which recordings."""

    space: str
    atlas_dirs: tuple[Path, ...]
    cache: Path | None
    cifti: bool


def load_atlas(
    spec: str, space: str, atlas_dirs: Sequence[Path] = (), cache: Path | None = None, cifti: bool = False
) -> Atlas:
    """Find an atlas in the space of a recording. Raises UsageError, DatasetError."""
    folders = tuple(Path(folder).expanduser().absolute() for folder in atlas_dirs)
    return _resolve(spec.strip(), _Request(space, folders, cache and Path(cache), cifti))


def prefetch_atlases(specs: Sequence[str], spaces: Sequence[str], folder: Path) -> Path:
    """Fetch atlases into a folder for machines without network: of TemplateFlow, and in fsLR of their authors.

    Raises UsageError, DatasetError.
    """
    queries, addresses, lacking = [], [], []
    for spec in specs:
        found = [(query, space) for query, known in _queries(spec) for space in spaces if not known or space in known]
        declared = declared_atlases().get(spec)
        if declared and declared.address and declared.dlabel and "fsLR" in spaces:
            addresses.append(f"{declared.address}/{declared.dlabel}")
        elif not found:
            where = f" {declared.where}" if declared and declared.where else ""
            lacking.append(
                f"TemplateFlow has no '{spec}' in {', '.join(spaces)}: nothing can be fetched for it.{where}"
            )
        queries += found
    if lacking:
        raise UsageError(" ".join(lacking))
    return prefetch_files(queries, Path(folder), addresses)


def _queries(spec: str) -> list[tuple[dict[str, str], tuple[str, ...]]]:
    """Return the TemplateFlow queries in a specification, each with the spaces it is known in (none: any)."""
    if "+" in spec:
        return [query for part in spec.split("+") for query in _queries(part.strip())]
    if spec.lower().startswith(TEMPLATEFLOW):
        return [(parse_selector(spec[len(TEMPLATEFLOW) :]), ())]
    declaration = declared_atlases().get(spec)
    if spec in BUILTIN:
        raise UsageError(f"The atlas '{spec}' comes with the program: there is nothing to fetch, so leave it out.")
    if declaration is None:
        raise _unknown(spec)
    if declaration.parts:
        return [query for part in declaration.parts for query in _queries(part)]
    if declaration.templateflow:
        return [(dict(declaration.templateflow), declaration.spaces)]
    LOGGER.warning("%s cannot be fetched. %s", declaration.name, declaration.where)
    return []


def _resolve(spec: str, request: _Request) -> Atlas:
    target, qualifier = _split(spec)
    if "+" in spec and not target.exists():
        return _merge([part.strip() for part in spec.split("+")], request)
    if spec in BUILTIN:
        return _builtin(request)
    if spec.lower().startswith(TEMPLATEFLOW):
        return _from_templateflow(Declaration(spec, (), parse_selector(spec[len(TEMPLATEFLOW) :])), request)
    if target.is_dir():
        return _from_dataset(target, pick_file(target, _selector(qualifier), request.space, request.cifti), request)
    if target.name.endswith(EXTENSIONS):
        return _from_file(target, Path(qualifier).expanduser().absolute() if qualifier else None, request)
    return _by_name(spec, request)


def _split(spec: str) -> tuple[Path, str | None]:
    """Separate ``FILE:TSV`` and ``FOLDER:SELECTOR``; a path that exists with its colon is left whole."""
    head, colon, tail = spec.rpartition(":")
    whole = Path(spec).expanduser().absolute()
    if not colon or whole.exists():
        return whole, None
    return Path(head).expanduser().absolute(), tail


def _selector(qualifier: str | None) -> dict[str, str]:
    return parse_selector(qualifier) if qualifier else {}


def _loose_selector(spec: str) -> dict[str, str]:
    """Read what is nothing else as a selector; if it is not even that, no atlas has that name."""
    try:
        return parse_selector(spec)
    except UsageError:
        raise _unknown(spec) from None


def _by_name(spec: str, request: _Request) -> Atlas:
    declaration = declared_atlases().get(spec)
    selectors = declaration.selectors if declaration else (_loose_selector(spec),)
    for folder, selector in itertools.product(request.atlas_dirs, selectors):
        found = find_files(folder, selector, request.space, request.cifti)
        exact = [one for one in found if dict(one.entities) == selector] or found
        if len(exact) == 1:
            return _from_dataset(folder, exact[0], request, declaration)
        if exact:
            pick_file(folder, selector, request.space, request.cifti)  # says which there are
    if declaration is None:
        raise _unknown(spec)
    for folder in request.atlas_dirs if request.cifti and declaration.dlabel else ():
        for image in sorted(folder.rglob(declaration.dlabel)):
            return _from_dataset(folder, parse_name(image), request, declaration)
    if declaration.parts:
        return _merge(list(declaration.parts), request)
    return _from_templateflow(declaration, request)


def _builtin(request: _Request) -> Atlas:
    from fcpower_bids.imaging.atlas.builtin import builtin_atlas  # loads nibabel or nilearn, which are slow to load

    if request.cifti:
        raise UsageError(
            "The built-in parcellation is volumetric: for CIFTI recordings give a dlabel file with --atlas."
        )
    return builtin_atlas(request.space, _cache(request))


def _cache(request: _Request) -> Path:
    if request.cache is None:
        raise UsageError("This atlas has to be written before it can be used: name a cache folder (--work-dir).")
    return request.cache


def _merge(specs: list[str], request: _Request) -> Atlas:
    if not all(specs):
        raise UsageError(f"'{'+'.join(specs)}' has an empty part: write A+B.")
    declared = [one for one in declared_atlases().values() if list(one.parts) == specs]
    parts = [_resolve(spec, request) for spec in specs]
    return merge_atlases(parts, _cache(request), declared[0].entities if declared else None)


def _from_templateflow(declaration: Declaration, request: _Request) -> Atlas:
    wanted = f"The atlas {declaration.name} in space {request.space}"
    advice = "give it as FILE:TSV, or a folder that has it with --atlas-dir."
    if request.cifti:
        advice = declaration.where or "give it as a file, or a folder that has it with --atlas-dir."
        raise UsageError(
            f"{wanted} is needed as dlabel, which is not in the folders of --atlas-dir and which TemplateFlow does not "
            f"have: {advice}"
        )
    if not declaration.templateflow:
        raise UsageError(f"{wanted} is not in the folders of --atlas-dir. {declaration.where or advice}")
    if declaration.spaces and request.space not in declaration.spaces:
        raise UsageError(f"{wanted} is not in TemplateFlow, only in {', '.join(declaration.spaces)}: {advice}")
    image, table = templateflow_atlas(declaration.templateflow, request.space, request.cache, request.atlas_dirs)
    atlas = _describe(parse_name(image), table, request, f"TemplateFlow {image.name}")
    return _declare(atlas, declaration)


def _from_dataset(folder: Path, found: AtlasFile, request: _Request, declaration: Declaration | None = None) -> Atlas:
    atlas = _describe(found, table_beside(found.path), request, f"{folder.name}/{found.path.name}")
    licence, citation = describe_dataset(folder, found.chunks.get("atlas", ""))
    atlas = replace(atlas, licence=licence, citation=citation)
    return _declare(atlas, declaration) if declaration else atlas


def _from_file(image: Path, table: Path | None, request: _Request) -> Atlas:
    found = parse_name(image)
    if found.space not in (None, request.space):
        raise UsageError(
            f"The atlas {image} is in space {found.space} but the recording in {request.space}: "
            f"give one in {request.space}."
        )
    if found.is_cifti != request.cifti:
        kinds = ("a dtseries", "a dlabel file") if request.cifti else ("NIfTI", "a NIfTI label image")
        raise UsageError(f"The recording is {kinds[0]} but the atlas {image} is not: give {kinds[1]}.")
    return _describe(found, table or table_beside(image), request, image.name)


def _declare(atlas: Atlas, declaration: Declaration) -> Atlas:
    """Add what the declaration knows and the files do not."""
    networks = tuple(declaration.network if network == "n/a" else network for network in atlas.networks)
    return replace(
        atlas,
        entities=declaration.entities or atlas.entities,
        networks=networks,
        licence=declaration.licence if declaration.licence != "n/a" else atlas.licence,
        citation=declaration.citation if declaration.citation != "n/a" else atlas.citation,
    )


def _describe(found: AtlasFile, table_path: Path | None, request: _Request, source: str) -> Atlas:
    known: dict[int, str] = {}
    affine = None
    if is_cifti_labels(found.path):
        values, _, known = read_grayordinate_labels(found.path)
    else:
        values, affine = read_volume_labels(found.path)
    present = {int(label) for label in np.unique(values) if label > 0}
    listed = {label for label in known if label > 0} or present
    table = read_atlas_table(table_path) if table_path else table_of_labels(listed, known, found.path)
    _compare(table, present, found.path, table_path or found.path)
    if affine is not None:
        _check_sides(table, values, affine, found.path)
    return Atlas(found.entities, found.path, request.space, *table, source=source)


def _compare(table: AtlasTable, present: set[int], image: Path, table_path: Path) -> None:
    if not present & set(table.labels):
        raise UsageError(f"No label of {table_path} is in {image}: give the table that belongs to this image.")
    absent = [name for label, name in zip(table.labels, table.names, strict=True) if label not in present]
    if absent:
        LOGGER.warning("%s has no voxel of %s; these parcels will be n/a.", image, ", ".join(absent))
    unlisted = sorted(present - set(table.labels))
    if unlisted:
        LOGGER.warning("%s does not list the labels %s of %s; they are ignored.", table_path, unlisted, image)


def _check_sides(table: AtlasTable, values: np.ndarray, affine: np.ndarray, image: Path) -> None:
    """Refuse an image that is flipped: the parcels that are named left lie on the right, and the other way round."""
    voxels = np.nonzero(values)
    across = affine[0, :3] @ np.array(voxels) + affine[0, 3]
    parcels = index_labels(values[voxels], table.labels)
    count = np.bincount(parcels, minlength=len(table.labels) + 1)[1:]
    places = np.bincount(parcels, across, len(table.labels) + 1)[1:] / np.maximum(count, 1)
    left, right = (places[(np.array(table.hemispheres) == side) & (count > 0)] for side in "LR")
    if min(len(left), len(right)) >= FEWEST_SIDED and np.median(left) > 0 > np.median(right):
        raise UsageError(
            f"The atlas {image} is flipped: the parcels that are named left lie on the right, those named right on the "
            "left. Turn the image round, or give the table that belongs to it."
        )


def _unknown(spec: str) -> UsageError:
    names = [*BUILTIN[:1], *declared_atlases()]
    close = difflib.get_close_matches(spec, names, n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return UsageError(
        f"There is no atlas '{spec}'.{hint} Give FILE[:TSV], a BIDS-Atlas FOLDER[:SELECTOR], A+B, or one of: "
        f"{', '.join(names)}."
    )
