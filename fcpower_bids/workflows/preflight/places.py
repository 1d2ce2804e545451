"""Whether what a run writes can be written: the folders, and the room in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from fcpower_bids.claims import CLAIMS, claims_in
from fcpower_bids.errors import UsageError
from fcpower_bids.outputs.dataset import check_dataset
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.execution.batches import Job

DIGITS, WORD = 17, 8
"""Bytes of a number in a table, which holds all its digits, and in the work folder."""
GIGA = 1e9


def check_folders(settings: Settings) -> None:
    """Refuse an output folder of another program, and folders that cannot be written to. Raises UsageError."""
    check_dataset(settings.output_dir)
    for folder in (settings.output_dir, settings.work):
        home = _existing(folder)
        if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
            raise UsageError(
                f"Nothing can be written to {folder}: {home} is a file, closed to you or read-only. Choose another "
                "folder."
            )


def check_room(todo: Sequence[tuple[Job, int]], settings: Settings) -> None:
    """Refuse folders that have not the room for what is to be written at the least. Raises UsageError."""
    needed = {settings.output_dir: _table_bytes(todo, settings), settings.work: _work_bytes(todo)}
    sharing: dict[int, list[Path]] = {}
    for folder in needed:
        sharing.setdefault(_existing(folder).stat().st_dev, []).append(folder)
    for folders in sharing.values():
        free, wanted = shutil.disk_usage(_existing(folders[0])).free, sum(needed[folder] for folder in folders)
        if wanted > free:
            raise UsageError(
                f"{' and '.join(map(str, folders))} will need at least {wanted / GIGA:.1f} GB, but only "
                f"{free / GIGA:.1f} GB are free there: make room, or choose other folders."
            )


def _table_bytes(todo: Iterable[tuple[Job, int]], settings: Settings) -> int:
    """Size of series and connectomes, by far the most of what is written."""
    numbers = 0
    for (_, atlases), volumes in todo:
        for atlas in atlases:
            numbers += atlas.n_parcels * (volumes // 2 + atlas.n_parcels * (1 + len(settings.transforms)))
    return numbers * DIGITS


def _work_bytes(todo: Iterable[tuple[Job, int]]) -> int:
    """Size of the parcel means that are kept."""
    return sum(volumes * atlas.n_parcels * WORD for (_, atlases), volumes in todo for atlas in atlases)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    absolute = folder.absolute()
    return next(path for path in (absolute, *absolute.parents) if path.exists())


def others_at_work(jobs: Iterable[Job], settings: Settings) -> list[str]:
    """Say what another run is at work on; nothing is left behind by asking."""
    folder = settings.output_dir / CLAIMS
    if not any(folder.glob("*.claim")) or not os.access(folder, os.W_OK):
        return []
    with claims_in(folder) as claims:
        owners = ((recording.name, claims.owner(recording.name)) for recording, _ in jobs)
        return [f"{name}: another run is at work on it ({who}); it is waited for." for name, who in owners if who]
