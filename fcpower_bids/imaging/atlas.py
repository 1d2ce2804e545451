"""From what the user writes after ``--atlas`` (docs/atlases.md) to an atlas, and an atlas as one file.

The built-in parcellation needs no download: it is cut from the grey-matter template that nilearn carries, and kept in
``data`` (``scripts/make_builtin.py``; a test makes it anew). It makes the first run, the demo dataset and the tests
work on a machine without network. Its borders follow coordinates, not anatomy or function: for science choose a
published atlas. The template is the symmetric ICBM 2009a, so the right hemisphere is the exact mirror image of the left
one. 2009a, 2009c and the 6th generation share their axes and differ locally by a few millimetres, little against
parcels of 18 mL; the same image therefore serves both spaces.
"""

from __future__ import annotations

import dataclasses
import difflib
import gzip
import hashlib
import itertools
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.cifti2 import Cifti2Image, LabelAxis
from numpy.typing import NDArray

from fcpower_bids.errors import Unfit, UsageError
from fcpower_bids.imaging.atlas_files import (
    BACKGROUND,
    BUILTIN,
    ENTITIES,
    EXTENSIONS,
    AtlasFile,
    AtlasTable,
    Declaration,
    declared_atlases,
    declared_merge,
    describe_dataset,
    encode_table,
    find_files,
    make_table,
    merged_entities,
    parse_name,
    parse_selector,
    pick_file,
    prefetch_files,
    read_atlas_table,
    split_parts,
    table_beside,
    templateflow_atlas,
)
from fcpower_bids.imaging.labels import (
    align_labels,
    index_labels,
    read_grayordinate_labels,
    read_volume_labels,
    resample_labels,
)
from fcpower_bids.records import Atlas, Entities, join
from fcpower_bids.store import load_json, write_bytes

LOGGER = logging.getLogger(__name__)
TEMPLATEFLOW = "templateflow:"
FEWEST_SIDED = 4
"""Fewest parcels of each side that show a flipped image."""

SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
POSITIONS = ("AntSup", "AntInf", "MidSup", "MidInf", "PostSup", "PostInf")
PARCELS_PER_POSITION = 5
N_PARCELS = 2 * len(POSITIONS) * PARCELS_PER_POSITION
SPACING = 2
"""Millimetres between voxels, and the step taken through the 1 mm template (no interpolation)."""
IMAGE = files("fcpower_bids") / "data" / "builtin_dseg.nii.gz"


def builtin_atlas(space: str, cache: Path) -> Atlas:
    """Write the built-in parcellation to a folder: grey matter in 60 parts of equal volume. Raises UsageError."""
    if space not in SPACES:
        raise UsageError(
            f"The built-in parcellation is volumetric and exists in {' and '.join(SPACES)}, not in '{space}'. "
            "Name a published atlas for that space with --atlas, or choose one of these spaces with --space."
        )
    sides = list(itertools.product("LR", POSITIONS, range(1, PARCELS_PER_POSITION + 1)))
    names = tuple(f"{hemisphere}H_{position}_{number:02d}" for hemisphere, position, number in sides)
    hemispheres, networks, _ = zip(*sides, strict=True)
    table = AtlasTable(tuple(range(1, N_PARCELS + 1)), names, networks, hemispheres)
    return Atlas(
        entities=ENTITIES,
        image=_store(cache / f"tpl-{space}_{join(ENTITIES)}_res-02_dseg.nii.gz", IMAGE.read_bytes(), table),
        space=space,
        **table._asdict(),
        source="Recursive bisection of the ICBM 2009a symmetric grey-matter template shipped with nilearn",
        licence="ICBM template: free to use, copy, modify and distribute with its copyright notice",
        citation="Fonov et al. 2011, NeuroImage 54:313-327, doi:10.1016/j.neuroimage.2010.07.033",
    )


def _store(image: Path, content: bytes, table: AtlasTable) -> Path:
    """Write an atlas and its table where they are not there: the time stamp of a right one invalidates nothing."""
    beside = image.with_name(f"{image.name.partition('_dseg')[0]}_dseg.tsv")
    for path, written in ((beside, encode_table(table)), (image, content)):
        if not path.is_file() or path.read_bytes() != written:
            write_bytes(path, written)
    return image


def builtin_labels() -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Return the labels (99, 117, 95) of the built-in parcellation, and their affine (4, 4)."""
    image = nib.Nifti1Image.from_bytes(gzip.decompress(IMAGE.read_bytes()))
    return np.asarray(image.dataobj), np.asarray(image.affine, dtype=np.float64)


def merge_atlases(parts: Sequence[Atlas], cache: Path, entities: Entities | None = None) -> Atlas:
    """Merge atlases into one label image, the first part where several claim a voxel. Raises UsageError."""
    read: list[tuple[np.ndarray, Any]] = []  # parcel indices (1 to P) and where: an affine, or a brain model axis
    for part in parts:
        reader = read_grayordinate_labels if part.is_cifti else read_volume_labels
        labels, place = reader(part.image)[:2]
        read.append((index_labels(labels, part.labels), place))
    host, home = max(read, key=lambda item: item[0].size)
    merged = np.zeros(host.shape, dtype=np.int32)
    start, n_claimed_twice = 0, 0
    for part, (parcels, place) in zip(parts, read, strict=True):
        if parcels.ndim != host.ndim:
            raise UsageError(
                f"The part {part.image} is not of the same kind as the others: merge NIfTI with NIfTI only."
            )
        try:
            if parcels.ndim == 3:
                carried = resample_labels(parcels, place, host.shape, home)
            else:
                carried = align_labels(parcels, place, home)
        except Unfit as error:
            raise UsageError(f"The part {part.image} cannot be merged with the others: {error}.") from error
        claimed = carried > 0
        n_claimed_twice += int(np.sum(claimed & (merged > 0)))
        merged = np.where(claimed & (merged == 0), carried + start, merged)
        start += part.n_parcels
    columns = ([value for part in parts for value in getattr(part, name)] for name in AtlasTable._fields[1:])
    table = make_table(range(1, start + 1), *columns, origin=parts[0].image)
    if entities is None:
        entities = (*merged_entities([dict(part.entities) for part in parts]), ("scale", str(start)))
    if merged.ndim == 3:
        stored = nib.Nifti1Image(merged.astype(np.int16 if merged.max() < 2**15 else np.int32), home)
        content, extension = gzip.compress(stored.to_bytes(), mtime=0), ".nii.gz"
    else:
        colours = {0: ("???", (1.0, 1.0, 1.0, 0.0))}
        colours |= {label: (name, (0.5, 0.5, 0.5, 1.0)) for label, name in enumerate(table.names, 1)}
        header = (LabelAxis(["parcels"], [colours]), home)
        content, extension = Cifti2Image(merged[None].astype(np.float32), header=header).to_bytes(), ".dlabel.nii"
    digest = hashlib.sha256(content + encode_table(table)).hexdigest()[:8]
    name = f"tpl-{parts[0].space}_{join(entities)}_desc-{digest}_dseg{extension}"
    return Atlas(
        entities=entities,
        image=_store(cache / name, content, table),
        space=parts[0].space,
        **table._asdict(),
        source=f"merged: {' + '.join(part.source for part in parts)}; {n_claimed_twice} voxels claimed by several",
        licence="; ".join(dict.fromkeys(part.licence for part in parts)),
        citation="; ".join(dict.fromkeys(part.citation for part in parts)),
    )


def prefetch_atlases(specs: Sequence[str], spaces: Sequence[str], folder: Path) -> Path:
    """Fetch atlases into a folder for machines without network. Raises UsageError, DatasetError."""
    queries, addresses, lacking = [], [], []
    for spec in specs:
        pairs = [(query, space) for query, known in _queries(spec) for space in spaces if not known or space in known]
        declared = declared_atlases().get(spec)
        if declared and declared.address and declared.dlabel and "fsLR" in spaces:
            addresses.append(f"{declared.address}/{declared.dlabel}")
        elif not pairs:
            where = f" {declared.where}" if declared and declared.where else ""
            lacking.append(
                f"TemplateFlow has no '{spec}' in {', '.join(spaces)}: nothing can be fetched for it.{where}"
            )
        queries += pairs
    if lacking:
        raise UsageError(" ".join(lacking))
    return prefetch_files(queries, Path(folder), addresses)


def _queries(spec: str) -> list[tuple[dict[str, str], tuple[str, ...]]]:
    """Return the TemplateFlow queries in a specification, each with the spaces it is known in (none: any)."""
    declared = declared_atlases().get(spec)
    parts = declared.parts if declared and declared.parts else split_parts(spec)
    if len(parts) > 1:
        return [query for part in parts for query in _queries(part)]
    if spec.lower().startswith(TEMPLATEFLOW):
        return [(parse_selector(spec[len(TEMPLATEFLOW) :]), ())]
    if spec in BUILTIN:
        raise UsageError(f"The atlas '{spec}' comes with the program: there is nothing to fetch, so leave it out.")
    if declared is None:
        raise _unknown(spec)
    if declared.templateflow:
        return [(dict(declared.templateflow), declared.spaces)]
    LOGGER.warning("%s cannot be fetched. %s", declared.name, declared.where)
    return []


def load_atlas(
    spec: str, space: str, atlas_dirs: Sequence[Path] = (), cache: Path | None = None, cifti: bool = False
) -> Atlas:
    """Find an atlas in the space of a recording. Raises UsageError, DatasetError."""
    folders = tuple(Path(folder).expanduser().absolute() for folder in atlas_dirs)
    return _Search(space, folders, cache and Path(cache), cifti).resolve(spec.strip())


@dataclass(frozen=True)
class _Search:
    """Where to look, and for which recordings."""

    space: str
    folders: tuple[Path, ...]
    cache: Path | None
    cifti: bool

    def resolve(self, spec: str) -> Atlas:
        whole = Path(spec).expanduser().absolute()
        # ``FILE:TSV`` and ``FOLDER:SELECTOR``; a path that exists with its colon is left whole
        head, colon, qualifier = spec.rpartition(":") if not whole.exists() else ("", "", "")
        target = Path(head).expanduser().absolute() if colon else whole
        if len(parts := split_parts(spec)) > 1:
            return self.merge(parts)
        if spec in BUILTIN:
            if self.cifti:
                raise UsageError(
                    "The built-in parcellation is volumetric: for CIFTI recordings give a dlabel file with --atlas."
                )
            return builtin_atlas(self.space, self.writable())
        if spec.lower().startswith(TEMPLATEFLOW):
            return self.fetch(Declaration(spec, (), parse_selector(spec[len(TEMPLATEFLOW) :])))
        if target.is_dir() and spec not in declared_atlases():
            selector = parse_selector(qualifier) if qualifier else {}
            return self.of_dataset(target, pick_file(target, selector, self.space, self.cifti))
        if not target.name.endswith(EXTENSIONS):
            return self.by_name(spec)
        file, table = parse_name(target), Path(qualifier).expanduser().absolute() if qualifier else None
        if file.space not in (None, self.space):
            raise UsageError(
                f"The atlas {target} is in space {file.space} but the recording in {self.space}: "
                f"give one in {self.space}."
            )
        if file.is_cifti != self.cifti:
            kinds = ("a dtseries", "a dlabel file") if self.cifti else ("NIfTI", "a NIfTI label image")
            raise UsageError(f"The recording is {kinds[0]} but the atlas {target} is not: give {kinds[1]}.")
        return self.describe(file, table or table_beside(target), target.name)

    def by_name(self, spec: str) -> Atlas:
        declared = declared_atlases().get(spec)
        try:  # what is nothing else is a selector; if it is not even that, no atlas has that name
            # entities that a file of it may have: ours, those of others, those of TemplateFlow
            known = declared and (dict(declared.entities), declared.also, declared.templateflow)
            selectors = [dict(entities) for entities in known if entities] if known else [parse_selector(spec)]
        except UsageError:
            raise _unknown(spec) from None
        for folder, selector in itertools.product(self.folders, selectors):
            matches = find_files(folder, selector, self.space, self.cifti)
            exact = [file for file in matches if dict(file.entities) == selector] or matches
            if len(exact) == 1:
                return self.of_dataset(folder, exact[0], declared)
            if exact:
                pick_file(folder, selector, self.space, self.cifti)  # says which there are
        if declared is None:
            raise _unknown(spec)
        for folder in self.folders if self.cifti and declared.dlabel else ():
            for image in sorted(folder.rglob(declared.dlabel)):
                return self.of_dataset(folder, parse_name(image), declared)
        return self.merge(list(declared.parts)) if declared.parts else self.fetch(declared)

    def writable(self) -> Path:
        if self.cache is None:
            raise UsageError("This atlas has to be written before it can be used: name a cache folder (--work-dir).")
        return self.cache

    def merge(self, specs: list[str]) -> Atlas:
        if not all(specs):
            raise UsageError(f"'{'+'.join(specs)}' has an empty part: write A+B.")
        parts = [self.resolve(spec) for spec in specs]
        return merge_atlases(parts, self.writable(), declared_merge(specs))

    def fetch(self, declared: Declaration) -> Atlas:
        """Take an atlas from TemplateFlow."""
        wanted = f"The atlas {declared.name} in space {self.space}"
        advice = "give it as FILE:TSV, or a folder that has it with --atlas-dir."
        if self.cifti:
            raise UsageError(
                f"{wanted} is needed as dlabel, which is not in the folders of --atlas-dir and which TemplateFlow does "
                f"not have: {declared.where or advice.replace('FILE:TSV', 'a file')}"
            )
        if not declared.templateflow:
            raise UsageError(f"{wanted} is not in the folders of --atlas-dir. {declared.where or advice}")
        if declared.spaces and self.space not in declared.spaces:
            raise UsageError(f"{wanted} is not in TemplateFlow, only in {', '.join(declared.spaces)}: {advice}")
        image, table = templateflow_atlas(declared.templateflow, self.space, self.cache, self.folders)
        return _declare(self.describe(parse_name(image), table, f"TemplateFlow {image.name}"), declared)

    def of_dataset(self, folder: Path, file: AtlasFile, declared: Declaration | None = None) -> Atlas:
        atlas = self.describe(file, table_beside(file.path), f"{folder.name}/{file.path.name}")
        licence, citation = describe_dataset(folder, file.chunks.get("atlas", ""))
        atlas = replace(atlas, licence=licence, citation=citation)
        return _declare(atlas, declared) if declared else atlas

    def describe(self, file: AtlasFile, table_path: Path | None, source: str) -> Atlas:
        """Read image and table, and hold one against the other."""
        image, known = file.path, dict[int, str]()
        if file.is_cifti:
            values, _, known = read_grayordinate_labels(image)
        else:
            values, affine = read_volume_labels(image)
        present = {int(label) for label in np.unique(values) if label > 0}
        if table_path:
            table = read_atlas_table(table_path)
        else:  # its labels in ascending order
            labels = sorted({label for label in known if label > 0} or present)
            names = [known.get(label) or f"parcel{label:03d}" for label in labels]
            table = make_table(labels, names, origin=image)
        _compare(table, present, image, table_path or image)
        if values.ndim == 3:
            voxels = np.argwhere(np.ascontiguousarray(values != 0))  # else ten times slower
            across = _centres(voxels, values[tuple(voxels.T)], affine, table.labels)[:, 0]
            left, right = (across[(np.array(table.hemispheres) == side) & np.isfinite(across)] for side in "LR")
            if min(len(left), len(right)) >= FEWEST_SIDED and np.median(left) > 0 > np.median(right):
                raise UsageError(
                    f"The atlas {image} is flipped: the parcels that are named left lie on the right, those named "
                    "right on the left. Turn the image round, or give the table that belongs to it."
                )
        return Atlas(file.entities, image, self.space, *table, source=source)


def _declare(atlas: Atlas, declared: Declaration) -> Atlas:
    """Add what the declaration knows and the files do not."""
    return replace(
        atlas,
        entities=declared.entities or atlas.entities,
        networks=tuple(declared.network if network == "n/a" else network for network in atlas.networks),
        licence=declared.licence if declared.licence != "n/a" else atlas.licence,
        citation=declared.citation if declared.citation != "n/a" else atlas.citation,
    )


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
    if unlisted := sorted(present - set(table.labels)):
        LOGGER.warning("%s does not list the labels %s of %s; they are ignored.", table_path, unlisted, image)


def _unknown(spec: str) -> UsageError:
    names = [*BUILTIN[:1], *declared_atlases()]
    close = difflib.get_close_matches(spec, names, n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return UsageError(
        f"There is no atlas '{spec}'.{hint} Give FILE[:TSV], a BIDS-Atlas FOLDER[:SELECTOR], A+B, or one of: "
        f"{', '.join(names)}."
    )


def describe_atlas(atlas: Atlas, folder: Path) -> Path:
    """Write an atlas as JSON for the nodes of a recording."""
    fields = {**dataclasses.asdict(atlas), "image": str(atlas.image)}
    return write_bytes(folder / f"{atlas.name}.json", json.dumps(fields, indent=1, ensure_ascii=False).encode())


def open_atlas(path: Path) -> Atlas:
    """Return the atlas of a file of :func:`describe_atlas`, or of a label image with its table. Raises UsageError."""
    stat = Path(path).stat()
    return _open(Path(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _open(path: Path, size: int, time: int) -> Atlas:
    """Read a file once per process as long as its size and time stay."""
    if path.suffix != ".json":
        file = parse_name(path)
        return load_atlas(str(path), file.space or "unknown", cifti=file.is_cifti)
    fields: dict[str, Any] = load_json(path)
    entities = tuple((key, value) for key, value in fields.pop("entities"))
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Atlas(**{**fields, **lists, "entities": entities, "image": Path(fields["image"])})


def parcel_centroids(image: Path, labels: Sequence[int]) -> NDArray[np.float64]:
    """Return the centre of mass of every parcel, in the millimetres of the image's space. Returns (P, 3)."""
    if not parse_name(image).is_cifti:
        values, affine = read_volume_labels(image)
        voxels = np.argwhere(np.ascontiguousarray(values != 0))
        return _centres(voxels, values[tuple(voxels.T)], affine, labels)
    values, axis, _ = read_grayordinate_labels(image)
    in_volume = axis.volume_mask
    if axis.affine is None:
        return np.full((len(labels), 3), np.nan)
    return _centres(axis.voxel[in_volume], values[in_volume], axis.affine, labels)


def _centres(voxels: np.ndarray, values: np.ndarray, affine: np.ndarray, labels: Sequence[int]) -> NDArray[np.float64]:
    """Mean place in mm (P, 3) of the voxels (n, 3) of each label, NaN where there is none. Values (n,)."""
    parcels = index_labels(values, labels)
    places, size = nib.affines.apply_affine(affine, voxels), len(labels) + 1
    count = np.bincount(parcels, minlength=size)[1:].astype(float)
    count[count == 0] = np.nan
    return np.stack([np.bincount(parcels, axis, size)[1:] for axis in places.T], axis=1) / count[:, None]
