"""Series that fMRIPrep did not make: the tree of the HCP pipelines, as sources like any other.

Folders and names: Glasser et al. (2013), doi:10.1016/j.neuroimage.2013.04.127.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.selection import Filter
from fcpower_bids.inputs.sources import GRID_KEYS, Source, drop
from fcpower_bids.outputs.names import order_entities
from fcpower_bids.outputs.tables import program_names
from fcpower_bids.records import Entities

VOLUME = (("space", "MNI152NLin6Asym"), ("res", "2"))
SURFACE = (("space", "fsLR"), ("den", "91k"))
CLEANED = ("proc", "fix")
"""Entity of what ICA-FIX has cleaned."""
FIX = ("_hp2000_clean", "_hp0_clean")
MASKS = ("brainmask_fs.2.nii.gz", "brainmask_fs.2.0.nii.gz")
MOTION = "Movement_Regressors.txt"
RESULTS = "MNINonLinear/Results"
LOOKED_AT = 50
"""Folders of participants that are looked at before a tree is taken for none of these."""

HCP_RUN = re.compile(r"[rt]fMRI_(?P<task>[A-Za-z]+)(?P<run>\d*)(?:_(?P<acq>7T))?_(?P<dir>[A-Z]{2})")


class Pipeline(NamedTuple):
    """A tree that is no BIDS dataset."""

    words: str  # who writes it
    pattern: str  # where its series are, for messages; its first folder is that of a participant
    marker: str  # content of a folder of a participant
    find: Callable[[Path, Path], Iterator[Source]]  # root and folder of a participant to its sources


def input_type_of(root: Path, stated: str | None = None) -> str:
    """Return which pipeline wrote a tree: as the user says, else as the tree shows; fMRIPrep where it shows nothing."""
    if stated is not None:
        return stated
    description = root / "dataset_description.json"
    if description.is_file():
        try:
            names = {name.lower() for name in program_names(root)}
        except DatasetError:
            return "fmriprep"  # its faults are reported where it is needed
        return "nibabies" if "nibabies" in names else "fmriprep"
    for folder in _folders(root)[:LOOKED_AT]:
        for name, pipeline in PIPELINES.items():
            if next(folder.glob(pipeline.marker), None) is not None:
                return name
    return "fmriprep"


def find_sources(root: Path, name: str, subjects: Collection[str] | None = None) -> list[Source]:
    """Return series, masks and motion files of a tree, masks and motion files once for every series."""
    folders = [folder for folder in _folders(root) if subjects is None or _label(folder) in subjects]
    return [source for folder in folders for source in PIPELINES[name].find(root, folder)]


def _label(folder: Path) -> str:
    """Return the label of the participant in the name of a folder."""
    return folder.name.removeprefix("sub-")


def prefer_cleaned(series: Sequence[Source], filters: Iterable[Filter]) -> tuple[list[Source], list[str]]:
    """Of a run that is there before and after ICA-FIX take the latter, unless the user asked by ``proc``; say so."""
    if any(condition.key == "proc" for condition in filters):
        return list(series), []
    cleaned = [one for one in series if CLEANED in one.entities]
    runs = {(one.root, _uncleaned(one)) for one in cleaned}
    kept = [one for one in series if CLEANED in one.entities or (one.root, _uncleaned(one)) not in runs]
    if not cleaned:
        return kept, []
    rest = f"; {len(series) - len(kept)} without it are left out" if len(kept) < len(series) else ""
    return kept, [
        f"{len(cleaned)} series are taken as ICA-FIX left them (proc-fix){rest}. It has regressed motion already: "
        "consider --strategy none or gsr_only."
    ]


def note_pipelines(types: Iterable[tuple[Path, str]], stated: bool) -> list[str]:
    """Say aloud which trees are read as what."""
    notes = []
    for root, name in types:
        if name in PIPELINES:
            seen = "" if stated else ", by its folders; --input-type says otherwise"
            notes.append(f"{root} is read as {PIPELINES[name].words} ({name}{seen}).")
        elif name == "nibabies":
            notes.append(f"{root} was written by NiBabies: heads are small, consider --head-radius 35 or auto.")
    return notes


def _uncleaned(source: Source) -> Entities:
    return drop(source.entities, GRID_KEYS | {"proc"})


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _of_hcp(root: Path, folder: Path) -> Iterator[Source]:
    label = folder.name.removeprefix("sub-")
    for results in _folders(folder / RESULTS):
        if label.isalnum() and (found := HCP_RUN.fullmatch(results.name)):
            run = {key: value for key, value in found.groupdict().items() if value}
            yield from _of_results(root, results, {"sub": label, **run, "task": run["task"].lower()})


def _of_results(root: Path, results: Path, run: dict[str, str]) -> Iterator[Source]:
    """Yield the series of one run, in the volume and on the surface, before and after ICA-FIX."""
    mask = _first(results / name for name in MASKS)
    motion = _first([results / MOTION])
    for fix in (("",), FIX):
        entities = {**run, **dict([CLEANED] if fix is FIX else [])}
        volume = _first(results / f"{results.name}{end}.nii.gz" for end in fix)
        surface = _first(
            results / f"{results.name}_Atlas{kind}{end}.dtseries.nii" for kind in ("_MSMAll", "") for end in fix
        )
        companions = (MASKS[0], MOTION)
        yield from _series(root, volume, {**entities, **dict(VOLUME)}, mask, motion, companions)
        yield from _series(root, surface, {**entities, **dict(SURFACE)}, None, motion, companions)


def _series(
    root: Path,
    path: Path | None,
    labels: dict[str, str],
    mask: Path | None,
    motion: Path | None,
    companions: tuple[str, str],
) -> Iterator[Source]:
    """Yield a series that is there, and what belongs to it."""
    if path is None:
        return
    entities = order_entities(tuple(labels.items()))
    extension = path.name[path.name.index(".") :]
    yield Source(path, root, "bold", entities, "bold", extension, companions)
    if mask is not None:
        yield Source(mask, root, "mask", entities, "mask", extension)
    if motion is not None:
        yield Source(motion, root, "confounds", drop(entities, GRID_KEYS), "timeseries", motion.suffix)


def _first(paths: Iterable[Path]) -> Path | None:
    """Return the first that is there; a dead link is there too, and is named later."""
    return next((path for path in paths if path.exists() or path.is_symlink()), None)


PIPELINES = {
    "hcp": Pipeline(
        "HCP minimal preprocessing",
        f"PARTICIPANT/{RESULTS}/[rt]fMRI_*/*.nii.gz and *_Atlas*.dtseries.nii",
        RESULTS,
        _of_hcp,
    ),
}
"""Trees by the names that XCP-D uses for ``--input-type``."""
