"""Recordings as they come: each is read for what it is, or named with what is wrong with it."""

from __future__ import annotations

import json
import shutil
from functools import partial

import nibabel
import numpy as np
import pandas as pd
import pytest
from nibabel.cifti2 import BrainModelAxis

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.notebook import load_cohort
from tests.cases.cohorts import LABELS, T, index_rows, run, series_of, table, write_list
from tests.elsewhere.sources import read_connectome
from tests.planting.damages import damage_people
from tests.planting.surfaces import grayordinates, labels_of, make_surface_dataset, save_dlabel
from tests.running import PLAIN

CHECK = ("--analyses", "check", "--min-time", "0", "--nprocs", "1")


def test_a_column_that_is_not_there_is_a_parcel_without_a_value(tmp_path):
    folder = tmp_path / "cpac" / "Outputs" / "cpac" / "filt_noglobal" / "rois_toy"
    folder.mkdir(parents=True)
    (tmp_path / "bids").mkdir()
    names = list("abcdefghijkl")
    truth = {}
    for label in LABELS[:24]:
        values = pd.DataFrame(np.random.default_rng(int(label)).normal(size=(T, 12)), columns=names)
        values = values.drop(columns={"003": "b", "007": "f"}.get(label, []))
        header = "\t".join(f"#{name}" for name in values)
        np.savetxt(folder / f"NYU_{label}_rois_toy.1D", values, delimiter="\t", header=header, comments="")
        truth[f"sub-NYU{label}"] = values.corr().reindex(index=names, columns=names)
    run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"cpac={tmp_path / 'cpac'}", *CHECK, code=0)
    rows = table(tmp_path / "out" / "group" / "excluded.tsv")
    parcels = rows[rows["what"] == "parcel"]["reason"].str.partition(":")[0].tolist()
    assert parcels == ["b", "f"]
    assert len(table(tmp_path / "out" / "group" / "scans.tsv")) == 24
    cohort = load_cohort(tmp_path / "out", tmp_path / "bids", min_time=0.0)
    kept = [name for name in names if name not in "bf"]
    assert list(cohort.parcels) == kept
    for row, name in enumerate(cohort.names):
        np.testing.assert_allclose(cohort.connectomes[row], truth[name].loc[kept, kept], atol=1e-9)


def test_a_path_of_windows_is_a_path(tmp_path):
    source = write_list(tmp_path / "series", LABELS[:4])
    rows = table(source)
    rows["path"] = [f".\\series\\sub-{label}.npy" for label in LABELS[:4]]
    rows.to_csv(tmp_path / "list.tsv", sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={tmp_path / 'list.tsv'}", *CHECK, code=0)
    fc = read_connectome(next((tmp_path / "out").glob("sub-003/**/*_timeseries.npy")))
    np.testing.assert_allclose(fc, np.corrcoef(series_of("003").T), atol=1e-12)


ATLAS = ("--atlas", "builtin", "--nprocs", "1", "--quiet")


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """One scan of one person, with its raw dataset; not to be written into."""
    folder = tmp_path_factory.mktemp("scan") / "in"
    make_dataset(folder, DemoDesign.tiny(subjects=1, sessions=1, volumes=180))
    return folder


def as_people(scan, folder, changes):
    """Write a dataset in which everybody has the scan, but the first with a change; return the labels by change."""
    shutil.copytree(scan, folder / "in")
    changed = {f"{number:02d}": change for number, change in enumerate(changes.values(), start=2)}
    damage_people(folder / "in", changed)
    return {"whole": "sub-01", **dict(zip(changes, map("sub-{}".format, changed), strict=True))}


def to_eight_bits(files):
    image = nibabel.load(files.bold)
    data = np.asarray(image.dataobj, dtype=np.float32)
    data = np.round((data - data.min()) / np.ptp(data) * 255).astype(np.uint8)
    header = image.header.copy()
    header.set_data_dtype(data.dtype)
    nibabel.save(nibabel.Nifti1Image(data, image.affine, header), files.bold)


def notes_of(out, person="sub-01") -> list[str]:
    (sidecar,) = out.glob(f"{person}/**/*_stat-mean_timeseries.json")
    return json.loads(sidecar.read_text())["Notes"]


def fc_of(out, person="sub-01") -> np.ndarray:
    (path,) = out.glob(f"{person}/**/*_stat-pearsoncorrelation_relmat.npy")
    return np.load(path)


def write_raw(files, name: str, seconds: float) -> None:
    """The raw sidecar of the scan, its run named as given; that of the derivatives goes."""
    raw = files.root / files.folder.relative_to(files.root / "derivatives" / "fmriprep")
    raw.mkdir(parents=True, exist_ok=True)
    for path in (*files.folder.glob("*_bold.json"), *raw.glob("*.json")):
        path.unlink()
    stem = files.bold.name.partition("_run-")[0]
    (raw / f"{stem}_{name}_bold.json").write_text(json.dumps({"RepetitionTime": seconds}))


def drop_cosines(files) -> None:
    files.edit_table(lambda rows: rows.drop(columns=[name for name in rows if name.startswith("cosine")]))


WITNESSES = {
    "all agree, header 1 s": (1.0, lambda files: None, True),
    "all agree, header in milliseconds": (2500.0, lambda files: None, True),
    "the raw sidecar has another zero in its run": (1.0, lambda files: write_raw(files, "run-01", 2.5), True),
    "no cosines": (1.0, drop_cosines, False),
    "the sidecars agree and the cosines are of another time": (1.0, lambda files: write_both(files, 4.0), False),
}


def write_both(files, seconds: float) -> None:
    """Two sidecars that say the same: of the derivatives, and of the raw dataset."""
    write_raw(files, "run-1", seconds)
    files.json.write_text(json.dumps({"RepetitionTime": seconds}))


def test_components_without_cosines_get_a_note_where_the_scan_must_have_them(scan, tmp_path):
    labels = as_people(scan, tmp_path, {"without": drop_cosines})
    for strategy, expected in (("acompcor", {"without"}), ("24P", set())):
        words = (*ATLAS, "--strategy", strategy, "--min-time", "0", "--fd-thresh", "0")
        out = tmp_path / strategy
        assert run(tmp_path / "in", out, "participant", *words).code == 0
        noted = {kind for kind, label in labels.items() if any("has no cosines" in n for n in notes_of(out, label))}
        assert noted == expected


def test_a_space_is_understood_as_fmriprep_writes_it(scan, tmp_path):
    space, out = "MNI152NLin2009cAsym:res-2", tmp_path / "out"
    assert run(scan, out, "participant", *ATLAS, "--space", space.replace("res-2", "res-1")).code == 3
    assert run(scan, out, "participant", *ATLAS, "--space", space).code == 0
    assert run(scan, out, "group", "--space", space, *CHECK).code in (0, 3)
    assert len(table(out / "recordings.tsv")) == 1


@pytest.mark.parametrize("kind", ["counted from 1", "a region of that name"])
def test_a_table_that_counts_the_background_is_refused(kind, scan, tmp_path):
    atlas = builtin_atlas("MNI152NLin2009cAsym", tmp_path)
    shutil.copy(atlas.image, tmp_path / "mine.nii.gz")
    names = [f"region{label}" for label in atlas.labels]
    first = "Background" if kind == "counted from 1" else ""
    rows = list(enumerate([first, *names] if first else names, start=1))
    if kind == "a region of that name":  # and all have voxels: nothing is shifted
        rows[3] = (4, "Unknown")
    (tmp_path / "mine.tsv").write_text("index\tname\n" + "".join(f"{label}\t{name}\n" for label, name in rows))
    words = ("--atlas", f"{tmp_path / 'mine.nii.gz'}:{tmp_path / 'mine.tsv'}", "--nprocs", "1")
    found = run(scan, tmp_path / "out", "participant", *words, code=2 if first else 0)
    assert ("counts the background" in found.err) == bool(first)
    assert first or not (tmp_path / "out" / "work").exists()  # nothing of a finished run stays there


CHANGED = {
    "one motion column": (
        lambda files: files.edit_table(lambda rows: rows.assign(rot_y="0.1")),
        "rot_y of the table has one value",
    ),
    "another repetition time": (lambda files: state(files, 2.52), "2.52 s by the sidecar, which is used, and 2.5 s"),
    "eight bits": (to_eight_bits, "in 8 bits"),
}


def state(files, seconds: float) -> None:
    files.json.write_text(json.dumps(json.loads(files.json.read_text()) | {"RepetitionTime": seconds}))


@pytest.fixture(scope="module")
def changed(scan, tmp_path_factory):
    """A scan as it is, and with every change of header, sidecar or table, through one run: labels and what is left."""
    changes = {}
    for kind, (seconds, change, _) in WITNESSES.items():
        changes[kind] = lambda files, seconds=seconds, change=change: (
            files.edit_bold(lambda data: None, seconds),
            change(files),
        )
    changes |= {kind: change for kind, (change, _) in CHANGED.items()}
    folder = tmp_path_factory.mktemp("changed")
    labels = as_people(scan, folder, changes)
    run(folder / "in", folder / "out", "participant", *ATLAS[:-1], "--verbose", code=4)
    rows = table(folder / "out" / "logs" / "status.tsv").set_index("recording")
    return labels, folder / "out", {name.partition("_")[0]: row for name, row in rows.iterrows()}


@pytest.mark.parametrize("kind", WITNESSES)
def test_a_header_alone_does_not_outweigh_sidecars_and_cosines(kind, changed):
    seconds, _, is_used = WITNESSES[kind]
    labels, out, states = changed
    if not is_used:
        assert "find out which is true" in states[labels[kind]]["reason"]
        assert states[labels[kind]]["state"] != "done"
        return
    np.testing.assert_allclose(fc_of(out, labels[kind]), fc_of(out), atol=1e-5)
    assert any(f"{seconds:.6g} s by the header" in note for note in notes_of(out, labels[kind]))


@pytest.mark.parametrize("kind", CHANGED)
def test_what_silently_moves_fc_gets_a_caution(kind, changed):
    labels, out, *_ = changed
    said = CHANGED[kind][1]
    (note,) = [note for note in notes_of(out, labels[kind]) if said in note]
    assert note not in notes_of(out)
    assert said in (out / f"{labels[kind]}.html").read_text()
    (row,) = [row for row in index_rows(out) if row["recording"].startswith(labels[kind])]
    assert any(said in each for each in row["said"])


UNREAD = {"dvars": "inf", "global_signal": "-1e300", "cosine00": "1e200"}


def test_a_column_that_nothing_regresses_is_not_judged(scan, tmp_path):
    labels = as_people(scan, tmp_path, {name: partial(spoil, name) for name in UNREAD})
    run(tmp_path / "in", tmp_path / "out", "participant", *ATLAS, "--strategy", "24P", code=0)
    for column in UNREAD:
        np.testing.assert_array_equal(fc_of(tmp_path / "out", labels[column]), fc_of(tmp_path / "out"))
        notes = notes_of(tmp_path / "out", labels[column])
        assert any(column in note and "does not use it" in note for note in notes)
    strategy = tmp_path / "own.yml"
    strategy.write_text(f"name: own\nmethods: Three columns.\ncolumns: [{', '.join(UNREAD)}]\n")
    assert run(tmp_path / "in", tmp_path / "read", "participant", *ATLAS, "--strategy", strategy).code == 4
    states = table(tmp_path / "read" / "recordings.tsv")["state"].tolist()
    assert [state == "done" for state in states] == [True, False, False, False]


def spoil(column: str, files) -> None:
    files.edit_table(lambda rows: rows.assign(**{column: rows[column].where(rows.index != 5, UNREAD[column])}))


STORED = {
    "right to left": (np.array([[-1, 0, 0, 5], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]), (6, 5, 4), 0),
    "another order of axes": (np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]), (5, 6, 4), 0),
    "half a voxel apart": (np.array([[1, 0, 0, 0.5], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]), (7, 5, 4), 5),
}
WORDS = ("participant", "--min-time", "60", *PLAIN, "--nprocs", "1", "--quiet", "--atlas")


@pytest.fixture(scope="module")
def grayordinate_scan(tmp_path_factory):
    """A dataset of grayordinates, its labels, and the outputs."""
    folder = tmp_path_factory.mktemp("grayordinates")
    make_surface_dataset(folder / "in")
    straight = save_dlabel(folder / "one" / "tpl-fsLR_atlas-Mine_dseg.dlabel.nii", labels_of(5), list("abcde"))
    assert run(folder / "in", folder / "whole", *WORDS, straight).code == 0
    return folder, straight


@pytest.mark.parametrize("kind", STORED)
def test_volumes_of_grayordinates_are_compared_by_their_places(kind, grayordinate_scan, tmp_path):
    """The voxels and the affine of the other array are those of a change of indices (4, 4)."""
    folder, straight = grayordinate_scan
    turn, shape, code = STORED[kind]
    labels = labels_of(5)
    axis = grayordinates()
    *cortex, (_, _, volume) = axis.iter_structures()
    voxels, affine = volume.voxel @ turn[:3, :3].T + turn[:3, 3], volume.affine @ np.linalg.inv(turn)
    turned = BrainModelAxis(volume.name, np.rint(voxels).astype(int), volume.vertex, affine, shape, {})
    other = cortex[0][2] + cortex[1][2] + turned
    image = nibabel.load(straight)
    own = nibabel.Cifti2Image(labels[None].astype(np.float32), header=(image.header.get_axis(0), other))
    (tmp_path / "two").mkdir()
    nibabel.save(own, tmp_path / "two" / straight.name)
    run(folder / "in", tmp_path / "out", *WORDS, tmp_path / "two" / straight.name, code=code)
    if not code:
        np.testing.assert_array_equal(fc_of(tmp_path / "out"), fc_of(folder / "whole"))
