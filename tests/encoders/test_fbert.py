"""F-BERT: parameter counts, the shortcut of the last layer, and torch's own encoder as a referee."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig, count_parameters, position_code

VARIANTS = [
    {},
    {"norm_first": True, "final_norm": True},
    {"activation": "relu", "cls_position": False},
    {"pe": "none", "final_norm": True, "norm_eps": 1e-12},
    {"pe": "sinusoidal_halves", "norm_first": True},
]


def series(batch: int = 3, length: int = 33, parcels: int = 12) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal((batch, length, parcels)))


def lively(config: FBertConfig, seed: int = 0) -> FBert:
    """Large random weights and biases, so that no term is too small to be missed."""
    model = FBert(config, seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


@pytest.mark.parametrize(("name", "expected"), [("fbert-1m", 850_944), ("fbert-8m", 8_069_632)])
def test_parameter_counts_are_those_of_the_paper(name, expected):
    assert count_parameters(FBert(FBertConfig(450, **SIZES[name]))) == expected


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_torch_transformer_encoder_with_the_same_weights(config, variant):
    config = replace(config, **variant)
    model = lively(config)
    layer = nn.TransformerEncoderLayer(
        config.d, config.heads, config.ff, config.dropout, config.activation, config.norm_eps, True, config.norm_first
    )
    norm = nn.LayerNorm(config.d, config.norm_eps) if config.final_norm else None
    referee = nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False).double().eval()
    referee.load_state_dict(model.encoder.state_dict())
    x = series()
    torch.testing.assert_close(model(x), referee(model.tokens(x))[:, 0], rtol=0, atol=1e-12)


def test_position_code_closed_form():
    code = position_code(50, 8)
    p, i = 37, 2
    assert code[p, 2 * i].item() == pytest.approx(np.sin(p / 10000 ** (2 * i / 8)), abs=1e-14)
    assert code[p, 2 * i + 1].item() == pytest.approx(np.cos(p / 10000 ** (2 * i / 8)), abs=1e-14)
    halves = position_code(50, 8, "sinusoidal_halves")
    torch.testing.assert_close(torch.cat((code[:, ::2], code[:, 1::2]), dim=1), halves, rtol=0, atol=0)


def test_without_positions_the_order_of_time_does_not_matter(config):
    x = series()
    shuffled = x[:, torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(0))]
    plain = lively(replace(config, pe="none"))
    torch.testing.assert_close(plain(x), plain(shuffled), rtol=0, atol=1e-12)
    positioned = lively(config)
    assert (positioned(x) - positioned(shuffled)).abs().max() > 1e-3


def test_seed_decides_the_weights_and_the_global_state_is_left_alone(config):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second, other = FBert(config, 1), FBert(config, 1), FBert(config, 2)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.encoder.layers[0].linear1.weight, second.encoder.layers[0].linear1.weight)
    assert not torch.equal(first.encoder.layers[0].linear1.weight, other.encoder.layers[0].linear1.weight)


def test_dropout_acts_in_training_only(config):
    model = lively(config)
    x = series()
    assert torch.equal(model(x), model(x))
    assert not torch.equal(model.train()(x), model(x))
