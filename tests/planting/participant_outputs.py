"""Small trees of participant outputs, written by the writers of the application."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.core.connectome import pearson_connectivity
from fcpower_bids.core.series import z_score
from fcpower_bids.outputs.dataset import CONNECTIVITY, QUALITY, TIMESERIES, order_entities, parse_name, path_of
from fcpower_bids.outputs.status import DONE, Status, write_status
from fcpower_bids.outputs.tables import write_json, write_matrix, write_table
from fcpower_bids.records import Atlas, Output, Recording
from fcpower_bids.settings import Settings

P = 6
PARCELS = tuple(f"LH_{letter}" for letter in "abcdef")
ATLAS = Atlas(
    (("atlas", "Toy"), ("scale", "6")), Path("toy.nii.gz"), "MNI152NLin2009cAsym", tuple(range(1, P + 1)), PARCELS,
    ("Vis", "Vis", "Som", "Som", "n/a", "n/a"), ("L",) * P,
)  # fmt: skip
FACTS = {
    "ConfigurationHash": "0a0a0a0a",
    "SoftwareVersion": "0.1.0",
    "NuisanceStrategy": "24P",
    "SoftwareFilters": {"Butterworth": {"HighPassHz": 0.01, "LowPassHz": 0.08}},
}


def recording(name: str) -> Recording:
    """``sub-01_ses-a_task-rest`` in the default space."""
    entities = dict(parse_name(f"{name}_bold.tsv")[0])
    entities = {"task": "rest", "space": "MNI152NLin2009cAsym", **entities}
    return Recording(Path("bold.nii.gz"), order_entities(tuple(entities.items())), 2.0)


def series_of(seed: int, volumes: int = 40, missing: tuple[int, ...] = ()) -> np.ndarray:
    series = z_score(np.random.default_rng(seed).standard_normal((volumes, P)))
    series[:, list(missing)] = np.nan
    return series


def add_output(
    out: Path,
    name: str,
    series: np.ndarray,
    atlas: Atlas = ATLAS,
    power: str = "power0p35",
    mean_fd: float = 0.1,
    degrees_of_freedom: float | None = None,
    **facts,
) -> Path:
    """Write FC, FC^alpha, series, quality and status of one recording; return the FC file."""
    one, volumes = recording(name), len(series)
    fc = pearson_connectivity(series)
    freedom = volumes / 2 if degrees_of_freedom is None else degrees_of_freedom
    path = write_matrix(path_of(out, one.entities, atlas.entities, CONNECTIVITY), fc, atlas.names, atlas.names)
    about = {**FACTS, "NumberOfVolumesUsed": volumes, "SecondsUsed": 2.0 * volumes, **facts}
    write_json(path.with_suffix(".json"), about)
    if power:
        transformed = Output("relmat", (("stat", "pearsoncorrelation"), ("desc", power)))
        write_matrix(path_of(out, one.entities, atlas.entities, transformed), fc, atlas.names, atlas.names)
    write_matrix(path_of(out, one.entities, atlas.entities, TIMESERIES), series, atlas.names)
    row = {"atlas": atlas.name, "seconds_kept": 2.0 * volumes, "kept_volumes": volumes, "mean_fd": mean_fd}
    row |= {"volumes": volumes, "censored_volumes": 0, "dummy_volumes": 0, "degrees_of_freedom": freedom}
    write_table(path_of(out, one.entities, (), QUALITY), pd.DataFrame([row]))
    write_status(out, Status(one.name, DONE, "write"))
    return path


def add_embedding(
    out: Path, name: str, vector: np.ndarray, label: str = "fbert1m", under: Atlas = ATLAS, **facts
) -> Path:
    path = path_of(out, recording(name).entities, under.entities, Output("embedding", (("desc", label),)))
    write_matrix(path, np.atleast_2d(vector), [f"dim{i:04d}" for i in range(len(vector))])
    write_json(path.with_suffix(".json"), {"sha256": "ab", "read": "sequence", **facts})
    return path


def make_outputs(root: Path, people: int = 6, sessions: str = "ab", fd_step: float = 0.0) -> Settings:
    """People with two sessions of one run each and more motion by a step, an atlas table and participants.tsv."""
    out = root / "out"
    for person in range(people):
        for session in sessions:
            name, series = f"sub-{person + 1:02d}_ses-{session}", series_of(100 * person + ord(session))
            add_output(out, name, series, mean_fd=0.1 + fd_step * person)
    folder = out / "sourcedata" / "atlases" / f"tpl-{ATLAS.space}"
    table = pd.DataFrame({"index": ATLAS.labels, "name": ATLAS.names, "network": ATLAS.networks})
    write_table(folder / f"tpl-{ATLAS.space}_{ATLAS.name}_dseg.tsv", table)
    write_participants(root / "bids" / "participants.tsv", people)
    return Settings(root / "bids", out, "group").changed(min_time=60.0)


def write_participants(path: Path, people: int = 6, **columns) -> Path:
    ids = [f"sub-{person + 1:02d}" for person in range(people)]
    known = {
        "age": [20.0 + person for person in range(people)],
        "sex": ["F", "M"] * (people // 2) + ["F"] * (people % 2),
        "site": ["x"] * people,
        "family_id": [f"F{person // 2}" for person in range(people)],
    }
    return write_table(path, pd.DataFrame({"participant_id": ids, **known, **columns}))


def other_atlas(name: str = "Other", parcels: tuple[str, ...] = PARCELS) -> Atlas:
    return replace(ATLAS, entities=(("atlas", name), ("scale", "6")), names=parcels)
