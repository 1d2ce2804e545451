"""Cost of parcellating one run, against the floor (inflating its gzip stream) and against nilearn.

Usage: ``python benchmarks/participant.py [--atlas FILE] [--volumes 300] [--long 1200] [--repeats 3] [--skip-nilearn]``

A float32 ``.nii.gz`` of 97 x 115 x 97 voxels is made in a temporary folder: zero outside an ellipsoid of the size of a
brain, smooth anatomy plus noise inside, rounded to a tenth as scanner integers make it, so that it compresses about as
real preprocessed data does (noise in all 24 bits of a float would not compress at all and make the floor look high).
Each candidate then runs in a process of its own, one after the other in the same session of the machine; CPU seconds
and peak memory are those that the kernel counted for that process, imports included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import nibabel
import numpy as np

SHAPE = (97, 115, 97)
AFFINE = np.array([[2.0, 0, 0, -96.5], [0, 2, 0, -132.5], [0, 0, 2, -78.5], [0, 0, 0, 1]])
N_LABELS = 400

OURS = """
import sys
from pathlib import Path
import numpy as np
from fcpower_bids.imaging.labels import read_volume_labels
from fcpower_bids.imaging.parcellation import parcellate
from fcpower_bids.records import Atlas
bold, mask, labels, out = map(Path, sys.argv[1:5])
found = tuple(int(x) for x in np.unique(read_volume_labels(labels)[0]) if x)
blank = ("n/a",) * len(found)
atlas = Atlas((("atlas", "Benchmark"),), labels, "n/a", found, tuple(map(str, found)), blank, blank)
np.save(out, parcellate(bold, mask, [atlas])[0].series)
"""
IMPORTS = OURS.partition("bold, mask,")[0]
ISAL = """
import sys
from isal import igzip
chunk = bytearray(1 << 22)
with igzip.open(sys.argv[1], "rb") as stream:
    while stream.readinto(chunk):
        pass
"""
NILEARN = """
import sys
import numpy as np
from nilearn.maskers import NiftiLabelsMasker
bold, mask, labels, out, volumes = sys.argv[1:]
confounds = np.random.default_rng(0).standard_normal((int(volumes), 24))
masker = NiftiLabelsMasker(labels, mask_img=mask, standardize=None, resampling_target="data")
np.save(out, masker.fit_transform(bold))
"""
NILEARN_CONFOUNDS = NILEARN.replace("masker.fit_transform(bold)", "masker.fit_transform(bold, confounds=confounds)")
# A child's ru_maxrss starts at what its parent had when it forked; the high-water mark of Linux starts at exec.
PEAK = """
import resource
from pathlib import Path
status = Path("/proc/self/status")
if status.exists():
    print(int(status.read_text().split("VmHWM:")[1].split()[0]) / 1e3)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3))
"""


class Cost(NamedTuple):
    """What one child process took."""

    wall: float
    cpu: float
    peak_mb: float


def main() -> None:
    """Make the data, measure every candidate, print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atlas", type=Path, help="label image on any grid (default: 400 made regions)")
    parser.add_argument("--volumes", type=int, default=300)
    parser.add_argument("--long", type=int, default=1200, help="volumes of the run that shows constant memory")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of ours and the floor, in turns")
    parser.add_argument("--skip-nilearn", action="store_true")
    with tempfile.TemporaryDirectory() as folder:
        run_benchmark(Path(folder), parser.parse_args())


def run_benchmark(folder: Path, options: argparse.Namespace) -> None:
    brain = make_brain()
    mask = save(folder / "mask.nii.gz", brain.astype(np.uint8))
    labels = options.atlas or save(folder / "labels.nii.gz", make_labels(brain))
    bold = make_run(folder / "bold.nii.gz", brain, options.volumes)
    size = bold.stat().st_size / 1e6
    raw = np.prod(SHAPE) * 4 * options.volumes / 1e6
    print(f"{options.volumes} volumes of {SHAPE}, float32: {size:.0f} MB compressed, {raw:.0f} MB inflated")
    arguments = (bold, mask, labels)
    pair = ("ours", OURS, *arguments, folder / "ours.npy"), ("inflate only (isal): the floor", ISAL, bold)
    rounds = [[report(*each) for each in pair] for _ in range(options.repeats)]
    ours, floor = (min(costs, key=lambda cost: cost.cpu) for costs in zip(*rounds, strict=True))
    imports = report("imports alone", IMPORTS)
    print(f"  ours / floor, CPU, best of {options.repeats}: {ours.cpu / floor.cpu:.2f} (goal: at most 1.3)")
    print(f"  without the imports, which a run has once: {(ours.cpu - imports.cpu) / floor.cpu:.2f}")
    if not options.skip_nilearn:
        report("NiftiLabelsMasker", NILEARN, *arguments, folder / "nilearn.npy", options.volumes)
        difference = np.abs(np.load(folder / "ours.npy") - np.load(folder / "nilearn.npy")).max()
        nilearn = report(
            "NiftiLabelsMasker + 24 confounds", NILEARN_CONFOUNDS, *arguments, folder / "c.npy", options.volumes
        )
        print(f"  nilearn / ours, CPU: {nilearn.cpu / ours.cpu:.1f} (goal: more than 3)")
        print(f"  largest difference from nilearn: {difference:.1e} of about 1e3")
    bold.unlink()
    long = make_run(folder / "long.nii.gz", brain, options.long)
    cost = report(f"ours, {options.long} volumes", OURS, long, mask, labels, folder / "long.npy")
    least = report("inflate only (isal)", ISAL, long)
    slope, ground = ((a.cpu - b.cpu) / (options.long - options.volumes) for a, b in ((cost, ours), (least, floor)))
    print(
        f"  each further volume: {1e3 * slope:.2f} ms of CPU, {slope / ground:.2f} x inflating it (goal: at most 1.3)"
    )
    print(f"  peak memory: {ours.peak_mb:.0f} -> {cost.peak_mb:.0f} MB (goal: below 400, independent of length)")


def make_brain() -> np.ndarray:
    axes = np.meshgrid(*(np.linspace(-1, 1, extent) for extent in SHAPE), indexing="ij")
    return sum((axis / radius) ** 2 for axis, radius in zip(axes, (0.72, 0.76, 0.74), strict=True)) < 1


def make_labels(brain: np.ndarray) -> np.ndarray:
    """Give each brain voxel to the nearest of 400 random centres; a third stays unlabelled, as white matter does."""
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(0)
    voxels = np.argwhere(brain)
    centres = voxels[rng.choice(len(voxels), N_LABELS, replace=False)]
    distance, nearest = cKDTree(centres).query(voxels)
    labels = np.zeros(SHAPE, np.int16)
    labels[brain] = np.where(distance <= np.quantile(distance, 0.67), nearest + 1, 0)
    return labels


def make_run(path: Path, brain: np.ndarray, n_volumes: int) -> Path:
    """Write volume after volume: this script does not hold the run either."""
    from isal import igzip

    rng = np.random.default_rng(1)
    anatomy = rng.normal(1000, 200, int(brain.sum())).astype(np.float32)
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.float32)
    header.set_data_shape((*SHAPE, n_volumes))
    header.set_zooms((2, 2, 2, 2))
    header.set_xyzt_units("mm", "sec")
    header.set_sform(AFFINE, "mni")
    header["vox_offset"], header["magic"] = 352, b"n+1"
    volume = np.zeros(SHAPE, np.float32, order="F")
    with igzip.open(path, "wb", compresslevel=2) as stream:
        stream.write(header.binaryblock + b"\0\0\0\0")
        for _ in range(n_volumes):
            volume[brain] = np.round(anatomy + 15 * rng.standard_normal(len(anatomy), dtype=np.float32), 1)
            stream.write(volume.tobytes(order="F"))
    return path


def save(path: Path, data: np.ndarray) -> Path:
    nibabel.save(nibabel.Nifti1Image(data, AFFINE), path)
    return path


def report(name: str, code: str, *arguments: object) -> Cost:
    """Run code in a process of its own, print and return what it cost."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code + PEAK, *map(str, arguments)]
    started = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        printed = child.stdout.read().split()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{name} failed with exit code {child.returncode}")
    cost = Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, float(printed[-1]))
    print(f"{name:34s} wall {cost.wall:6.2f} s   CPU {cost.cpu:6.2f} s   peak {cost.peak_mb:6.0f} MB", flush=True)
    return cost


if __name__ == "__main__":
    main()
