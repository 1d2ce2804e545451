"""The training loop and its parts: losses by the identities of the paper, gradients, batches, schedule, checkpoints."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.fbert import POSITIONS, FBert, FBertConfig, position_code
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.pretrain import engine
from fcpower_bids.pretrain.engine import (
    BATCH,
    LOSSES,
    Gradient,
    PretrainConfig,
    cka,
    draw_batch,
    kl,
    make_fabric,
    paper_optimisation,
)
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.store import LOCKS, lock
from tests.cases.cohorts import write_series
from tests.pretrain.conftest import NAMES, as_sources, made_recordings
from tests.pretrain.outputs import HERE, TINY, plant_outputs, pretrain, read_log, run_pretrain
from tests.pretrain.test_corpus import flip
from tests.running import run


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


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], atol: float = 0.0) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")
    assert max(float(value.abs().max()) for name, value in first.items() if name != "loss") > 1e-3


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbs: its corpus, its folder and its outcome."""
    folder = tmp_path_factory.mktemp("whole")
    pack_corpus(as_sources(made_recordings()), folder / "pack", atlas="toy")
    return folder / "pack", folder / "run", pretrain(folder / "pack", folder / "run", config())


@pytest.mark.parametrize("changes", [{}, {"loss": "kl"}])
def test_resuming_is_exact_to_the_bit(tmp_path, whole, changes, monkeypatch):
    pack, alone, _ = whole
    if changes:  # and the memory of four windows
        monkeypatch.setattr(engine, "machine_bytes", lambda: 8 * 4 * (12 * 8 + 4 * 8) * 2 * 31)
        alone = tmp_path / "whole"
        pretrain(pack, alone, config(**changes))
    pretrain(pack, tmp_path / "parts", config(**changes), stop_step=3)
    assert (tmp_path / "parts" / "checkpoints" / "step-0000003" / "optimizer.safetensors").exists()
    pretrain(pack, tmp_path / "parts", config(**changes))
    assert_same(weights(alone), weights(tmp_path / "parts"))
    shared_steps = [0, 4, 6, 8]
    pd.testing.assert_frame_equal(*(read_log(run).loc[shared_steps] for run in (alone, tmp_path / "parts")))


def test_the_model_of_a_run_embeds(whole):
    pack, run, outcome = whole
    encoder = load_encoder("fbert", outcome["folder"], parcel_names=NAMES)
    assert encoder.embed([series for _, series in made_recordings()], NAMES, 2.0).shape == (32, 8)
    facts = encoder.provenance()
    assert facts["tr_range"] == (2.0, 2.5)
    assert facts["window"] == 30
    assert facts["alpha"] == 0.35
    assert facts["optimism"] == outcome["optimism"] is not None
    assert "held-out families" in facts["selection"]
    assert facts["corpus_sha256"] == json.loads((pack / "pack.json").read_text())["sha256"]
    assert f"| step | {outcome['step']} |" in (outcome["folder"] / "README.md").read_text()
    assert_same(load_file(outcome["folder"] / "model.safetensors"), weights(run, outcome["step"]))
    assert outcome["step"] == read_log(run).loc[[4, 8], "select"].idxmax()


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

    def full(tensors, path, metadata):
        if "step-0000008" in path.parent.name:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save(tensors, path, metadata)

    monkeypatch.setattr(train, "save_file", full)
    with pytest.raises(DatasetError, match=r"No space left.*step 4 is intact"):
        pretrain(pack, tmp_path / "run", config())
    assert [folder.name for folder in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-0000004"]
    monkeypatch.setattr(train, "save_file", save)
    pretrain(pack, tmp_path / "run", config())
    assert_same(weights(alone), weights(tmp_path / "run"))


def test_another_run_in_the_folder_is_refused(tmp_path, whole):
    pack, run, _ = whole
    for changes in ({"learning_rate": 2e-3}, {"steps": 6}, {"steps": 10}):
        with pytest.raises(UsageError, match="other choices, another number of steps"):
            pretrain(pack, run, config(**changes))
    changed = shutil.copytree(pack, tmp_path / "pack")
    pack_corpus(as_sources(made_recordings(17)[-2:]), changed, atlas="toy")
    with pytest.raises(UsageError, match="another corpus"):
        pretrain(changed, run, config())


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(whole, tmp_path, name, caplog):
    """The same weights as of a run whose last checkpoint was whole; none is gone on from where both are damaged."""
    pack, alone, _ = whole
    run = shutil.copytree(alone, tmp_path / "run")
    newest, other = (run / "checkpoints" / f"step-000000{step}" for step in (8, 4))
    flip(-4)(newest / name)
    pretrain(pack, run, config())
    assert f"{newest} is damaged: training goes on from the checkpoint before it" in caplog.text
    assert read_log(run).index.tolist() == [0, 2, 4, 6, 8]
    last = newest.relative_to(run) / "optimizer.safetensors"
    assert (run / last).read_bytes() == (alone / last).read_bytes()
    for place in (newest, other):
        flip(-4)(place / "model.safetensors")
    with pytest.raises(DatasetError, match="The model in"):
        pretrain(pack, run, config())
    assert other.is_dir()


def test_an_exploding_run_stops_with_advice(tmp_path, whole):
    with pytest.raises(UsageError, match="lower the learning rate"):
        pretrain(whole[0], tmp_path / "run", config(learning_rate=1e30, steps=30, clip=1e30))


def test_positions_move_with_the_model_and_are_in_no_checkpoint():
    torch.manual_seed(0)
    model = FBert(FBertConfig(10, d=8, layers=1, heads=2, ff=8)).eval()
    assert "positions" not in model.state_dict()
    assert model.get_buffer("positions").shape == (POSITIONS, 8)
    long, code = torch.randn(1, 2 * POSITIONS, 10), position_code(2 * POSITIONS + 1, 8).numpy()
    for dtype, volumes, atol in ((torch.float32, 2 * POSITIONS, 2e-6), (torch.float64, 50, 1e-14)):
        model, x = model.to(dtype), long[:, :volumes].to(dtype)
        with torch.inference_mode():
            bare = torch.cat((model.cls_token.expand(1, 1, -1), model.input_projection(x)), dim=1)
            found = (model.tokens(x) - bare)[0].numpy()
        np.testing.assert_allclose(found, code[: volumes + 1], rtol=0, atol=atol)


SHORT = ("--held-out", "0.4")


def test_minutes_set_steps_and_warm_up_and_a_second_run_keeps_them(tmp_path):
    plant_outputs(tmp_path, made_recordings())
    words = (*TINY, *HERE, *SHORT, "--minutes", "0.02")
    told = run_pretrain(tmp_path, quick=words, every=1000).err
    steps, warm = map(int, re.search(r"have time for (\d+) steps, (\d+) of warm-up", told).groups())
    assert steps >= 10
    assert warm == min(100, steps // 10)
    (state,) = (tmp_path / "out" / "encoder" / "checkpoints").glob("step-*/optimizer.safetensors")
    with safe_open(state, "pt") as file:
        assert json.loads(file.metadata()["state"])["step"] == steps
    rates = pd.read_csv(tmp_path / "out" / "encoder" / "log.tsv", sep="\t")["learning_rate"].dropna()
    assert rates.iloc[-1] < 0.1 * 8.5e-4  # the cosine ends where the minutes end
    assert not (tmp_path / "out" / "encoder" / "trial").exists()
    again = run_pretrain(tmp_path, quick=words, every=1000)  # nothing is timed again
    assert f"have time for {steps} steps" in again.err
    told = run_pretrain(tmp_path, quick=(*TINY, *HERE, *SHORT, "--minutes", "5"), code=2).err
    assert "holds a run of 0.02 minutes" in told
    schedule = tmp_path / "out" / "encoder" / "schedule.json"
    noted = json.loads(schedule.read_text()) | {"steps": 7}
    for change, kept in (({}, True), ({"choices": "of another student"}, False)):  # before the first checkpoint
        for place in ("checkpoints", "model", "interim"):
            shutil.rmtree(schedule.parent / place, ignore_errors=True)
        schedule.write_text(json.dumps(noted | change))
        assert ("have time for 7 steps" in run_pretrain(tmp_path, quick=words, every=1000).err) is kept


def test_a_run_beside_another_or_of_other_choices_is_refused_and_leaves_the_record_that_is_there(tmp_path):
    plant_outputs(tmp_path, made_recordings())
    with lock(tmp_path / "out" / LOCKS / "pretrain"):
        assert "Another pretraining is at work in" in run_pretrain(tmp_path, code=2).err
    assert not (tmp_path / "out" / "encoder").exists()
    run_pretrain(tmp_path)
    assert not (tmp_path / "out" / LOCKS).exists()
    record = tmp_path / "out" / "logs" / "settings_pretrain.toml"
    before = record.read_text()
    run_pretrain(tmp_path, "--loss", "kl", code=2)
    assert record.read_text() == before
    run_pretrain(tmp_path, "--config-file", record, quick=())


def test_a_list_of_series_is_trained_on_by_one_command(tmp_path):
    folder = write_series(tmp_path, [f"sub-{number:02d}" for number in range(1, 17)], parcels=8, volumes=60)
    (folder / "bids" / "dataset_description.json").write_text('{"Name": "listed", "BIDSVersion": "1.9.0"}')
    words = (*TINY, *HERE, *SHORT, "--steps", "4", "--warmup", "1", "-d", f"list={folder / 'list.tsv'}")
    run(folder / "bids", folder / "out", "pretrain", *words, code=7)
    table = pd.read_csv(folder / "out" / "corpus" / "recordings.tsv", sep="\t", dtype=str)
    assert sorted(table["subject"]) == [f"{number:02d}" for number in range(1, 17)]
    assert set(table["T"]) == {"60"}
    assert (folder / "out" / "encoder" / "model" / "model.safetensors").is_file()
    lines = (folder / "list.tsv").read_text().splitlines()
    (folder / "list.tsv").write_text("\n".join(lines[:-2]) + "\n")
    fewer = run(folder / "bids", folder / "out", "pretrain", *words, "--steps", "0", code=0)  # two people leave
    assert "Corpus: 14 recordings of 14 people" in fewer.err
    told = run(folder / "bids", folder / "two", "pretrain", *words[:-1], f"a={folder / 'out'}", code=2).err
    assert "list=FILE or LAYOUT=FOLDER" in told


def batch(n: int = 12, d: int = 5, edges: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings, and the correlation kernel of random teacher vectors."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, edges))
    z -= z.mean(1, keepdims=True)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return torch.from_numpy(rng.standard_normal((n, d))), torch.from_numpy(z @ z.T)


@pytest.mark.parametrize("d", [3, 12, 40])
def test_cka_equals_its_definition(d):
    E, K = batch(d=d)
    H = torch.eye(12, dtype=torch.float64) - 1 / 12
    S, T = H @ E @ E.T @ H, H @ K @ H
    expected = (S * T).sum() / (S.norm() * T.norm())
    torch.testing.assert_close(cka(E, K), expected, rtol=0, atol=1e-14)


def test_kl_equals_a_plain_loop():
    E, K = batch(7)
    d2 = 2 - 2 * K.numpy()
    pairs = d2[~np.eye(7, dtype=bool)]
    e = E.numpy() / np.linalg.norm(E.numpy(), axis=1, keepdims=True)
    total = 0.0
    for i in range(7):
        j = [k for k in range(7) if k != i]
        t = np.exp(-(d2[i, j] - pairs.mean()) / pairs.std() / 0.2)
        s = np.exp(e[j] @ e[i] / 0.07)
        t, s = t / t.sum(), s / s.sum()
        total += (t * np.log(t / s)).sum()
    assert kl(E, K).item() == pytest.approx(total / 7, abs=1e-12)


SMALL = FBertConfig(6, d=8, layers=2, heads=2, ff=8, dropout=0.0)


def data(n: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    x, edges = rng.standard_normal((n, 12, 6)), rng.standard_normal((n, 40))
    return torch.from_numpy(x), torch.from_numpy(np.corrcoef(edges))


def gradients(fabric, loss: str, chunk: int | None, config: FBertConfig = SMALL) -> dict[str, torch.Tensor]:
    model = FBert(config, seed=1)
    wrapped, _ = fabric.setup(model, torch.optim.SGD(model.parameters()))
    x, K = data()
    share = len(x) // fabric.world_size
    mine = x[fabric.global_rank * share : (fabric.global_rank + 1) * share]
    value = Gradient(fabric, wrapped, LOSSES[loss], chunk).accumulate(mine, K, (0, 5))
    out = {name: parameter.grad.detach().clone() for name, parameter in model.named_parameters()}
    return {**out, "loss": value.reshape(1)}


def single() -> object:
    return make_fabric(PretrainConfig(precision="64-true"))


def test_chunks_see_the_same_dropout_in_both_passes():
    """With dropout the loss of the first pass must be that of the second: a finite difference tells."""
    fabric, config = single(), FBertConfig(6, d=8, layers=1, heads=2, ff=8, dropout=0.5)
    model = FBert(config, seed=1)
    wrapped, _ = fabric.setup(model, torch.optim.SGD(model.parameters()))
    x, K = data()
    gradient = Gradient(fabric, wrapped.train(), LOSSES["cka"], 4)
    gradient.accumulate(x, K, (0, 5))
    bias = model.encoder.layers[0].linear2.bias
    slope, values = float(bias.grad[2]), []
    for change in (1e-3, -2e-3):
        with torch.no_grad():
            bias[2] += change
        values.append(float(gradient.accumulate(x, K, (0, 5))))
    assert slope == pytest.approx((values[0] - values[1]) / 2e-3, rel=1e-2)
    assert abs(slope) > 1e-3


def test_a_batch_holds_distinct_recordings_and_windows_inside_them():
    places = np.random.default_rng(0).integers(1, 30, 50)
    firsts = []
    for step in range(200):
        members, chosen = draw_batch(places, 20, (0, BATCH, step), "recordings")
        assert len(set(members.tolist())) == 20
        assert (chosen >= 0).all()
        assert (chosen < places[members]).all()
        firsts.append(members)
    counts = np.bincount(np.concatenate(firsts), minlength=50)
    assert counts.min() > 50  # 80 expected
    again = draw_batch(places, 20, (0, BATCH, 7), "recordings")
    np.testing.assert_array_equal(again[0], firsts[7])
    assert (draw_batch(places, 20, (1, BATCH, 7), "recordings")[0] != firsts[7]).any()


def paper_config(encoder="fbert-1m", loss="cka"):
    return PretrainConfig(encoder, loss=loss, **paper_optimisation(encoder, loss))


def test_constants_of_the_paper():
    c = paper_config()
    assert (c.loss, c.batch_size, c.learning_rate, c.window, c.steps) == ("cka", 1024, 8.5e-4, 80, 300_000)
    assert (c.weight_decay, c.warmup, c.clip, c.seed, c.checkpoint_every) == (1e-4, 100, 1.0, 0, 2000)
    small, large = paper_config("fbert-1m", "kl"), paper_config("fbert-8m", "kl")
    assert (small.batch_size, small.learning_rate, small.warmup) == (128, 3e-4, 100)
    assert (large.batch_size, large.learning_rate, large.warmup) == (128, 1e-4, 2000)
    assert paper_config("fbert-8m").model_config(450).d == 384


def test_schedule():
    c = PretrainConfig(steps=1100, warmup=100, learning_rate=2.0)
    assert c.rate(0) == pytest.approx(0.02)
    assert c.rate(99) == c.rate(100) == 2.0
    assert c.rate(600) == pytest.approx(1.0)
    assert c.rate(1100) == pytest.approx(0.0)
    assert all(c.rate(s) > c.rate(s + 1) for s in range(100, 1100))
