"""Voxels to parcels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, Directory, File, TraitedSpec, traits

from fcpower_bids.imaging.atlas.described import open_atlas
from fcpower_bids.imaging.series.parcellation import parcellate
from fcpower_bids.interfaces.bundles import SLICES, is_sound, means_path, remove_outdated, save_bundle
from fcpower_bids.interfaces.step import Step
from fcpower_bids.store import atomic


class ParcellateInputSpec(BaseInterfaceInputSpec):
    """One recording and its atlases."""

    bold = File(exists=True, mandatory=True, desc="preprocessed BOLD series: 4-D NIfTI or CIFTI dtseries")
    mask = File(exists=True, desc="brain mask on its grid (NIfTI only) [the whole grid]")
    atlases = traits.List(
        File(exists=True), mandatory=True, desc="label images with their tables, or files of imaging.atlas.described"
    )
    states = traits.List(traits.Str(), desc="checksums of the files, which nipype does not compute")
    keep = Directory(nohash=True, desc="folder that keeps parcel means by what they were made from [the node's own]")


class ParcellateOutputSpec(TraitedSpec):
    """One file per atlas."""

    parcels = traits.List(File(exists=True), desc="series (T, P) and coverage (P,) under each atlas")


class Parcellate(Step):
    """Parcel means of every volume, all atlases in one pass over the data.

    With ``keep``, an atlas whose parcel means are there already is not computed, and the series is not opened when all
    are there.
    """

    input_spec = ParcellateInputSpec
    output_spec = ParcellateOutputSpec

    def work(self, folder: Path) -> None:  # noqa: D102
        bold, mask, keep = Path(self.inputs.bold), self.path("mask"), self.path("keep") or folder
        atlases = [open_atlas(Path(path)) for path in self.inputs.atlases]
        paths = [means_path(keep, bold, mask, atlas) for atlas in atlases]
        missing = [(path, atlas) for path, atlas in zip(paths, atlases, strict=True) if not is_sound(path)]
        found = parcellate(bold, mask, [atlas for _, atlas in missing]) if missing else []
        for (path, atlas), one in zip(missing, found, strict=True):
            with atomic(path) as temporary, temporary.open("wb") as file:
                facts = {"atlas": atlas.name, "parcels": atlas.names, "bold": str(bold)}
                arrays = {name: values for name, values in one._asdict().items() if isinstance(values, np.ndarray)}
                shown = {} if one.slices is None else one.slices._asdict()
                pictures = {f"{SLICES}{name}": values for name, values in shown.items()}
                save_bundle(file, {**arrays, **one.figures._asdict(), **pictures}, facts)
            remove_outdated(path, bold, atlas)
        self._results["parcels"] = [str(path) for path in paths]
