"""Another checkout against this one: CPU seconds and bytes of the same commands on the same files, in alternation.

    git worktree add ../before ad52094
    python -m benchmarks.versions ../before --repeats 5
    python -m benchmarks.versions ../before --only parcellation --repeats 3

Each command runs as a process of its own, now of one checkout, now of the other, with the packages that are installed
here and one BLAS thread; the least of several counts. `parcellation` stands beside inflating the
file after the same imports, `small cohort` beside a script of scikit-learn: the ratio to them is of this checkout.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import nibabel
import numpy as np

from benchmarks import overhead, participant, small_cohort
from fcpower_bids.demo import DemoDesign, make_dataset

HERE = Path(__file__).resolve().parents[1]


class Case(NamedTuple):
    """A command, its output, which is removed before each run, and a peer that does the least there is to do."""

    command: list[str]
    output: Path
    peer: list[str] | None = None


def app(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "fcpower_bids", *map(str, words)]


def start(folder: Path) -> Case:
    """The help of the command."""
    return Case(app("--help"), folder / "out")


def dry_run(folder: Path) -> Case:
    """A dry run of one recording."""
    root, labels = overhead.plant(folder, 1)
    output = folder / "out"
    return Case(app(root, output, "participant", "--dry-run", "--nprocs", "1", "--atlas", labels), output)


def discovery(folder: Path) -> Case:
    """A dry run of 1,000 recordings with real tables, start and index included."""
    root, labels = overhead.plant(folder, 1000)
    output = folder / "out"
    return Case(app(root, output, "participant", "--dry-run", "--nprocs", "1", "--atlas", labels), output)


def recording(folder: Path) -> Case:
    """A recording with its page."""
    output = folder / "out"
    make_dataset(folder / "in", DemoDesign(subjects=1, sessions=1, troubles=False))
    words = ("participant", "--atlas", "builtin", "--nprocs", "1", "--quiet")
    return Case(app(folder / "in", output, *words), output)


def compact(folder: Path) -> Case:
    """228 volumes of 400 parcels, without what can be made again; its bytes are the figure."""
    make_dataset(folder / "in", DemoDesign(subjects=1, sessions=1, volumes=228, troubles=False))
    mask = nibabel.load(next((folder / "in").rglob("*_mask.nii.gz")))
    parcels = np.zeros(mask.shape, np.int16)
    inside = np.flatnonzero(np.asarray(mask.dataobj))
    parcels.flat[inside] = 1 + np.arange(inside.size) * 400 // inside.size
    labels = folder / "tpl-MNI152NLin2009cAsym_atlas-Blocks_dseg.nii.gz"
    nibabel.save(nibabel.Nifti1Image(parcels, mask.affine), labels)
    output = folder / "out"
    words = ("participant", "--atlas", labels, "--nprocs", "1", "--quiet", "--compact")
    return Case(app(folder / "in", output, *words), output)


def parcellation(folder: Path) -> Case:
    """300 volumes at 2 mm to parcel means."""
    brain = participant.make_brain()
    mask = participant.save(folder / "mask.nii.gz", brain.astype(np.uint8))
    labels = participant.save(folder / "labels.nii.gz", participant.make_labels(brain))
    bold = participant.make_run(folder / "bold.nii.gz", brain, 300)
    files = map(str, (bold, mask, labels, folder / "ours.npy"))
    peer = [sys.executable, "-c", participant.IMPORTS + participant.ISAL, str(bold)]
    return Case([sys.executable, "-c", participant.OURS, *files], folder / "out", peer)


def cohort(folder: Path) -> Case:
    """A hundred people, 400 parcels, all defaults."""
    words = _plant_cohort(folder, 100, 400)
    return Case(app(*words), folder / "group", [sys.executable, "-c", small_cohort.PEER, str(folder)])


def cpm(folder: Path) -> Case:
    """Connectome-based predictive modelling of 300 people, 150 parcels."""
    words = _plant_cohort(folder, 300, 150)
    return Case(app(*words, "--predictors", "cpm", "--permutations", "0"), folder / "group")


def _plant_cohort(folder: Path, n: int, n_parcels: int) -> tuple[str | Path, ...]:
    small_cohort.plant(folder, n, n_parcels)
    words = ("group", "--analyses", "prediction") if n > 100 else ("group",)
    return (folder / "bids", folder, *words, "--targets", "score", "--min-time", "60", "--quiet", "--nprocs", "1")


CASES: dict[str, Callable[[Path], Case]] = {
    "start": start,
    "dry run": dry_run,
    "discovery": discovery,
    "recording": recording,
    "compact": compact,
    "parcellation": parcellation,
    "small cohort": cohort,
    "cpm": cpm,
}


def measure(command: list[str], checkout: Path, output: Path) -> tuple[float, float]:
    """CPU seconds of a command and the megabytes that it leaves, `work` and logs aside."""
    for path in (output, output.parent / "work"):
        shutil.rmtree(path, ignore_errors=True)
    os.environ["PYTHONPATH"] = str(checkout)
    cost, _ = overhead.measure(*command)
    kept = (path for path in output.rglob("*") if path.is_file() and not {"work", "logs"} & set(path.parts))
    return cost.cpu, sum(path.stat().st_size for path in kept) / 1e6


def must_load(checkout: Path) -> None:
    """Stop where Python would load the package from elsewhere."""
    os.environ["PYTHONPATH"] = str(checkout)
    _, loaded = overhead.measure(sys.executable, "-c", "import fcpower_bids; print(fcpower_bids.__file__)")
    if checkout not in Path(loaded.strip()).parents:
        sys.exit(f"{loaded.strip()} is loaded, not the package of {checkout}")


def compare(case: Case, other: Path, repeats: int) -> Iterator[tuple[tuple[float, float], ...]]:
    """Yield seconds and megabytes of the other checkout, this one, and the peer, where there is one."""
    for _ in range(repeats):
        runs = [measure(case.command, other, case.output), measure(case.command, HERE, case.output)]
        yield (*runs, measure(case.peer, HERE, case.output) if case.peer else (np.nan, np.nan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(overhead.ADOPT_ORPHANS, 1, 0, 0, 0)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    os.environ["PYTHONSAFEPATH"] = "1"  # the working folder is one of the two checkouts
    other = options.other.resolve()
    for checkout in (other, HERE):
        must_load(checkout)
    print(f"{'':14s}{'other':>9s}{'this':>9s}{'ratio':>7s}{'peer':>9s}{'ratio':>7s}   CPU seconds; MB kept")
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            case = CASES[name](Path(folder))
            next(compare(case, other, 1))  # compiles the packages
            figures = np.min([*compare(case, other, options.repeats)], axis=0)
        (old, old_mb), (new, new_mb), (peer, _) = figures
        print(f"{name:14s}{old:9.2f}{new:9.2f}{new / old:7.2f}{peer:9.2f}{new / peer:7.2f}", end="   ")
        print(f"{old_mb:.2f}; {new_mb:.2f} MB", flush=True)


if __name__ == "__main__":
    main()
