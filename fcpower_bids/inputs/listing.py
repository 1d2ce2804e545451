"""The names of the files in the ``func`` folders of a dataset that a recording can need."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

SUFFIXES = ("bold", "preproc", "mask", "brainmask", "timeseries", "regressors", "confounds")
EXTENSIONS = (".nii.gz", ".nii", ".dtseries.nii", ".tsv")
ENDINGS = tuple(f"_{suffix}{extension}" for suffix in SUFFIXES for extension in EXTENSIONS)


def list_func_folders(root: Path, subjects: Collection[str] | None = None) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the ``func`` folders of a dataset, and the folders that may not be read.

    Parameters
    ----------
    root : Path
        Dataset with ``sub-X/[ses-Y/]func``.
    subjects : collection of str, optional
        Labels without ``sub-``; all when None.
    """
    found: list[Path] = []
    closed: list[Path] = []
    if subjects is None:
        wanted = _folders(root, "sub-*")
    else:  # among forty thousand, a job for one does not look at the others
        wanted = [path for label in sorted(subjects) if (path := root / f"sub-{label}").is_dir()]
    for subject in _readable(wanted, closed):
        for holder in (subject, *_readable(_folders(subject, "ses-*"), closed)):
            found += _readable(_folders(holder, "func"), closed)
    return tuple(found), tuple(closed)


def list_files(folders: Collection[Path]) -> list[Path]:
    """Return the BOLD, mask and confounds files in some ``func`` folders."""
    return [Path(path) for folder in folders for path in names_in(folder)]


def names_in(folder: Path) -> list[str]:
    """Return the paths of a folder's files that can matter, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.name.startswith("sub-") and entry.name.endswith(ENDINGS))


def _folders(parent: Path, pattern: str) -> list[Path]:
    """Sorted subfolders, links to folders too."""
    with os.scandir(parent) as entries:
        return sorted(Path(entry.path) for entry in entries if fnmatchcase(entry.name, pattern) and entry.is_dir())


def _readable(folders: Iterable[Path], closed: list[Path]) -> list[Path]:
    """Pass on the folders that may be listed; the others are put with the closed ones."""
    allowed = {folder: os.access(folder, os.R_OK | os.X_OK) for folder in folders}
    closed += [folder for folder, may in allowed.items() if not may]
    return [folder for folder, may in allowed.items() if may]
