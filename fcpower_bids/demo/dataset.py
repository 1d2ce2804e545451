"""Write a demo dataset and return its truth."""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.demo import layout
from fcpower_bids.demo.confounds import build_confounds, encode_confounds, of_release
from fcpower_bids.demo.design import DemoDesign
from fcpower_bids.demo.signals import draw_clean_series, draw_nuisance, draw_physiology
from fcpower_bids.demo.volumes import Head, encode_nifti, load_head, paint_recording, unmask
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.builtin import N_PARCELS, PARCELS_PER_POSITION

# Chosen so that 24 people suffice: true identification and prediction are clearly better with FC^0.35 than with FC.
LOG_RANGE = 4.5
PERSON = 0.15
SESSION = 0.6
FACTOR = 2.5
STRONG_MODES = 8
SPARED_MODES = 4

LOADINGS = {"reasoning": 0.9, "memory": 0.85, "speed": 0.8, "vocabulary": 0.8, "attention": 0.75}
"""How much of the planted factor each measure of ``phenotype/cognition.tsv`` carries."""


@dataclass(frozen=True)
class Population:
    """Shared by all people: modes (P, P) in columns, their log-variances (P,), pattern of the factor (P, P)."""

    modes: FloatArray
    log_variances: FloatArray
    pattern: FloatArray


@dataclass(frozen=True)
class People:
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


def draw_people(design: DemoDesign, rng: np.random.Generator) -> People:
    """Draw who takes part. The last third come as pairs of siblings, who share half of the factor's variance."""
    n_people = design.subjects
    first_sibling = n_people - 2 * (n_people // 6)
    person = np.arange(n_people)
    family = np.where(person < first_sibling, person, first_sibling + (person - first_sibling) // 2)
    own, shared = rng.standard_normal((2, n_people))
    factor = np.where(person < first_sibling, own, np.sqrt(0.5) * (own + shared[family]))
    if n_people > 2:
        factor = (factor - factor.mean()) / factor.std()
    participants: dict[str, list[Any]] = {
        "age": rng.integers(20, 70, n_people).tolist(),
        "sex": rng.choice(["F", "M"], n_people).tolist(),
        "site": rng.choice(["north", "south"], n_people).tolist(),
        "family_id": [f"F{number + 1:02d}" for number in family],
        "planted_score": _draw_measure(factor, 0.9, rng),
        "null_score": _draw_measure(factor, 0.0, rng),
    }
    cognition: dict[str, list[Any]] = {name: _draw_measure(factor, load, rng) for name, load in LOADINGS.items()}
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


def _draw_measure(factor: FloatArray, loading: float, rng: np.random.Generator) -> list[float]:
    """A score with mean 100 and standard deviation 15 that correlates with the factor as the loading says."""
    score = loading * factor + np.sqrt(1 - loading**2) * rng.standard_normal(len(factor))
    return np.round(100 + 15 * score, 2).tolist()


TRUTH_DECIMALS = 8
"""Of the true correlations that are saved; BLAS kernels disagree far below."""


@dataclass(frozen=True)
class DemoTruth:
    """Truth behind the files; R recordings, S participants, T volumes, P = 60 parcels in the atlas' order."""

    recordings: tuple[str, ...]  # ``sub-01_ses-a_task-rest_run-1``, one per recording
    subjects: tuple[str, ...]  # participant of each recording
    participants: tuple[str, ...]  # all participants, the order of ``factor``
    clean: FloatArray  # (R, T, P): series of the brain, without anything added; SD about 100
    # (R, T, P): series that the mean over the seen voxels of each parcel gives, up to a constant: clean plus nuisance
    painted: FloatArray
    coverage: FloatArray  # (R, P): fraction of each parcel's voxels inside the brain mask
    connectivity: FloatArray  # (R, P, P): true correlation matrices from which the clean series were drawn
    factor: FloatArray  # (S,): the planted factor

    def save(self, path: Path) -> None:
        """Write the truth as a compressed ``.npz`` without pickled objects."""
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.getvalue())

    @classmethod
    def load(cls, path: Path) -> DemoTruth:
        """Read what :meth:`save` wrote."""
        names = ("recordings", "subjects", "participants")
        with np.load(path, allow_pickle=False) as archive:
            arrays: dict[str, Any] = dict(archive)
        return cls(**arrays | {name: tuple(arrays[name].tolist()) for name in names})


@dataclass(frozen=True)
class _Drawn:
    """One recording in memory: three arrays of the truth, and the connectome behind them."""

    clean: FloatArray
    painted: FloatArray
    coverage: FloatArray
    connectivity: FloatArray


def make_dataset(folder: Path, design: DemoDesign | None = None, save_truth: bool = True) -> DemoTruth:
    """Write a BIDS dataset whose truth is known: the mean of seen voxels is 10,000 plus the painted series."""
    design = design or DemoDesign()
    folder = Path(folder)
    check_empty(folder)
    population = draw_population(_start_stream(design, 0))
    people = draw_people(design, _start_stream(design, 1))
    _write_raw(folder, design, people)
    whole = load_head()
    drawn = [_make_recording(folder, design, whole, population, people, key) for key in design.list_recordings()]
    keys = design.list_recordings()
    labels = design.participants
    truth = DemoTruth(
        recordings=tuple(layout.name_recording(labels[person], session, run) for person, session, run in keys),
        subjects=tuple(labels[person] for person, _, _ in keys),
        participants=labels,
        factor=people.factor,
        **{field.name: np.stack([getattr(one, field.name) for one in drawn]) for field in fields(_Drawn)},
    )
    if save_truth:
        truth.save(folder / layout.TRUTH)
    return truth


def check_empty(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder. Name a new one for the demo dataset, or empty it.")


def _start_stream(design: DemoDesign, *place: int) -> np.random.Generator:
    """A stream of random numbers of its own for each thing drawn, so that no recording depends on another."""
    return np.random.default_rng([design.seed, *place])


def _write_raw(folder: Path, design: DemoDesign, people: People) -> None:
    """Everything but the recordings: descriptions, README, participants, sessions, phenotypes."""
    ids = [f"sub-{label}" for label in design.participants]
    sessions = sorted({session for _, session, _ in design.list_recordings()})
    texts = {
        "dataset_description.json": layout.encode_json(layout.describe_raw()),
        "README": layout.README,
        "participants.tsv": layout.encode_table({"participant_id": ids, **people.participants}),
        "participants.json": layout.encode_json(layout.PARTICIPANT_COLUMNS),
        "phenotype/cognition.tsv": layout.encode_table({"participant_id": ids, **people.cognition}),
        "phenotype/cognition.json": layout.encode_json(layout.describe_cognition(list(people.cognition))),
        str(layout.DERIVATIVES / "dataset_description.json"): layout.encode_json(
            layout.describe_derivatives(design.fmriprep_version)
        ),
        str(layout.DERIVATIVES / ".bidsignore"): layout.IGNORED,
    }
    table = layout.encode_table({"session_id": [f"ses-{session}" for session in sessions]})
    texts |= {f"{one}/{one}_sessions.tsv": table for one in ids}
    for name, text in texts.items():
        write_file(folder / name, text)


def _make_recording(
    folder: Path, design: DemoDesign, whole: Head, population: Population, people: People, key: tuple[int, str, int]
) -> _Drawn:
    """Draw, paint and write one recording."""
    index, session, run = key
    place = (ord(session), run)
    connectome = draw_connectome(
        population,
        draw_person(_start_stream(design, 2, index)),
        float(people.factor[index]),
        # Runs of one session share its connectome.
        _start_stream(design, 3, index, ord(session)),
    )
    rng = _start_stream(design, 4, index, *place)
    clean = draw_clean_series(connectome, design.volumes, design.repetition_time, rng)
    head = whole.hide_top() if design.is_incomplete(index) else whole
    scan = (design.participants[index], session, run)
    painted = write_recording(folder, design, head, scan, clean, design.share_of_spikes(index, session), rng)
    n_seen, n_voxels = (np.bincount(one.parcel, minlength=N_PARCELS + 1)[1:] for one in (head, whole))
    return _Drawn(clean, painted, n_seen / n_voxels, np.round(connectome, TRUTH_DECIMALS))


def write_recording(
    folder: Path,
    design: DemoDesign,
    head: Head,
    scan: tuple[str, str, int],
    clean: FloatArray,
    share_of_spikes: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Add artefacts to series (T, P), write voxels, mask and confounds of a scan; return what is painted."""
    physiology = draw_physiology(len(clean), share_of_spikes, design.nuisance, rng)
    painted = clean + draw_nuisance(physiology, clean.shape[1], design.nuisance, rng)
    voxels = paint_recording(head, painted, physiology, design, rng)
    columns, metadata = of_release(*build_confounds(head, voxels, physiology, design), design.fmriprep_version)
    place_of_files = folder / layout.DERIVATIVES / f"sub-{scan[0]}" / f"ses-{scan[1]}" / "func"
    files = layout.name_files(layout.name_recording(*scan), design)
    sidecars = layout.describe_files(design) | ({"confounds": metadata} if metadata else {})
    volume = unmask(voxels, head.brain)
    write_file(place_of_files / f"{files['bold']}.nii.gz", encode_nifti(volume, head.affine, design.repetition_time))
    write_file(place_of_files / f"{files['mask']}.nii.gz", encode_nifti(head.brain.astype(np.uint8), head.affine))
    write_file(place_of_files / f"{files['confounds']}.tsv", encode_confounds(columns))
    for kind, content in sidecars.items():
        write_file(place_of_files / f"{files[kind]}.json", layout.encode_json(content))
    return painted


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
