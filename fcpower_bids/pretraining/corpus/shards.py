"""Arrays of the corpus on disk: one place that writes them, and reads back what it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from fcpower_bids.errors import FcPowerError
from fcpower_bids.store import atomic


def write_arrays(
    arrays: Mapping[str, NDArray[Any]], path: Path, metadata: dict[str, str] | None = None, *, flush: bool = True
) -> None:
    """Write arrays as one ``.safetensors`` file, in one step, and only if they read back as they were given.

    ``safetensors.numpy`` writes the buffer of an array as it lies in memory and calls it row-major: a column-major
    array (what pandas gives) would come back scrambled, in silence. So every array is laid out here.

    Raises
    ------
    FcPowerError
        The file does not read back as it was written; nothing is left behind.
    """
    with atomic(path, flush=flush) as part:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, part, metadata)
        _read_back(arrays, part, path)


def _read_back(arrays: Mapping[str, NDArray[Any]], written: Path, path: Path) -> None:
    with safe_open(written, "np") as file:
        wrong = [name for name, array in arrays.items() if not np.array_equal(file.get_tensor(name), array)]
    if wrong:
        raise FcPowerError(
            f"{path} does not read back as it was written ({', '.join(wrong)}): the disk or this program is at fault, "
            "not the recordings. Nothing was added; try another disk, and report it if it happens again."
        )


def series_file(folder: Path, shard: int) -> Path:
    """Series of one shard: ``series`` (sum of T, P) float16."""
    return folder / f"series-{int(shard):05d}.safetensors"


def teacher_file(folder: Path, shard: int) -> Path:
    """Teacher vectors of one shard: ``vectors`` (n, P (P - 1) / 2) float32."""
    return folder / f"teacher-{int(shard):05d}.safetensors"
