"""The nouns: frozen, comparable by value, without input or output.

nipype caches a node by the representation of its inputs, so every field is a plain immutable value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

Entities = tuple[tuple[str, str], ...]
"""BIDS entities in the order of the specification: ``(("sub", "01"), ("ses", "a"), ("task", "rest"))``."""


@dataclass(frozen=True)
class Recording:
    """One BOLD run as fMRIPrep wrote it, with the files that belong to it.

    Attributes
    ----------
    bold : Path
        The preprocessed series: 4-D NIfTI or CIFTI ``dtseries``.
    entities : Entities
        Every entity of the source file name except ``desc``, in the order of the specification.
    repetition_time : float
        Seconds between volumes.
    mask : Path or None
        Brain mask on the grid of the run (NIfTI only).
    confounds : Path or None
        The confounds table of fMRIPrep.
    confounds_metadata : Path or None
        The JSON beside it (components and their explained variance).
    sidecar : Path or None
        The JSON of the BOLD file.
    """

    bold: Path
    entities: Entities
    repetition_time: float
    mask: Path | None = None
    confounds: Path | None = None
    confounds_metadata: Path | None = None
    sidecar: Path | None = None

    def entity(self, key: str) -> str | None:
        """Return the value of one entity by its short key (``"sub"``, ``"ses"``, ``"task"``), or None."""
        return dict(self.entities).get(key)

    @property
    def subject(self) -> str:
        """The participant label without ``sub-``."""
        return dict(self.entities)["sub"]

    @property
    def session(self) -> str | None:
        """The session label without ``ses-``, or None."""
        return self.entity("ses")

    @property
    def space(self) -> str:
        """The template space of the series."""
        return self.entity("space") or "unknown"

    @property
    def is_cifti(self) -> bool:
        """Whether the series is a CIFTI ``dtseries``."""
        return self.bold.name.endswith(".dtseries.nii")

    @property
    def name(self) -> str:
        """The recording in one string, as in its file names: ``sub-01_ses-a_task-rest_space-...``."""
        return "_".join(f"{key}-{value}" for key, value in self.entities)


@dataclass(frozen=True)
class Atlas:
    """A parcellation in one space: label image, and one name, network and hemisphere per parcel.

    Attributes
    ----------
    entities : Entities
        What goes into output names, e.g. ``(("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400"))``.
    image : Path
        Label image: 3-D NIfTI of integers, or CIFTI ``dlabel``.
    space : str
        Template space of the label image.
    labels : tuple of int
        Integer in the image of each parcel, in the order of the outputs.
    names, networks, hemispheres : tuple of str
        One per parcel; "n/a" where the source says nothing. Names are unique.
    source : str
        Where it came from, in words (TemplateFlow file, user's path, merged parts).
    licence : str
        Licence as stated by the source, or "n/a".
    citation : str
        What to cite, or "n/a".
    """

    entities: Entities
    image: Path
    space: str
    labels: tuple[int, ...]
    names: tuple[str, ...]
    networks: tuple[str, ...]
    hemispheres: tuple[str, ...]
    source: str = "n/a"
    licence: str = "n/a"
    citation: str = "n/a"

    @property
    def name(self) -> str:
        """The atlas in one string, as in file names: ``atlas-Schaefer2018_seg-7n_scale-400``."""
        return "_".join(f"{key}-{value}" for key, value in self.entities)

    @property
    def n_parcels(self) -> int:
        """Number of parcels."""
        return len(self.labels)


@dataclass(frozen=True)
class Output:
    """One file to write: what distinguishes its name from the others of its recording.

    Attributes
    ----------
    suffix : str
        BIDS suffix (``timeseries``, ``relmat``, ``eigenvalues``, ...).
    entities : Entities
        Entities added to those of the source (``stat``, ``desc``, ...).
    extension : str
        With the dot.
    """

    suffix: str
    entities: Entities = field(default=())
    extension: str = ".tsv"
