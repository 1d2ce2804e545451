"""Gradients of the global batch: in one pass, in chunks, on one process and on two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.pretrain.engine import BATCH, LOSSES, Gradient, PretrainConfig, draw_batch, make_fabric

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
