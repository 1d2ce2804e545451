"""A recording with known answers (``data/selftest.json``) through the commands; the first step that differs."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids._version import __version__
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import json_text, plain
from fcpower_bids.schema import Column, TableSpec, join_columns

ANSWERS = resources.files("fcpower_bids") / "data" / "selftest.json"
PROJECTIONS, STRIDE = 4, 0.7548776662
ENCODER_TOLERANCE = 1e-3
PACKAGES = ("numpy", "scipy", "pandas", "nibabel", "nilearn", "nipype", "pybids", "torch")
DATASET = ("--subjects", "1", "--sessions", "1", "--volumes", "120", "--no-troubles", "--no-truth")
OPTIONS = ("--atlas", "builtin", "--alpha", "0.35", "--nprocs", "1", "--quiet", "--skip-bids-validation")
OK, DIFFERENT, MISSING, NEW, BROKEN = "as stored", "different", "missing", "not stored", "failed"

SELFTEST = TableSpec(
    "selftest",
    "The steps of an installation against the stored answers.",
    join_columns(
        Column.text("step", "Step of the workflow", "Step"),
        Column.text("verdict", "Whether its numbers are those stored", "Verdict"),
        Column.number("difference", "Largest difference of its numbers, in units of their root mean square"),
        Column.number("tolerance", "Difference that is allowed"),
    ),
    ("step",),
)


@dataclass(frozen=True)
class Step:
    """One step of the workflow and the file that shows it."""

    name: str  # of the node
    pattern: str  # below the folder of the test; the first file that matches
    tolerance: float = 1e-6  # allowed difference in root mean squares: rounding differs between processors
    optional: bool = False  # whether an installation may lack it


STEPS = (
    Step("input", "bids/derivatives/fmriprep/**/*_desc-confounds_timeseries.tsv"),
    Step("atlas", "out/sourcedata/atlases/**/*_dseg.tsv"),
    Step("parcellate", "work/parcels/*.npz"),
    Step("confounds", "out/sub-01/**/*_desc-confounds_design.tsv"),
    Step("bandpass", "out/sub-01/**/*_stat-mean_timeseries.tsv"),
    Step("connectivity", "out/sub-01/**/*_stat-pearsoncorrelation_relmat.tsv"),
    Step("power", "out/sub-01/**/*_desc-power0p35_relmat.tsv"),
    Step("spectrum", "out/sub-01/**/*_desc-spectrum_eigenvalues.tsv"),
    Step("measure", "out/sub-01/**/*_desc-fcpower_qc.tsv"),
    Step("embed", "out/sub-01/**/*_embedding.tsv", 1e-3, optional=True),
)


@dataclass(frozen=True)
class Outcome:
    """Results."""

    table: pd.DataFrame  # `SELFTEST`
    record: Mapping[str, Any]  # versions and the numbers of every step, JSON-ready
    digest: str  # SHA-256 of the record as it is written

    @property
    def first_fault(self) -> str | None:
        """The first step whose numbers are not those stored, or None."""
        wrong = self.table[self.table["verdict"].isin((DIFFERENT, MISSING, BROKEN))]
        return None if wrong.empty else str(wrong["step"].iloc[0])


def run_selftest(
    folder: Path,
    against: Path | None = None,
    say: Callable[[str], None] = print,
    checkpoints: Sequence[Path] = (),
) -> Outcome:
    """Make the recording, run the participant level in processes, compare every step. Raises DatasetError."""
    expected = read_answers(against)
    encoder = ("--encoder", "random-init") if find_spec("torch") else ()
    commands = (
        ("fcpower_bids.demo", folder / "bids", *DATASET),
        ("fcpower_bids", folder / "bids", folder / "out", "participant", "-w", folder / "work", *OPTIONS, *encoder),
    )
    for module, *arguments in commands:
        line = ["-m", module, *map(str, arguments)]
        done = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=False)
        if done.returncode:
            say(f"{done.stderr.rstrip()}\n'python {' '.join(line)}' ended with {done.returncode}.")
            return compare_steps(folder, expected, checkpoints, broken=module)
        say(f"{module}: done")
    return compare_steps(folder, expected, checkpoints)


def compare_steps(
    folder: Path, expected: Mapping[str, Any], checkpoints: Sequence[Path] = (), broken: str | None = None
) -> Outcome:
    """Compare the files of the test, and what encoders compute, with stored numbers; name a command that failed."""
    rows: list[tuple[str, str, float, float]] = []
    numbers: dict[str, Any] = {}
    for step in STEPS:
        file = next(iter(sorted(folder.glob(step.pattern))), None)
        stored = expected["steps"].get(step.name)
        if file is None:
            if not step.optional:
                rows.append((step.name, MISSING, np.nan, step.tolerance))
            continue
        numbers[step.name] = fingerprint(file)
        rows.append((step.name, *_verdict(numbers[step.name], stored, step.tolerance), step.tolerance))
    if broken:
        rows.append((broken, BROKEN, np.nan, np.nan))
    for checkpoint in checkpoints:
        name = f"encoder {checkpoint.resolve().name}"
        numbers[name], proven = read_encoder(checkpoint)
        stored = expected["steps"].get(name, proven)
        rows.append((name, *_verdict(numbers[name], stored, ENCODER_TOLERANCE), ENCODER_TOLERANCE))
    record = {"version": __version__, "machine": platform.machine(), "packages": _versions(), "steps": plain(numbers)}
    digest = hashlib.sha256(json_text(record).encode()).hexdigest()
    return Outcome(pd.DataFrame(rows, columns=list(SELFTEST.columns)), record, digest)


def fingerprint(file: Path) -> dict[str, Any]:
    """Numbers and names of a file."""
    return _numbers(*(_arrays_of(file) if file.suffix == ".npz" else _cells_of(file)))


def read_encoder(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what an encoder computes of a fixed series here, and what it did before. Raises CheckpointError."""
    from fcpower_bids.encoders.loading import embed_proof  # loads torch

    return tuple(  # type: ignore[return-value]
        proof and _numbers(np.array(proof["probe_embedding"]), [proof["tensors_sha256"]], [])
        for proof in embed_proof(folder)
    )


def _numbers(values: FloatArray, text: list[str], shape: list[list[int]]) -> dict[str, Any]:
    grid, scale = np.arange(1, len(values) + 1), max(np.sqrt(len(values)), 1)
    projections = [float(values @ np.cos(STRIDE * k * grid) / scale) for k in range(PROJECTIONS)]
    names = hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]
    rms = float(np.sqrt(np.mean(values**2))) if len(values) else 0.0
    return {"shape": shape, "names": names, "rms": rms, "projections": projections}


def _verdict(found: Mapping[str, Any], stored: Mapping[str, Any] | None, tolerance: float) -> tuple[str, float]:
    if stored is None:
        return NEW, np.nan
    difference = _difference(found, stored)
    return OK if difference <= tolerance else DIFFERENT, difference


def _arrays_of(file: Path) -> tuple[FloatArray, list[str], list[list[int]]]:
    """Numbers, names and shapes of the arrays that a file of parcel means is for."""
    with np.load(file, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in sorted(stored.files) if name in ("coverage", "series")}
    values = np.concatenate([np.ravel(one).astype(float) for one in arrays.values()])
    return values, list(arrays), [list(one.shape) for one in arrays.values()]


def _cells_of(file: Path) -> tuple[FloatArray, list[str], list[list[int]]]:
    """Numbers, text and shape of a table."""
    table = pd.read_csv(file, sep="\t", dtype=str, keep_default_na=False)
    cells = table.to_numpy(dtype=object).ravel()
    numbers = pd.to_numeric(pd.Series(cells), errors="coerce").to_numpy(dtype=float)
    known = np.isfinite(numbers)
    return numbers[known], [*map(str, table.columns), *map(str, cells[~known])], [list(table.shape)]


def _difference(found: Mapping[str, Any], stored: Mapping[str, Any]) -> float:
    """Largest difference in units of the stored root mean square; infinite where shapes or names differ."""
    if found["shape"] != stored["shape"] or found["names"] != stored["names"]:
        return float("inf")
    pairs = zip([found["rms"], *found["projections"]], [stored["rms"], *stored["projections"]], strict=True)
    return max(abs(one - other) for one, other in pairs) / max(stored["rms"], np.finfo(float).tiny)


def read_answers(path: Path | None) -> dict[str, Any]:
    """Read stored answers, those of the package or of an earlier test."""
    try:
        found = json.loads((path or ANSWERS).read_text(encoding="utf-8"))
        return {"version": str(found["version"]), "steps": dict(found["steps"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path or ANSWERS} holds no record of a self-test: {error}.") from error


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
