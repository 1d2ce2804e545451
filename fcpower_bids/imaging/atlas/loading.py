"""From what the user writes after ``--atlas`` (docs/atlases.md) to an atlas, and an atlas as one file."""

from __future__ import annotations

import dataclasses
import difflib
import gzip
import hashlib
import itertools
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
from nibabel.cifti2 import Cifti2Image, LabelAxis
from numpy.typing import NDArray

from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.imaging.atlas.files import (
    BACKGROUND,
    EXTENSIONS,
    AtlasFile,
    AtlasTable,
    Declaration,
    declared_atlases,
    describe_dataset,
    encode_table,
    find_files,
    make_table,
    parse_name,
    parse_selector,
    pick_file,
    read_atlas_table,
    table_beside,
    table_of_labels,
)
from fcpower_bids.imaging.atlas.label_images import (
    align_labels,
    index_labels,
    is_cifti_labels,
    read_grayordinate_labels,
    read_volume_labels,
    resample_labels,
)
from fcpower_bids.imaging.atlas.templateflow import prefetch_files, templateflow_atlas
from fcpower_bids.records import Atlas, Entities
from fcpower_bids.store import known_digest, load_json, write_bytes

LOGGER = logging.getLogger(__name__)
BUILTIN = ("builtin", "demo")
TEMPLATEFLOW = "templateflow:"
FEWEST_SIDED = 4
"""Fewest parcels of each side that show a flipped image."""


def merge_atlases(parts: Sequence[Atlas], cache: Path, entities: Entities | None = None) -> Atlas:
    """Merge atlases into one label image, the first part where several claim a voxel. Raises UsageError."""
    cifti = is_cifti_labels(parts[0].image)
    read: list[tuple[np.ndarray, Any]] = []  # parcel indices (1 to P) and where: an affine, or a brain model axis
    for part in parts:
        reader = read_grayordinate_labels if is_cifti_labels(part.image) else read_volume_labels
        labels, place = reader(part.image)[:2]
        read.append((index_labels(labels, part.labels), place))
    host, home = max(read, key=lambda one: one[0].size)
    merged = np.zeros(host.shape, dtype=np.int32)
    start, n_claimed_twice = 0, 0
    for part, (parcels, place) in zip(parts, read, strict=True):
        if parcels.ndim != host.ndim:
            raise UsageError(
                f"The part {part.image} is not of the same kind as the others: merge NIfTI with NIfTI only."
            )
        try:
            carried = (
                resample_labels(parcels, place, host.shape, home)
                if parcels.ndim == 3
                else align_labels(parcels, place, home)
            )
        except Unfit as error:
            raise UsageError(f"The part {part.image} cannot be merged with the others: {error}.") from error
        claimed = carried > 0
        n_claimed_twice += int(np.sum(claimed & (merged > 0)))
        merged = np.where(claimed & (merged == 0), carried + start, merged)
        start += part.n_parcels
    table = make_table(
        range(1, start + 1),
        [name for part in parts for name in part.names],
        [network for part in parts for network in part.networks],
        [hemisphere for part in parts for hemisphere in part.hemispheres],
        origin=parts[0].image,
    )
    whole = " + ".join(part.name for part in parts)
    if n_claimed_twice:
        LOGGER.warning("Merging %s: %d voxels are claimed by several; the first keeps them.", whole, n_claimed_twice)
    counts = np.bincount(merged.ravel(), minlength=start + 1)[1:]
    if lost := [name for name, count in zip(table.names, counts, strict=True) if count == 0]:
        LOGGER.warning("Merging %s leaves no voxel to: %s.", whole, ", ".join(lost))
    if entities is None:  # ``TianS3`` and ``Schaefer2018 7n 400`` become ``TianS3Schaefer2018 7n 450``
        values = [dict(part.entities) for part in parts]
        segs = "".join(dict.fromkeys(each["seg"] for each in values if "seg" in each))
        named = {"atlas": "".join(each["atlas"] for each in values), "seg": segs, "scale": str(start)}
        entities = tuple((key, value) for key, value in named.items() if value)
    content, encoded = _encode(merged, home, table.names, cifti), encode_table(table)
    digest = hashlib.sha256(content + encoded).hexdigest()[:8]
    name = "_".join([f"tpl-{parts[0].space}", *(f"{k}-{v}" for k, v in entities), f"desc-{digest}_dseg"])
    image = cache / f"{name}{'.dlabel.nii' if cifti else '.nii.gz'}"
    for path, written in ((cache / f"{name}.tsv", encoded), (image, content)):
        if not path.is_file():
            write_bytes(path, written)
    return Atlas(
        entities=entities,
        image=image,
        space=parts[0].space,
        **table._asdict(),
        source=f"merged: {' + '.join(part.source for part in parts)}; {n_claimed_twice} voxels claimed by several",
        licence="; ".join(dict.fromkeys(part.licence for part in parts)),
        citation="; ".join(dict.fromkeys(part.citation for part in parts)),
    )


def _encode(labels: np.ndarray, place: Any, names: Sequence[str], cifti: bool) -> bytes:
    if not cifti:
        image = nib.Nifti1Image(labels.astype(np.int16 if labels.max() < 2**15 else np.int32), place)
        return gzip.compress(image.to_bytes(), mtime=0)
    table = {0: ("???", (1.0, 1.0, 1.0, 0.0))} | {k: (name, (0.5, 0.5, 0.5, 1.0)) for k, name in enumerate(names, 1)}
    header = (LabelAxis(["parcels"], [table]), place)
    return Cifti2Image(labels[None].astype(np.float32), header=header).to_bytes()


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
    """Fetch atlases into a folder for machines without network. Raises UsageError, DatasetError."""
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
    whole = Path(spec).expanduser().absolute()
    # ``FILE:TSV`` and ``FOLDER:SELECTOR``; a path that exists with its colon is left whole
    head, colon, qualifier = spec.rpartition(":") if not whole.exists() else ("", "", "")
    target = Path(head).expanduser().absolute() if colon else whole
    if "+" in spec and not target.exists():
        return _merge([part.strip() for part in spec.split("+")], request)
    if spec in BUILTIN:
        from fcpower_bids.imaging.atlas.builtin import builtin_atlas  # few runs need it

        if request.cifti:
            raise UsageError(
                "The built-in parcellation is volumetric: for CIFTI recordings give a dlabel file with --atlas."
            )
        return builtin_atlas(request.space, _cache(request))
    if spec.lower().startswith(TEMPLATEFLOW):
        return _from_templateflow(Declaration(spec, (), parse_selector(spec[len(TEMPLATEFLOW) :])), request)
    if target.is_dir():
        selector = parse_selector(qualifier) if qualifier else {}
        return _from_dataset(target, pick_file(target, selector, request.space, request.cifti), request)
    if target.name.endswith(EXTENSIONS):
        found, table = parse_name(target), Path(qualifier).expanduser().absolute() if qualifier else None
        if found.space not in (None, request.space):
            raise UsageError(
                f"The atlas {target} is in space {found.space} but the recording in {request.space}: "
                f"give one in {request.space}."
            )
        if found.is_cifti != request.cifti:
            kinds = ("a dtseries", "a dlabel file") if request.cifti else ("NIfTI", "a NIfTI label image")
            raise UsageError(f"The recording is {kinds[0]} but the atlas {target} is not: give {kinds[1]}.")
        return _describe(found, table or table_beside(target), request, target.name)
    return _by_name(spec, request)


def _by_name(spec: str, request: _Request) -> Atlas:
    declaration = declared_atlases().get(spec)
    try:  # what is nothing else is a selector; if it is not even that, no atlas has that name
        # entities that a file of it may have: ours, those of others, those of TemplateFlow
        known = declaration and (dict(declaration.entities), declaration.also, declaration.templateflow)
        selectors = [dict(each) for each in known if each] if known else [parse_selector(spec)]
    except UsageError:
        raise _unknown(spec) from None
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
    named = sorted(zip(table.labels, table.names, strict=True))
    background = [name for label, name in named if label in present and name.lower() in BACKGROUND]
    if background and named[-1][0] not in present:
        raise UsageError(
            f"{table_path} counts the background: its parcel '{background[0]}' has voxels in {image}, and its last, "
            f"'{named[-1][1]}', has none, so every name stands one label too high. Give the background the label 0, "
            "and the others one less."
        )
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


def describe_atlas(atlas: Atlas, folder: Path) -> Path:
    """Write an atlas as JSON under a name made from its content; a file that is there already is right."""
    fields = {**dataclasses.asdict(atlas), "image": str(atlas.image)}
    # nipype caches by the file: it differs whenever the atlas says something else
    digest = hashlib.sha256(bytes.fromhex(known_digest(atlas.image)))
    digest.update(json.dumps({key: fields[key] for key in fields if key != "image"}, sort_keys=True).encode())
    content = json.dumps({**fields, "digest": digest.hexdigest()[:16]}, indent=1, ensure_ascii=False).encode()
    path = folder / f"{atlas.name}_{hashlib.sha256(content).hexdigest()[:16]}.json"
    return path if path.is_file() and path.read_bytes() == content else write_bytes(path, content)


def open_atlas(path: Path) -> Atlas:
    """Return the atlas of a file of :func:`describe_atlas`, or of a label image with its table. Raises UsageError."""
    stat = Path(path).stat()
    return _open(Path(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _open(path: Path, size: int, time: int) -> Atlas:
    """Read a file once per process as long as its size and time stay."""
    if path.suffix != ".json":
        found = parse_name(path)
        return load_atlas(str(path), found.space or "unknown", cifti=found.is_cifti)
    fields: dict[str, Any] = load_json(path)
    fields.pop("digest")
    entities = tuple((key, value) for key, value in fields.pop("entities"))
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Atlas(**{**fields, **lists, "entities": entities, "image": Path(fields["image"])})


def parcel_centroids(image: Path, labels: Sequence[int]) -> NDArray[np.float64]:
    """Return the centre of mass of every parcel, in the millimetres of the image's space. Returns (P, 3)."""
    places, values = _voxels(nib.load(image))
    order = np.argsort(labels)
    which = np.searchsorted(np.asarray(labels)[order], values)
    which = np.minimum(which, len(labels) - 1)
    known = np.asarray(labels)[order][which] == values
    parcel, places = order[which[known]], places[known]
    count = np.bincount(parcel, minlength=len(labels)).astype(float)
    count[count == 0] = np.nan
    sums = [np.bincount(parcel, weights=places[:, axis], minlength=len(labels)) for axis in range(3)]
    return np.stack(sums, axis=1) / count[:, None]


def _voxels(image: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return place in mm and label of every labelled voxel."""
    if isinstance(image, nib.Cifti2Image):
        axis = image.header.get_axis(1)
        ofvolume = axis.volume_mask
        values = np.asarray(image.dataobj)[0].astype(np.int64)[ofvolume]
        index, affine = axis.voxel[ofvolume], axis.affine
        if affine is None:
            return np.empty((0, 3)), np.empty(0, np.int64)
    else:
        volume = np.asarray(image.dataobj)
        volume = volume.reshape(volume.shape[:3])
        index, affine = np.argwhere(np.ascontiguousarray(volume != 0)), image.affine  # else ten times slower
        values = volume[tuple(index.T)].astype(np.int64)
    return nib.affines.apply_affine(affine, index), values
