"""The tree of the HCP pipelines, which is no BIDS dataset, as sources like any other.

Folders and names: Glasser et al. (2013), doi:10.1016/j.neuroimage.2013.04.127.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from fcpower_bids.inputs.sources import GRID_KEYS, Source, drop
from fcpower_bids.outputs.names import order_entities

VOLUME = {"space": "MNI152NLin6Asym", "res": "2"}
SURFACE = {"space": "fsLR", "den": "91k"}
CLEANED = ("proc", "fix")
"""Entity of what ICA-FIX has cleaned."""
FIX = ("_hp2000_clean", "_hp0_clean")
MASKS = ("brainmask_fs.2.nii.gz", "brainmask_fs.2.0.nii.gz")
MOTION = "Movement_Regressors.txt"
RESULTS = "MNINonLinear/Results"
"""Folder of a participant that shows whose tree it is."""
PATTERN = f"PARTICIPANT/{RESULTS}/[rt]fMRI_*/*.nii.gz and *_Atlas*.dtseries.nii"
LOOKED_AT = 50
"""Folders of participants that are looked at before a tree is taken for none of these."""
HCP_RUN = re.compile(r"[rt]fMRI_(?P<task>[A-Za-z]+)(?P<run>\d*)(?:_(?P<acq>7T))?_(?P<dir>[A-Z]{2})")


def is_hcp(root: Path) -> bool:
    """Whether the folders of a tree are those of the HCP pipelines."""
    return any((folder / RESULTS).exists() for folder in _folders(root)[:LOOKED_AT])


def hcp_sources(root: Path, subjects: Collection[str] | None = None) -> list[Source]:
    """Return series, masks and motion files of a tree, masks and motion files once for every series."""
    found: list[Source] = []
    for folder in _folders(root):
        label = folder.name.removeprefix("sub-")
        for results in _folders(folder / RESULTS) if label.isalnum() and label in (subjects or {label}) else ():
            if match := HCP_RUN.fullmatch(results.name):
                run = {key: value for key, value in match.groupdict().items() if value}
                found += _of_run(root, results, {"sub": label, **run, "task": run["task"].lower()})
    return found


def _of_run(root: Path, results: Path, run: dict[str, str]) -> Iterator[Source]:
    """Yield the series of one run, in the volume and on the surface, before and after ICA-FIX, and what they need."""
    mask, motion = _first(results / name for name in MASKS), _first([results / MOTION])
    for fix in (("",), FIX):
        volume = _first(results / f"{results.name}{end}.nii.gz" for end in fix)
        surface = _first(
            results / f"{results.name}_Atlas{kind}{end}.dtseries.nii" for kind in ("_MSMAll", "") for end in fix
        )
        for path, grid, own_mask in ((volume, VOLUME, mask), (surface, SURFACE, None)):
            if path is None:
                continue
            labels = {**run, **dict([CLEANED] if fix is FIX else []), **grid}
            entities, extension = order_entities(tuple(labels.items())), path.name[path.name.index(".") :]
            yield Source(path, root, "bold", entities, "bold", extension, (MASKS[0], MOTION))
            if own_mask is not None:
                yield Source(own_mask, root, "mask", entities, "mask", extension)
            if motion is not None:
                yield Source(motion, root, "confounds", drop(entities, GRID_KEYS), "timeseries", motion.suffix)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _first(paths: Iterable[Path]) -> Path | None:
    """Return the first that is there; a dead link is there too, and is named later."""
    return next((path for path in paths if path.exists() or path.is_symlink()), None)
