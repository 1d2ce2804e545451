"""The folder of a saved model, its digests, and how the group level writes one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.clinic.fit import (
    MODEL_REPRESENTATIONS,
    REFERENCE,
    UNTESTED,
    fit_final_model,
    tested_at_group_level,
)
from fcpower_bids.clinic.page import say_in_full, was_tested
from fcpower_bids.cohort.feature_choice import choose_connectomes, gather_preprocessing
from fcpower_bids.cohort.recordings import selected_of
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.group import Attempts
from fcpower_bids.outputs.tables import plain, read_series, read_table, write_declared, write_json
from fcpower_bids.progress import say
from fcpower_bids.records import Cohort
from fcpower_bids.schema import TableSpec
from fcpower_bids.settings import Settings
from fcpower_bids.store import digest_of, load_json, replace_folder, stored_path

FORMAT = "fcpower_bids model 5"
CARD, WEIGHTS = "model.json", "weights.npz"
RECOGNISED_BY, DECIMALS = 48, 2
"""Edges that identify scans: so many, with so few decimals, that no rounding of another machine changes them."""
WHERE = "Models are the folders of OUTPUT_DIR/group/models, made with --save-models."


def model_path(folder: Path, target: str, representation: str) -> Path:
    """Return where the model of a target is kept."""
    wanted = f"target-{target}_{representation}"
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", wanted).strip("-")
    digest = "" if stem == wanted.replace("_", "-") else f"-{hashlib.sha256(wanted.encode()).hexdigest()[:6]}"
    return folder / f"{stem}{digest}_model"


def save_model(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    tables: Iterable[tuple[TableSpec, pd.DataFrame]] = (),
) -> Path:
    """Write a fitted model in one step: its arrays, its tables, and last ``model.json`` with the digests of these."""

    def fill(folder: Path) -> None:
        np.savez(folder / WEIGHTS, **arrays)  # type: ignore[arg-type]
        for spec, frame in tables:
            write_declared(folder / f"{spec.name}.tsv", frame, spec)
            write_json(folder / f"{spec.name}.json", spec.describe(list(frame.columns)))
        digests = {file.name: digest_of(file) for file in sorted(folder.iterdir())}
        card = {"Format": FORMAT, "SoftwareVersion": __version__, **plain(facts), "Digests": digests}
        write_json(folder / CARD, {**card, "Digests": {**digests, CARD: _digest_of(card)}})

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(path, fill)
    return path


def load_model(
    path: Path, specs: Iterable[TableSpec] = ()
) -> tuple[dict[str, np.ndarray], dict[str, Any], list[pd.DataFrame]]:
    """Read a fitted model: arrays, facts, and the tables that are asked for. Raises DatasetError."""
    if not (path / CARD).is_file():
        older = " This one is of an earlier version: make it again." if path.suffix == ".npz" else ""
        raise DatasetError(f"There is no model in {path}. {WHERE}{older}")
    damaged = DatasetError(f"{path} is not a model of fcpower_bids, or it is damaged. {WHERE}")
    try:
        facts = load_json(path / CARD)
    except (OSError, ValueError) as error:
        raise damaged from error
    if not isinstance(facts, dict) or facts.get("Format") != FORMAT:
        raise DatasetError(f"{path} is not a model that this version can read ({FORMAT} is needed).")
    digests = facts.get("Digests")
    if not isinstance(digests, dict) or CARD not in digests:
        raise damaged
    own, _ = digests.pop(CARD), facts.pop("Signature", "")  # models of earlier versions could be signed
    try:
        found = {name: digest_of(stored_path(path, name)) for name in digests}
    except OSError as error:
        raise damaged from error
    changed = [name for name, digest in digests.items() if found[name] != digest]
    changed += [CARD] if own != _digest_of(facts) else []
    if changed:
        raise DatasetError(f"{path}/{changed[0]} is not the file that was written with the model. Copy it again.")
    # these are the files as they were written: a failure from here on is a mistake of ours
    with np.load(path / WEIGHTS, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    numbers = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if numbers:
        raise DatasetError(
            f"{path / WEIGHTS} has a missing or infinite number in '{numbers[0]}'. Copy the model again."
        )
    return arrays, facts, [read_table(path / f"{spec.name}.tsv") for spec in specs]


def _digest_of(card: Mapping[str, Any]) -> str:
    """Digest of what ``model.json`` says, however it is laid out, its own digest apart."""
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()


def scan_digest(salt: str, edges: np.ndarray) -> str:
    """Digest of a connectome (E,): the same scan, under whatever name, has the same one in the same model."""
    return hashlib.sha256(salt.encode() + edges.tobytes()).hexdigest()[:16]


def telling_edges(matrix: np.ndarray) -> np.ndarray:
    """Return some correlations of a connectome (P, P), rounded: scans differ in them, roundings of a scan do not."""
    edges = matrix[np.triu_indices(len(matrix), 1)]
    some = edges[np.linspace(0, len(edges) - 1, min(RECOGNISED_BY, len(edges))).astype(int)]
    return np.nan_to_num(np.round(some, DECIMALS), nan=9.0) + 0.0  # + 0.0: minus zero is zero


def save_models(cohort: Cohort, settings: Settings, attempts: Attempts) -> None:
    """Write a model of every target under every representation that follows from one connectome alone."""
    for target in (*cohort.targets, *settings.composites):
        for representation in (name for name in settings.representations if name in MODEL_REPRESENTATIONS):
            name = f"model of {target} from {representation}"
            there = "prediction" in attempts.done  # tables of this cohort, and not of an earlier one
            tested = tested_at_group_level(settings.results, target, representation) if there else UNTESTED
            path = attempts.run(name, partial(write_model, cohort, settings, target, representation, tested))
            if path is not None:
                say(f"Model: {path}", settings)


def refuse_without_skill(facts: Mapping[str, Any], accepted: bool) -> None:
    """Refuse a model without skill, unless it is asked for by name. Raises DatasetError."""
    if facts["Skill"]["Found"] or accepted:
        return
    remedy = "do not use it" if was_tested(facts["Skill"]) else "test it (--analyses prediction, --permutations 1000)"
    raise DatasetError(f"{say_in_full(facts)}: {remedy}, or take it as it is with --accept-no-skill.")


def write_model(
    cohort: Cohort, settings: Settings, target: str, representation: str, tested: Mapping[str, Any]
) -> Path:
    """Fit a model of one target and write its folder. Raises Unfit, DatasetError."""
    model = fit_final_model(cohort, settings, target, representation, tested)
    refuse_without_skill(model.facts, settings.accept_no_skill)
    places = set(zip(cohort.scans["participant_id"].astype(str), cohort.scans["session"].astype(str), strict=True))
    own = dataclasses.replace(settings, atlas=(cohort.atlas,))
    chosen, _ = choose_connectomes(selected_of(settings).connectomes, own)
    used = [one for one in chosen if (one.participant, one.session) in places]
    # The salt keeps digests of different models apart, and is the same when a model is made again.
    salt = hashlib.sha256(model.arrays["weights"].tobytes()).hexdigest()[:16]
    facts = {
        **model.facts,
        "Preprocessing": gather_preprocessing(used),
        "Salt": salt,
        "TrainingScans": sorted(scan_digest(salt, _telling(one.path, one.path.stat().st_mtime_ns)) for one in used),
    }
    path = model_path(settings.results / "models", target, representation)
    return save_model(path, model.arrays, facts, [(REFERENCE, model.reference)])


@cache
def _telling(path: Path, _changed: int) -> np.ndarray:
    """Read the 48 numbers that identify a scan, once for all models of a run."""
    return telling_edges(read_series(path)[0])
