"""The same recording as fMRIPrep and the HCP pipelines write it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.demo import DemoDesign, make_dataset
from tests.planting.surfaces import PARAMETERS, make_motion, save_dtseries

VOLUMES = 120
HCP_RUN = "100307/MNINonLinear/Results/rfMRI_REST1_LR"


def make_volumes(folder: Path) -> tuple[Path, Path, pd.DataFrame]:
    """Return series, mask and motion of one recording of the demo, whose table has motion alone."""
    make_dataset(folder, DemoDesign.tiny(subjects=1, sessions=1, volumes=VOLUMES, space="MNI152NLin6Asym"))
    (bold,) = folder.rglob("*desc-preproc_bold.nii.gz")
    (table,) = folder.rglob("*desc-confounds_timeseries.tsv")
    motion = make_motion(VOLUMES)
    motion.to_csv(table, sep="\t", index=False, na_rep="n/a")
    return bold, bold.with_name(bold.name.replace("desc-preproc_bold", "desc-brain_mask")), motion


def write_regressors(folder: Path, motion: pd.DataFrame) -> Path:
    """HCP: mm and degrees, then their derivatives."""
    values = motion[PARAMETERS].to_numpy() * np.repeat([1.0, 180 / np.pi], 3)
    rows = np.hstack([values, np.vstack([np.zeros(6), np.diff(values, axis=0)])])
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "Movement_Regressors.txt", rows, fmt="%.17g")
    return folder


def hcp_volumes(root: Path, bold: Path, mask: Path, motion: pd.DataFrame, end: str = "") -> Path:
    folder = write_regressors(root / HCP_RUN, motion)
    shutil.copy(bold, folder / f"{folder.name}{end}.nii.gz")
    shutil.copy(mask, folder / "brainmask_fs.2.nii.gz")
    return folder


def hcp_surface(root: Path, data: np.ndarray, motion: pd.DataFrame, end: str = "_Atlas_MSMAll_hp2000_clean") -> Path:
    folder = write_regressors(root / HCP_RUN, motion)
    save_dtseries(folder / f"{folder.name}{end}.dtseries.nii", data)
    return folder
