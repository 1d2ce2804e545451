"""Arrays that lie on disk and are read by rows and columns: memory follows what is asked for, not what there is.

Files are read, not mapped: pages of a map count as memory of the process, and add up to the size of the whole.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fcpower_bids.resources import available_bytes, scratch
from fcpower_bids.store import boot, naming

OUT_OF_USE_SECONDS = 86_400.0
"""After what time a file that is out of use is removed: others may be reading it."""


class RowsOnDisk:
    """Chosen rows of an array in a file, as one array that is only read.

    It is indexed like an array of two dimensions (rows by number, slice, numbers or booleans; columns by slice,
    numbers or booleans) and gives arrays; it can be sent to other processes that see the same file.
    """

    def __init__(
        self, path: Path, places: NDArray[np.intp], width: int, dtype: DTypeLike, owner: RowsOnDisk | None = None
    ) -> None:
        self.path, self.places, self.dtype = path, places, np.dtype(dtype)
        self.owner = owner  # a file is removed with the last that refers to it
        self.shape: tuple[int, ...] = (len(places), width)

    def __len__(self) -> int:
        return self.shape[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Others read the file; it is removed here."""
        return RowsOnDisk, (self.path, self.places, self.shape[1], self.dtype)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read one row, or a block of rows and columns."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        places = np.atleast_1d(self.places[rows])
        wanted = np.arange(self.shape[1])[columns]
        start, stop = (int(wanted.min()), int(wanted.max()) + 1) if wanted.size else (0, 0)
        block = self._read(places, start, stop)
        if not (isinstance(columns, slice) and columns.step in (None, 1)):
            block = block[:, wanted - start]
        return block[0] if isinstance(rows, (int, np.integer)) else block

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Read everything."""
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def only(self, rows: NDArray[Any]) -> RowsOnDisk:
        """Return some of the rows, unread."""
        return RowsOnDisk(self.path, self.places[rows], self.shape[1], self.dtype, self)

    def _read(self, places: NDArray[np.intp], start: int, stop: int) -> NDArray[Any]:
        block = np.empty((len(places), stop - start), self.dtype)
        width, item = block.shape[1] * self.dtype.itemsize, self.dtype.itemsize
        if not block.size:
            return block
        view = block.data.cast("B")
        with self.path.open("rb", buffering=0) as file:
            for number, row in enumerate(places.tolist()):
                at = (row * self.shape[1] + start) * item
                if os.preadv(file.fileno(), [view[number * width : (number + 1) * width]], at) != width:
                    raise OSError(f"{self.path} is shorter than it was; run the same command again.")
        return block


_IN_USE: WeakSet[ScratchRows] = WeakSet()


class ScratchRows(RowsOnDisk):
    """An array on disk that is written by rows, and removed with the last that refers to it."""

    def __init__(self, folder: Path, shape: tuple[int, int], dtype: DTypeLike) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for own in _IN_USE:  # a run may take days, and what it only reads would look out of use
            own.path.touch()
        for old in folder.glob("scratch-*"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > OUT_OF_USE_SECONDS:
                    old.unlink()
        handle, path = hold_file(folder)
        super().__init__(path, np.arange(shape[0]), shape[1], dtype)
        self._gone = finalize(self, let_go, handle, path)
        _IN_USE.add(self)
        os.truncate(path, shape[0] * shape[1] * self.dtype.itemsize)

    def __setitem__(self, key: int | slice | tuple[slice, slice], values: ArrayLike) -> None:
        """Write one row, some in a row, or a block of rows and columns."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        start = rows if isinstance(rows, (int, np.integer)) else rows.indices(self.shape[0])[0]
        at, block = columns.indices(self.shape[1])[0], np.ascontiguousarray(values, dtype=self.dtype)
        with naming(self.path), self.path.open("r+b", buffering=0) as file:
            for number, part in enumerate([block] if block.shape[-1] == self.shape[1] else block):
                file.seek(((int(start) + number) * self.shape[1] + at) * self.dtype.itemsize)
                view = part.data.cast("B")
                while view:  # one call writes 2 GB at most
                    view = view[file.write(view) :]


def hold_file(folder: Path) -> tuple[int, Path]:
    """Make an empty file that this process holds by a lock until it lets go of it, or is killed."""
    path = folder / f"scratch-{boot()}-{secrets.token_hex(8)}"
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle, path


def let_go(handle: int, path: Path) -> None:
    """Remove a file that this process holds."""
    os.close(handle)
    path.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove the files of killed processes of this machine, whose locks are free; one being made is empty."""
    for path in folder.glob(f"scratch-{boot()}-*"):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:
                path.unlink()


def make_room(shape: tuple[int, int], dtype: type[np.floating]) -> NDArray[np.floating] | ScratchRows:
    """Return an array to be filled by rows: on disk where it would take more memory than there is for one array."""
    folder = scratch()
    if folder is None or shape[0] * shape[1] * np.dtype(dtype).itemsize <= available_bytes():
        return np.empty(shape, dtype)
    return ScratchRows(folder, shape, dtype)
