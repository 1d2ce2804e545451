"""How often sound recordings are accused: the command on synthetic recordings of fresh seeds.

Usage: ``python benchmarks/plausibility.py [--recordings 200] [--seed SEED] [--volumes 160] [--shared FOLDER]``

Counts what the quality tables say, and prints how far the sound recordings stay from the limits. With the folder of the
reference data, the series of STAGES too: parcels stand for voxels there, and their mean and DVARS for a table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd

from fcpower_bids.core.signal.plausibility import compare_with_table, find_odd_parts, find_stray, gain_step
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.reports.person.verdict import LOW_DICE

COUNTS = ["empty_volumes", "copied_volumes", "stray_volumes", "stray_parcels", "table_lag", "odd_parts"]
FIGURES = ["table_global_signal", "table_dvars", "gain_step", "value_step", "at_maximum", "mask_dice"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time, so another each time")
    parser.add_argument("--volumes", type=int, default=160)
    parser.add_argument("--shared", type=Path)
    given = parser.parse_args()
    if given.shared:
        judge_reference(given.shared)
    with tempfile.TemporaryDirectory() as folder:
        bids, out = Path(folder, "in"), Path(folder, "out")
        design = DemoDesign(
            subjects=given.recordings, sessions=1, volumes=given.volumes, troubles=False, seed=given.seed
        )
        make_dataset(bids, design, save_truth=False)
        command = [sys.executable, "-m", "fcpower_bids", bids, out, "participant", "--atlas", "builtin", "--quiet"]
        done = subprocess.run([*map(str, command), "--nprocs", "1"], check=False)
        tables = [pd.read_csv(path, sep="\t") for path in sorted(out.rglob("*desc-fcpower_qc.tsv"))]
        pages = [path.read_text() for path in sorted(out.glob("sub-*.html"))]
    found = pd.concat(tables)
    accused = (found[COUNTS] != 0).any(axis=1) | (found["state"] != "done") | (found["mask_dice"] < LOW_DICE)
    cautions = sum("used with caution" in page for page in pages)
    print(
        f"seed {given.seed}: {len(found)} recordings, {int(accused.sum())} accused, {cautions} cautions, "
        f"exit {done.returncode}"
    )
    for name in FIGURES:
        print(f"{name}: {found[name].min():.3g} to {found[name].max():.3g}")


def judge_reference(shared: Path) -> None:
    """Look at the cortical series of STAGES as at those of a recording, and at every half of it five volumes late."""
    places = read_places(shared)
    quarters = (places >= np.quantile(places, (0.25, 0.5, 0.75), axis=0)[:, None]).sum(axis=0)
    series = np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False)
    accused, told, halves = 0, 0, 0
    least: list[float] = []
    for name in series.files:
        one = np.asarray(series[name][:, : len(places)], dtype=float)
        usable = np.ones(len(one), dtype=bool)
        found, table = find_stray(one), figures_of(one)
        parts = divide(one, quarters)
        fits = [compare_with_table(*pair, table, usable) for pair in parts.reshape(2, len(one), -1).transpose(2, 0, 1)]
        least.append(min(np.fmax(fit.global_signal, fit.dvars) for fit in fits))
        odd = find_odd_parts(parts, table, usable) is not None
        accused += bool(found.volumes.any() or found.parcels.any() or gain_step(one, usable)[0] or odd)
        for axis in range(3):
            for half in (quarters[:, axis] < 2, quarters[:, axis] > 1):
                late = np.where(half, np.roll(one, 5, axis=0), one)
                told += find_odd_parts(divide(late, quarters), table, usable) is not None
                halves += 1
    print(f"STAGES: {len(series.files)} scans, {accused} accused; the larger of both correlations of a part with the")
    print(f"whole is {min(least):.2f} or more; {told} of {halves} halves that are five volumes late are named")


def read_places(shared: Path) -> np.ndarray:
    """Centres (400, 3) of the parcels of Schaefer's atlas, mm."""
    (path,) = (shared / "atlases").glob("tpl-MNI152NLin2009cAsym/*Schaefer2018_seg-7n_scale-400*dseg.nii.gz")
    image = nibabel.load(path)
    labels = np.asarray(image.dataobj)
    centres = [np.argwhere(labels == label).mean(axis=0) for label in range(1, 401)]
    return np.array(centres) @ image.affine[:3, :3].T


def figures_of(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean, and root mean square change of series (T, n)."""
    return series.mean(axis=1), np.sqrt(np.square(np.diff(series, axis=0, prepend=np.nan)).mean(axis=1))


def divide(series: np.ndarray, quarters: np.ndarray) -> np.ndarray:
    """Figures (2, T, 3, 4) of the parts of series (T, P), whose places are quarters (P, 3)."""
    return np.stack(
        [np.stack([figures_of(series[:, quarters[:, axis] == one]) for one in range(4)], axis=-1) for axis in range(3)],
        axis=2,
    )


if __name__ == "__main__":
    main()
