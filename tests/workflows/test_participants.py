"""The participant level: what becomes of one recording, what runs again, and embeddings of stored series."""

from __future__ import annotations

import re
import shutil
from collections import Counter, namedtuple
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.core.connectome import spectral_power
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.errors import RecordingError
from fcpower_bids.imaging.atlas import builtin_atlas
from fcpower_bids.interfaces.nodes import Step, Transform
from fcpower_bids.outputs.status import explain, read_status
from fcpower_bids.records import Recording
from fcpower_bids.settings import METHOD_SECTIONS, Method, Settings
from fcpower_bids.workflows import participant
from fcpower_bids.workflows.recording import process_recording
from tests.cases.cohorts import group, write_series
from tests.docs.pages import DOCS, code_blocks, read
from tests.planting.trees import only, scan_files
from tests.running import run_app


def test_a_node_without_memory_is_told_apart_from_a_slip(tmp_path, monkeypatch):
    def fail(self, folder):
        raise MemoryError

    monkeypatch.setattr("fcpower_bids.interfaces.nodes.Parcellate.work", fail)
    (bold := tmp_path / "bold.nii.gz").touch()
    recording = Recording(bold, (("sub", "01"), ("task", "rest")), 2.0)
    settings = Settings(tmp_path, tmp_path / "out", "participant")
    found = process_recording(recording, (), settings, {}, tmp_path / "work")
    assert found == ("sub-01_task-rest", "failed at parcellate")
    status = read_status(tmp_path / "out", "sub-01_task-rest")
    assert (status.state, status.stage) == ("failed", "parcellate")
    assert status.reason == "There was not enough memory. Give more, or --nprocs 1."
    assert explain(RecordingError("a.nii is cut: copy it."), tmp_path, "x") == "a.nii is cut: copy it."


def test_the_nodes_of_the_documentation_run_alone_in_a_workflow_of_anybody(exact_demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = [block for block in code_blocks(read(DOCS / "python.md"), "py") if "workflow.run()" in block]
    scan = "sub-01_ses-a_task-rest_run-1"
    labels = str(builtin_atlas("MNI152NLin2009cAsym", tmp_path).image)
    exec(example, {**scan_files(exact_demo[0], scan), "labels": labels, "folder": str(tmp_path)})
    folder = tmp_path / "mine"
    fc = np.load(only(folder / "connectivity", "fc_*.npz"))["matrix"]
    series = np.load(only(folder / "bandpass", "series_*.npz"))["series"]
    np.testing.assert_allclose(fc, np.corrcoef(series.T), atol=1e-12)
    power = np.load(only(folder / "power", "power_*.npz"))["matrix"]
    np.testing.assert_allclose(power, spectral_power(fc, 0.35), atol=1e-12)


def test_a_disk_that_is_too_small_is_known_before_the_start(exact_demo, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10_000, 9_000, 1_000))
    found = run_app(exact_demo[0], tmp_path / "out", "--atlas", "builtin", "--dry-run", code=2)
    assert re.search(r"will need at least .* GB, but only 0\.0 GB are free", found.err)


WITHIN = ("--atlas", "builtin", "--strategy", "none", "--transforms", "power", "log_euclidean")
WITHIN += ("--eigenvalue-floor", "0.001")


def test_what_is_finished_is_not_read_again_and_what_was_left_of_it_is_never_read(tmp_path, monkeypatch):
    make_dataset(folder := tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=2, volumes=90))
    done: Counter[str] = Counter()
    run_interface = Step._run_interface

    def count_node(self, runtime):
        done["transforms" if type(self) is Transform else type(self).__name__.lower()] += 1
        return run_interface(self, runtime)

    monkeypatch.setattr(Step, "_run_interface", count_node)
    monkeypatch.setattr(participant, "_report", lambda *_, **__: None)
    (here := tmp_path / "here.yml").write_text("plugin: Linear\n")

    def counted(*options):
        done.clear()
        found = run_app(folder, tmp_path / "out", *WITHIN, "--debug", "--use-plugin", here, *options)
        assert set(found.states().values()) == {"done"}, found.err
        return dict(done)

    once = dict.fromkeys(("parcellate", "bandpass", "connectivity", "power", "transforms", "sink"), 2)
    assert counted() == once
    assert counted() == {}
    for path in (tmp_path / "out" / "work").rglob("*.npz"):
        path.write_bytes(b"damaged")
    assert counted("--alpha", "0.5", "--replace") == once


@pytest.mark.parametrize("plugin", ["Linear", "MultiProc"])
def test_jobs_of_a_plugin_leave_nothing_in_the_work_folder(tmp_path, plugin):
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=1, sessions=2, volumes=90))
    (here := tmp_path / "here.yml").write_text(f"plugin: {plugin}\n")
    found = run_app(tmp_path / "in", tmp_path / "out", *WITHIN, "--use-plugin", here, code=0)
    assert [path.name for path in (found.output / "work").iterdir()] == ["atlases"]


CHOSEN = [field.name for field in fields(Method) if field.metadata.get("section") in METHOD_SECTIONS]


@pytest.mark.parametrize("name", [name for name in CHOSEN if name != "atlas_dir"])
def test_every_choice_of_the_method_is_in_the_fingerprint_of_a_recording(name):
    plain = Method()
    value = getattr(plain, name)
    other = (not value) if isinstance(value, bool) else (Path("x"),) if isinstance(value, tuple) else f"{value}1"
    assert replace(plain, **{name: other}).configuration_hash() != plain.configuration_hash()


PARCELS = tuple(f"parcel{number:04d}" for number in range(1, 7))


def save_weights(folder, seed):
    config = FBertConfig(n_parcels=len(PARCELS), d=8, layers=1, heads=2, ff=16)
    card = ModelCard(roi_labels=PARCELS, atlas="listed", alpha=0.35, window=10)
    save_checkpoint(folder, FBert(config, seed=seed), config, card)
    return folder


@pytest.fixture
def listed(tmp_path):
    """Six people; a parcel of the last one has no signal."""
    write_series(tmp_path, [f"sub-{number}" for number in range(1, 7)], ("a",), volumes=30)
    series = np.load(tmp_path / "sub-6_a.npy")
    series[:, 0] = 0
    np.save(tmp_path / "sub-6_a.npy", series)
    return tmp_path


def embed_group(folder, weights, *options, code=0):
    encoder = ("--encoder", "fbert", "--encoder-weights", str(weights), "--analyses", "spectrum_geometry", "--quiet")
    return group(folder, *encoder, *options, quick=("--min-time", 0), code=code)


def vectors_of(folder):
    return {path.name[:5]: path for path in sorted((folder / "out").rglob("*_desc-fbert_embedding.tsv"))}


def test_series_are_embedded_once_and_anew_with_other_weights_or_when_they_can_be(listed):
    weights = save_weights(listed / "model", 1)
    told = embed_group(listed, weights, code=4).err
    assert "1 of 6 stored series could not be embedded (sub-6_ses-a_task-rest)" in told
    found = vectors_of(listed)
    assert sorted(found) == [f"sub-{number}" for number in range(1, 6)]
    before = {name: path.stat().st_mtime_ns for name, path in found.items()}
    embed_group(listed, weights, code=4)
    assert {name: path.stat().st_mtime_ns for name, path in vectors_of(listed).items()} == before
    embed_group(listed, weights, "--encoder-read", "windows", "--replace", code=4)
    (status,) = (listed / "out" / "logs" / "status").glob("*_embedding.json")
    assert status.stem.endswith("_desc-fbertwindows_embedding"), "the failure of the encoder of before is forgotten"
    shutil.rmtree(weights)
    encoder = load_encoder("fbert", save_weights(weights, 2))
    np.save(listed / "sub-6_a.npy", np.random.default_rng(2).normal(size=(30, len(PARCELS))))
    embed_group(listed, weights, "--replace")
    assert not list((listed / "out" / "logs" / "status").glob("*_embedding.json"))
    for number in range(1, 7):
        series = np.load(listed / f"sub-{number}_a.npy")
        written = pd.read_csv(vectors_of(listed)[f"sub-{number}"], sep="\t").to_numpy()[0]
        np.testing.assert_allclose(written, encoder.embed([series], PARCELS, 2.0)[0], atol=1e-5)


def test_only_what_the_command_selects_is_embedded(listed):
    table = pd.read_csv(listed / "list.tsv", sep="\t", dtype=str)
    pd.concat([table, table.assign(session_id="b")]).to_csv(listed / "list.tsv", sep="\t", index=False)
    weights, some = save_weights(listed / "model", 1), ("--participant-label", "1", "2", "3")
    embed_group(listed, weights, *some, "--session-label", "b")
    found = sorted(path.name for path in (listed / "out").rglob("*_desc-fbert_embedding.tsv"))
    assert [name[:11] for name in found] == ["sub-1_ses-b", "sub-2_ses-b", "sub-3_ses-b"]
    embed_group(listed, weights, *some, "--session-label", "a", "--atlas", "other", code=3)
    assert len(list((listed / "out").rglob("*_desc-fbert_embedding.tsv"))) == 3
