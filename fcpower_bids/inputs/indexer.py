"""A pybids index of the functional derivatives alone.

pybids' own indexer walks every folder and matches every file, which takes minutes and gigabytes for a thousand
participants. This one is told which ``func`` folders to list and which names matter, and reads no metadata; the
result is an ordinary ``BIDSLayout``. It overrides the private ``_index_dir``, which is why ``setup.cfg`` pins pybids.

This module imports pybids, so import it where it is used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bids.layout import BIDSLayout, BIDSLayoutIndexer

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.outputs.tables import read_json, write_json

SUFFIXES = ("bold", "preproc", "mask", "brainmask", "timeseries", "regressors", "confounds")
EXTENSIONS = (".nii.gz", ".nii", ".dtseries.nii", ".tsv")
ENDINGS = tuple(f"_{suffix}{extension}" for suffix in SUFFIXES for extension in EXTENSIONS)
MANIFEST = "manifest.json"


class FuncIndexer(BIDSLayoutIndexer):
    """Index the files of given ``func`` folders that a recording can need.

    Parameters
    ----------
    folders : iterable of Path
        The folders to list; nothing else is looked at.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        super().__init__(validate=False, index_metadata=False)
        self.folders = tuple(folders)

    def _index_dir(self, path: Any, config: Any, force: Any = None) -> tuple[list[Any], list[Any]]:
        entities = {name: entity for part in config for name, entity in part.entities.items()}
        indexed = [
            self._index_file(f"{folder}{os.sep}{name}", entities)
            for folder in self.folders
            for name in _names(folder)
            if name.startswith("sub-") and name.endswith(ENDINGS)
        ]
        return [file for file, _ in indexed], [tag for _, tags in indexed for tag in tags]


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


def list_files(root: Path, folders: Collection[Path], database_dir: Path | None = None) -> list[Path]:
    """Return the BOLD, mask and confounds files in the ``func`` folders of a dataset, in one query.

    Parameters
    ----------
    root : Path
        The dataset.
    folders : collection of Path
        Its ``func`` folders to look into.
    database_dir : Path, optional
        Where the index is kept. It is used again until a file appears in or disappears from one of the folders.

    Raises
    ------
    UsageError
        If the index cannot be written to ``database_dir``.
    """
    layout = _index(root, folders) if database_dir is None else _reopen_or_index(root, folders, database_dir)
    names = layout.get(suffix=list(SUFFIXES), extension=list(EXTENSIONS), return_type="filename")
    layout.session.close()
    layout.connection_manager.engine.dispose()
    return [Path(name) for name in names]


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _folders(parent: Path, pattern: str) -> list[Path]:
    """Sorted subfolders, links to folders too."""
    with os.scandir(parent) as entries:
        return sorted(Path(entry.path) for entry in entries if fnmatchcase(entry.name, pattern) and entry.is_dir())


def _readable(folders: Iterable[Path], closed: list[Path]) -> list[Path]:
    """Pass on the folders that may be listed; the others are put with the closed ones."""
    allowed = {folder: os.access(folder, os.R_OK | os.X_OK) for folder in folders}
    closed += [folder for folder, may in allowed.items() if not may]
    return [folder for folder, may in allowed.items() if may]


def _index(root: Path, folders: Collection[Path], database: Path | None = None) -> BIDSLayout:
    return BIDSLayout(
        root,
        validate=False,
        config=["bids", "derivatives"],
        indexer=FuncIndexer(folders),
        database_path=database,
        reset_database=database is not None,
    )


def _reopen_or_index(root: Path, folders: Collection[Path], database_dir: Path) -> BIDSLayout:
    home = database_dir / f"{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
    manifest = _manifest(root, folders)
    if not _is_current(home, manifest):
        try:
            _build(home, root, folders, manifest)
        except OSError as error:
            raise UsageError(
                f"The index cannot be written to {database_dir} ({error.strerror}). "
                "Give --bids-database-dir a folder that can be written, or leave it out."
            ) from error
    return BIDSLayout(root, validate=False, database_path=home)


def _manifest(root: Path, folders: Collection[Path]) -> dict[str, Any]:
    """What an index depends on: a folder's modification time changes when a file in it appears or disappears."""
    times = {folder.relative_to(root).as_posix(): folder.stat().st_mtime_ns for folder in folders}
    return {"root": str(root), "endings": list(ENDINGS), "folders": times}


def _is_current(home: Path, manifest: dict[str, Any]) -> bool:
    try:
        return read_json(home / MANIFEST) == manifest
    except DatasetError:
        return False


def _build(home: Path, root: Path, folders: Collection[Path], manifest: dict[str, Any]) -> None:
    """Index beside ``home`` and move it there in one step, so that parallel jobs never see half an index."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as workshop:
        fresh, stale = Path(workshop, "fresh"), Path(workshop, "stale")
        layout = _index(root, folders, fresh)
        layout.session.close()
        layout.connection_manager.engine.dispose()
        write_json(fresh / MANIFEST, manifest)
        try:
            fresh.rename(home)
        except OSError:
            # Another job was quicker with the same index, or an old index is in the way.
            if not _is_current(home, manifest):
                shutil.move(home, stale)
                fresh.rename(home)
