"""Series of real people, as in ``examples/stages``, painted into grey matter with invented motion and tissue."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.demo import layout
from fcpower_bids.demo.dataset import check_empty, write_file, write_recording
from fcpower_bids.demo.design import DemoDesign
from fcpower_bids.demo.signals import SIGNAL_SD, quantise
from fcpower_bids.demo.volumes import encode_nifti, label_by_centres, load_head
from fcpower_bids.errors import UsageError
from fcpower_bids.store import stored_path

CENTRES = files("fcpower_bids") / "data" / "parcel_orders" / "Schaefer400.tsv"
STEP = 2
"""Of the 2 mm template: voxels of 4 mm."""
REPETITION_TIME = 2.0
ATLAS = "atlas/tpl-{space}_atlas-SchaeferCentres_seg-7n_scale-400_res-02_dseg.nii.gz"
SPIKES = 0.015

README = """\
Demo dataset of fcpower_bids: the parcel series of real people, painted into the grey matter of a template.

derivatives/fmriprep   what fMRIPrep would have written: BOLD in MNI space, brain masks, confounds
atlas                  the parcels that were painted: grey matter by the nearest centre of a Schaefer parcel

The series of the cortical parcels are real ({source}). Head motion, white matter, CSF, voxel noise and the confounds
that describe them are invented and added; the series were cleaned and filtered before. The source states no
repetition time: 2 s is assumed, at which their pass-band is the published one (0.008 to 0.08 Hz).
"""


def paint_series(folder: Path, source: Path, n_people: int, seed: int = 0) -> tuple[list[str], Path]:
    """Write a dataset with fMRIPrep-style derivatives of the first people of a folder of series. Raises UsageError."""
    check_empty(folder)
    scans = _read_table(source / "list.tsv")
    people = sorted({row["participant_id"] for row in scans})[:n_people]
    with np.load(stored_path(source, scans[0]["path"]), allow_pickle=False) as archive:
        names = [str(name) for name in archive["parcels"]]
        series = {row["key"]: np.asarray(archive[row["key"]], dtype=float) for row in scans}
    table = csv.DictReader(CENTRES.read_text(encoding="utf-8").splitlines(), delimiter="\t")
    places = {row["name7"]: [float(row[axis]) for axis in "xyz"] for row in table}
    labels, affine = label_by_centres(np.array([places[name] for name in names]))
    design = DemoDesign(
        subjects=len(people), volumes=len(next(iter(series.values()))), repetition_time=REPETITION_TIME, troubles=False
    )
    atlas = _write_tables(folder, source, people, design)
    write_file(atlas, encode_nifti(labels, affine))
    table_of_atlas = layout.encode_table({"index": list(range(1, len(names) + 1)), "name": names})
    write_file(atlas.with_name(atlas.name.replace(".nii.gz", ".tsv")), table_of_atlas)
    head = load_head(labels, STEP)
    wanted = [row for row in scans if row["participant_id"] in people]
    for number, row in enumerate(wanted):
        person, session = row["participant_id"].removeprefix("sub-"), row["session_id"].removeprefix("ses-")
        rng = np.random.default_rng([seed, number])
        clean = quantise(SIGNAL_SD * _standardise(series[row["key"]]))
        write_recording(folder, design, head, (person, session, 1), clean, SPIKES, rng)
    return [row["key"] for row in wanted], atlas


def _read_table(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream, delimiter="\t"))
    except FileNotFoundError:
        raise UsageError(f"{path} is not there. Name a folder of series such as examples/stages.") from None


def _standardise(series: FloatArray) -> FloatArray:
    centred = series - series.mean(axis=0)
    return np.asarray(centred / centred.std(axis=0))


def _write_tables(folder: Path, source: Path, people: Sequence[str], design: DemoDesign) -> Path:
    """Descriptions, README and people; returns the path of the atlas."""
    rows = [row for row in _read_table(source / "participants.tsv") if row["participant_id"] in people]
    texts = {
        "dataset_description.json": (source / "dataset_description.json").read_text(encoding="utf-8"),
        "README": README.format(source=source.name.upper()),
        "participants.tsv": layout.encode_table({name: [row[name] for row in rows] for name in rows[0]}),
        str(layout.DERIVATIVES / "dataset_description.json"): layout.encode_json(
            layout.describe_derivatives(design.fmriprep_version)
        ),
        str(layout.DERIVATIVES / ".bidsignore"): layout.IGNORED,
        ".bidsignore": "atlas/\n",
    }
    for name, text in texts.items():
        write_file(folder / name, text)
    return folder / ATLAS.format(space=design.space)
