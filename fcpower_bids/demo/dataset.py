"""Write a demo dataset and return its truth."""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.demo import layout
from fcpower_bids.demo.confounds import build_confounds, encode_confounds, rename_confounds
from fcpower_bids.demo.design import DemoDesign
from fcpower_bids.demo.people import People, Population, draw_connectome, draw_people, draw_person, draw_population
from fcpower_bids.demo.signals import draw_clean_series, draw_nuisance, draw_physiology
from fcpower_bids.demo.volumes import Head, encode_nifti, load_head, paint_recording, unmask
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas.builtin import N_PARCELS

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
    """Write a BIDS dataset with fMRIPrep-style derivatives whose truth is known.

    The mean over the voxels that a recording sees of a parcel is exactly 10,000 plus the painted series (all numbers
    are small whole numbers, so float32 holds them), whatever the noise; without nuisance the painted series
    are the clean ones.

    Raises UsageError.
    """
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
    """Add artefacts to series (T, P), write voxels with these means, their mask and confounds; return what is painted.

    ``scan`` is participant, session and run.
    """
    physiology = draw_physiology(len(clean), share_of_spikes, design.nuisance, rng)
    painted = clean + draw_nuisance(physiology, clean.shape[1], design.nuisance, rng)
    voxels = paint_recording(head, painted, physiology, design, rng)
    columns, metadata = rename_confounds(*build_confounds(head, voxels, physiology, design), design.fmriprep_version)
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
