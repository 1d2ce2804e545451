"""Series that can be read but cannot be right: every fault is named by the command, and no sound series is accused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from itertools import count

import nibabel
import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.signals import load_head
from fcpower_bids.outputs.status import file_state
from tests.planting.damages import Files, damage_people, voxels
from tests.planting.trees import copy_builtin
from tests.running import run_app
from tests.test_bad_input import rewritten

VOLUMES = 160
SOUND = 3
ANOTHER = "02"
"""A sound person whose recording is not the one that is damaged."""


def put(data, place, value):
    data[place] = value


def copy(data, source, target):
    data[..., target] = data[..., source].copy()


def scale(data, factor, volumes):
    data[..., volumes] *= factor


def parcel(data, volumes, value, n=None):
    """All voxels of a parcel, or some."""
    head = load_head()
    inside = np.zeros(head.brain.shape, dtype=int)
    inside[head.brain] = head.parcel
    data[(*np.argwhere(inside == 7)[:n].T, volumes)] = value


def later(files):
    """Every row one volume later."""

    def shift(table):
        shifted = table.shift(1).fillna(table)
        return shifted.mask(shifted == "n/a").bfill()

    files.edit_table(shift)


def still(files):
    motion = ("trans_", "rot_")
    files.edit_table(lambda table: table.assign(**{name: "0.0" for name in table if name.startswith(motion)}))


def of_another(files):
    (source,) = files.folder.parents[2].glob(f"sub-{ANOTHER}/ses-a/func/*_timeseries.tsv")
    shutil.copy(source, files.table)


other_type = rewritten(lambda content: content.__setitem__(slice(70, 72), b"\x08\0"), "bold")


def slower(files):
    """Header and sidecar say the same, and both are wrong."""
    files.edit_bold(lambda data: None, repetition_time=5.0)
    files.json.write_text(json.dumps({**json.loads(files.json.read_text()), "RepetitionTime": 5.0}))


SHUFFLED = np.random.default_rng(0).permutation(VOLUMES)
SECOND_HALF = np.s_[80:]
EMPTY, COPIES = "hold one value everywhere were left out: ", "are copies of earlier ones were left out: "
STRAY, LOST = "far away from all others were left out: ", "are constant for long or lose their level have no value: 1."
OTHER = "of another recording"
DONE, EXCLUDED = "done", "excluded"
DAMAGE: dict[str, tuple[Callable[[Files], object], str, str]] = {
    "a volume of zeros": (voxels(put, np.s_[..., 40], 0), DONE, f"{EMPTY}1 (counted from 0: 40)"),
    "four frozen": (voxels(copy, np.s_[20:21], np.s_[21:25]), DONE, f"{COPIES}4 "),
    "gain down by 12 %": (voxels(scale, 0.88, np.s_[100:]), EXCLUDED, "% at volume 100, for good"),
    "a huge voxel": (voxels(parcel, 33, 3e38, 1), DONE, f"{STRAY}1 (counted from 0: 33)"),
    "a dark parcel": (voxels(parcel, SECOND_HALF, 0), DONE, LOST),
    "shuffled": (voxels(copy, SHUFFLED, np.s_[:]), EXCLUDED, OTHER),
    "data type": (other_type, DONE, "times as bright as its table says"),
    "foreign table": (of_another, EXCLUDED, OTHER),
    "shifted table": (later, EXCLUDED, "1 volumes later: it is shifted"),
    "parameters without motion": (
        still,
        DONE,
        "motion parameters of the table do not move, though its",
    ),
    "repetition time doubled": (slower, DONE, "The repetition time is 5 s, and the cosines of the table are those of"),
}
LABELS = dict(zip(DAMAGE, (f"{number:02d}" for number in count(SOUND + 1)), strict=False))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Some sound recordings, and one for every damage."""
    root = tmp_path_factory.mktemp("damaged") / "in"
    make_dataset(root, DemoDesign(subjects=SOUND, sessions=1, volumes=VOLUMES, troubles=False))
    damage_people(root, {LABELS[name]: damage for name, (damage, *_) in DAMAGE.items()})
    return run_app(root, root.parent / "out", "--atlas", "builtin")


@pytest.mark.parametrize("name", DAMAGE)
def test_every_fault_is_named_in_the_status_or_on_the_page(damaged, name):
    recording, (_, outcome, words) = f"sub-{LABELS[name]}", DAMAGE[name]
    assert {outcome} == {found for key, found in damaged.states().items() if key.startswith(recording)}
    page = (damaged.output / f"{recording}.html").read_text()
    assert words in page
    assert str(damaged.output.parent) not in page, "folders are for the logs"
    told = "used with caution" if outcome == "done" else outcome
    assert told in page
    if outcome != "done":
        assert words in damaged.reason(recording)
        assert not damaged.files(f"{recording}_*_relmat.tsv")


def test_sound_recordings_are_not_accused(damaged):
    for number in range(1, SOUND + 1):
        (row,) = pd.read_csv(damaged.file(f"sub-{number:02d}", "desc-fcpower_qc.tsv"), sep="\t").to_dict("records")
        kinds = ("empty_volumes", "copied_volumes", "stray_volumes", "stray_parcels", "table_lag", "gain_step")
        assert [row[kind] for kind in kinds] == [0] * 6
        assert min(row["table_global_signal"], row["table_dvars"]) > 0.9
        assert "1 of 1 recording can be used." in (damaged.output / f"sub-{number:02d}.html").read_text()


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
    for name, expected in (("four frozen", [21, 22, 23, 24]), ("a huge voxel", [33])):
        volumes = pd.read_csv(damaged.file(f"sub-{LABELS[name]}", "_outliers.tsv"), sep="\t")
        assert np.flatnonzero(volumes["stray"]).tolist() == expected
        assert not volumes["kept"][expected].any()
        clean = pd.read_csv(damaged.file(f"sub-{LABELS[name]}", "_timeseries.tsv"), sep="\t")
        assert np.abs(clean.to_numpy()).max() < 6, "nor does it change the rest"
    series = pd.read_csv(damaged.file(f"sub-{LABELS['a dark parcel']}", "_timeseries.tsv"), sep="\t")
    assert np.flatnonzero(series.isna().all()).tolist() == [6]


@pytest.mark.parametrize("flipped", [False, True])
def test_a_damaged_or_flipped_atlas_is_refused(exact_demo, tmp_path, flipped):
    image = copy_builtin(tmp_path / "tpl-MNI152NLin2009cAsym_atlas-mine_dseg")
    original = nibabel.load(image)
    labels = np.asarray(original.dataobj)[:: -1 if flipped else 1]
    content = bytearray(gzip.compress(nibabel.Nifti1Image(labels, original.affine, original.header).to_bytes(), 1))
    content[-8] ^= not flipped  # of the stored checksum; every voxel can still be read
    image.write_bytes(content)
    found = run_app(exact_demo[0], tmp_path / "out", "--atlas", image, code=2)
    said = f"{image.name} is flipped: the parcels that are named left lie on the right"
    assert (said if flipped else "truncated or damaged") in found.err
    assert not found.files("*_relmat.tsv")


def test_another_content_of_the_same_size_and_time_is_another_fingerprint(tmp_path):
    path = tmp_path / "x.nii.gz"
    states = set()
    for content in (b"a" * 100, b"b" * 100):
        path.write_bytes(gzip.compress(content, mtime=0))
        os.utime(path, (0, 0))
        states.add((file_state(path), path.stat().st_size))
    assert len(states) == 2
    assert len({size for _, size in states}) == 1
