"""Small fsLR trees: a dtseries, its confounds, and folders of atlases as other programs lay them out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
from nibabel.cifti2 import BrainModelAxis, Cifti2Image, LabelAxis, SeriesAxis

from tests.planting.trees import describe, func

TR = 2.0
PARAMETERS = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
VERTICES = 40


def cortex(left: range = range(36), right: range = range(4, VERTICES)) -> BrainModelAxis:
    """Vertices of two hemispheres; those that are missing are the medial wall."""
    axis = BrainModelAxis.from_surface(np.array(left), VERTICES, "CIFTI_STRUCTURE_CORTEX_LEFT")
    return axis + BrainModelAxis.from_surface(np.array(right), VERTICES, "CIFTI_STRUCTURE_CORTEX_RIGHT")


def grayordinates() -> BrainModelAxis:
    """Two hemispheres with a medial wall, and a thalamus."""
    inside = np.zeros((6, 5, 4), bool)
    inside[1:4, 1:4, 1:3] = True
    return cortex() + BrainModelAxis.from_mask(inside, "CIFTI_STRUCTURE_THALAMUS_LEFT", affine=np.diag([2.0, 2, 2, 1]))


def labels_of(n_parcels: int) -> np.ndarray:
    """Consecutive grayordinates, some of them in no parcel."""
    return np.arange(len(grayordinates())) // 9 % (n_parcels + 1)


def save_dtseries(path: Path, data: np.ndarray, axis: BrainModelAxis | None = None, tr: float = TR) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = (SeriesAxis(0, tr, len(data), unit="SECOND"), axis or grayordinates())
    nibabel.save(Cifti2Image(data.astype(np.float32), header=axes), path)
    return path


def save_dlabel(
    path: Path, labels: Sequence[int], names: list[str] | dict[int, str], axis: BrainModelAxis | None = None
) -> Path:
    """Write labels with their names, which are those of 1, 2, ... where they are a list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    named = names if isinstance(names, dict) else dict(enumerate(names, 1))
    table = {0: ("???", (0, 0, 0, 0))} | {label: (name, (1, 0, 0, 1)) for label, name in named.items()}
    axes = (LabelAxis(["parcels"], [table]), axis or grayordinates())
    nibabel.save(Cifti2Image(np.array([labels], np.float32), header=axes), path)
    return path


def make_motion(volumes: int) -> pd.DataFrame:
    """Six parameters and the displacement that they mean."""
    walk = np.random.default_rng((0, 1)).standard_normal((volumes, 6)).cumsum(axis=0)
    parameters = walk * np.repeat([0.02, 0.0004], 3)
    moved = np.abs(np.diff(parameters, axis=0)) @ np.repeat([1.0, 50.0], 3)
    return pd.DataFrame(parameters, columns=PARAMETERS).assign(framewise_displacement=[np.nan, *moved])


def make_surface_dataset(root: Path) -> np.ndarray:
    """Make a dataset that has nothing but a run in fsLR; return its data (T, G)."""
    data = 1000 + np.random.default_rng(0).standard_normal((120, len(grayordinates()))) * 10
    stem = func(describe(root), "sub-01") / "sub-01_task-rest"
    save_dtseries(Path(f"{stem}_space-fsLR_den-91k_bold.dtseries.nii"), data)
    Path(f"{stem}_space-fsLR_den-91k_bold.json").write_text(json.dumps({"RepetitionTime": TR}))
    confounds = f"{stem}_desc-confounds_timeseries.tsv"
    make_motion(len(data)).to_csv(confounds, sep="\t", index=False, na_rep="n/a")
    return data.astype(np.float32).astype(np.float64)
