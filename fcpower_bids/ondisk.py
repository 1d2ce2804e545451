"""Arrays that lie on disk and are read by rows and columns: memory follows what is asked for, not what there is.

Files are read, not mapped: pages of a map count as memory of the process, and add up to the size of the whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fcpower_bids.errors import DatasetError
from fcpower_bids.resources import available_bytes, scratch
from fcpower_bids.store import atomic, boot, naming, stored_path, write_text

FORMAT = 3
INDEX = "index.json"
OUT_OF_USE_SECONDS = 86_400.0
"""After what time a file that is out of use is removed: others may be reading it."""
CHUNK_BYTES = 2**26
"""Size of a full chunk; one more row rewrites less than half of this."""

Facts = Mapping[str, Any]
Place = tuple[int, int]
"""Number of a file, and a row of it."""


class RowsOnDisk:
    """Chosen rows and columns of arrays in files, as one array that is only read.

    It is indexed like an array of two dimensions (rows by number, slice, numbers or booleans; columns by slice,
    numbers or booleans) and gives arrays; it can be sent to other processes that see the same files.
    """

    def __init__(
        self,
        files: Sequence[tuple[Path, int]],
        places: Sequence[Place] | NDArray[np.intp],
        stored: int,
        dtype: DTypeLike = np.float64,
        columns: NDArray[np.intp] | None = None,
    ) -> None:
        self.files, self.stored, self.columns = tuple(files), stored, columns
        self.places = np.array(places, dtype=np.intp).reshape(-1, 2)
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, ...] = (len(self.places), stored if columns is None else len(columns))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read one row, or a block of rows and columns."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        chosen = np.atleast_1d(np.arange(self.shape[0])[rows])
        block = self._read_columns(chosen, columns)
        return block[0] if isinstance(rows, (int, np.integer)) else block

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Read everything."""
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def only(self, rows: NDArray[Any]) -> RowsOnDisk:
        """Return some of the rows, unread."""
        return RowsOnDisk(self.files, self.places[rows].tolist(), self.stored, self.dtype, self.columns)

    def _read_columns(self, rows: NDArray[np.intp], columns: Any) -> NDArray[Any]:
        """Read the range of columns that is needed and pick among them."""
        plain = self.columns is None and isinstance(columns, slice) and columns.step in (None, 1)
        if plain:
            start, stop, _ = columns.indices(self.stored)
            return self._read(rows, start, max(start, stop))
        wanted = (np.arange(self.stored) if self.columns is None else self.columns)[columns]
        if not wanted.size:
            return np.empty((len(rows), 0), self.dtype)
        start = int(wanted.min())
        return self._read(rows, start, int(wanted.max()) + 1)[:, wanted - start]

    def _read(self, rows: NDArray[np.intp], start: int, stop: int) -> NDArray[Any]:
        block = np.empty((len(rows), stop - start), self.dtype)
        width, item = block.shape[1] * self.dtype.itemsize, self.dtype.itemsize
        if not block.size:
            return block
        view = block.data.cast("B")
        with ExitStack() as opened:
            handles: dict[int, int] = {}
            for number, (file, row) in enumerate(self.places[rows].tolist()):
                path, offset = self.files[file]
                if file not in handles:
                    handles[file] = os.open(path, os.O_RDONLY)
                    opened.callback(os.close, handles[file])
                at = offset + (row * self.stored + start) * item
                if os.preadv(handles[file], [view[number * width : (number + 1) * width]], at) != width:
                    raise OSError(f"{path} is shorter than it was; run the same command again.")
        return block


_IN_USE: WeakSet[ScratchRows] = WeakSet()


class ScratchRows(RowsOnDisk):
    """An array on disk that is written by rows, and removed with the last that refers to it."""

    def __init__(self, folder: Path, shape: tuple[int, int], dtype: DTypeLike) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for own in _IN_USE:  # a run may take days, and what it only reads would look out of use
            own.files[0][0].touch()
        _remove_older(folder.glob("scratch-*"))
        handle, path = hold_file(folder, "scratch")
        super().__init__([(path, 0)], [(0, row) for row in range(shape[0])], shape[1], dtype)
        self._gone = finalize(self, let_go, handle, path)
        _IN_USE.add(self)
        os.truncate(path, shape[0] * shape[1] * self.dtype.itemsize)

    def __reduce__(self) -> tuple[Any, ...]:
        """Others read it; it is removed here."""
        return RowsOnDisk, (self.files, self.places, self.stored, self.dtype)

    def __setitem__(self, key: int | slice | tuple[slice, slice], values: ArrayLike) -> None:
        """Write one row, some in a row, or a block of rows and columns."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        start = rows if isinstance(rows, (int, np.integer)) else rows.indices(self.shape[0])[0]
        at, block = columns.indices(self.stored)[0], np.ascontiguousarray(values, dtype=self.dtype)
        path = self.files[0][0]
        with naming(path), path.open("r+b", buffering=0) as file:
            for number, part in enumerate([block] if block.shape[-1] == self.stored else block):
                file.seek(((int(start) + number) * self.stored + at) * self.dtype.itemsize)
                view = part.data.cast("B")
                while view:  # one call writes 2 GB at most
                    view = view[file.write(view) :]


def hold_file(folder: Path, kind: str) -> tuple[int, Path]:
    """Make an empty file that this process holds by a lock until it lets go of it, or is killed."""
    path = folder / f"{kind}-{boot()}-{secrets.token_hex(8)}"
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
    for path in chain(folder.glob(f"scratch-{boot()}-*"), folder.glob(f"shared-{boot()}-*")):
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


class GrowingRows:
    """Named rows of numbers in a folder, in chunks that are never changed: more rows are more chunks.

    The index is replaced after each chunk, so whoever is killed leaves what was there before it. One process at a time
    may add (`fcpower_bids.locks.lock`). The rows of a chunk that is less than half full, or half in use, go into the
    next. `about`: facts that all rows share. `rows`: by name: what is known of each row, with ``chunk`` and ``place``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = {}
        self.columns = 0
        self.chunks: dict[str, tuple[int, int]] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self._load()

    def clear(self, about: Facts, columns: int) -> None:
        """Begin anew, with rows of another kind; what is on disk stays until the first chunk is."""
        self.about, self.columns, self.chunks, self.rows = dict(about), columns, {}, {}

    def discard(self, names: Iterable[str]) -> None:
        """Forget rows; their room is taken back as more come."""
        for name in names:
            self.rows.pop(name, None)

    def add(self, rows: Iterable[tuple[str, Facts, ArrayLike]]) -> None:
        """Add rows, or replace those of the same names; each chunk counts as soon as it is written."""
        full = max(1, CHUNK_BYTES // (8 * max(1, self.columns)))
        source = chain(self._thin(full), iter(rows))
        while batch := list(islice(source, full)):
            name = f"rows-{secrets.token_hex(8)}.npy"
            checksum = write_rows(self.folder / name, (len(batch), self.columns), (row for _, _, row in batch))
            self.chunks[name] = (self.folder / name).stat().st_size, checksum
            for place, (one, facts, _) in enumerate(batch):
                self.rows[one] = {**facts, "chunk": name, "place": place}
            self._commit()

    def view(self, names: Sequence[str], columns: NDArray[np.intp] | None = None) -> RowsOnDisk:
        """Return the rows of these names, in this order, among all columns or some."""
        number = {name: i for i, name in enumerate(self.chunks)}
        files = [(self.folder / name, HEADER) for name in self.chunks]
        places = [(number[self.rows[name]["chunk"]], self.rows[name]["place"]) for name in names]
        return RowsOnDisk(files, places, self.columns, columns=columns)

    def _thin(self, full: int) -> Iterator[tuple[str, Facts, ArrayLike]]:
        """Yield the rows of chunks of which less than half is left, or was ever full."""
        members: dict[str, list[str]] = {name: [] for name in self.chunks}
        for name, row in self.rows.items():
            members[row["chunk"]].append(name)
        for names in members.values():
            if 2 * len(names) < full:
                for name in names:
                    yield name, self.rows[name], self.view([name])[0]

    def _commit(self) -> None:
        """Replace the index; a chunk that it no longer names stays for a day, since others may be reading it."""
        used = {row["chunk"] for row in self.rows.values()}
        for name in self.chunks.keys() - used:
            with suppress(OSError):
                os.utime(self.folder / name)
        self.chunks = {name: proof for name, proof in self.chunks.items() if name in used}
        content = {"format": FORMAT, "about": self.about, "columns": self.columns, "chunks": self.chunks}
        write_text(self.folder / INDEX, json.dumps({**content, "rows": self.rows}))
        self._sweep()

    def _sweep(self) -> None:
        """Remove chunks out of use, what killed runs left of new ones, and the arrays of former versions."""
        chunks = set(self.folder.glob("rows-*.npy"))
        for path in set(self.folder.glob("*.npy")) - chunks:
            path.unlink(missing_ok=True)
        unused = (path for path in chunks if path.name not in self.chunks)
        _remove_older((*unused, *self.folder.glob(".rows-*.part")))

    def _load(self) -> None:
        """Take what is sound: nothing of a damaged index, no row of a damaged chunk; each chunk is read once."""
        try:
            index = json.loads((self.folder / INDEX).read_text(encoding="utf-8"))
            if index["format"] != FORMAT:
                return
            sound = {
                name: (int(size), int(checksum))
                for name, (size, checksum) in index["chunks"].items()
                if _is_sound(stored_path(self.folder, name), size, checksum)
            }
            rows = {name: row for name, row in index["rows"].items() if row["chunk"] in sound and row["place"] >= 0}
            self.about, self.columns, self.chunks, self.rows = index["about"], index["columns"], sound, rows
        except (OSError, ValueError, LookupError, TypeError, AttributeError, DatasetError):
            return


def _remove_older(paths: Iterable[Path]) -> None:
    """Remove files that have not been touched for so long that no process can be using them."""
    for path in paths:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > OUT_OF_USE_SECONDS:
                path.unlink()


def _is_sound(path: Path, size: int, checksum: int) -> bool:
    """Whether a chunk has the size and the CRC-32 of its numbers that the index states."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    return _checksum(path, path.stat().st_mtime_ns) == checksum


@lru_cache(maxsize=4096)
def _checksum(path: Path, changed: int) -> int:
    """CRC-32 of the numbers of a chunk, read once by a process unless it changes."""
    found = 0
    with path.open("rb") as file:
        file.seek(HEADER)
        while block := file.read(2**22):
            found = zlib.crc32(block, found)
    return found


HEADER = 128
"""Bytes of the header of the files that `write_rows` writes."""


def write_rows(path: Path, shape: tuple[int, int], rows: Iterable[ArrayLike]) -> int:
    """Write an array of float64 row by row, so that it never has to be in memory; return the CRC-32 of its numbers."""
    checksum = 0
    with atomic(path) as temporary, temporary.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
        for row in rows:
            numbers = np.ascontiguousarray(row, dtype="<f8").data
            checksum = zlib.crc32(numbers, checksum)
            file.write(numbers)
    return checksum
