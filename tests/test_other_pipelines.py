"""HCP trees, and datasets of fsLR alone with atlases of other programs: the numbers of the same series otherwise."""

from __future__ import annotations

import json

import nibabel
import numpy as np
import pandas as pd
import pytest
from nibabel.cifti2 import ParcelsAxis, SeriesAxis

from fcpower_bids.outputs.tables import read_matrix
from tests.planting.pipelines import hcp_surface, hcp_volumes, make_volumes
from tests.planting.surfaces import TR, labels_of, make_motion, make_surface_dataset, save_dlabel
from tests.running import PLAIN, Finished, run_app

FC, OUTLIERS = "stat-pearsoncorrelation_relmat.tsv", "desc-confounds_outliers.tsv"
CHOICES = ("--nprocs", "1", "--min-time", "60", "--fd-thresh", "0.12", "--high-pass", "0.01", "--low-pass", "0.15")
BUILTIN = ("--atlas", "builtin")


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """One recording as fMRIPrep wrote it, and what the command made of it."""
    folder = tmp_path_factory.mktemp("pipelines")
    bold, mask, motion = make_volumes(folder / "fmriprep")
    found = run_app(folder / "fmriprep", folder / "out", *CHOICES, *BUILTIN, code=0)
    return (bold, mask, motion), found


def assert_same(ours: Finished, theirs: Finished, name: str) -> None:
    """Connectome, displacement and kept volumes."""
    assert ours.code == 0, ours.err
    ((recording, state),) = ours.states().items()
    assert (recording, state) == (name, "done")
    pair = [read_matrix(next(iter(one.output.rglob(f"*_{FC}"))))[0] for one in (ours, theirs)]
    np.testing.assert_allclose(*pair, atol=1e-10)
    tables = [pd.read_csv(next(one.output.rglob(f"*_{OUTLIERS}")), sep="\t", na_values="n/a") for one in (ours, theirs)]
    np.testing.assert_allclose(*(table["framewise_displacement"] for table in tables), rtol=1e-9)
    kept = [table["kept"].to_numpy() for table in tables]
    np.testing.assert_array_equal(*kept)
    assert 10 < (kept[0] == 0).sum() < 90


def test_hcp_volumes(volumes, tmp_path):
    files, theirs = volumes
    hcp_volumes(tmp_path / "in", *files)
    ours = run_app(tmp_path / "in", tmp_path / "out", *CHOICES, *BUILTIN)
    assert_same(ours, theirs, "sub-100307_task-rest_dir-LR_run-1_space-MNI152NLin6Asym_res-2")


def test_hcp_surfaces_are_read_as_fix_left_them(tmp_path):
    data, motion = make_surface_dataset(tmp_path / "fmriprep"), make_motion(120)
    hcp_surface(tmp_path / "in", data, motion)
    hcp_surface(tmp_path / "in", data[:, ::-1], motion, "_Atlas_MSMAll")
    hcp_surface(tmp_path / "in", data[:, ::-1], motion, "_Atlas_hp2000_clean")
    atlas = save_dlabel(tmp_path / "tpl-fsLR_atlas-Mine_dseg.dlabel.nii", labels_of(4), ["a", "b", "c", "d"])
    theirs = run_app(tmp_path / "fmriprep", tmp_path / "theirs", *CHOICES, "--atlas", atlas)
    ours = run_app(tmp_path / "in", tmp_path / "ours", *CHOICES, "--atlas", atlas)
    assert_same(ours, theirs, "sub-100307_task-rest_dir-LR_run-1_proc-fix_space-fsLR_den-91k")
    seen = run_app(tmp_path / "in", tmp_path / "none", "--dry-run", "--atlas", atlas)
    assert "is read as HCP minimal preprocessing (hcp, by its folders; --input-type says otherwise)" in seen.out
    assert "1 series are taken as ICA-FIX left them (proc-fix); 1 without it are left out" in seen.out
    choice = tmp_path / "filter.json"
    choice.write_text(json.dumps({"bold": {"proc": None}}))
    raw = run_app(tmp_path / "in", tmp_path / "raw", "--dry-run", "--bids-filter-file", choice, "--atlas", atlas)
    assert "sub-100307_task-rest_dir-LR_run-1_space-fsLR_den-91k" in raw.out


def test_what_motion_files_lack_is_refused_by_strategy(volumes, tmp_path):
    files, _ = volumes
    folder = hcp_volumes(tmp_path / "in", *files)
    found = run_app(tmp_path / "in", tmp_path / "out", *CHOICES, *BUILTIN, "--strategy", "36P", code=5)
    reason = found.reason("sub-100307")
    assert str(folder / "Movement_Regressors.txt") in reason
    assert all(word in reason for word in ("csf", "white_matter", "global_signal", "--strategy 24P or none"))


ONE = ("--nprocs", "1", "--quiet", "--min-time", "60")


@pytest.fixture
def atlases(tmp_path, monkeypatch):
    """A clone of AtlasPack (tables without template), what XCP-D writes (a table beside), and a file of CBIG."""
    monkeypatch.setenv("FCPOWER_OFFLINE", "1")
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(tmp_path / "empty"))
    pack, xcpd = tmp_path / "AtlasPack", tmp_path / "xcp_d" / "sourcedata" / "atlases"
    save_dlabel(pack / "tpl-fsLR_atlas-4S156Parcels_den-91k_dseg.dlabel.nii", labels_of(5), [f"x{k}" for k in range(5)])
    rows = [f"{k}\tLH_Vis_{k}\tVis\t7Networks_LH_Vis_{k}" for k in range(1, 6)]
    table = "\n".join(["index\tlabel\tnetwork_label\tlabel_7network", *rows]) + "\n"
    (pack / "atlas-4S156Parcels_dseg.tsv").write_text(table)
    (pack / "atlas-4S256Parcels_dseg.tsv").write_text("index\tlabel\n1\tnot this one\n")
    stem = "tpl-fsLR_atlas-Tian_den-91k_dseg"
    save_dlabel(xcpd / "tpl-fsLR" / f"{stem}.dlabel.nii", labels_of(3), ["a", "b", "c"])
    (xcpd / "tpl-fsLR" / f"{stem}.tsv").write_text("index\tname\n1\tHIP-rh\n2\tAMY-rh\n3\tHIP-lh\n")
    names = [f"7Networks_LH_Cont_{k}" for k in range(1, 5)]
    save_dlabel(tmp_path / "CBIG" / "Schaefer2018_400Parcels_7Networks_order.dlabel.nii", labels_of(4), names)
    return pack, xcpd, tmp_path / "CBIG"


def test_fslr_alone_runs_with_names_from_folders(atlases, tmp_path):
    data = make_surface_dataset(tmp_path / "in")
    names = ("4S156Parcels", "Schaefer400", "TianS3")
    found = run_app(tmp_path / "in", tmp_path / "out", *ONE, *PLAIN, "--atlas", *names, "--atlas-dir", *atlases, code=0)
    for entities, parcels, first in (
        ("atlas-4S156Parcels", 5, "LH_Vis_1"),
        ("atlas-Schaefer2018_seg-7n_scale-400", 4, "7Networks_LH_Cont_1"),
        ("atlas-TianS3", 3, "HIP-rh"),
    ):
        fc, columns = read_matrix(found.file("sub-01", f"{entities}_den-91k_stat-pearsoncorrelation_relmat.tsv"))
        means = [data[:, labels_of(parcels) == label].mean(axis=1) for label in range(1, parcels + 1)]
        np.testing.assert_allclose(fc, np.corrcoef(means), atol=1e-6)
        assert columns[0] == first
    (table,) = found.files("*atlas-4S156Parcels_dseg.tsv")
    assert set(pd.read_csv(table, sep="\t")["network"]) == {"Vis"}


def test_parcellated_cifti_holds_the_tables_to_the_last_bit(atlases, tmp_path):
    """One parcel of the table is not in the image: it has a place, no grayordinates and no value."""
    make_surface_dataset(tmp_path / "in")
    with (atlases[0] / "atlas-4S156Parcels_dseg.tsv").open("a") as table:
        table.write("9\tgone\tn/a\tn/a\n")
    choices = ("--atlas", "4S156Parcels", "--atlas-dir", atlases[0], "--strategy", "none", "--fd-thresh", "0.12")
    found = run_app(tmp_path / "in", tmp_path / "out", *ONE, *choices, code=0)
    names = (*(f"LH_Vis_{k}" for k in range(1, 6)), "gone")
    written = found.files("*.ptseries.nii") + found.files("*.pconn.nii")
    assert len(written) == 3
    for path in written:
        stem = path.name.removesuffix(".ptseries.nii").removesuffix(".pconn.nii")
        values, _ = read_matrix(path.with_name(f"{stem}.tsv"))
        image = nibabel.load(path)
        np.testing.assert_array_equal(np.asarray(image.dataobj), values.astype(np.float32))
        rows, parcels = image.header.get_axis(0), image.header.get_axis(1)
        assert isinstance(parcels, ParcelsAxis)
        assert tuple(parcels.name) == names
        assert rows == parcels if path.name.endswith(".pconn.nii") else isinstance(rows, SeriesAxis)
        assert json.loads(path.with_name(f"{stem}.json").read_text())["NumberOfVolumes"] == 120
        left = np.flatnonzero(labels_of(5)[:36] == 1)
        np.testing.assert_array_equal(parcels.vertices[0]["CIFTI_STRUCTURE_CORTEX_LEFT"], left)
        assert not parcels.vertices[5]
    (series,) = found.files("*.ptseries.nii")
    assert nibabel.load(series).header.get_axis(0).step == TR
