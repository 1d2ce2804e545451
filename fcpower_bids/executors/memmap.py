"""A function whose arrays lie in a file that every worker maps; the rest of it travels with the tasks."""

from __future__ import annotations

import io
import mmap
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from cloudpickle import CloudPickler

ALIGNMENT = 64
"""Alignment in bytes, as BLAS prefers it."""


@dataclass(frozen=True)
class Mapped:
    """A function without its arrays."""

    code: bytes  # as Dask itself sends functions
    arrays: Path  # their numbers, one array after the other
    places: tuple[tuple[int, int], ...]  # where each starts, and its size in bytes


class _Pickler(CloudPickler):
    """Leaves arrays that are mapped from a file where they are."""

    def reducer_override(self, obj: Any) -> Any:
        """Name the file of a whole memory map in the place of its numbers."""
        if isinstance(obj, np.memmap) and obj.filename is not None and isinstance(obj.base, mmap.mmap):
            order = "F" if obj.flags.fnc else "C"
            return np.memmap, (str(obj.filename), obj.dtype, "r", obj.offset, obj.shape, order)
        return super().reducer_override(obj)


def write_arrays(function: Callable[..., Any], path: Path) -> Mapped:
    """Write the arrays that are bound to a function into a file."""
    buffers: list[pickle.PickleBuffer] = []
    code = io.BytesIO()
    _Pickler(code, protocol=5, buffer_callback=buffers.append).dump(function)
    places = []
    with path.open("wb") as file:
        for buffer in buffers:
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            raw = buffer.raw()
            places.append((file.tell(), raw.nbytes))
            file.write(raw)
        file.write(b"\0")  # nothing at all cannot be mapped
    return Mapped(code.getvalue(), path, tuple(places))


@lru_cache(maxsize=1)
def map_arrays(mapped: Mapped) -> Callable[..., Any]:
    """Return the function, its arrays mapped and not to be written; the latest is kept."""
    with mapped.arrays.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    buffers = [view[start : start + size] for start, size in mapped.places]
    function: Callable[..., Any] = pickle.loads(mapped.code, buffers=buffers)  # noqa: S301 -- sent by this very run
    return function
