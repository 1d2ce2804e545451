"""The training loop: resuming, checkpoints, the log, leakage, and that it learns."""

from __future__ import annotations

import json
import logging
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from fcpower_bids.encoders import load_encoder
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.pretrain.engine import PretrainConfig
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.pretrain.train import OPTIMIZER
from tests.pretrain.conftest import NAMES, as_sources, made_recordings
from tests.pretrain.outputs import pretrain, read_log


def config(**changes) -> PretrainConfig:
    architecture = {"d": 8, "layers": 2, "heads": 2, "ff": 8, "dropout": 0.1}
    small = {
        "architecture": architecture,
        "steps": 8,
        "batch_size": 12,
        "window": 30,
        "warmup": 2,
        "learning_rate": 1e-3,
        "held_out": 0.4,
        "checkpoint_every": 4,
        "log_every": 2,
    }
    return PretrainConfig(**{**small, **changes})


def weights(run, step=8):
    return load_file(run / "checkpoints" / f"step-{step:07d}" / "model.safetensors")


def assert_equal_weights(first, second, atol=0.0):
    assert first.keys() == second.keys()
    for key, value in first.items():
        torch.testing.assert_close(second[key], value, rtol=0, atol=atol)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbs: its corpus, its folder and its outcome."""
    folder = tmp_path_factory.mktemp("whole")
    pack_corpus(as_sources(made_recordings()), folder / "pack", atlas="toy")
    return folder / "pack", folder / "run", pretrain(folder / "pack", folder / "run", config())


@pytest.mark.parametrize("changes", [{}, {"microbatch": 5, "loss": "kl"}])
def test_resuming_is_exact_to_the_bit(tmp_path, whole, changes):
    pack, alone, _ = whole
    if changes:
        alone = tmp_path / "whole"
        pretrain(pack, alone, config(**changes))
    pretrain(pack, tmp_path / "parts", config(**changes), stop_step=3)
    assert (tmp_path / "parts" / "checkpoints" / "step-0000003" / "optimizer.safetensors").exists()
    pretrain(pack, tmp_path / "parts", config(**changes))
    assert_equal_weights(weights(alone), weights(tmp_path / "parts"))
    shared_steps = [0, 4, 6, 8]
    pd.testing.assert_frame_equal(*(read_log(run).loc[shared_steps] for run in (alone, tmp_path / "parts")))


def test_an_interrupted_log_goes_on_from_the_checkpoint(tmp_path, whole):
    pack, alone, _ = whole
    run = shutil.copytree(alone, tmp_path / "run")
    for name in ("model", "checkpoints/step-0000008"):
        shutil.rmtree(run / name)
    pretrain(pack, tmp_path / "again", config(), stop_step=4)
    optimizer = "checkpoints/step-0000004/optimizer.safetensors"
    shutil.copyfile(tmp_path / "again" / optimizer, run / optimizer)
    pretrain(pack, run, config())
    pd.testing.assert_frame_equal(read_log(run), read_log(alone))


def test_the_model_of_a_run_embeds(whole):
    pack, run, outcome = whole
    encoder = load_encoder("fbert", outcome.folder, parcel_names=NAMES)
    assert encoder.embed([series for _, series in made_recordings()], NAMES, 2.0).shape == (32, 8)
    facts = encoder.provenance()
    assert facts["tr_range"] == (2.0, 2.5)
    assert facts["window"] == 30
    assert facts["alpha"] == 0.35
    assert facts["optimism"] == outcome.optimism is not None
    assert "held-out families" in facts["selection"]
    assert facts["corpus_sha256"] == json.loads((pack / "pack.json").read_text())["sha256"]
    assert f"| step | {outcome.step} |" in (outcome.folder / "README.md").read_text()
    assert_equal_weights(load_file(outcome.folder / "model.safetensors"), weights(run, outcome.step))
    assert outcome.step == read_log(run).loc[[4, 8], "select"].idxmax()


def test_a_run_leaves_a_full_log_and_the_last_two_states_of_the_optimiser(whole):
    _, run, _ = whole
    log = pd.read_csv(run / "log.tsv", sep="\t", na_values="n/a")
    assert log["step"].tolist() == [0, 2, 4, 6, 8]
    assert log.loc[1:, ["loss", "learning_rate", "gradient_norm", "steps_per_s"]].notna().all(axis=None)
    assert log.loc[[0, 2, 4], ["cka", "cka_debiased", "cka_se", "select", "confirm"]].notna().all(axis=None)
    assert log.loc[1, "learning_rate"] == 1e-3
    kept = sorted(path.parent.name for path in run.glob("checkpoints/*/optimizer.safetensors"))
    assert kept == ["step-0000004", "step-0000008"]  # the last two: one may be damaged
    models = sorted(path.parent.name for path in run.glob("checkpoints/*/model.safetensors"))
    assert models == ["step-0000004", "step-0000008"]


def test_a_full_disk_leaves_the_checkpoint_before_it(tmp_path, whole, monkeypatch):
    from fcpower_bids.pretrain import train

    pack, alone, _ = whole
    save = train.save_file

    def full(tensors, path):
        if "step-0000008" in path.parent.name:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save(tensors, path)

    monkeypatch.setattr(train, "save_file", full)
    with pytest.raises(DatasetError, match=r"No space left.*step 4 is intact"):
        pretrain(pack, tmp_path / "run", config())
    assert [folder.name for folder in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-0000004"]
    monkeypatch.setattr(train, "save_file", save)
    pretrain(pack, tmp_path / "run", config())
    assert_equal_weights(weights(alone), weights(tmp_path / "run"))


def test_another_run_in_the_folder_is_refused(tmp_path, pack):
    pretrain(pack, tmp_path / "run", config(), stop_step=4)
    with pytest.raises(UsageError, match="other choices"):
        pretrain(pack, tmp_path / "run", config(learning_rate=2e-3))
    pack_corpus(as_sources(made_recordings(17)[-2:]), pack)
    with pytest.raises(UsageError, match="another corpus"):
        pretrain(pack, tmp_path / "run", config())


def test_a_damaged_run_is_named_with_the_remedy(tmp_path, pack):
    """Cut in half; and one bit of the state of the optimiser, which no reader would notice, is another."""
    run = tmp_path / "run"
    pretrain(pack, run, config(), stop_step=4)
    newest = run / "checkpoints" / "step-0000004"
    for path in (*(newest / name for name in ("model.safetensors", OPTIMIZER, "state.json")), run / "log.tsv"):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DatasetError, match=r"damaged.*training begins anew") as caught:
            pretrain(pack, run, config())
        assert str(path if path.parent == run else newest) in str(caught.value)
        path.write_bytes(whole)
    content = bytearray((newest / OPTIMIZER).read_bytes())
    content[-5] ^= 1
    (newest / OPTIMIZER).write_bytes(content)
    with pytest.raises(DatasetError, match=r"optimizer\.safetensors is not what was written.*training begins anew"):
        pretrain(pack, run, config())
    content[-5] ^= 1
    (newest / OPTIMIZER).write_bytes(content)
    pretrain(pack, run, config())


def test_short_recordings_and_large_batches_are_announced(tmp_path, pack, caplog):
    with caplog.at_level(logging.INFO):
        outcome = pretrain(pack, tmp_path / "run", config(window=52, batch_size=1024, steps=2))
    assert "shorter than 52 volumes" in caplog.text
    assert "batch is reduced" in caplog.text
    assert "diagonal is" in caplog.text
    assert 0 < outcome.diagonal_share < 1
    with pytest.raises(DatasetError, match="Only 0 recordings"):
        pretrain(pack, tmp_path / "none", config(window=500))


def test_too_few_held_out_people_take_the_last_step(tmp_path, pack):
    outcome = pretrain(pack, tmp_path / "run", config(held_out=0.1, steps=4))
    assert (outcome.step, outcome.selected, outcome.optimism) == (4, None, None)
    assert "too few people" in load_encoder("fbert", outcome.folder).provenance()["selection"]


def test_an_exploding_run_stops_with_advice(tmp_path, pack):
    with pytest.raises(UsageError, match="lower the learning rate"):
        pretrain(pack, tmp_path / "run", config(learning_rate=1e30, steps=30, clip=1e30))


@pytest.mark.parametrize("precision", ["bf16-mixed"])
def test_mixed_precision_follows_full_precision(tmp_path, pack, precision):
    architecture = {"d": 8, "layers": 1, "heads": 2, "ff": 8, "dropout": 0.0}
    losses = []
    for name in ("32-true", precision):
        pretrain(pack, tmp_path / name, config(architecture=architecture, precision=name))
        losses.append(read_log(tmp_path / name)["loss"].to_numpy()[1:])
    assert losses[1][0] == pytest.approx(losses[0][0], abs=1e-3)
    np.testing.assert_allclose(losses[1], losses[0], rtol=0, atol=5e-2)
    assert (losses[1] != losses[0]).any()


def test_a_comparison_that_fails_costs_the_comparison_and_not_the_model(tmp_path, pack, monkeypatch):
    def slip(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("fcpower_bids.pretrain.train.judge", slip)
    with pytest.raises(ZeroDivisionError):
        pretrain(pack, tmp_path / "run", config())
    assert load_encoder("fbert", tmp_path / "run" / "model").card.verdict == "n/a"
