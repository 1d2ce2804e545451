"""Fitted models on disk: arrays and JSON in one file that cannot run code, and their application to written scans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fcpower_bids._version import __version__
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.names import CONNECTIVITY, parse_name
from fcpower_bids.outputs.tables import plain, read_matrix
from fcpower_bids.store import atomic

FORMAT = "fcpower_bids model 1"


def model_path(folder: Path, target: str, representation: str) -> Path:
    """Return where the model of a target is kept; characters that file systems dislike become hyphens."""
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", f"target-{target}_{representation}").strip("-")
    return folder / f"{stem}_model.npz"


def save_model(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Path:
    """Write a fitted model in one step."""
    about = {"Format": FORMAT, "SoftwareVersion": __version__, **plain(facts)}
    with atomic(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, facts=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
    return path


def load_model(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a fitted model.

    Raises
    ------
    DatasetError
        If the file is not there, is not a model, or holds anything but arrays and JSON.
    """
    where = "Models are the .npz files of OUTPUT_DIR/group/models, made with --save-models."
    if not path.is_file():
        raise DatasetError(f"There is no file {path}. {where}")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "facts"}
            facts = json.loads(str(file["facts"]))
    except (OSError, ValueError, KeyError, BadZipFile, EOFError) as error:
        raise DatasetError(f"{path} is not a model of fcpower_bids, or it is damaged. {where}") from error
    if not isinstance(facts, dict) or facts.get("Format") != FORMAT:
        raise DatasetError(f"{path} is not a model that this version can read ({FORMAT} is needed).")
    return arrays, facts


def written_connectomes(
    output_dir: Path, participants: tuple[str, ...] = ()
) -> Iterator[tuple[str, np.ndarray, list[str]]]:
    """Yield name, FC (P, P) and parcels of every scan in an output folder, in the order of their names."""
    paths = sorted(output_dir.glob("sub-*/**/func/*_relmat.tsv"))
    for path in paths:
        entities, _, _ = parse_name(path.name)
        found = dict(entities)
        if not set(CONNECTIVITY.entities) <= set(entities) or "desc" in found:
            continue
        if not participants or found["sub"] in participants:
            yield path.name.removesuffix("_relmat.tsv"), *read_matrix(path)
