"""Recordings that are prepared and wait for a shard, each a file of its own: what a killed run leaves to the next."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fcpower_bids.pretraining.corpus.pack import FORMAT
from fcpower_bids.pretraining.corpus.shards import write_arrays
from fcpower_bids.store import TEMPORARY


@dataclass(frozen=True)
class Part:
    """One recording that waits.

    Attributes
    ----------
    row : dict
        Its row of the table, without its place in a shard.
    series : ndarray of float16, shape (T, P)
    vector : ndarray of float32, shape (P (P - 1) / 2,)
    path : Path
    """

    row: dict[str, Any]
    series: NDArray[np.float16]
    vector: NDArray[np.float32]
    path: Path


class Parts:
    """The folder of the parts of one pack.

    Parameters
    ----------
    folder : Path
    facts : dict of str
        What parts must share with the pack to belong to it: exponent, parcels.
    """

    def __init__(self, folder: Path, **facts: str) -> None:
        self.folder, self.facts = folder, {"format": str(FORMAT), **facts}
        self.next = 0

    def write(self, row: dict[str, Any], series: NDArray[np.float16], vector: NDArray[np.float32]) -> Part:
        """Store one recording."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{self.next:07d}.safetensors"
        facts = {**self.facts, "row": json.dumps(row)}
        write_arrays({"series": series, "vector": vector}, path, facts, flush=False)  # what is lost is prepared again
        self.next += 1
        return Part(row, series, vector, path)

    def recover(self, stored: set[str]) -> list[Part]:
        """Return what an interrupted run left, in its order; what is damaged, of another pack, or stored is removed."""
        found = []
        for path in sorted(self.folder.glob("*.safetensors")):
            part = self._read(path)
            if part is None or part.row["sha256"] in stored:
                path.unlink()
                continue
            found.append(part)
            self.next = int(path.stem) + 1
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if TEMPORARY.fullmatch(path.name):  # it was being written when the run was killed
                path.unlink()
        return found

    def _read(self, path: Path) -> Part | None:
        try:
            with safe_open(path, "np") as file:
                metadata = file.metadata() or {}
                row = json.loads(metadata.pop("row", "null"))
                if metadata != self.facts or row is None:
                    return None
                return Part(row, file.get_tensor("series"), file.get_tensor("vector"), path)
        except (OSError, SafetensorError, ValueError):
            return None

    def remove(self, parts: Iterable[Part]) -> None:
        """Forget parts that are in a shard now."""
        for part in parts:
            part.path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()
