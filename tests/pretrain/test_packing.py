"""The teacher, and the corpus pack: what is stored, how it grows, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.errors import DatasetError, RecordingError
from fcpower_bids.outputs.status import EXCLUDED, FAILED, Status, write_status
from fcpower_bids.pretrain import packing
from fcpower_bids.pretrain.corpus import open_pack, teacher_kernel, teacher_vector_and_rank
from fcpower_bids.pretrain.packing import pack_corpus
from tests.command import main
from tests.planting.participant_outputs import ATLAS, add_output, other_atlas, recording, series_of
from tests.pretrain.conftest import NAMES, as_sources, made_recordings
from tests.pretrain.outputs import PACKED, in_child, plant_outputs, run_pretrain


def series(length: int, parcels: int = 20, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((length, parcels)) @ rng.standard_normal((parcels, parcels))


def rows_of(stored: np.ndarray, start: int, stop: int) -> np.ndarray:
    return stored[start:stop]


@pytest.mark.parametrize(("size", "n_processes"), [(1, 1), (4, 1), (100, 1), (4, 2)])
def test_blocks_and_processes_do_not_matter_and_storage_rounding_is_undone(size, n_processes):
    Z = np.array([teacher_vector_and_rank(series(60, seed=seed), 0.35)[0] for seed in range(11)])
    stored = Z.astype(np.float32)
    K = teacher_kernel(partial(rows_of, stored), 11, size, n_processes)
    assert K.dtype == np.float32
    np.testing.assert_allclose(K, Z @ Z.T, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), 1)


def test_kernel_of_real_recordings(shared):
    """Both ways of decomposing agree on band-passed scans (rank about 130 of 400)."""
    stored = np.load(shared / "data" / "stages" / "timeseries.npz")
    x = stored["sub-001_ses-1"][:, :400].astype(np.float64)
    vector, rank = teacher_vector_and_rank(x, 0.35)
    assert 125 <= rank <= 140
    assert abs(vector.mean()) < 1e-15
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-12)
    matrix = spectral_power(pearson_connectivity(x), 0.35)
    edges = matrix[np.triu_indices(400, 1)]
    assert np.corrcoef(vector, edges)[0, 1] == pytest.approx(1, abs=1e-9)


def exact_kernel(recordings) -> np.ndarray:
    Z = np.array([teacher_vector_and_rank(series, 0.35)[0] for _, series in recordings])
    return Z @ Z.T


def test_several_shards_are_one_corpus(tmp_path, recordings, monkeypatch):
    whole = load_corpus_of(tmp_path / "one", recordings)
    monkeypatch.setattr(packing, "SHARD_RECORDINGS", 5)
    parts = load_corpus_of(tmp_path / "many", recordings)
    assert len(list((tmp_path / "many").glob("series-*"))) == 7
    rows, starts = np.array([31, 0, 6, 12, 5]), np.array([1, 2, 3, 4, 0])
    assert torch.equal(whole.windows(rows, starts, 30), parts.windows(rows, starts, 30))
    torch.testing.assert_close(whole.kernel, parts.kernel, rtol=0, atol=1e-7)
    assert torch.equal(parts.kernel_of(rows), parts.kernel[rows][:, rows])


def load_corpus_of(folder, recordings):
    pack_corpus(as_sources(recordings), folder)
    return open_pack(folder)


def test_a_changed_recording_replaces_the_old_one(pack, recordings, caplog):
    changed = [(facts, series.copy()) for facts, series in recordings]
    changed[4][1][:] = np.random.default_rng(9).standard_normal(changed[4][1].shape)
    table = pack_corpus(as_sources(changed), pack)
    assert "Recordings replaced, because their series changed: 1." in caplog.text
    assert len(table) == len(recordings)
    assert table["id"].is_unique
    corpus = open_pack(pack)
    order = [[facts["id"] for facts, _ in changed].index(name) for name in corpus.table["id"]]
    np.testing.assert_allclose(corpus.kernel, exact_kernel(changed)[np.ix_(order, order)], rtol=0, atol=2e-7)
    caplog.clear()
    changed[4][1][:, 2] = 1
    assert changed[4][0]["id"] not in pack_corpus(as_sources(changed), pack)["id"].tolist(), "no former version stays"
    assert len(open_pack(pack).table) == len(recordings) - 1
    assert "replaced" not in caplog.text


def test_bad_recordings_are_left_out_and_listed(tmp_path, recordings, caplog):
    recordings[2][1][:, 4] = 7.0
    recordings[3][1][5, 6] = np.nan
    recordings[5][1][:, 1] = np.nan
    table = pack_corpus(as_sources(recordings), tmp_path / "pack")
    assert len(table) == len(recordings) - 3
    excluded = pd.read_csv(tmp_path / "pack" / "excluded.tsv", sep="\t")
    assert excluded["id"].tolist() == [recordings[i][0]["id"] for i in (2, 3, 5)]
    assert [reason.split(": ")[1] for reason in excluded["reason"]] == ["P4", "P6", "P1"]
    assert "P4" in caplog.text


def test_other_parcels_or_another_alpha_are_refused(pack, recordings):
    facts, series = recordings[0]
    other = {**facts, "parcel_names": [*NAMES[:-1], "Other"], "id": "toy/new"}
    with pytest.raises(RecordingError, match=r"toy/new.*Other, P9"):
        pack_corpus([(other, lambda: series)], pack)
    with pytest.raises(RecordingError, match="order"):
        pack_corpus([({**facts, "parcel_names": NAMES[::-1]}, lambda: series)], pack)
    with pytest.raises(DatasetError, match=r"alpha 0\.35, not 0\.5"):
        pack_corpus(as_sources(recordings), pack, 0.5)
    with pytest.raises(DatasetError, match="no recording"):
        pack_corpus([], pack.parent / "empty")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "pack.json").unlink(),
        lambda folder: (folder / "series-00000.safetensors").write_bytes(b"short"),
        lambda folder: (folder / "teacher_kernel.safetensors").unlink(),
        lambda folder: (folder / "pack.json").write_text("{"),
        lambda folder: (folder / "pack.json").write_text("[]"),
        lambda folder: (folder / "recordings.tsv").write_bytes((folder / "recordings.tsv").read_bytes()[:20]),
    ],
)
def test_a_damaged_pack_says_so(pack, damage):
    damage(pack)
    with pytest.raises(DatasetError, match=r"pack the corpus again|packs anew"):
        open_pack(pack)


@pytest.mark.parametrize(("file", "content"), [("pack.json", "{"), ("pack.json", "[]"), ("recordings.tsv", None)])
def test_nothing_is_added_to_a_damaged_pack(pack, recordings, file, content):
    before = (pack / file).read_text()
    content = before[: len(before) // 2] if content is None else content
    (pack / file).write_text(content)
    with pytest.raises(DatasetError, match=r"is damaged.*Remove this folder.*packs anew"):
        pack_corpus(as_sources(recordings), pack)
    assert (pack / file).read_text() == content


def test_a_kernel_of_other_recordings_is_noticed_and_mended(tmp_path, pack, recordings):
    pack_corpus(as_sources(made_recordings(seed=5)), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "teacher_kernel.safetensors", pack)
    with pytest.raises(DatasetError, match="is not as it was packed"):
        open_pack(pack)
    pack_corpus(as_sources(recordings), pack)
    np.testing.assert_allclose(open_pack(pack).kernel, exact_kernel(recordings), rtol=0, atol=2e-7)


def test_who_may_read_a_pack_and_a_model_follows_from_the_umask(tmp_path, recordings):
    model = FBert(FBertConfig(3, d=2, layers=1, heads=1, ff=2))
    before = os.umask(0o027)
    try:
        pack_corpus(as_sources(recordings), tmp_path / "pack")
        save_checkpoint(tmp_path / "model", model, model.config, ModelCard(("a", "b", "c")))
    finally:
        os.umask(before)
    files = [*(tmp_path / "pack").iterdir(), *(tmp_path / "model").iterdir()]
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files if path.is_file()} == {
        path.name: oct(0o640) for path in files if path.is_file()
    }


def test_families_default_to_the_person(tmp_path, recordings):
    recordings[0][0]["family"] = "F1"
    recordings[2][0]["family"] = "F1"
    families = load_corpus_of(tmp_path / "pack", recordings).families
    assert families[0] == families[2] == "toy/F1"
    assert families[4] == families[5] == "toy/sub-02"
    assert len(set(families[3:])) == 15


def test_what_a_killed_pack_left_is_swept_by_the_next(tmp_path, recordings):
    """Killed while it writes a shard, its facts and the kernel."""
    plant_outputs(tmp_path, recordings)
    corpus, replace = tmp_path / "out" / "corpus", os.replace
    for name in ("series-*.safetensors", "pack.json", "teacher_kernel.safetensors"):

        def pack_until_killed(name=name) -> int:
            def kill_or_replace(old, new):
                if Path(new).match(name):
                    os.kill(os.getpid(), signal.SIGKILL)
                replace(old, new)

            os.replace = kill_or_replace
            return run_pretrain(tmp_path, quick=PACKED)

        assert in_child(pack_until_killed) == -signal.SIGKILL, name
        assert list(corpus.rglob(".*.part")), name
    assert run_pretrain(tmp_path, quick=PACKED) == 0
    assert not list(corpus.rglob(".*.part"))
    assert len(open_pack(corpus).table) == len(recordings)


@pytest.fixture
def of_two_runs(tmp_path):
    """Outputs of people with two runs under two atlases, one is excluded now."""
    out = tmp_path / "out"
    for number, (person, run) in enumerate(product(("01", "02", "03"), ("_run-1", "_run-2"))):
        for atlas in (ATLAS, other_atlas()):
            add_output(out, f"sub-{person}{run}", series_of(number), atlas)
    for series in out.rglob("*_timeseries.tsv"):
        made_of = "bids:fmriprep:sub-01/x.nii.gz"
        facts = {"RepetitionTime": 2.0, "NuisanceStrategy": "24P", "Sources": [made_of]}
        series.with_suffix(".json").write_text(json.dumps(facts))
    name = recording("sub-03_run-2").name
    write_status(out, Status(name, EXCLUDED, "clean", "Too short."))
    return out, name


def pack_outputs(out, *options):
    (out.parent / "bids").mkdir(exist_ok=True)
    words = [out.parent / "bids", out, "pretrain", "--steps", "0", "--dataset-name", "x", "--quiet", "--nprocs", "1"]
    return main([*map(str, words), *options])


def test_runs_are_packed_once_and_as_their_status_says(of_two_runs):
    out, excluded = of_two_runs
    assert pack_outputs(out, "--atlas", "Toy") == 0
    (table,) = out.rglob("recordings.tsv")
    packed = pd.read_csv(table, sep="\t")["id"].tolist()
    assert len(packed) == 5, "without what is excluded"
    assert all("run-" in name for name in packed)
    left_out = pd.read_csv(table.with_name("excluded.tsv"), sep="\t")
    assert excluded.removesuffix("_space-MNI152NLin2009cAsym") in left_out["id"][0]
    assert "excluded at participant level: Too short." in left_out["reason"][0]
    for person in ("01", "02", "03"):
        for run in ("1", "2"):
            name = recording(f"sub-{person}_run-{run}").name
            write_status(out, Status(name, FAILED, "clean", "No mask."))
    table.unlink()
    shutil.rmtree(table.parent)
    assert pack_outputs(out, "--atlas", "Toy") == 3


def test_the_atlas_that_is_named_is_packed_and_no_other(of_two_runs, capsys):
    out, _ = of_two_runs
    assert pack_outputs(out) == 2
    assert "Several atlases were written" in capsys.readouterr().err
    assert pack_outputs(out, "--atlas", "somewhere/Other.nii.gz") == 0
    (pack_file,) = out.rglob("pack.json")
    assert "Other" in json.loads(pack_file.read_text())["atlas"]
    for path in out.rglob("*atlas-Other*"):
        path.unlink()
    assert pack_outputs(out, "--atlas", "Glasser") == 2
    assert "Another atlas was written: atlas-Toy_scale-6" in capsys.readouterr().err
