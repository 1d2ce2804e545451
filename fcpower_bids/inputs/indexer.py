"""A pybids index of the functional derivatives alone, kept on disk for those who ask for it.

pybids' own indexer walks every folder and matches every file, which takes minutes and gigabytes for a thousand
participants. This one is told which ``func`` folders to list and which names matter, and reads no metadata; the
result is an ordinary ``BIDSLayout``. It overrides the private ``_index_dir``, which is why ``setup.cfg`` pins pybids.

This module imports pybids, so import it where it is used.
"""

from __future__ import annotations

import errno
import hashlib
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bids.layout import BIDSLayout, BIDSLayoutIndexer

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.inputs.listing import ENDINGS, EXTENSIONS, SUFFIXES, names_in
from fcpower_bids.outputs.tables import read_json, write_json

MANIFEST = "manifest.json"
ATTEMPTS = 5
"""How often an index is moved to its place while other jobs do the same."""
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
"""How a move fails where something is already: a folder that is not empty, or a file."""


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
        indexed = [self._index_file(path, entities) for folder in self.folders for path in names_in(folder)]
        return [file for file, _ in indexed], [tag for _, tags in indexed for tag in tags]


def list_indexed_files(root: Path, folders: Collection[Path], database_dir: Path) -> list[Path]:
    """Return the BOLD, mask and confounds files in the ``func`` folders of a dataset, in one query.

    Parameters
    ----------
    root : Path
        The dataset.
    folders : collection of Path
        Its ``func`` folders to look into.
    database_dir : Path
        Where the index is kept. It is used again until a file appears in or disappears from one of the folders.

    Raises
    ------
    UsageError
        If the index cannot be written to ``database_dir``.
    """
    layout = _reopen_or_index(root, folders, database_dir)
    names = layout.get(suffix=list(SUFFIXES), extension=list(EXTENSIONS), return_type="filename")
    layout.session.close()
    layout.connection_manager.engine.dispose()
    return [Path(name) for name in names]


def _index(root: Path, folders: Collection[Path], database: Path) -> BIDSLayout:
    return BIDSLayout(
        root,
        validate=False,
        config=["bids", "derivatives"],
        indexer=FuncIndexer(folders),
        database_path=database,
        reset_database=True,
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
        fresh = Path(workshop, "fresh")
        layout = _index(root, folders, fresh)
        layout.session.close()
        layout.connection_manager.engine.dispose()
        write_json(fresh / MANIFEST, manifest)
        _put_in_place(fresh, home, manifest)


def _put_in_place(fresh: Path, home: Path, manifest: dict[str, Any]) -> None:
    """Move an index to its home, where another job may just have put the same, or an old one is in the way.

    The old one may be gone before it is moved away, when another job does the same.
    """
    for attempt in range(ATTEMPTS):
        try:
            fresh.rename(home)
            return
        except OSError as error:
            if error.errno not in IN_THE_WAY or attempt == ATTEMPTS - 1:
                raise
        if _is_current(home, manifest):
            return
        with suppress(FileNotFoundError):
            home.rename(fresh.with_name(f"stale-{attempt}"))
