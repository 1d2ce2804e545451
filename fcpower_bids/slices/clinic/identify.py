"""Written connectomes to the answer whether the scans that bear one name are of one person."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.cohort.features import Connectome, list_connectomes
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.core.inference.duplicate_scans import EXPONENT
from fcpower_bids.core.regression.kernels import correlation_kernel
from fcpower_bids.errors import DatasetError
from fcpower_bids.inputs.selection import label_remedy
from fcpower_bids.outputs.tables import read_series, write_declared, write_json
from fcpower_bids.slices.clinic.pages.identity import write_identity_pages
from fcpower_bids.slices.clinic.same_person import ERRORS, PAIRS, SAME, compare_scans


@dataclass(frozen=True)
class Identified:
    """Tables of `slices.clinic.same_person`, their place, scans without reference, left out or failed, with reasons."""

    pairs: pd.DataFrame
    errors: pd.DataFrame
    path: Path
    left_out: tuple[str, ...]
    doubtful: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def identify_scans(
    output_dir: Path,
    people: tuple[str, ...] = (),
    atlas: str | None = None,
    command: Callable[[str], str] = lambda person: "",
) -> Identified:
    """Compare all scans of one atlas in an output folder; report those of some or all people. Raises DatasetError."""
    chosen = _choose(list_connectomes(output_dir), atlas)
    asked = {f"sub-{label.removeprefix('sub-')}" for label in people}
    unknown = asked - {one.participant for one in chosen}
    if unknown:
        label, there = min(unknown).removeprefix("sub-"), {one.participant.removeprefix("sub-") for one in chosen}
        raise DatasetError(f"{output_dir} has no scan of sub-{label}: {label_remedy(label, there)}")
    _refuse_single(chosen, asked, output_dir)
    rows, kept, left_out = _read(chosen)
    similarity = correlation_kernel(rows)
    names = [one.path.stem.removesuffix("_relmat") for one in kept]
    persons, sessions = [one.participant for one in kept], [one.session for one in kept]
    pairs, errors, doubtful = compare_scans(similarity, names, persons, sessions, asked)
    path = output_dir / "group" / f"{PAIRS.name}.tsv"
    for spec, frame in ((PAIRS, pairs), (ERRORS, errors)):
        target = path.with_name(f"{spec.name}.tsv")
        write_declared(target, frame, spec)
        about = {"People": len(set(persons)), "Scans": len(persons), "LeftOut": list(left_out), "NoReference": doubtful}
        write_json(target.with_suffix(".json"), {**spec.describe(), **about, "Alpha": EXPONENT})
    _, broken = write_identity_pages(output_dir, pairs, len(set(persons)), command, len(doubtful))
    return Identified(pairs, errors, path, left_out, tuple(doubtful), tuple(broken))


def _refuse_single(chosen: list[Connectome], asked: set[str], output_dir: Path) -> None:
    """Refuse people with one scan: a comparison needs another under the same name. Raises DatasetError."""
    sessions = {
        name: {one.session for one in chosen if one.participant == name}
        for name in sorted({one.participant for one in chosen})
    }
    apart = any(len(each) > 1 for each in sessions.values())  # then scans of one session are not compared
    counts = (
        {name: len(each) for name, each in sessions.items()} if apart else Counter(one.participant for one in chosen)
    )
    single = sorted(name for name in asked or counts if counts[name] < 2)
    kind = "session" if apart else "scan"
    if asked and single:
        raise DatasetError(
            f"{single[0]} has one {kind} in {output_dir}, and identify compares two of one name: add another {kind}, "
            "or leave the label out."
        )
    if len(single) == len(counts):
        raise DatasetError(f"No person in {output_dir} has two scans, and identify compares two scans of one name.")


def _choose(found: list[Connectome], atlas: str | None) -> list[Connectome]:
    names = sorted({one.atlas_name for one in found})
    wanted = [name for name in names if atlas is None or atlas in (name, *name.split("_"))]
    if len(wanted) != 1:
        raise DatasetError(f"Scans are compared within one atlas. Name one of {', '.join(names)} with --atlas.")
    return [one for one in found if one.atlas_name == wanted[0]]


def _read(chosen: list[Connectome]) -> tuple[NDArray[np.float64], list[Connectome], tuple[str, ...]]:
    """FC^alpha of every scan over the parcels that nine in ten scans cover; scans without one of these are left out."""
    matrices, readable, left_out, parcels = [], [], [], None
    for one in chosen:
        try:
            matrix, names = read_series(one.path)
        except DatasetError as error:
            left_out.append(f"{one.recording}: {error}")
            continue
        parcels = parcels or names
        if names != parcels or matrix.shape != (len(names), len(names)):
            raise DatasetError(f"{one.path} has other parcels than {chosen[0].path.name}. Make it again.")
        matrices.append(matrix)
        readable.append(one)
    if not matrices:
        raise DatasetError(f"No scan can be read. {left_out[0]}")
    there = np.array([np.isfinite(np.diag(matrix)) for matrix in matrices])
    common = there.mean(axis=0) >= 0.9
    complete = [bool(row.all()) for row in there[:, common]]
    grid = np.ix_(common, common)
    rows = [
        vectorise_edges(spectral_power(matrix[grid], EXPONENT))
        for matrix, whole in zip(matrices, complete, strict=True)
        if whole
    ]
    kept = [one for one, whole in zip(readable, complete, strict=True) if whole]
    lacking = (one.recording for one, whole in zip(readable, complete, strict=True) if not whole)
    left_out += [f"{name}: lacks parcels that nine in ten scans have" for name in lacking]
    if not rows:
        raise DatasetError("No scan has the parcels that the others have.")
    return np.stack(rows), kept, tuple(left_out)


def sentences(found: Identified) -> list[str]:
    """Notes for a reader, mix-ups first."""
    pairs = found.pairs
    crossed = pairs[pairs["participant_id"] != pairs["other_participant_id"]]
    own = pairs[pairs["participant_id"] == pairs["other_participant_id"]]
    lines = [f"Left out of the comparison: {name}." for name in found.left_out]
    lines += [f"No reference for others, since it fits another name better: {name}." for name in found.doubtful]
    lines += [
        f"{row.scan} fits {row.other_scan} better than any scan of its own name: {_words(row)}. Was it mixed up?"
        for row in crossed[crossed["verdict"] == SAME].itertuples()
    ]
    lines += [
        f"{row.scan} and {row.other_scan}, both named {row.participant_id}: {row.verdict} ({_words(row)})."
        for row in own[own["verdict"] != SAME].itertuples()
    ]
    agreed = int((own["verdict"] == SAME).sum())
    lines.append(f"{agreed} of {len(own)} pairs of scans of one name look like one person.")
    if len(found.errors):
        equal = found.errors.iloc[-1]
        lines.append(
            f"In this folder a score of {equal['threshold']:.1f} mistakes {100 * equal['false_match']:.2g} % of the "
            "pairs of different people for one person, and misses "
            f"{100 * equal['false_non_match']:.2g} % of the others."
        )
    return [*lines, f"All pairs: {found.path}. Research use only. Not a medical device."]


def _words(row: Any) -> str:
    known = math.isfinite(row.likelihood_ratio)
    odds = f"likelihood ratio {row.likelihood_ratio:.3g}" if known else "too few pairs for a likelihood ratio"
    return f"score {row.score:.1f}, {odds}, false matches {row.false_match:.2g}"
