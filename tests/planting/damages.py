"""Recordings of a demo that are damaged, each as a person of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd

SOURCE = "01"
"""The person whose recording is copied."""


class Files:
    """The files of one recording of the demo."""

    def __init__(self, root: Path, label: str) -> None:
        self.root = root
        (self.folder,) = root.rglob(f"derivatives/fmriprep/sub-{label}/ses-a/func")
        (self.bold,) = self.folder.glob("*_desc-preproc_bold.nii.gz")
        (self.mask,) = self.folder.glob("*_desc-brain_mask.nii.gz")
        (self.table,) = self.folder.glob("*_desc-confounds_timeseries.tsv")
        self.json = self.folder / self.bold.name.replace(".nii.gz", ".json")

    def edit_bold(self, change: Callable[[np.ndarray], object], repetition_time: float = 2.5) -> None:
        """Change the voxels (X, Y, Z, T) in place, in their type, and the repetition time of the header."""
        image = nibabel.load(self.bold)
        data = np.asarray(image.dataobj).copy()
        change(data)
        edited = nibabel.Nifti1Image(data, image.affine, image.header)
        edited.header.set_zooms((*image.header.get_zooms()[:3], repetition_time))
        nibabel.save(edited, self.bold)

    def edit_table(self, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
        """Change the confounds table, whose cells are text."""
        table = pd.read_csv(self.table, sep="\t", dtype=str, keep_default_na=False)
        change(table).to_csv(self.table, sep="\t", index=False)

    def rewrite_table(self, change: Callable[[str], str]) -> None:
        """Change the text of the confounds table."""
        self.table.write_bytes(change(self.table.read_text()).encode())


def voxels(change: Callable[..., object], *given: object) -> Callable[[Files], object]:
    """A damage of the voxels (X, Y, Z, T) of a series, in place."""
    return lambda files: files.edit_bold(lambda data: change(data, *given))


def damage_people(root: Path, damages: dict[str, Callable[[Files], object]]) -> dict[str, Files]:
    """Add a person for every damage, by label, who has the recordings of the first, raw ones too; return the files."""
    for label in damages:
        for folder in [*root.rglob(f"sub-{SOURCE}")]:
            copy = shutil.copytree(folder, folder.with_name(f"sub-{label}"))
            for path in [path for path in copy.rglob("*") if path.is_file()]:
                path.rename(path.with_name(path.name.replace(f"sub-{SOURCE}", f"sub-{label}")))
    files = {label: Files(root, label) for label in damages}
    for label, damage in damages.items():
        damage(files[label])
    return files
