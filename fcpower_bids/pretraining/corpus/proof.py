"""Proof that a pack holds one truth: the teacher of its stored series is its stored teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import safe_open

from fcpower_bids.errors import DatasetError
from fcpower_bids.pretraining.corpus.shards import series_file, teacher_file
from fcpower_bids.pretraining.corpus.teacher import stored_teacher, unit_vectors

AGREEMENT = 0.7
"""Least correlation of a recomputed with the stored teacher vector: real packs have .99, scrambled ones about 0."""
KERNEL_TOLERANCE = 1e-3


def prove_pack(folder: Path, table: pd.DataFrame, alpha: float, kernel: NDArray[np.float32]) -> None:
    """Recompute teacher vectors of a few recordings from their stored series; compare them and the kernel.

    One recording of every shard and the ends of the table: less than a second for a pack of one shard.

    Raises
    ------
    DatasetError
        They disagree; names recording, file and remedy.
    """
    chosen = {*table.groupby("shard").head(1).index, 0, len(table) // 2, len(table) - 1}
    vectors = []
    for index in sorted(chosen):
        row = table.loc[index]
        vectors.append(unit_vectors(stored_vector(folder, row)[None])[0])
        again = stored_teacher(_series(folder, row), alpha, int(row["rank"]))
        agreement = float(again @ vectors[-1])
        if not agreement > AGREEMENT:
            raise DatasetError(
                f"The series of {row['id']} in {series_file(folder, row['shard'])} are not those that its teacher was "
                f"computed from (correlation {agreement:.2f}, expected {AGREEMENT} or more): the file was changed or "
                f"damaged. Remove the folder {folder} and run the same command again, which packs anew."
            )
    rows = np.array(sorted(chosen))
    Z = np.array(vectors)
    if np.abs(Z @ Z.T - kernel[np.ix_(rows, rows)]).max() > KERNEL_TOLERANCE:
        raise DatasetError(
            f"The teacher kernel in {folder} is not that of its teacher vectors: a file was changed or damaged. "
            "Remove the folder and run the same command again, which packs anew."
        )


def _series(folder: Path, row: pd.Series[Any]) -> NDArray[np.float16]:
    first = int(row["offset"])
    with safe_open(series_file(folder, row["shard"]), "np") as file:
        found: NDArray[np.float16] = file.get_slice("series")[first : first + int(row["T"])]
    return found


def stored_vector(folder: Path, row: pd.Series[Any]) -> NDArray[np.float32]:
    """Teacher vector of one row of the table, as it is stored."""
    position = int(row["position"])
    with safe_open(teacher_file(folder, row["shard"]), "np") as file:
        vectors: NDArray[np.float32] = file.get_slice("vectors")[position : position + 1]
    return vectors[0]
