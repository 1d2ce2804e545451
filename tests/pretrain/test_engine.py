"""Losses by the identities of the paper, gradients of the global batch, batches, the schedule and the constants."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.encoders.fbert import FBert, FBertConfig
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
