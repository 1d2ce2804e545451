"""The connectomes that the participant level wrote, and what lies beside them."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fcpower_bids.derivatives.paths import CONNECTIVITY, QUALITY, file_name, order_entities, parse_name
from fcpower_bids.derivatives.sources import join
from fcpower_bids.derivatives.tables import read_json
from fcpower_bids.errors import DatasetError
from fcpower_bids.records import Entities, Output

ATLAS_KEYS = frozenset({"atlas", "seg", "scale"})
POWER = re.compile(r"power[0-9p]+")
NO_SESSION = "n/a"


@dataclass(frozen=True)
class Connectome:
    """One FC file, and what lies beside it.

    Attributes
    ----------
    path : Path
        ``..._stat-pearsoncorrelation_relmat.tsv``.
    entities : Entities
        Those of its recording.
    atlas : Entities
        Those of its atlas.
    powers, encoders : tuple of str
        ``desc`` labels of the FC^alpha and of the embeddings beside it.
    """

    path: Path
    entities: Entities
    atlas: Entities
    powers: tuple[str, ...] = ()
    encoders: tuple[str, ...] = ()

    def entity(self, key: str) -> str | None:
        """Return one label, or None."""
        return dict(self.entities).get(key)

    @property
    def participant(self) -> str:
        """``sub-01``."""
        return f"sub-{self.entity('sub')}"

    @property
    def session(self) -> str:
        """``ses-a``, or ``n/a`` where there are no sessions."""
        return f"ses-{self.entity('ses')}" if self.entity("ses") else NO_SESSION

    @property
    def recording(self) -> str:
        """Name of the recording, as in ``logs/status.tsv``."""
        return join(self.entities)

    @property
    def atlas_name(self) -> str:
        """``atlas-Schaefer2018_seg-7n_scale-400``."""
        return join(self.atlas)

    @property
    def space(self) -> str:
        """Template space."""
        return self.entity("space") or "unknown"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The sidecar of the FC; empty where there is none."""
        sidecar = self.path.with_suffix(".json")
        return read_json(sidecar) if sidecar.is_file() else {}

    def beside(self, output: Output) -> Path:
        """Return where another output of this recording and atlas is."""
        atlas = () if output is QUALITY else self.atlas
        return self.path.with_name(
            file_name(order_entities(self.entities, atlas, output.entities), output.suffix, output.extension)
        )


def list_connectomes(output_dir: Path) -> list[Connectome]:
    """List the FC files in ``sub-*/[ses-*/]func``, sorted by participant, session and name.

    Raises
    ------
    DatasetError
        If there are none.
    """
    found = sorted(_scan(output_dir), key=lambda one: (one.participant, one.session, one.path.name))
    if not found:
        raise DatasetError(
            f"{output_dir} has no FC files (*_{join(CONNECTIVITY.entities)}_relmat.tsv). "
            "Run the participant level with this output folder first."
        )
    return found


def _scan(output_dir: Path) -> Iterator[Connectome]:
    for subject in _folders(output_dir, "sub-"):
        for holder in (subject, *_folders(subject, "ses-")):
            yield from _in_folder(holder / "func")


def _folders(parent: Path, prefix: str) -> list[Path]:
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:
        return [Path(entry.path) for entry in entries if entry.name.startswith(prefix) and entry.is_dir()]


def _in_folder(folder: Path) -> list[Connectome]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith("sub-") and entry.name.endswith(".tsv")]
    connectomes: list[tuple[str, Entities]] = []
    beside: dict[Entities, list[tuple[str, str]]] = defaultdict(list)
    for name in sorted(names):
        try:
            entities, suffix, _ = parse_name(name)
        except ValueError:
            continue  # not one of our files
        labels = dict(entities)
        stem = tuple(pair for pair in entities if pair[0] not in ("stat", "desc"))
        if suffix == "relmat" and "desc" not in labels and ("stat", labels.get("stat")) in CONNECTIVITY.entities:
            connectomes.append((name, stem))
        elif suffix in ("relmat", "embedding") and "desc" in labels:
            beside[stem].append((suffix, labels["desc"]))
    return [_connectome(folder / name, stem, beside[stem]) for name, stem in connectomes]


def _connectome(path: Path, stem: Entities, beside: Iterable[tuple[str, str]]) -> Connectome:
    beside = sorted(beside)
    return Connectome(
        path,
        tuple(pair for pair in stem if pair[0] not in ATLAS_KEYS),
        tuple(pair for pair in stem if pair[0] in ATLAS_KEYS),
        tuple(label for suffix, label in beside if suffix == "relmat" and POWER.fullmatch(label)),
        tuple(label for suffix, label in beside if suffix == "embedding"),
    )
