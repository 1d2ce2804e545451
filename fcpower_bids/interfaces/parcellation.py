"""Voxels to parcels."""

from __future__ import annotations

import glob
import hashlib
from pathlib import Path

from nipype.interfaces.base import BaseInterfaceInputSpec, Directory, File, TraitedSpec, traits

from fcpower_bids._version import __version__
from fcpower_bids.imaging.atlas.described import atlas_digest, open_atlas
from fcpower_bids.imaging.series.parcellation import parcellate
from fcpower_bids.interfaces.bundles import load_bundle, save_bundle
from fcpower_bids.interfaces.step import Step
from fcpower_bids.outputs.status import file_state
from fcpower_bids.records import Atlas
from fcpower_bids.store import atomic


class ParcellateInputSpec(BaseInterfaceInputSpec):
    """One recording and its atlases."""

    bold = File(exists=True, mandatory=True, desc="preprocessed BOLD series: 4-D NIfTI or CIFTI dtseries")
    mask = File(exists=True, desc="brain mask on its grid (NIfTI only) [the whole grid]")
    atlases = traits.List(
        File(exists=True), mandatory=True, desc="label images with their tables, or files of imaging.atlas.described"
    )
    states = traits.List(traits.Str(), desc="what nipype does not see of the files: their checksums")
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
        paths = [parcels_path(keep, bold, mask, atlas) for atlas in atlases]
        missing = [(path, atlas) for path, atlas in zip(paths, atlases, strict=True) if not path.is_file()]
        found = parcellate(bold, mask, [atlas for _, atlas in missing]) if missing else []
        for (path, atlas), one in zip(missing, found, strict=True):
            with atomic(path) as temporary, temporary.open("wb") as file:
                facts = {"atlas": atlas.name, "parcels": atlas.names, "bold": str(bold)}
                save_bundle(file, one._asdict(), facts)
            _remove_outdated(path, bold, atlas)
        self._results["parcels"] = [str(path) for path in paths]


def parcels_path(folder: Path, bold: Path, mask: Path | None, atlas: Atlas) -> Path:
    """Return where the parcel means of a recording are kept; the name changes with all that they depend on.

    These are name, size, time and checksum of series and mask, the content of the atlas, and the version.
    """
    states = [(path.name, file_state(path)) for path in (bold, mask) if path is not None]
    key = hashlib.sha256(repr((__version__, states, atlas_digest(atlas))).encode()).hexdigest()[:16]
    return folder / f"{_stem(bold, atlas)}_{key}.npz"


def _stem(bold: Path, atlas: Atlas) -> str:
    """Return names that a person recognises, short enough for a file's."""
    return f"{bold.name.partition('.')[0][:120]}_{atlas.name[:80]}"


def _remove_outdated(path: Path, bold: Path, atlas: Atlas) -> None:
    """Remove what the same file gave when it was another; a file of the same name elsewhere is left alone."""
    for other in path.parent.glob(f"{glob.escape(_stem(bold, atlas))}_{'?' * 16}.npz"):
        if other != path and load_bundle(other)[1]["bold"] == str(bold):
            other.unlink(missing_ok=True)
