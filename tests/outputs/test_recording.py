"""What is written of a recording, what decides whether it is done again, and what goes with its input."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.core.connectome import pearson_connectivity
from fcpower_bids.outputs import status
from fcpower_bids.outputs.recording import (
    Results,
    tabulate_quality,
    tabulate_spectrum,
    write_recording,
)
from fcpower_bids.records import Atlas, Cleaning, ParcelSeries, Recording
from fcpower_bids.settings import Settings
from fcpower_bids.transforms.connectomes import connectivity_of, make_transform, transform_recording


@pytest.fixture
def results(tmp_path):
    bold = tmp_path / "in" / "sub-01_space-MNI_res-2_desc-preproc_bold.nii.gz"
    recording = Recording(bold, (("sub", "01"), ("space", "MNI"), ("res", "2")), 2.0)
    settings = Settings(tmp_path / "in", tmp_path / "out", "participant").changed(
        transforms=("power", "log_euclidean"), eigenvalue_floor=0.01
    )
    clean = np.random.default_rng(0).standard_normal((90, P))
    clean[:, 3] = np.nan
    series = ParcelSeries(np.array([1, 1, 1, 0.2, 1]), np.empty((100, P)), clean, np.empty((0, 0)))
    found = {"fc": connectivity_of(clean, NAMES)}
    for name in settings.method.transforms:
        found[name] = transform_recording(make_transform(name, settings.method), found["fc"][0], clean, NAMES)
    cleaning = make_cleaning(notes=("A note.",))
    datasets = {"fmriprep": tmp_path / "in"}
    return Results(recording, (ATLAS,), settings.method, datasets, cleaning, [series], [found], [{}])


def test_an_embedding_goes_with_the_connectome_of_its_series(results, tmp_path):
    output, own = tmp_path / "out", [{"fbert": (np.ones(3), {})}]
    write_recording(output, replace(results, embeddings=own))
    write_recording(output, results)
    assert list(output.rglob("*_embedding.tsv"))
    (found,) = results.connectomes
    otherwise = {**found, "fc": (np.round(found["fc"][0], 3), found["fc"][1])}
    write_recording(output, replace(results, connectomes=[otherwise]))
    assert not list(output.rglob("*_embedding.*"))


def test_of_an_excluded_recording_nothing_is_left_that_earlier_choices_made(results, tmp_path):
    """Else it would lie beside the connectome of a later cleaning."""
    output, own = tmp_path / "out", [{"fbert": (np.ones(3), {})}]
    write_recording(output, replace(results, embeddings=own))
    cleaning = replace(results.cleaning, excluded="Too short.")
    nothing = replace(results, cleaning=cleaning, connectomes=[{}])
    write_recording(output, nothing)
    assert not [*output.rglob("*_embedding.*"), *output.rglob("*desc-*_relmat.*"), *output.rglob("*_relmat.npy")]


@pytest.fixture
def case(tmp_path):
    bold = tmp_path / "bold.nii.gz"
    bold.write_bytes(b"data")
    recording = Recording(bold, (("sub", "01"), ("task", "rest")), 2.0)
    return recording, Settings(tmp_path / "in", tmp_path / "out", "participant")


@pytest.mark.parametrize("kind", ["a table of another size", "a table of another time", "another version"])
def test_what_changed_beside_the_images_is_made_again(kind, case, tmp_path, monkeypatch):
    recording, chosen = case
    table = tmp_path / "confounds.tsv"
    table.write_text("a\n1\n")
    recording = replace(recording, confounds=table)
    mark = status.fingerprint(recording, chosen.method, (), None)
    assert status.fingerprint(recording, chosen.method, (), None) == mark
    if "size" in kind:
        time = table.stat().st_mtime_ns
        table.write_text("a\n1\n2\n")
        os.utime(table, ns=(time, time))
    elif "time" in kind:
        os.utime(table, (0, 0))
    else:
        monkeypatch.setattr(status, "__version__", "0")
    assert status.fingerprint(recording, chosen.method, (), None) != mark


def test_an_atlas_is_known_by_its_content(case, tmp_path):
    recording, chosen = case
    image = tmp_path / "atlas.nii"
    image.write_bytes(b"labels")
    atlas = Atlas((("atlas", "X"),), image, "MNI", (1, 2), ("a", "b"), ("n/a",) * 2, ("n/a",) * 2)
    mark = status.fingerprint(recording, chosen.method, [atlas], None)
    os.utime(image, (0, 0))
    assert status.fingerprint(recording, chosen.method, [atlas], None) == mark
    moved = replace(atlas, image=Path(shutil.copy(image, tmp_path / "copy.nii")))
    assert status.fingerprint(recording, chosen.method, [moved], None) == mark
    others = [replace(atlas, names=("b", "a")), replace(atlas, labels=(2, 1))]
    image.write_bytes(b"LABELS")
    marks = {
        status.fingerprint(recording, chosen.method, atlases, None)
        for atlases in ([atlas], *([one] for one in others), [])
    }
    assert len(marks | {mark}) == 5


@pytest.mark.parametrize("weights", ["jepa-ep300.pth.tar", "model.safetensors"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_not_finished_when_weights_or_what_comes_with_them_changed(case, tmp_path, weights, in_folder):
    recording, chosen = case
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (weights, "gradient_mapping_450.csv", "README.md"):
        (folder / name).write_text("before")
    chosen = chosen.changed(encoder="brain-jepa", encoder_weights=str(folder if in_folder else folder / weights))
    seen = {status.fingerprint(recording, chosen.method, (), None)}
    (folder / "README.md").write_text("something else")
    assert status.fingerprint(recording, chosen.method, (), None) in seen
    for name in (weights, "gradient_mapping_450.csv"):
        (folder / name).write_text("something else")
        mark = status.fingerprint(recording, chosen.method, (), None)
        assert mark not in seen
        seen.add(mark)


P, T = 5, 90
NAMES = ("a", "b", "c", "d", "e")
BLANK = ("n/a",) * P
ATLAS = Atlas((("atlas", "x"), ("scale", "5")), Path("x.nii.gz"), "MNI", tuple(range(1, P + 1)), NAMES, BLANK, BLANK)
SETTINGS = Settings(Path("in"), Path("out"), "participant")


def make_cleaning(**changes) -> Cleaning:
    kept = np.ones(100, dtype=bool)
    kept[:4] = False
    kept[20:26] = False
    fd = np.full(100, 0.1)
    fd[:4], fd[20:26] = 9.0, 1.0
    fields = {
        "kept": kept,
        "framewise_displacement": fd,
        "dvars": np.full(100, np.nan),
        "design": np.empty((100, 0)),
        "design_names": (),
        "dropped_confounds": (),
        "n_dummy": 4,
        "degrees_of_freedom": 30.0,
        "n_regressors": 6,
        "repetition_time": 2.0,
    }
    return Cleaning(**(fields | changes))


def test_quality_counts_volumes_and_motion():
    clean = np.random.default_rng(0).standard_normal((T, P))
    clean[:, 3] = np.nan
    coverage = np.array([1, 0.9, 0.5, 0.2, 1])
    series = ParcelSeries(coverage, np.empty((100, P)), clean, pearson_connectivity(clean))
    table, _ = tabulate_quality(
        series, make_cleaning(), ATLAS, SETTINGS.method, tabulate_spectrum(series, SETTINGS.method)[1]
    )
    row = table.iloc[0]
    assert (row["volumes"], row["dummy_volumes"], row["censored_volumes"], row["kept_volumes"]) == (100, 4, 6, 90)
    assert row["seconds_kept"] == 180
    assert row["mean_fd"] == pytest.approx((6 * 1.0 + 90 * 0.1) / 96)
    assert row["max_fd"] == 1.0
    assert (row["parcels"], row["uncovered_parcels"]) == (5, 1)
    eigenvalues = np.linalg.eigvalsh(np.corrcoef(np.delete(series.clean, 3, 1).T))
    assert row["participation_ratio"] == pytest.approx(16 / (eigenvalues**2).sum())
    assert row["participation_ratio_power"] > row["participation_ratio"]
    assert (row["rank"], row["clipped"]) == (4, 0)
    # White noise spreads its power evenly over 0 to 0.25 Hz, so about 72 % lie outside 0.01 to 0.08 Hz.
    assert row["band_leakage"] == pytest.approx(0.72, abs=0.1)
