"""A small BIDS dataset whose truth is known, and the series of real people painted into grey matter."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.demo import signals
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import N_PARCELS, PARCELS_PER_POSITION
from fcpower_bids.outputs.tables import json_text, table_text
from fcpower_bids.store import stored_path

DERIVATIVES = Path("derivatives") / "fmriprep"
TRUTH = Path("sourcedata") / "demo_truth.npz"
TASK = "rest"
RESOLUTION = "8 mm isotropic; coarse on purpose, to keep the demo small"

README = """\
Demo dataset of fcpower_bids. No person was scanned: the parcel time series were drawn at random, with connectomes that
differ between people, and painted into the voxels of a template.

derivatives/fmriprep     what fMRIPrep would have written: BOLD in MNI space, brain masks, confounds
phenotype, participants  planted_score and the cognition measures depend on the connectomes, null_score does not
sourcedata               the truth: clean series, true correlations, planted factor
"""

PARTICIPANT_COLUMNS: dict[str, dict[str, Any]] = {
    "participant_id": {"Description": "Participant"},
    "age": {"Description": "Age", "Units": "year"},
    "sex": {"Description": "Sex", "Levels": {"F": "female", "M": "male"}},
    "site": {"Description": "Invented site", "Levels": {"north": "first site", "south": "second site"}},
    "family_id": {"Description": "Family; participants who share one are siblings"},
    "planted_score": {"Description": "Score that depends on the planted factor of the connectomes (r = 0.9)"},
    "null_score": {"Description": "Score that depends on nothing"},
}

DESCRIPTION = {
    "Name": "fcpower_bids demo (synthetic)",
    "BIDSVersion": "1.10.0",
    "DatasetType": "raw",
    "License": "CC0",
    "Authors": ["A random number generator", "The fcpower_bids developers"],
}

VERSION = "25.1.0"
"""Of fMRIPrep, whose file and column names are used."""
INVENTED = "Demo: all people, scans and numbers are invented; fMRIPrep did not run"
PAINTED = (
    "Demo: the series of the parcels are real, painted into a template; head motion, noise, other tissue and confounds "
    "are invented; fMRIPrep did not run"
)
"""What is said in the head of every page that is made of the demo."""


def encode_table(columns: Mapping[str, list[Any]]) -> str:
    """TSV text of columns of equal length."""
    return table_text(pd.DataFrame(columns))


def describe_derivatives(words: str) -> dict[str, str]:
    """Files that describe the derivatives; like fMRIPrep, they ignore what released BIDS does not know."""
    code = f"https://github.com/nipreps/fmriprep/archive/{VERSION}.tar.gz"
    about = {
        "Name": "fMRIPrep - fMRI PREProcessing workflow",
        "BIDSVersion": "1.4.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "fMRIPrep", "Version": VERSION, "CodeURL": code, "Description": words}],
    }
    return {
        str(DERIVATIVES / "dataset_description.json"): json_text(about),
        str(DERIVATIVES / ".bidsignore"): "*_timeseries.*\n*_regressors.*\n",
    }


# Chosen so that 24 people suffice: true identification and prediction are clearly better with FC^0.35 than with FC.
LOG_RANGE = 4.5
PERSON = 0.15
SESSION = 0.6
FACTOR = 2.5
STRONG_MODES = 8
SPARED_MODES = 4

LOADINGS = {"reasoning": 0.9, "memory": 0.85, "speed": 0.8, "vocabulary": 0.8, "attention": 0.75}
"""How much of the planted factor each measure of ``phenotype/cognition.tsv`` carries."""


class Population(NamedTuple):
    """Shared by all people: modes (P, P) in columns, their log variances (P,), the pattern (P, P) of the factor."""

    modes: FloatArray
    log_variances: FloatArray
    pattern: FloatArray


class People(NamedTuple):
    """One row per participant: the planted factor, and the columns of the two phenotype tables."""

    factor: FloatArray
    participants: dict[str, list[Any]]
    cognition: dict[str, list[Any]]


def draw_population(rng: np.random.Generator) -> Population:
    """Draw the shared modes: the same position and mirror-image parcels go together, the rest is chance."""
    parcel = np.arange(N_PARCELS)
    mirror = parcel % (N_PARCELS // 2)
    position = mirror // PARCELS_PER_POSITION
    blocks = 0.3 + 0.8 * np.equal.outer(position, position) + 0.5 * np.equal.outer(mirror, mirror)
    modes = np.linalg.eigh(blocks + 0.2 * _draw_symmetric(N_PARCELS, rng))[1][:, ::-1]
    # LAPACK is free to flip a mode; a fixed sign gives the same people on every machine.
    modes = modes * np.sign(modes[np.argmax(np.abs(modes), axis=0), parcel])
    pattern = _draw_symmetric(N_PARCELS, rng)
    pattern[:SPARED_MODES] = pattern[:, :SPARED_MODES] = 0.0
    return Population(modes, np.linspace(0.0, -LOG_RANGE, N_PARCELS), pattern / np.linalg.norm(pattern))


def draw_people(n_people: int, rng: np.random.Generator) -> People:
    """Draw who takes part. The last third come as pairs of siblings, who share half of the factor's variance."""
    first_sibling = n_people - 2 * (n_people // 6)
    person = np.arange(n_people)
    family = np.where(person < first_sibling, person, first_sibling + (person - first_sibling) // 2)
    alone, shared = rng.standard_normal((2, n_people))
    factor = np.where(person < first_sibling, alone, np.sqrt(0.5) * (alone + shared[family]))
    if n_people > 2:
        factor = (factor - factor.mean()) / factor.std()

    def measure(loading: float) -> list[float]:
        """A score with mean 100 and standard deviation 15 that correlates with the factor as the loading says."""
        score = loading * factor + np.sqrt(1 - loading**2) * rng.standard_normal(n_people)
        return np.round(100 + 15 * score, 2).tolist()

    participants: dict[str, list[Any]] = {
        "age": rng.integers(20, 70, n_people).tolist(),
        "sex": rng.choice(["F", "M"], n_people).tolist(),
        "site": rng.choice(["north", "south"], n_people).tolist(),
        "family_id": [f"F{number + 1:02d}" for number in family],
        "planted_score": measure(0.9),
        "null_score": measure(0.0),
    }
    cognition: dict[str, list[Any]] = {name: measure(loading) for name, loading in LOADINGS.items()}
    cognition["attention"][-1] = "n/a"
    return People(factor, participants, cognition)


def draw_person(rng: np.random.Generator) -> FloatArray:
    """Draw how one person deviates from the population, (P, P) in the basis of the modes."""
    return PERSON * _draw_symmetric(N_PARCELS, rng)


def draw_connectome(population: Population, person: FloatArray, factor: float, rng: np.random.Generator) -> FloatArray:
    """Draw the true correlation matrix of one recording of a person, shape (P, P)."""
    log_covariance = np.diag(population.log_variances) + person + FACTOR * factor * population.pattern
    log_covariance[:STRONG_MODES, :STRONG_MODES] += SESSION * _draw_symmetric(STRONG_MODES, rng)
    values, vectors = np.linalg.eigh(log_covariance)
    vectors = population.modes @ vectors
    covariance = (vectors * np.exp(values)) @ vectors.T
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def _draw_symmetric(size: int, rng: np.random.Generator) -> FloatArray:
    matrix = rng.standard_normal((size, size))
    return (matrix + matrix.T) / 2


TRUTH_DECIMALS = 8
"""Of the true correlations that are saved; BLAS kernels disagree far below."""


class DemoTruth(NamedTuple):
    """Truth behind the files; R recordings, S participants, T volumes, P = 60 parcels in the atlas' order."""

    recordings: tuple[str, ...]  # ``sub-01_ses-a_task-rest_run-1``, one per recording
    subjects: tuple[str, ...]  # participant of each recording
    participants: tuple[str, ...]  # all participants, the order of ``factor``
    clean: FloatArray  # (R, T, P): series of the brain, without anything added; SD about 100
    painted: FloatArray  # (R, T, P): what the mean over the seen voxels of each parcel gives, up to a constant
    coverage: FloatArray  # (R, P): fraction of each parcel's voxels inside the brain mask
    connectivity: FloatArray  # (R, P, P): true correlation matrices from which the clean series were drawn
    factor: FloatArray  # (S,): the planted factor


def make_dataset(folder: Path, design: signals.DemoDesign | None = None) -> DemoTruth:
    """Write a BIDS dataset whose truth is known: the mean of seen voxels is 10,000 plus the painted series."""
    design, folder = design or signals.DemoDesign(), Path(folder)
    check_empty(folder)

    def stream(*place: int) -> np.random.Generator:
        """A stream of random numbers for each thing drawn, so that no recording depends on another."""
        return np.random.default_rng([design.seed, *place])

    population, people = draw_population(stream(0)), draw_people(design.subjects, stream(1))
    keys, labels, whole = design.list_recordings(), design.participants, signals.load_head()
    names = tuple(f"sub-{labels[who]}_ses-{session}_task-{TASK}_run-{run}" for who, session, run in keys)
    _write_raw(folder, design, people)
    drawn = []
    for (person, session, run), name in zip(keys, names, strict=True):
        # runs of one session share its connectome
        at = stream(3, person, ord(session))
        connectome = draw_connectome(population, draw_person(stream(2, person)), float(people.factor[person]), at)
        rng = stream(4, person, ord(session), run)
        clean = signals.draw_clean_series(connectome, design.volumes, design.repetition_time, rng)
        head = whole.hide_top() if design.troubles and person == 1 else whole
        share = design.share_of_spikes(person, session)
        painted = write_recording(folder, design, head, name, clean, share, rng)
        n_seen, n_voxels = (np.bincount(grid.parcel, minlength=N_PARCELS + 1)[1:] for grid in (head, whole))
        drawn.append((clean, painted, n_seen / n_voxels, np.round(connectome, TRUTH_DECIMALS)))
    clean, painted, coverage, connectivity = map(np.stack, zip(*drawn, strict=True))
    subjects = tuple(labels[person] for person, *_ in keys)
    truth = DemoTruth(names, subjects, labels, clean, painted, coverage, connectivity, people.factor)
    content = io.BytesIO()
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in truth._asdict().items()}
    np.savez_compressed(content, **arrays)
    write_files(folder, {str(TRUTH): content.getvalue()})
    return truth


def check_empty(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder. Name a new one for the demo dataset, or empty it.")


def _write_raw(folder: Path, design: signals.DemoDesign, people: People) -> None:
    """Everything but the recordings: descriptions, README, participants, sessions, phenotypes."""
    ids = [f"sub-{label}" for label in design.participants]
    tool = {"MeasurementToolMetadata": {"Description": "Invented battery: measures that share the planted factor"}}
    scale = "invented, mean 100 and standard deviation 15"
    measures = {name: {"Description": f"Invented {name} score", "Units": scale} for name in people.cognition}
    sessions = [f"ses-{session}" for session in sorted({session for _, session, _ in design.list_recordings()})]
    texts = {
        "dataset_description.json": json_text(DESCRIPTION),
        "README": README,
        "participants.tsv": encode_table({"participant_id": ids, **people.participants}),
        "participants.json": json_text(PARTICIPANT_COLUMNS),
        "phenotype/cognition.tsv": encode_table({"participant_id": ids, **people.cognition}),
        "phenotype/cognition.json": json_text(tool | measures),
        **describe_derivatives(INVENTED),
        **{f"{person}/{person}_sessions.tsv": encode_table({"session_id": sessions}) for person in ids},
    }
    write_files(folder, texts)


def write_recording(
    folder: Path,
    design: signals.DemoDesign,
    head: signals.Head,
    name: str,
    clean: FloatArray,
    share_of_spikes: float,
    rng: np.random.Generator,
    voxel_type: type[np.number] = np.float32,
) -> FloatArray:
    """Add artefacts to series (T, P), write voxels, mask and confounds of a scan; return what is painted."""
    physiology = signals.draw_physiology(len(clean), share_of_spikes, design.nuisance, rng)
    painted = clean + signals.draw_nuisance(physiology, clean.shape[1], design.nuisance, rng)
    voxels = signals.paint_recording(head, painted, physiology, design.noise, rng)
    confounds = signals.build_confounds(head, voxels, physiology, design)
    columns = {key: ["n/a" if np.isnan(x) else f"{x:.10g}" for x in column] for key, column in confounds.items()}
    about = {"SkullStripped": True, "SliceTimingCorrected": False, "TaskName": TASK}
    series = np.zeros((*head.brain.shape, voxels.shape[1]), dtype=voxel_type, order="F")
    series[head.brain] = voxels
    start = "/".join([str(DERIVATIVES), *name.split("_")[:2], "func", name])
    space = f"{start}_space-{design.space}_res-2_desc"
    texts: dict[str, str | bytes] = {
        f"{space}-preproc_bold.nii.gz": signals.encode_nifti(series, head.affine, design.repetition_time),
        f"{space}-brain_mask.nii.gz": signals.encode_nifti(head.brain.astype(np.uint8), head.affine),
        f"{start}_desc-confounds_timeseries.tsv": encode_table(columns),
        f"{space}-preproc_bold.json": json_text(
            {"RepetitionTime": design.repetition_time, "Resolution": RESOLUTION, **about}
        ),
        f"{space}-brain_mask.json": json_text({"Resolution": RESOLUTION, "Type": "Brain"}),
        f"{start}_desc-confounds_timeseries.json": json_text({"csf": {"Method": "Mean"}}),
    }
    write_files(folder, texts)
    return painted


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write files, and their folders."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


CENTRES = files("fcpower_bids") / "data" / "parcel_orders" / "Schaefer400.tsv"
STEP_OF_SERIES = 2
"""Of the 2 mm template: voxels of 4 mm."""
REPETITION_TIME = 2.0
ATLAS = "atlas/tpl-{space}_atlas-SchaeferCentres_seg-7n_scale-400_res-02_dseg.nii.gz"

README_OF_SERIES = """\
Demo dataset of fcpower_bids: the parcel series of real people, painted into the grey matter of a template.

derivatives/fmriprep   what fMRIPrep would have written: BOLD in MNI space, brain masks, confounds
atlas                  the parcels that were painted: grey matter by the nearest centre of a Schaefer parcel

The series of the cortical parcels are real ({source}). Head motion, white matter, CSF, voxel noise and the confounds
that describe them are invented and added; the series were cleaned and filtered before. The source states no
repetition time: 2 s is assumed, at which their pass-band is the published one (0.008 to 0.08 Hz).
"""


def paint_series(
    folder: Path, source: Path, n_people: int, seed: int = 0, n_sessions: int = 2
) -> tuple[list[str], Path]:
    """Write a dataset with fMRIPrep-style derivatives of the first people and sessions of a folder of series.

    Raises UsageError.
    """

    def read(path: Path) -> list[dict[str, str]]:
        return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t"))

    check_empty(folder)
    try:
        scans, rows = (read(source / name) for name in ("list.tsv", "participants.tsv"))
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} is not there. Name a folder of series such as examples/stages.") from None
    people = sorted({row["participant_id"] for row in scans})[:n_people]
    sessions = sorted({row["session_id"] for row in scans})[:n_sessions]
    with np.load(stored_path(source, scans[0]["path"]), allow_pickle=False) as archive:
        names = [str(name) for name in archive["parcels"]]
        series = {row["key"]: np.asarray(archive[row["key"]], dtype=float) for row in scans}
    places = {row["name7"]: [float(row[axis]) for axis in "xyz"] for row in read(Path(str(CENTRES)))}
    labels, affine = signals.label_by_centres(np.array([places[name] for name in names]))
    n_volumes = len(next(iter(series.values())))
    design = signals.DemoDesign(
        subjects=len(people), volumes=n_volumes, repetition_time=REPETITION_TIME, troubles=False
    )
    atlas = ATLAS.format(space=design.space)
    rows = [row for row in rows if row["participant_id"] in people]
    texts: dict[str, str | bytes] = {
        "dataset_description.json": (source / "dataset_description.json").read_text(encoding="utf-8"),
        "README": README_OF_SERIES.format(source=source.name.upper()),
        "participants.tsv": encode_table({name: [row[name] for row in rows] for name in rows[0]}),
        **describe_derivatives(PAINTED),
        ".bidsignore": "atlas/\n",
        atlas: signals.encode_nifti(labels, affine),
        atlas.replace(".nii.gz", ".tsv"): encode_table({"index": list(range(1, len(names) + 1)), "name": names}),
    }
    write_files(folder, texts)
    head = signals.load_head(labels, STEP_OF_SERIES)
    wanted = [row for row in scans if row["participant_id"] in people and row["session_id"] in sessions]
    for number, row in enumerate(wanted):
        rng = np.random.default_rng([seed, number])
        centred = series[row["key"]] - series[row["key"]].mean(axis=0)
        clean = signals.quantise(signals.SIGNAL_SD * (centred / centred.std(axis=0)))
        name = f"{row['participant_id']}_{row['session_id']}_task-{TASK}_run-1"
        write_recording(folder, design, head, name, clean, signals.SPIKES, rng, np.int16)
    return [row["key"] for row in wanted], folder / atlas
