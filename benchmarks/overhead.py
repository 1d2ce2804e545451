"""What the application costs beyond the numbers: start, discovery, nipype, tables, pages.

Usage: ``python benchmarks/overhead.py [--recordings 20] [--nprocs 2] [--discovered 1000] [--repeats 3]``

Small recordings go through the application: one against its bare imports, then many. CPU seconds are those of all
processes that a run started, as the kernel
counted them; on a machine that others use too, they tell more than the clock.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: workers whose parent is gone are counted here, not by init
TR = 2.0


class Cost(NamedTuple):
    """Seconds by the clock and of computing, of a process and all that it started."""

    wall: float
    cpu: float


def measure(*command: str) -> tuple[Cost, str]:
    """Run a command to its end, its orphans included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall = time.perf_counter() - started
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout


def least(repeats: int, *command: str, clean: Path | None = None) -> tuple[Cost, str]:
    """Return the run with the least computing time of several."""
    runs = []
    for _ in range(repeats):
        if clean is not None:
            shutil.rmtree(clean, ignore_errors=True)
        runs.append(measure(*command))
    return min(runs, key=lambda run: run[0].cpu)


def app(bids_dir: Path, output: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "fcpower_bids", str(bids_dir), str(output), "participant", *options]


IMPORTS = """
from importlib import import_module
from fcpower_bids.workflows import participant
from fcpower_bids.reports import person as page
from fcpower_bids.workflows.recording import LAZY
for module in LAZY:
    import_module(module)
"""


def compare_with_imports(folder: Path, recordings: int, nprocs: int, repeats: int) -> None:
    from fcpower_bids.demo import DemoDesign, make_dataset
    from fcpower_bids.imaging.atlas import builtin_atlas

    bids_dir, output = folder / "in", folder / "out"
    design = DemoDesign(subjects=recordings // 2, sessions=2, troubles=False)
    make_dataset(bids_dir, design)
    # As a file, as in science: the built-in parcellation is made anew at each start, which takes a second.
    image = builtin_atlas(design.space, folder / "atlas").image
    options = ("--atlas", f"{image}:{str(image).replace('.nii.gz', '.tsv')}", "--nprocs", str(nprocs), "--quiet")
    imports, _ = least(repeats, sys.executable, "-c", IMPORTS)
    whole, _ = least(repeats, *app(bids_dir, output, *options), clean=output)
    one = ("--participant-label", "01", "--session-label", "a")
    single, _ = least(repeats, *app(bids_dir, output, *options, *one), clean=output)
    print(f"{recordings} recordings, {nprocs} processes, {output.name} removed before each run")
    print(f"  imports        {imports.wall:6.2f} s wall {imports.cpu:6.2f} s CPU")
    print(
        f"  one recording  {single.wall:6.2f} s wall {single.cpu:6.2f} s CPU: {single.cpu / imports.cpu:.2f} x imports"
    )
    print(f"  all            {whole.wall:6.2f} s wall {whole.cpu:6.2f} s CPU")
    print(f"  each further recording {(whole.cpu - single.cpu) / (recordings - 1):.3f} s CPU")


def confounds_table(volumes: int) -> str:
    """A table of 120 columns as fMRIPrep writes it, of numbers drawn at random, with all digits."""
    import numpy as np

    motion = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
    signals = [*motion, "csf", "white_matter", "global_signal"]
    names = [f"{name}{end}" for name in signals for end in ("", "_derivative1", "_power2", "_derivative1_power2")]
    names += ["framewise_displacement", "dvars", "std_dvars", "rmsd"]
    names += [f"a_comp_cor_{number:02d}" for number in range(120 - len(names))]
    values = np.abs(0.01 * np.random.default_rng(0).standard_normal((volumes, len(names))))
    places = [names.index(name) for name in motion]
    values[:, places[3:]] /= 50  # radians
    moved = np.abs(np.diff(values[:, places], axis=0)) @ [1, 1, 1, 50, 50, 50]
    values[1:, names.index("framewise_displacement")] = moved
    rows = ["\t".join(names), *("\t".join(map(repr, row)) for row in values.tolist())]
    return "\n".join(rows) + "\n"


def plant(folder: Path, recordings: int, volumes: int = 200) -> tuple[Path, Path]:
    """Write a tree of very small images whose confounds tables have the size of real ones, and an atlas."""
    import nibabel
    import numpy as np

    root, space = folder / "fmriprep", "space-MNI152NLin2009cAsym"
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2, volumes), np.int16), np.eye(4))
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((2.0, 2.0, 2.0, TR))
    mask = nibabel.Nifti1Image(np.ones((2, 2, 2), np.uint8), np.eye(4))
    root.mkdir()
    (root / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.6.0", "DatasetType": "derivative"}')
    (folder / "confounds.tsv").write_text(confounds_table(volumes))
    for number in range(recordings):
        scan = f"sub-{number // 2:04d}_ses-{number % 2 + 1}_task-rest"
        func = root / scan.split("_")[0] / scan.split("_")[1] / "func"
        func.mkdir(parents=True)
        nibabel.save(image, func / f"{scan}_{space}_desc-preproc_bold.nii.gz")
        nibabel.save(mask, func / f"{scan}_{space}_desc-brain_mask.nii.gz")
        (func / f"{scan}_{space}_desc-preproc_bold.json").write_text(f'{{"RepetitionTime": {TR}}}')
        os.link(folder / "confounds.tsv", func / f"{scan}_desc-confounds_timeseries.tsv")
    labels = folder / "tpl-MNI152NLin2009cAsym_atlas-Tiny_dseg.nii.gz"
    nibabel.save(nibabel.Nifti1Image(np.arange(1, 9, dtype=np.uint8).reshape(2, 2, 2), np.eye(4)), labels)
    return root, labels


def discover(folder: Path, recordings: int, repeats: int) -> None:
    """Time ``--dry-run``, and what it takes of each recording beyond the index and the start."""
    root, labels = plant(folder, recordings)
    cost, printed = least(repeats, *app(root, folder / "discovered", "--dry-run", "--atlas", str(labels)))
    found = printed.strip().splitlines()[-1].split(" of ")[0]
    print(f"{recordings} recordings discovered ({found}): {cost.wall:.2f} s wall {cost.cpu:.2f} s CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=20)
    parser.add_argument("--nprocs", type=int, default=2)
    parser.add_argument("--discovered", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory() as folder:
        cost, _ = least(5, sys.executable, "-m", "fcpower_bids", "--help")
        print(f"--help: {cost.wall:.2f} s wall {cost.cpu:.2f} s CPU (goal 0.5)")
        compare_with_imports(Path(folder), given.recordings, given.nprocs, given.repeats)
        discover(Path(folder), given.discovered, given.repeats)


if __name__ == "__main__":
    main()
