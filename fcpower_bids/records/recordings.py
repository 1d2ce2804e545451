"""The nouns of the participant level: a recording, an atlas, what cleaning did, the series of a parcellation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fcpower_bids.schema import Columns, TableSpec

if TYPE_CHECKING:
    import numpy as np

Entities = tuple[tuple[str, str], ...]
"""In the order of the specification: ``(("sub", "01"), ("task", "rest"))``."""


def space_of(labels: Mapping[str, str]) -> str | None:
    """Return the space that entities declare: ``MNI152NLin6Asym``, or ``MNIInfant_cohort-3`` for a template of ages."""
    space = labels.get("space") or labels.get("tpl")
    return f"{space}_cohort-{labels['cohort']}" if space and "cohort" in labels else space


def is_in_space(space: str, wanted: str) -> bool:
    """Whether a space is the wanted one, in fMRIPrep's words; a template without its cohort means all of them."""
    wanted = wanted.replace(":", "_")
    return space == wanted or space.partition("_cohort-")[0] == wanted


@dataclass(frozen=True)
class Recording:
    """One BOLD recording as fMRIPrep wrote it, with the files that belong to it.

    Attributes
    ----------
    bold : Path
        The preprocessed series: 4-D NIfTI or CIFTI ``dtseries``.
    entities : Entities
        Every entity of the source file name except ``desc``, in the order of the specification.
    repetition_time : float
        Seconds between volumes.
    mask : Path or None
        Brain mask on the grid of the recording (NIfTI only).
    confounds : Path or None
        The confounds table of fMRIPrep.
    confounds_metadata : Path or None
        Its JSON (components and their explained variance).
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
        """The template space of the series, as in :func:`space_of`."""
        return space_of(dict(self.entities)) or "unknown"

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
        Entities of output names, e.g. ``(("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400"))``.
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
        Citation, or "n/a".
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
    def is_cifti(self) -> bool:
        """Whether the label image is a CIFTI ``dlabel``."""
        return self.image.name.endswith(".dlabel.nii")

    @property
    def n_parcels(self) -> int:
        """Number of parcels."""
        return len(self.labels)


@dataclass(frozen=True)
class Output:
    """The part of an output's name that distinguishes it from others of its recording.

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


@dataclass(frozen=True, eq=False)
class Cleaning:
    """Treatment of the volumes of one recording; the same for every atlas.

    Attributes
    ----------
    kept : ndarray of bool, shape (T,)
        Volumes of the file that are in the cleaned series.
    framewise_displacement, dvars : ndarray, shape (T,)
        Motion in mm and change of signal per volume; NaN where unknown.
    design : ndarray, shape (T, K)
        Confounds regressed, before filtering; NaN in dropped volumes.
    design_names : tuple of str
        Their names.
    dropped_confounds : tuple of str
        Constant confounds left out of the regression.
    n_dummy : int
        Volumes dropped at the start.
    degrees_of_freedom, n_regressors : float, int
        Left after censoring, filter and regression; rank of the regression.
    repetition_time : float
        Seconds.
    excluded : str
        Why the recording does not pass the quality limits; empty when it does.
    notes : tuple of str
        Notes about the confounds and the series.
    stray : ndarray of bool, shape (T,), or None
        Volumes left out because they cannot be signal; None where not examined.
    plausibility : dict
        Figures of that for the quality table, by column.
    """

    kept: np.ndarray
    framewise_displacement: np.ndarray
    dvars: np.ndarray
    design: np.ndarray
    design_names: tuple[str, ...]
    dropped_confounds: tuple[str, ...]
    n_dummy: int
    degrees_of_freedom: float
    n_regressors: int
    repetition_time: float
    excluded: str = ""
    notes: tuple[str, ...] = ()
    stray: np.ndarray | None = None
    plausibility: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds_kept(self) -> float:
        """Seconds of the cleaned series."""
        return float(self.kept.sum() * self.repetition_time)


class Slices(NamedTuple):
    """Axial slices of a recording, the front on top, the person's left on the left.

    Attributes
    ----------
    mean : ndarray, shape (n, rows, columns)
        Temporal mean, in the units of the file; NaN where it is not defined.
    tsnr : ndarray, shape (n, rows, columns)
        Temporal signal-to-noise ratio: mean over standard deviation, before cleaning; NaN where nothing varies.
    brain : ndarray of bool, shape (n, rows, columns)
        Inside the brain mask.
    parcels : ndarray of int, shape (n, rows, columns)
        Parcel of each voxel, 1 to P; 0 for none.
    heights : ndarray, shape (n,)
        z of each slice in mm.
    """

    mean: np.ndarray
    tsnr: np.ndarray
    brain: np.ndarray
    parcels: np.ndarray
    heights: np.ndarray


@dataclass(frozen=True, eq=False)
class ParcelSeries:
    """One recording seen through one atlas.

    Attributes
    ----------
    coverage : ndarray, shape (P,)
        Share of each parcel's voxels with signal.
    raw : ndarray, shape (T, P)
        Parcel means of every volume of the file.
    clean : ndarray, shape (T_kept, P)
        Cleaned and z-scored; NaN columns for uncovered parcels; no rows for an excluded recording.
    connectivity : ndarray, shape (P, P)
        Pearson FC; empty until computed.
    flat : tuple of int
        Covered parcels without any variance, before or after cleaning; they are NaN like uncovered ones.
    stray : tuple of int
        Covered parcels whose series cannot be signal; they are NaN too.
    slices : Slices or None
        Slices for the page; None for surfaces and oblique grids.
    """

    coverage: np.ndarray
    raw: np.ndarray
    clean: np.ndarray
    connectivity: np.ndarray
    flat: tuple[int, ...] = ()
    stray: tuple[int, ...] = ()
    slices: Slices | None = None


@dataclass(frozen=True)
class Measure:
    """A table computed from one recording and one atlas: a new output.

    Attributes
    ----------
    output : Output
        How its file is called.
    columns : mapping of str to Column
        Of its table, by key.
    compute : callable
        ``(ParcelSeries, Cleaning, Atlas, Method) -> (table, metadata)``: a pandas table and JSON-ready metadata.
    of_recording : bool
        Whether the rows of all atlases go into one file of the recording, instead of one file per atlas.
    of_excluded : bool
        Whether it is computed for an excluded recording too, which has no cleaned series.
    follows : bool
        Whether it follows from FC alone, so that ``--compact`` leaves it out.
    title : str
        Of its panel on the page of the participant, with median and range of each column of numbers; none without one.
    """

    output: Output
    columns: Columns
    compute: Callable[..., tuple[Any, dict[str, Any]]]
    of_recording: bool = False
    of_excluded: bool = False
    follows: bool = False
    title: str = ""

    @property
    def table(self) -> TableSpec:
        """The declaration of its table, named as the documentation calls its files."""
        place = "SOURCE" if self.of_recording else "SOURCE_ATLAS"
        entities = [f"{key}-{value}" for key, value in self.output.entities]
        return TableSpec("_".join([place, *entities, self.output.suffix]), "", self.columns)
