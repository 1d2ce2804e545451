"""Series that can be read but cannot be right: every fault is named by the command, and no sound series is accused."""

from __future__ import annotations

import gzip
import json
import shutil

import nibabel
import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.volumes import load_head
from tests.running import run_app
from tests.test_bad_input import Files

VOLUMES = 160
SOUND = 3
HALF = VOLUMES // 2
BRIGHT = 10_000.0


def edit(files, change):
    """Change the voxels (X, Y, Z, T) in place."""
    image = nibabel.load(files.bold)
    data = np.asarray(image.dataobj).copy()
    change(data)
    nibabel.save(nibabel.Nifti1Image(data, image.affine, image.header), files.bold)


def voxels(change):
    return lambda files: edit(files, change)


def parcel(number):
    head = load_head()
    inside = np.zeros(head.brain.shape, dtype=int)
    inside[head.brain] = head.parcel
    return inside == number


def one_voxel():
    return tuple(np.argwhere(parcel(7))[0])


def rows(change):
    """Change the rows of the confounds table."""

    def apply(files):
        table = pd.read_csv(files.table, sep="\t", dtype=str, keep_default_na=False)
        change(table).to_csv(files.table, sep="\t", index=False)

    return apply


def put(where, value):
    def change(data):
        data[where] = value

    return voxels(change)


def scale(factor, start):
    def change(data):
        data[..., start:] *= factor

    return voxels(change)


def copy(source, target):
    def change(data):
        data[..., target] = data[..., source]

    return voxels(change)


def order(indices):
    def change(data):
        data[...] = data[..., indices]

    return voxels(change)


def swap_bytes(data):
    data[..., HALF:] = data[..., HALF:].byteswap()


def noisy_half(data):
    noise = np.random.default_rng(0).standard_normal(data[..., :HALF].shape)
    data[..., HALF:] = data[..., :HALF] + 0.02 * data.std(axis=-1, keepdims=True) * noise


def brighter_half(data):
    data[..., HALF:] = 1.003 * data[..., :HALF]


def later(table):
    """Every row one volume later."""
    shifted = table.shift(1).fillna(table)
    return shifted.mask(shifted == "n/a").bfill()


def table_of_another(files):
    other = next(path for path in files.table.parents[2].glob("../sub-01/ses-a/func/*_timeseries.tsv"))
    shutil.copy(other, files.table)


def slower(files):
    """Header and sidecar say the same, and both are wrong."""
    image = nibabel.load(files.bold)
    zooms = image.header.get_zooms()
    image.header.set_zooms((*zooms[:3], 2 * zooms[3]))
    nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), image.affine, image.header), files.bold)
    sidecar = files.bold.with_name(files.bold.name.replace(".nii.gz", ".json"))
    sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), "RepetitionTime": 2 * zooms[3].item()}))


def centimetres(table):
    moved = pd.to_numeric(table["framewise_displacement"], errors="coerce") / 10
    return table.assign(framewise_displacement=moved.map(lambda one: f"{one:.9f}" if one == one else "n/a"))


def shuffled_motion(table):
    """Parameters of the same size in another order: those of another run."""
    return table.assign(
        **{f"{kind}_{axis}": table[f"{kind}_{axis}"].to_numpy()[::-1] for kind in ("trans", "rot") for axis in "xyz"}
    )


def still(table):
    return table.assign(**{name: "0.0" for name in table if name.startswith(("trans_", "rot_"))})


def rewrite(change, attribute="bold"):
    """Change the inflated bytes of an image."""

    def apply(files):
        path = getattr(files, attribute)
        path.write_bytes(gzip.compress(change(bytearray(gzip.decompress(path.read_bytes())))))

    return apply


def header(offset, content):
    def change(inflated):
        inflated[offset : offset + len(content)] = content
        return inflated

    return change


def break_checksum(files):
    content = bytearray(files.mask.read_bytes())
    content[-6] ^= 0xFF
    files.mask.write_bytes(content)


FAULTS = {
    "a volume of zeros": (put((..., 40), 0), "done", "hold one value everywhere were left out: 1 (counted from 0: 40)"),
    "a third of zeros": (put((..., slice(0, 55)), 0), "excluded", "hold one value everywhere were left out: 55 "),
    "zeros at the end": (put((..., slice(130, None)), 0), "excluded", "hold one value everywhere were left out: 30 "),
    "four frozen": (copy([20], [21, 22, 23, 24]), "done", "are copies of earlier ones were left out: 4 "),
    "frozen half": (copy([HALF], range(HALF, VOLUMES)), "excluded", "are copies of earlier ones were left out: 79 "),
    "repeated half": (
        copy(range(HALF), range(HALF, VOLUMES)),
        "excluded",
        "are copies of earlier ones were left out: 80 ",
    ),
    "repeated block": (copy(range(10, 18), range(90, 98)), "done", "are copies of earlier ones were left out: 8 "),
    "gain doubled": (scale(2.0, HALF), "excluded", f"changes its level by 100 % at volume {HALF}"),
    "gain up by 6 %": (scale(1.06, 50), "done", "% at volume 50, for good"),
    "a huge voxel": (
        put((*one_voxel(), 33), 3e38),
        "done",
        "far away from all others were left out: 1 (counted from 0: 33)",
    ),
    "a huge voxel for half": (
        put((*one_voxel(), slice(HALF, None)), 3e38),
        "done",
        "are constant for long or lose their level have no value: 1.",
    ),
    "a flipped bit": (put((*one_voxel(), 70), 1e6), "done", "(counted from 0: 70)"),
    "a frozen parcel": (
        put((parcel(7), slice(HALF, None)), BRIGHT),
        "done",
        "are constant for long or lose their level have no value: 1.",
    ),
    "a dark parcel": (
        put((parcel(7), slice(HALF, None)), 0),
        "done",
        "are constant for long or lose their level have no value: 1.",
    ),
    "a lost slice": (
        put((slice(None), slice(None), slice(8, 10), 33), 0),
        "done",
        "far away from all others were left out: 1 (counted from 0: 33)",
    ),
    "lost slices": (
        put((slice(None), slice(None), slice(8, None), slice(HALF, None)), 0),
        "excluded",
        "or lose their level have no value",
    ),
    "shuffled": (order(np.random.default_rng(0).permutation(VOLUMES)), "excluded", "of another recording"),
    "backwards": (order(range(VOLUMES - 1, -1, -1)), "excluded", "of another recording"),
    "foreign table": (table_of_another, "excluded", "of another recording"),
    "shifted table": (rows(later), "excluded", "1 volumes later: it is shifted"),
    "swapped bytes": (voxels(swap_bytes), "excluded", "cannot be right"),
    "data type": (rewrite(header(70, b"\x08\x00")), "done", "times as bright as its table says"),
    "more than declared": (rewrite(lambda inflated: inflated + bytes(7)), "failed", "more data follow"),
    "no place": (rewrite(header(252, bytes(4))), "failed", "does not say where its voxels are"),
    "checksum of the mask": (break_checksum, "failed", "is truncated or damaged"),
    "repetition time doubled": (
        slower,
        "done",
        "The repetition time is 5 s, and the cosines of the table are those of",
    ),
    "displacement in centimetres": (
        rows(centimetres),
        "done",
        "not that of its motion parameters (its median is 0.1 times",
    ),
    "another's parameters": (rows(shuffled_motion), "done", "not that of its motion parameters (its median is 1 times"),
    "parameters without motion": (rows(still), "done", "motion parameters of the table do not move, though its"),
    "repeated half with noise": (voxels(noisy_half), "excluded", "are copies of earlier ones were left out: 80 "),
    "repeated half, brighter": (voxels(brighter_half), "excluded", "are copies of earlier ones were left out: 80 "),
}
LABELS = {name: f"{number:02d}" for number, name in enumerate(FAULTS, SOUND + 1)}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Three sound recordings, and one for every fault."""
    root = tmp_path_factory.mktemp("damaged") / "in"
    make_dataset(root, DemoDesign(subjects=SOUND + len(FAULTS), sessions=1, volumes=VOLUMES, troubles=False))
    for name, (damage, *_) in FAULTS.items():
        damage(Files(root, LABELS[name]))
    return run_app(root, root.parent / "out", "--atlas", "builtin")


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_named_in_the_status_or_on_the_page(damaged, name):
    _, state, words = FAULTS[name]
    recording = f"sub-{LABELS[name]}"
    assert {state} == {found for key, found in damaged.states().items() if key.startswith(recording)}
    page = (damaged.output / f"{recording}.html").read_text()
    assert words in page
    assert str(damaged.output.parent) not in page, "folders are for the logs"
    told = "used with caution" if state == "done" else state
    assert told in page
    if state != "done":
        assert words in damaged.reason(recording)
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


def test_the_group_level_says_which_scans_have_a_caution(damaged):
    """The cautions of the pages are a column of ``scans.tsv``, and findings of the check that count them."""
    bids = damaged.output.parent / "in"
    options = ("--check", "--quiet", "--min-time", "0", "--drop-people-missing", "1")
    assert main([str(bids), str(damaged.output), "group", *options]) == 0
    scans = read(damaged.output / "group" / "scans.tsv").set_index("participant_id")
    used = [name for name, (_, state, _) in FAULTS.items() if state == "done"]
    assert set(scans.index) == {f"sub-{LABELS[name]}" for name in used} | {
        f"sub-{number:02d}" for number in range(1, SOUND + 1)
    }
    assert [scans["damage"][f"sub-{number:02d}"] for number in range(1, SOUND + 1)] == ["n/a"] * SOUND
    assert {name: scans["damage"][f"sub-{LABELS[name]}"] for name in used} == dict.fromkeys(used, "volumes") | {
        "gain up by 6 %": "gain",
        "a huge voxel for half": "parcels, table",
        "a frozen parcel": "parcels",
        "a dark parcel": "parcels",
        "data type": "table",
    } | dict.fromkeys(
        ("repetition time doubled", "displacement in centimetres", "another's parameters", "parameters without motion"),
        "n/a",
    )
    assert str(damaged.output.parent) not in (damaged.output / "group" / "excluded.tsv").read_text()
    check = read(damaged.output / "group" / "check.tsv")
    told = check[check["check"] == "damaged series"]
    words = {"volumes": "volumes that are", "parcels": "parcels that", "gain": "a step", "table": "a confounds table"}
    for kind, what in words.items():
        (row,) = told[told["finding"].str.contains(what)].to_dict("records")
        assert int(row["n"]) == sum(kind in text.split(", ") for text in scans["damage"])
        assert row["level"] == ("alarm" if kind == "volumes" else "look"), "six of fourteen are many"


def read(path):
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)


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
