"""Each node alone on files, against a computation from its own input files; what passes between them is exact."""

from __future__ import annotations

import dataclasses
from itertools import count
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from nipype import Node

from fcpower_bids.encoders import embedding_label, load_encoder
from fcpower_bids.errors import RecordingError, UsageError
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.interfaces.embedding import Embed
from fcpower_bids.interfaces.nodes import (
    Bandpass,
    Connectivity,
    Parcellate,
    Power,
    Sink,
    Transform,
    load_bundle,
    load_cleaning,
    save_cleaning,
)
from fcpower_bids.outputs.tables import read_json, read_matrix
from fcpower_bids.settings import Settings
from tests.outputs.test_recording import make_cleaning
from tests.planting.trees import scan_files

SCAN = "sub-01_ses-a_task-rest_run-1"
PLAIN = {"strategy": "none", "high_pass": 0.0, "low_pass": 0.0, "dummy_scans": "0", "fd_thresh": 0.0}


@pytest.fixture(scope="module")
def scan(exact_demo, tmp_path_factory):
    """Files of one recording, and a function that runs a node of them in a folder of its own."""
    folder = tmp_path_factory.mktemp("alone")
    numbers, files = count(), scan_files(exact_demo[0], SCAN)

    def run(interface):
        name = f"{type(interface).__name__}_{next(numbers)}"
        return Node(interface, name=name, base_dir=str(folder)).run().outputs

    return SimpleNamespace(
        **files,
        labels=str(builtin_atlas("MNI152NLin2009cAsym", folder / "atlas").image),
        folder=folder,
        run=run,
    )


@pytest.fixture(scope="module")
def parcels(scan):
    return scan.run(Parcellate(bold=scan.bold, mask=scan.mask, atlases=[scan.labels])).parcels


@pytest.fixture(scope="module")
def cleaned(scan, parcels):
    return scan.run(Bandpass(parcels=parcels, confounds=scan.confounds, repetition_time=2.5, **PLAIN))


@pytest.fixture(scope="module")
def connectivity(scan, cleaned):
    return scan.run(Connectivity(series=cleaned.series)).connectivity


def arrays(paths):
    (path,) = paths
    return load_bundle(path)[0]


def test_without_a_table_only_what_needs_none_can_be_done(scan, parcels):
    bare = {"parcels": parcels, "repetition_time": 2.5, **PLAIN}
    cleaning, _ = load_cleaning(scan.run(Bandpass(**bare)).cleaning)
    assert np.isnan(cleaning.framewise_displacement).all()
    for choices in ({"fd_thresh": 0.5}, {"strategy": "24P"}):
        with pytest.raises(RecordingError, match="no confounds table"):
            Bandpass(**(bare | choices)).run(cwd=str(scan.folder))


def test_too_many_regressors_are_an_exclusion(scan, parcels):
    narrow = PLAIN | {"strategy": "24P", "low_pass": 0.02}
    found = scan.run(Bandpass(parcels=parcels, confounds=scan.confounds, repetition_time=2.5, **narrow))
    assert "Nothing is left to analyse" in found.excluded


def test_transform_is_any_other_one(scan, cleaned, connectivity):
    found = scan.run(Transform(connectivity=connectivity, transform="fisher_z")).transformed
    fc = arrays(connectivity)["matrix"]
    off = ~np.eye(len(fc), dtype=bool)
    np.testing.assert_allclose(arrays(found)["matrix"][off], np.arctanh(fc[off]), atol=1e-12)
    with pytest.raises(UsageError, match="connect that port too"):
        Transform(connectivity=connectivity, transform="precision").run()
    of_series = Transform(connectivity=connectivity, series=cleaned.series, transform="precision")
    assert arrays(of_series.run(cwd=str(scan.folder)).outputs.transformed)["matrix"].shape == (60, 60)


def test_embed_gives_the_vector_of_the_encoder(scan, cleaned):
    found = scan.run(Embed(series=cleaned.series, atlases=[scan.labels], encoder="random-init", random_seed=3))
    series, facts = load_bundle(cleaned.series[0])
    encoder = load_encoder("random-init", None, seed=3, parcel_names=facts["parcels"])
    expected = encoder.embed([series["series"]], facts["parcels"], 2.5)[0]
    np.testing.assert_array_equal(arrays(found.embeddings)["embedding"], expected)


def test_sink_writes_the_matrices_that_it_is_given(scan, parcels, cleaned, connectivity):
    power = scan.run(Power(connectivity=connectivity, alpha=0.35)).transformed
    given = {"cleaning": cleaned.cleaning, "parcels": parcels, "series": cleaned.series}
    out = scan.folder / "out"
    sink = Sink(
        **given,
        connectivity=connectivity,
        connectomes=[*connectivity, *power],
        atlases=[scan.labels],
        bold=scan.bold,
        output_dir=str(out),
    )
    found = scan.run(sink)
    written = {path.name.rpartition("2_")[2]: path for path in (out / name for name in found.files)}
    fc = written["stat-pearsoncorrelation_relmat.tsv"]
    np.testing.assert_array_equal(read_matrix(fc)[0], arrays(connectivity)["matrix"])
    flat = read_matrix(written["stat-pearsoncorrelation_desc-power0p35_relmat.tsv"])[0]
    np.testing.assert_array_equal(flat, arrays(power)["matrix"])
    assert read_json(fc.with_suffix(".json"))["NuisanceStrategy"] == "none"
    assert fc.name.startswith(SCAN)
    assert found.excluded == ""


def test_connectivity_and_power_take_plain_arrays_and_tables(tmp_path, monkeypatch):
    series = np.random.default_rng(5).standard_normal((90, 12)) @ np.random.default_rng(6).standard_normal((12, 12))
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(series, columns=[f"p{n}" for n in range(12)]).to_csv("mine.tsv", sep="\t", index=False)
    (connectivity,) = Connectivity(series=[str(tmp_path / "mine.tsv")]).run().outputs.connectivity
    matrix, facts = load_bundle(connectivity)[0]["matrix"], load_bundle(connectivity)[1]
    np.testing.assert_allclose(matrix, np.corrcoef(series.T), atol=1e-12)
    assert facts["parcels"][0] == "p0"
    np.save("matrix.npy", matrix)
    (powered,) = Power(connectivity=[str(tmp_path / "matrix.npy")], alpha=0.35).run().outputs.transformed
    assert load_bundle(powered)[1]["parcels"][0] == "parcel001"
    values, vectors = np.linalg.eigh(np.corrcoef(series.T))
    np.testing.assert_allclose(load_bundle(powered)[0]["matrix"], (vectors * values**0.35) @ vectors.T, atol=1e-10)


@pytest.mark.parametrize("names", ["a/series.npy b/series.npy", "a/one.run1.npy b/one.run2.npy", "a/one.npy b/two.npy"])
def test_inputs_of_one_name_are_refused(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    series = np.random.default_rng(0).standard_normal((2, 50, 4))
    for folder, values, name in zip("ab", series, names.split(), strict=True):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / name, values)
    node = Connectivity(series=[str(tmp_path / name) for name in names.split()])
    if "two" not in names:
        with pytest.raises(UsageError, match="Two inputs have one name"):
            node.run()
        return
    for path, values in zip(node.run().outputs.connectivity, series, strict=True):
        np.testing.assert_allclose(np.load(path)["matrix"], np.corrcoef(values.T))


def test_a_cleaning_passes_unchanged(tmp_path):
    cleaning = make_cleaning(excluded="Too short.", notes=("A note.",), design_names=("x", "y"))
    found, choices = load_cleaning(save_cleaning(tmp_path / "x.npz", cleaning, {"high_pass": 0.01}))
    assert choices == {"high_pass": 0.01}
    for field in dataclasses.fields(cleaning):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(cleaning, field.name))
        assert type(getattr(found, field.name)) is type(getattr(cleaning, field.name))


def test_a_bundle_with_objects_is_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", json=np.array("{}"), x=np.array([{"code": 1}], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        load_bundle(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("choices", "label"),
    [
        ({"encoder": "fbert-1m"}, "fbert1m"),
        ({"encoder": "fbert-1m", "encoder_read": "windows"}, "fbert1mwindows"),
        ({"encoder": "brain-jepa", "encoder_protocol": "paper"}, "brainjepapaper"),
        ({"encoder": "brain-jepa", "encoder_read": "windows"}, "brainjepa"),
    ],
)
def test_only_what_changes_the_numbers_and_is_not_the_default_is_in_the_label(tmp_path, choices, label):
    assert embedding_label(Settings(tmp_path, tmp_path, "participant").changed(**choices).method) == label
