"""The files of a dataset that a recording can need, as pybids finds them in the ``func`` folders."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.locks import lock
from fcpower_bids.outputs.tables import read_json, write_json
from fcpower_bids.store import replace_folder

if TYPE_CHECKING:
    from bids.layout import BIDSLayout

SUFFIXES = ("bold", "mask", "timeseries", "regressors")
EXTENSIONS = (".nii.gz", ".nii", ".dtseries.nii", ".tsv")
ENTITIES = {
    "name": "fcpower_bids",
    "entities": [
        {"name": "suffix", "pattern": r"(?:^|[_/\\])([a-zA-Z0-9+]+)\.[^/\\]+$"},
        {"name": "extension", "pattern": r"(?:^|[_/\\])[a-zA-Z0-9+]+(\.[^/\\]+)$"},
    ],
}
"""Configuration of pybids: its two entities that are asked for. Its other forty take a third of an index's time."""
OTHER_ENTITIES = "entities-of-fcpower_bids.json"
"""No such file is in a dataset: a `layout_config.json` of the user could give suffixes another meaning."""
MANIFEST = "manifest.json"


def list_func_folders(root: Path, subjects: Collection[str] | None = None) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the ``func`` folders of a dataset, and the folders that may not be read: pybids passes over them."""
    closed: list[Path] = []
    people = sorted(root.glob("sub-*")) if subjects is None else [root / f"sub-{label}" for label in sorted(subjects)]
    holders = _readable(people, closed)
    holders += _readable((path for one in list(holders) for path in sorted(one.glob("ses-*"))), closed)
    return tuple(sorted(_readable((one / "func" for one in holders), closed))), tuple(closed)


def _readable(folders: Iterable[Path], closed: list[Path]) -> list[Path]:
    """Pass on the folders that may be listed; the others are put with the closed ones."""
    there = {folder: os.access(folder, os.R_OK | os.X_OK) for folder in folders if folder.is_dir()}
    closed += [folder for folder, may in there.items() if not may]
    return [folder for folder, may in there.items() if may]


def list_files(
    root: Path, subjects: Collection[str] | None, closed: Collection[Path], database_dir: Path | None = None
) -> list[Path]:
    """Return the BOLD, mask and confounds files of a dataset, sorted. Raises UsageError."""
    layout = _index(root, subjects, closed) if database_dir is None else _reopen_or_index(root, closed, database_dir)
    names = layout.get(suffix=list(SUFFIXES), extension=list(EXTENSIONS), return_type="filename")
    _close(layout)
    return sorted(map(Path, names))


def _index(
    root: Path, subjects: Collection[str] | None, closed: Collection[Path], database: Path | None = None
) -> BIDSLayout:
    from bids.layout import BIDSLayout, BIDSLayoutIndexer  # a third of a second

    shut = [re.compile(rf"^/{re.escape(one.relative_to(root).as_posix())}(/|$)") for one in closed]
    ignored = [_all_but(subjects), *shut]
    indexer = BIDSLayoutIndexer(validate=False, index_metadata=False, ignore=ignored, config_filename=OTHER_ENTITIES)
    return BIDSLayout(
        root, validate=False, is_derivative=True, indexer=indexer, config=[ENTITIES], database_path=database
    )


def _all_but(subjects: Collection[str] | None) -> re.Pattern[str]:
    """All paths but those of the files that matter, and of the folders that lead to them."""
    people = "[^/]+" if subjects is None else "|".join(map(re.escape, sorted(subjects)))
    ends = "|".join(f"_{suffix}{re.escape(extension)}" for suffix in SUFFIXES for extension in EXTENSIONS)
    return re.compile(rf"^(?!/sub-({people})(/ses-[^/]+)?(/func(/sub-[^/]*({ends}))?)?$)")


def _close(layout: BIDSLayout) -> None:
    layout.session.close()
    layout.connection_manager.engine.dispose()


def _reopen_or_index(root: Path, closed: Collection[Path], database_dir: Path) -> BIDSLayout:
    from bids.layout import BIDSLayout  # a third of a second

    home = database_dir / f"{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
    # a folder's modification time changes when a file in it appears or disappears
    times = {folder.relative_to(root).as_posix(): folder.stat().st_mtime_ns for folder in list_func_folders(root)[0]}
    manifest = {"root": str(root), "pattern": _all_but(None).pattern, "folders": times}

    def build(folder: Path) -> None:
        _close(_index(root, None, closed, folder))
        write_json(folder / MANIFEST, manifest | _sizes(folder))

    try:
        if not _is_current(home, manifest):
            with lock(home.with_suffix(".lock")):
                if not _is_current(home, manifest):  # another job was quicker
                    replace_folder(home, build)
    except OSError as error:
        raise UsageError(
            f"The index cannot be written to {database_dir} ({error.strerror}). "
            "Give --bids-database-dir a folder that can be written, or leave it out."
        ) from error
    return BIDSLayout(root, validate=False, database_path=home)


def _is_current(home: Path, manifest: dict[str, Any]) -> bool:
    try:
        return read_json(home / MANIFEST) == manifest | _sizes(home)
    except DatasetError:
        return False


def _sizes(home: Path) -> dict[str, int]:
    """Bytes of the database, which says when it was cut short."""
    return {path.name: path.stat().st_size for path in home.glob("*.sqlite")}
