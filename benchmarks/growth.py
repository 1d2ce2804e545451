"""Whether a recording costs the same when it is the thousandth: CPU of the main process and the work folder over a run.

Usage: ``python benchmarks/growth.py [--recordings 1200] [--nprocs 2] [--every 100]``

Tiny recordings (8 x 8 x 8 voxels, 80 volumes, 20 parcels) go through the application; this script looks on. Goals:
the last hundred recordings cost the main process at most 20 % more than the first, and the work folder never holds
the nodes of more recordings than are at work.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np

SHAPE, VOLUMES, PARCELS, TR = (8, 8, 8), 80, 20, 2.0
SPACE = "space-MNI152NLin2009cAsym"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=1200)
    parser.add_argument("--nprocs", type=int, default=2)
    parser.add_argument("--every", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        atlas = make_dataset(root / "in", given.recordings)
        watch_run(root, atlas, given)


def make_dataset(root: Path, recordings: int) -> str:
    """Write the derivatives and an atlas, and return how the command names it."""
    rng = np.random.default_rng(0)
    labels = rng.integers(1, PARCELS + 1, SHAPE).astype(np.int16)
    root.mkdir()
    (root / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.8.0", "DatasetType": "derivative"}')
    nibabel.save(placed(labels), root / "labels.nii.gz")
    rows = [f"{number}\tparcel{number}\n" for number in range(1, PARCELS + 1)]
    (root / "labels.tsv").write_text("index\tname\n" + "".join(rows))
    for number in range(recordings):
        scan = f"sub-{number:04d}_task-rest"
        func = root / scan.split("_")[0] / "func"
        func.mkdir(parents=True)
        bold = placed((1000 + 10 * rng.standard_normal((*SHAPE, VOLUMES))).astype(np.float32))
        nibabel.save(bold, func / f"{scan}_{SPACE}_desc-preproc_bold.nii.gz")
        nibabel.save(placed(np.ones(SHAPE, np.uint8)), func / f"{scan}_{SPACE}_desc-brain_mask.nii.gz")
        (func / f"{scan}_{SPACE}_desc-preproc_bold.json").write_text(f'{{"RepetitionTime": {TR}}}')
        (func / f"{scan}_desc-confounds_timeseries.tsv").write_text("csf\n" + "0.5\n" * VOLUMES)
    return f"{root / 'labels.nii.gz'}:{root / 'labels.tsv'}"


def placed(data: np.ndarray) -> nibabel.Nifti1Image:
    image = nibabel.Nifti1Image(data, np.diag([3.0, 3, 3, 1]))
    image.set_sform(image.affine, code="mni")
    if data.ndim == 4:
        image.header.set_zooms((3, 3, 3, TR))
        image.header.set_xyzt_units("mm", "sec")
    return image


def watch_run(root: Path, atlas: str, given: argparse.Namespace) -> None:
    output = root / "out"
    command = [sys.executable, "-m", "fcpower_bids", root / "in", output, "participant", "--atlas", atlas, "--quiet"]
    choices = ["--strategy", "none", "--fd-thresh", "0", "--nprocs", given.nprocs]
    process = subprocess.Popen([*map(str, command), *map(str, choices)])
    marks: list[tuple[int, float]] = []
    most = 0
    while process.poll() is None:
        finished = len(list(output.glob("sub-*/func/*desc-fcpower_qc.json")))
        at_work = [path for path in output.glob("work/fcpower_*/*") if path.is_dir()]
        most = max(most, len(at_work))
        cpu = cpu_of(process.pid)
        if cpu and finished >= (marks[-1][0] + given.every if marks else 1):
            marks.append((finished, cpu))
        time.sleep(0.2)
    steps = [
        (after[0], 1000 * (after[1] - before[1]) / (after[0] - before[0]))
        for before, after in itertools.pairwise(marks)
    ]
    for number, cost in steps:
        print(f"up to {number:5d} recordings: {cost:6.1f} ms CPU of the main process for each")
    if len(steps) > 1:
        print(f"last / first: {steps[-1][1] / max(steps[0][1], 0.1):.2f} (goal: at most 1.2)")
    print(f"most work folders of recordings at a time: {most} with {given.nprocs} processes; exit {process.returncode}")


def cpu_of(process: int) -> float:
    """CPU seconds of a process so far, its children not counted; 0 when it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
