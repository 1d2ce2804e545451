"""Losses by the identities of the paper, gradients of the global batch, batches, the schedule and the constants."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.errors import UsageError
from fcpower_bids.pretrain.engine import (
    BATCH,
    LOSSES,
    Gradient,
    PretrainConfig,
    centre,
    cka,
    diagonal_share,
    draw_batch,
    kl,
    make_fabric,
    paper_optimisation,
)
from fcpower_bids.workflows.pretraining import pretrain_config
from tests.command import parse_settings
from tests.pretrain.outputs import read_log, run_pretrain


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


@settings(deadline=None, derandomize=True, max_examples=25)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 100), n=st.integers(5, 20), d=st.integers(2, 8))
def test_invariances(seed, scale, n, d):
    """Rotation, isotropic scaling and translation of the embeddings; order of the recordings."""
    E, K = batch(n, d, seed=seed)
    rng = np.random.default_rng(seed)
    Q = torch.from_numpy(np.linalg.qr(rng.standard_normal((d, d)))[0])
    order = torch.from_numpy(rng.permutation(n))
    moved = scale * E @ Q + 3.0
    torch.testing.assert_close(cka(moved, 7 * K), cka(E, K), rtol=0, atol=1e-9)
    torch.testing.assert_close(cka(E[order], K[order][:, order]), cka(E, K), rtol=0, atol=1e-11)
    torch.testing.assert_close(kl(scale * E @ Q, K), kl(E, K), rtol=1e-9, atol=1e-9)


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


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_embeddings_are_scored_in_float32(name):
    E, K = batch(30, 6)
    value = LOSSES[name](E.to(torch.bfloat16), K)
    assert value.dtype == torch.float32
    exact = LOSSES[name](E.to(torch.bfloat16).double(), K)
    assert value.item() == pytest.approx(exact.item(), rel=1e-4, abs=1e-5)


def test_diagonal_share_closed_form():
    """Of H I H = H: n (1 - 1/n)^2 of the squared norm n - 1."""
    n = 20
    assert diagonal_share(torch.eye(n)) == pytest.approx((1 - 1 / n), abs=1e-12)
    torch.testing.assert_close(centre(torch.ones(4, 4)), torch.zeros(4, 4))


SMALL = FBertConfig(6, d=8, layers=2, heads=2, ff=8, dropout=0.0)


def data(n: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.standard_normal((n, 12, 6))), torch.from_numpy(
        np.corrcoef(rng.standard_normal((n, 40)))
    )


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


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], atol: float) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")
    assert max(float(value.abs().max()) for name, value in first.items() if name != "loss") > 1e-3


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_chunks_give_the_same_gradient(loss, chunk):
    fabric = single()
    assert_same(gradients(fabric, loss, None), gradients(fabric, loss, chunk), atol=1e-13)


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


def test_every_window_has_the_same_chance_or_every_recording():
    """One draw: chances in proportion to the windows, or equal. Two: those of draws without replacement."""
    places = np.array([1, 2, 3, 6])
    for uniform, expected in (("windows", places / 12), ("recordings", np.full(4, 0.25))):
        counts = np.bincount([draw_batch(places, 1, (0, i), uniform)[0][0] for i in range(6000)], minlength=4)
        np.testing.assert_allclose(counts / 6000, expected, atol=0.025)
    both = [frozenset(draw_batch(places, 2, (1, i))[0].tolist()) for i in range(6000)]
    share = sum(pair == {2, 3} for pair in both) / 6000
    assert share == pytest.approx(3 / 12 * 6 / 9 + 6 / 12 * 3 / 6, abs=0.025)
    windows = np.concatenate([draw_batch(places, 4, (2, i))[1][:4] for i in range(500)])
    assert set(windows.tolist()) == set(range(6))


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


def test_where_a_run_computes_does_not_change_its_identity():
    c = PretrainConfig()
    assert dataclasses.replace(c, devices=2, microbatch=8).fingerprint() == c.fingerprint()
    assert dataclasses.replace(c, seed=1).fingerprint() != c.fingerprint()
    assert dataclasses.replace(c, architecture={"d": 64}).fingerprint() != c.fingerprint()


def test_impossible_architectures_are_refused():
    with pytest.raises(UsageError, match="multiple of the number of heads"):
        PretrainConfig(architecture={"d": 65}).model_config(10)
    with pytest.raises(UsageError, match="unexpected keyword"):
        PretrainConfig(architecture={"depth": 65}).model_config(10)


PAPER = "cka, batch 1024, learning rate 0.00085, warm-up 100"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), PAPER),
        (("--loss", "kl", "--size", "8m"), "kl, batch 128, learning rate 0.0001, warm-up 2000"),
        (("--loss", "kl", "--warmup", "10", "--batch-size", "64"), "kl, batch 64, learning rate 0.0003, warm-up 10"),
    ],
)
def test_what_was_not_chosen_is_the_papers(options, words):
    settings = parse_settings(["bids", "out", "pretrain", "--steps", "2", "--window", "20", *options])
    assert pretrain_config(settings).in_words() == f"{words}, 2 steps, windows of 20 volumes drawn by windows"


def test_a_run_says_and_does_what_follows(written, capsys):
    """More is asked of a batch than the recordings that train."""
    options = ("--steps", "1", "--held-out", "0", "--window", "20", "--size", "small", "--nprocs", "1")
    assert run_pretrain(written, "--accept-unproven", quick=options) == 0
    rest = "1 steps, windows of 20 volumes drawn by windows"
    assert f": {PAPER}, {rest}\n" in capsys.readouterr().err
    used, folder = f"{PAPER.replace('1024', '32')}, {rest}", written / "out" / "encoder"
    assert json.loads((folder / "model" / "config.json").read_text())["training"] == used
    assert f"| training | {used} |" in (folder / "model" / "README.md").read_text()
    log = read_log(folder)
    assert log.loc[1, "learning_rate"] == pytest.approx(8.5e-4 / 100)
