"""The connectomes that the participant level wrote, and their companion files."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fcpower_bids.inputs.sources import drop, join
from fcpower_bids.outputs.names import ATLAS_KEYS, CONNECTIVITY, QUALITY, file_name, order_entities, parse_name
from fcpower_bids.outputs.tables import read_json
from fcpower_bids.records import Entities, Output, label_order, space_of

POWER = re.compile(r"power[0-9p]+")
NO_SESSION = "n/a"
CLEANED = (
    *("NuisanceStrategy", "NuisanceParameters", "SoftwareFilters", "CensoringThresholdMillimetres"),
    "CleaningConvention",
)
"""Entries of sidecars in which what is made of one series agrees."""
KINDS = (".tsv", "_relmat.npy", "_timeseries.npy")
"""A table, or the array of an FC: next to its table, or in its place; of a source of series, their arrays alone."""


def person_at(label: str, site: str) -> str:
    """Return the name of a person: of their label, and of their site where there are several."""
    return f"sub-{site}+{label}" if site else f"sub-{label}"


class Named:
    """What the entities of a recording say of it."""

    entities: Entities
    site: str  # where there are several, that of its output folder

    def entity(self, key: str) -> str | None:
        """Return one label, or None."""
        return dict(self.entities).get(key)

    @property
    def participant(self) -> str:
        """``sub-01``, or ``sub-SITE+01`` where there are several sites."""
        return person_at(str(self.entity("sub")), self.site)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels by entity; that of the person has the site where there are several."""
        return {**dict(self.entities), "sub": self.participant.removeprefix("sub-")}

    @property
    def session(self) -> str:
        """``ses-a``, or ``n/a`` where there are no sessions."""
        return f"ses-{self.entity('ses')}" if self.entity("ses") else NO_SESSION

    @property
    def recording(self) -> str:
        """Name of the recording, as in ``logs/status.tsv``."""
        return join(self.entities)


@dataclass(frozen=True)
class Connectome(Named):
    """One FC file and its companion files."""

    # ``..._stat-pearsoncorrelation_relmat.tsv``, or ``.npy``, or ``..._timeseries.npy``, where that is all there is
    path: Path
    entities: Entities  # those of its recording
    atlas: Entities  # those of its atlas
    powers: tuple[str, ...] = ()  # ``desc`` labels of its FC^alpha files
    # ``desc`` label and atlas of the embeddings of its recording: under its own atlas, else under the first that has
    # one, since encoders have atlases of their own
    embeddings: tuple[tuple[str, Entities], ...] = ()
    site: str = ""  # where there are several, that of its output folder

    @property
    def atlas_name(self) -> str:
        """``atlas-Schaefer2018_seg-7n_scale-400``."""
        return join(self.atlas)

    @property
    def space(self) -> str:
        """Template space."""
        return space_of(dict(self.entities)) or "unknown"

    @property
    def root(self) -> Path:
        """The output folder that it is in."""
        return self.path.parents[3 if self.entity("ses") else 2]

    @property
    def encoders(self) -> tuple[str, ...]:
        """``desc`` labels of the embeddings."""
        return tuple(label for label, _ in self.embeddings)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The sidecar of the FC; empty where there is none."""
        sidecar = self.path.with_suffix(".json")
        return read_json(sidecar) if sidecar.is_file() else {}

    def beside(self, output: Output) -> Path:
        """Return where another output of this recording and atlas is."""
        return self._file(() if output is QUALITY else self.atlas, output)

    def embedding(self, label: str) -> Path:
        """Return where an embedding of this recording is."""
        return self._file(dict(self.embeddings)[label], Output("embedding", (("desc", label),)))

    def is_embedding_outdated(self, label: str) -> bool:
        """Whether an embedding is of a series that was cleaned otherwise than the FC of its atlas is now."""
        fc, embedding = self._file(dict(self.embeddings)[label], CONNECTIVITY), self.embedding(label)
        sidecars = fc.with_suffix(".json"), embedding.with_suffix(".json")
        now, then = (read_json(path) if path.is_file() else {} for path in sidecars)
        return any(now[key] != then[key] for key in CLEANED if key in now and key in then)

    def _file(self, atlas: Entities, output: Output) -> Path:
        return self.path.with_name(
            file_name(order_entities(self.entities, atlas, output.entities), output.suffix, output.extension)
        )


def list_connectomes(output_dir: Path) -> list[Connectome]:
    """List the FC files in ``sub-*/[ses-*/]func``, sorted by participant, session and name."""
    everything = (connectome for folder in _func_folders(output_dir) for connectome in _in_folder(folder))
    return sorted(
        everything,
        key=lambda connectome: (connectome.participant, label_order(connectome.session), connectome.path.name),
    )


def list_quality_sidecars(output_dir: Path) -> list[tuple[Entities, Path]]:
    """List the sidecars of the quality tables, with the entities of their recordings."""
    end = f"_{join(QUALITY.entities)}_{QUALITY.suffix}.json"
    names = (entry.path for folder in _func_folders(output_dir) for entry in _entries(folder))
    paths = (Path(name) for name in sorted(names) if name.endswith(end))
    return [(drop(parse_name(path.name)[0], ("desc",)), path) for path in paths]


def _func_folders(output_dir: Path) -> list[Path]:
    return [
        holder / "func" for subject in _folders(output_dir, "sub-") for holder in (subject, *_folders(subject, "ses-"))
    ]


def _folders(parent: Path, prefix: str) -> list[Path]:
    return [Path(entry.path) for entry in _entries(parent) if entry.name.startswith(prefix) and entry.is_dir()]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Content of a folder, empty where there is none; a closed one stops the run on every Python."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _in_folder(folder: Path) -> list[Connectome]:
    there = {entry.name for entry in _entries(folder) if entry.name.startswith("sub-") and entry.name.endswith(KINDS)}
    names = [name for name in there if f"{name.removesuffix('.npy')}.tsv" not in there]
    connectomes, series = list[tuple[str, Entities]](), list[tuple[str, Entities]]()
    powers: dict[Entities, list[str]] = defaultdict(list)
    embeddings: dict[Entities, list[tuple[str, Entities]]] = defaultdict(list)
    for name in sorted(names):
        try:
            entities, suffix, _ = parse_name(name)
        except ValueError:
            continue  # not one of our files
        labels = dict(entities)
        stem = tuple(pair for pair in entities if pair[0] not in ("stat", "desc"))
        if suffix == "relmat" and "desc" not in labels and ("stat", labels.get("stat")) in CONNECTIVITY.entities:
            connectomes.append((name, stem))
        elif suffix == "timeseries" and name.endswith(".npy"):
            series.append((name, stem))
        elif suffix == "relmat" and POWER.fullmatch(labels.get("desc", "")):
            powers[stem].append(labels["desc"])
        elif suffix == "embedding" and "desc" in labels:
            recording, atlas = _divide(stem)
            embeddings[recording].append((labels["desc"], atlas))
    listed, with_fc = [], {stem for _, stem in connectomes}
    for name, stem in (*connectomes, *(pair for pair in series if pair[1] not in with_fc)):
        recording, atlas = _divide(stem)
        candidates = [(of_atlas != atlas, label, of_atlas) for label, of_atlas in embeddings[recording]]
        nearest: dict[str, Entities] = {}
        for _, label, of_atlas in sorted(candidates):
            nearest.setdefault(label, of_atlas)
        known = tuple(sorted(powers[stem])), tuple(sorted(nearest.items()))
        listed.append(Connectome(folder / name, recording, atlas, *known))
    return listed


def _divide(stem: Entities) -> tuple[Entities, Entities]:
    """Divide entities into those of the recording and those of the atlas."""
    return (
        tuple(pair for pair in stem if pair[0] not in ATLAS_KEYS),
        tuple(pair for pair in stem if pair[0] in ATLAS_KEYS),
    )
