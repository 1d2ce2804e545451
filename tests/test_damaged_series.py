"""Series that can be read but cannot be right: every fault is named by the command, and no sound series is accused.

The catalogue is ``planting/damage.tsv``: a line is one damage and its level, and what is expected of the
command: state and words on the page of the recording. All lines with ``FCPOWER_FAULTS=all`` (``make faults``), else a
sample by the seed ``FCPOWER_SEED``.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.signals import load_head
from tests.running import run_app
from tests.test_bad_input import Files

CATALOGUE = Path(__file__).parent / "planting" / "damage.tsv"
VOLUMES = 160
SOUND = 3


@dataclass(frozen=True)
class Line:
    """One line of the catalogue."""

    name: str
    damage: str
    level: str
    outcome: str
    words: str


def read_catalogue() -> list[Line]:
    table = pd.read_csv(CATALOGUE, sep="\t", dtype=str, keep_default_na=False)
    return [Line(**row) for row in table.to_dict("records")]


def sample(lines: Sequence[Line], share: int, seed: int, always: Sequence[str] = ()) -> list[Line]:
    """One line of so many, drawn by a seed, and those that are always tried."""
    drawn = np.random.default_rng(seed).permutation(len(lines))[: -(-len(lines) // share)]
    return [line for number, line in enumerate(lines) if number in drawn or line.name in always]


def label(number: int) -> str:
    return f"{SOUND + 1 + number:02d}"


ORIGINAL, ANOTHER = "01", "02"
"""The sound person whose recording is damaged, and another: the same in every sample of the lines."""


def plant(root: Path, lines: Sequence[Line], seed: int = 0) -> None:
    """Make some sound recordings, and one for every line, which is a copy of one of them but for its damage."""
    make_dataset(root, DemoDesign(subjects=SOUND, sessions=1, volumes=VOLUMES, troubles=False, seed=seed))
    people = pd.read_csv(root / "participants.tsv", sep="\t", dtype=str, keep_default_na=False)
    rows = [people]
    for number, line in enumerate(lines):
        source, target = f"sub-{ORIGINAL}", f"sub-{label(number)}"
        folder = root / "derivatives" / "fmriprep" / target
        shutil.copytree(folder.with_name(source), folder)
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            path.rename(path.with_name(path.name.replace(source, target)))
        rows.append(people[people["participant_id"] == source].assign(participant_id=target))
        touched(Files(root, label(number)), str(1e-6 * (number + 1)))
        DAMAGE[line.damage](Files(root, label(number)), *line.level.split())
    pd.concat(rows).to_csv(root / "participants.tsv", sep="\t", index=False)


# ---- what is done to the files; the words of the level are the arguments

DAMAGE: dict[str, Callable[..., object]] = {}


def damage(function: Callable[..., object]) -> Callable[..., object]:
    DAMAGE[function.__name__] = function
    return function


def of_voxels(function: Callable[..., object]) -> Callable[..., object]:
    """A damage of the voxels (X, Y, Z, T) of a series, in place."""

    def apply(files: Files, *level: str) -> None:
        image = nibabel.load(files.bold)
        data = np.asarray(image.dataobj).copy()
        function(data, *level)
        nibabel.save(nibabel.Nifti1Image(data, image.affine, image.header), files.bold)

    DAMAGE[function.__name__] = apply
    return function


def of_rows(function: Callable[..., pd.DataFrame]) -> Callable[..., object]:
    """A damage of the confounds table, whose cells are text."""

    def apply(files: Files, *level: str) -> None:
        table = pd.read_csv(files.table, sep="\t", dtype=str, keep_default_na=False)
        function(table, *level).to_csv(files.table, sep="\t", index=False)

    DAMAGE[function.__name__] = apply
    return apply


def span(words: str) -> slice:
    return slice(*(int(word) if word else None for word in words.split(":")))


def parcel_mask(number: int = 7) -> np.ndarray:
    head = load_head()
    inside = np.zeros(head.brain.shape, dtype=int)
    inside[head.brain] = head.parcel
    return inside == number


@of_voxels
def value(data, volumes, number):
    data[..., span(volumes)] = float(number)


@of_voxels
def copy(data, source, target):
    data[..., span(target)] = data[..., span(source)]


@of_voxels
def scale(data, factor, volumes):
    data[..., span(volumes)] *= float(factor)


@of_voxels
def voxel(data, volumes, number):
    data[(*np.argwhere(parcel_mask())[0], span(volumes))] = float(number)


@of_voxels
def parcel(data, volumes, number):
    data[parcel_mask(), span(volumes)] = float(number)


@of_voxels
def slices(data, which, volumes):
    data[:, :, span(which), span(volumes)] = 0


@of_voxels
def order(data, how):
    new = np.random.default_rng(0).permutation(data.shape[-1]) if how == "shuffled" else slice(None, None, -1)
    data[...] = data[..., new].copy()


@of_voxels
def swap(data, volumes):
    data[..., span(volumes)] = data[..., span(volumes)].byteswap()


@of_voxels
def spikes(data, number, factor):
    which = np.random.default_rng(1).choice(np.arange(10, data.shape[-1]), int(number), replace=False)
    data[..., which] *= float(factor)


@damage
def header(files, offset, content):
    """Write bytes, in hexadecimal digits, into the header."""
    inflated, new = bytearray(gzip.decompress(files.bold.read_bytes())), bytes.fromhex(content)
    inflated[int(offset) : int(offset) + len(new)] = new
    files.bold.write_bytes(gzip.compress(inflated))


@damage
def longer(files, number):
    files.bold.write_bytes(gzip.compress(gzip.decompress(files.bold.read_bytes()) + bytes(int(number))))


@damage
def checksum(files, which):
    path = getattr(files, which)
    content = bytearray(path.read_bytes())
    content[-6] ^= 0xFF
    path.write_bytes(content)


@damage
def slower(files, factor):
    """Header and sidecar say the same, and both are wrong."""
    step = 2.5 * float(factor)
    files.edit_bold(lambda data: None, repetition_time=step)
    files.json.write_text(json.dumps({**json.loads(files.json.read_text()), "RepetitionTime": step}))


@damage
def of_another(files):
    (source,) = files.folder.parents[2].glob(f"sub-{ANOTHER}/ses-a/func/*_timeseries.tsv")
    shutil.copy(source, files.table)


@of_rows
def touched(table, millimetres):
    """Move the head by next to nothing in one volume; else the group level takes copies for one scan."""
    row = table.index[len(table) // 2]
    table.loc[row, "trans_x"] = f"{float(table['trans_x'][row]) + float(millimetres):.9f}"
    return table


@of_rows
def later(table, volumes):
    """Every row some volumes later."""
    shifted = table.shift(int(volumes)).fillna(table)
    return shifted.mask(shifted == "n/a").bfill()


@of_rows
def displacement(table, factor):
    moved = pd.to_numeric(table["framewise_displacement"], errors="coerce") * float(factor)
    return table.assign(framewise_displacement=moved.map(lambda one: f"{one:.9f}" if one == one else "n/a"))


@of_rows
def parameters(table, how):
    """Those of another run, of the same size in another order, or of a head that does not move."""
    names = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
    if how == "still":
        return table.assign(**{name: "0.0" for name in table if name.startswith(("trans_", "rot_"))})
    return table.assign(**{name: table[name].to_numpy()[::-1] for name in names})


SHARE = 1 if os.environ.get("FCPOWER_FAULTS") == "all" else 4
SEED = int(os.environ.get("FCPOWER_SEED", "0"))
ALWAYS = ("four frozen", "a huge voxel", "a dark parcel", "gain up by 6 %", "data type")
LINES = sample(read_catalogue(), SHARE, SEED, ALWAYS)
LABELS = {line.name: label(number) for number, line in enumerate(LINES)}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Some sound recordings, and one for every line."""
    root = tmp_path_factory.mktemp("damaged") / "in"
    plant(root, LINES)
    return run_app(root, root.parent / "out", "--atlas", "builtin")


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_every_fault_is_named_in_the_status_or_on_the_page(damaged, line):
    recording = f"sub-{LABELS[line.name]}"
    assert {line.outcome} == {found for key, found in damaged.states().items() if key.startswith(recording)}
    page = (damaged.output / f"{recording}.html").read_text()
    assert line.words in page
    assert str(damaged.output.parent) not in page, "folders are for the logs"
    told = "used with caution" if line.outcome == "done" else line.outcome
    assert told in page
    if line.outcome != "done":
        assert line.words in damaged.reason(recording)
        assert not damaged.files(f"{recording}_*_relmat.tsv")


def test_sound_recordings_are_not_accused(damaged):
    for number in range(1, SOUND + 1):
        (row,) = pd.read_csv(damaged.file(f"sub-{number:02d}", "desc-fcpower_qc.tsv"), sep="\t").to_dict("records")
        kinds = ("empty_volumes", "copied_volumes", "stray_volumes", "stray_parcels", "table_lag", "gain_step")
        assert [row[kind] for kind in kinds] == [0] * 6
        assert min(row["table_global_signal"], row["table_dvars"]) > 0.9
        assert "The recording can be used." in (damaged.output / f"sub-{number:02d}.html").read_text()


def test_agreement_with_the_table_is_that_of_the_files(damaged):
    """Level, and correlation of the changes, of the mean over the brain and of DVARS, from every voxel of the mask."""
    bids = damaged.output.parent / "in"
    for number in range(1, SOUND + 1):
        (row,) = pd.read_csv(damaged.file(f"sub-{number:02d}", "desc-fcpower_qc.tsv"), sep="\t").to_dict("records")
        (bold,) = bids.rglob(f"sub-{number:02d}_*desc-preproc_bold.nii.gz")
        (mask,) = bids.rglob(f"sub-{number:02d}_*desc-brain_mask.nii.gz")
        (confounds,) = bids.rglob(f"sub-{number:02d}_*desc-confounds_timeseries.tsv")
        voxels = np.asarray(nibabel.load(bold).dataobj, float)[np.asarray(nibabel.load(mask).dataobj) > 0]
        table = pd.read_csv(confounds, sep="\t", na_values="n/a")
        rows = slice(int(row["dummy_volumes"]) + 1, None)
        level = np.median(voxels.mean(0)[rows]) / np.median(table["global_signal"][rows])
        assert row["table_level"] == pytest.approx(level, rel=0.01)
        dvars = np.sqrt(np.mean(np.diff(voxels, axis=1) ** 2, axis=0))
        ours = {"global_signal": np.diff(voxels.mean(0)), "dvars": dvars}
        theirs = {"global_signal": np.diff(table["global_signal"]), "dvars": table["dvars"].to_numpy()[1:]}
        for name, values in ours.items():
            start = rows.start - 1
            both = np.corrcoef(values[start:], theirs[name][start:])[0, 1]
            assert row[f"table_{name}"] == pytest.approx(both, abs=0.03)


def test_the_tables_say_which_volumes_and_parcels_were_left_out(damaged):
    volumes = pd.read_csv(damaged.file(f"sub-{LABELS['four frozen']}", "_outliers.tsv"), sep="\t")
    assert np.flatnonzero(volumes["stray"]).tolist() == [21, 22, 23, 24]
    assert not volumes["kept"][21:25].any()
    series = pd.read_csv(damaged.file(f"sub-{LABELS['a dark parcel']}", "_timeseries.tsv"), sep="\t")
    assert np.flatnonzero(series.isna().all()).tolist() == [6]


def test_what_is_left_out_does_not_change_the_rest(damaged):
    """A huge voxel in one volume gives the connectome that a censored volume gives, not that of the artefact."""
    name = LABELS["a huge voxel"]
    fc = pd.read_csv(damaged.file(f"sub-{name}", "stat-pearsoncorrelation_relmat.tsv"), sep="\t", index_col=0)
    clean = pd.read_csv(damaged.file(f"sub-{name}", "stat-mean_timeseries.tsv"), sep="\t")
    assert np.isfinite(fc.to_numpy()).all()
    assert np.abs(clean.to_numpy()).max() < 6
