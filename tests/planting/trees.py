"""Small fMRIPrep trees with real, tiny images."""

from __future__ import annotations

import gzip
import json
import shutil
from functools import cache
from pathlib import Path

import nibabel
import numpy as np

from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.settings import Settings

N_VOLUMES = 5
MNI = "space-MNI152NLin2009cAsym"


@cache
def nifti(n_volumes: int = N_VOLUMES, header_tr: float = 2.0) -> bytes:
    shape = (2, 2, 2, n_volumes) if n_volumes else (2, 2, 2)
    image = nibabel.Nifti1Image(np.zeros(shape, np.int16), np.eye(4))
    if n_volumes:
        image.header.set_zooms((2.0, 2.0, 2.0, header_tr))
    image.header.set_xyzt_units("mm", "sec")
    return image.to_bytes()


@cache
def zipped(n_volumes: int = N_VOLUMES, header_tr: float = 2.0) -> bytes:
    return gzip.compress(nifti(n_volumes, header_tr), mtime=0)


def put(path: Path, content: bytes | str | dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def describe(root: Path, kind: str = "derivative") -> Path:
    made_by = {"GeneratedBy": [{"Name": "fMRIPrep"}]} if kind == "derivative" else {}
    about = {"Name": "x", "BIDSVersion": "1.6.0", "DatasetType": kind, **made_by}
    return put(root / "dataset_description.json", about).parent


def func(root: Path, run: str) -> Path:
    parts = run.split("_")
    session = [part for part in parts if part.startswith("ses-")]
    return root.joinpath(parts[0], *session, "func")


def add_run(root: Path, run: str, *grids: str, bold: bytes | None = None) -> Path:
    """Add the series of one run on each grid, their masks, JSON, and the confounds; return the ``func`` folder."""
    folder = func(root, run)
    for grid in grids or (MNI,):
        stem = f"{run}_{grid}" if grid else run
        put(folder / f"{stem}_desc-preproc_bold.nii.gz", bold or zipped())
        put(folder / f"{stem}_desc-preproc_bold.json", {"RepetitionTime": 2.0})
        put(folder / f"{stem}_desc-brain_mask.nii.gz", zipped(0))
    put(folder / f"{run}_desc-confounds_timeseries.tsv", b"trans_x\tcsf\n" + b"0.1\t0.2\n" * N_VOLUMES)
    put(folder / f"{run}_desc-confounds_timeseries.json", {})
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.rglob(pattern)
    return found


def scan_files(root: Path, scan: str) -> dict[str, str]:
    """Series, mask and confounds of a scan."""
    ends = {"bold": "*_desc-preproc_bold.nii.gz", "mask": "*_desc-brain_mask.nii.gz"}
    ends |= {"confounds": "desc-confounds_timeseries.tsv"}
    return {name: str(only(root, f"{scan}_{end}")) for name, end in ends.items()}


def copy_builtin(stem: Path) -> Path:
    """Copy the atlas of the program, with its table, to a name without ending; return the image."""
    image = builtin_atlas("MNI152NLin2009cAsym", stem.parent / "made").image
    for ending in (".tsv", ".nii.gz"):
        copy = shutil.copy(image.with_name(image.name.replace(".nii.gz", ending)), f"{stem}{ending}")
    return Path(copy)


def settings(bids_dir: Path, **choices) -> Settings:
    return Settings(bids_dir, bids_dir.parent / "out", "participant").changed(**choices)
