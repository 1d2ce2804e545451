"""F-BERT on top of the closed form: where it begins, what it learns from, and that it goes on as it stopped."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file

from fcpower_bids.core.filters.student import fit_student, power_edges, principal_coordinates
from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.checkpoints import CheckpointError
from fcpower_bids.slices.pretraining.closed_form import PARTS, fit_closed_form, make_residual, spread_windows
from fcpower_bids.slices.pretraining.corpus.public import open_corpus
from fcpower_bids.slices.pretraining.engine import Batches
from fcpower_bids.slices.pretraining.selection import divide
from fcpower_bids.slices.pretraining.train import pretrain
from tests.slices.pretraining.conftest import NAMES
from tests.slices.pretraining.test_train import assert_equal_weights, config, numbers, weights


@pytest.fixture
def begun(tmp_path, pack):
    corpus = open_corpus(pack, tmp_path)
    choices = config(method="residual")
    rows = divide(corpus, choices).rows
    return corpus, rows, choices, *make_residual(corpus, rows, choices)


def test_before_the_first_step_it_is_the_closed_form(begun):
    corpus, rows, choices, model, _ = begun
    windows = corpus.windows(rows, np.zeros(len(rows), int), 30)
    expected = fit_closed_form(corpus, rows, choices)(windows)
    torch.testing.assert_close(model.train()(windows), expected, rtol=0, atol=1e-7)
    assert expected.std() > 0.01


def test_what_it_learns_from_was_fitted_without_the_family(begun):
    """Kernel ridge in double precision from the windows of the other families."""
    corpus, rows, choices, model, start = begun
    d = model.config.d
    windows = corpus.windows(rows, np.zeros(len(rows), int), 30)
    found = start(windows, rows).numpy()
    chosen, places = spread_windows(corpus, rows, choices)
    features = power_edges(corpus.windows(chosen, places, 30).numpy(), corpus.alpha)
    recordings, member = np.unique(chosen, return_inverse=True)
    coordinates = principal_coordinates(corpus.kernel_of(recordings).double().numpy(), d)[member]
    for row, window, vector in zip(rows, windows.numpy(), found, strict=True):
        others = start.part[chosen] != start.part[row]
        assert corpus.families[row] not in set(corpus.families[chosen[others]])
        mean, fitted = fit_student(features[others], coordinates[others])
        np.testing.assert_allclose(vector, (power_edges([window], corpus.alpha)[0] - mean) @ fitted, atol=1e-4)
    assert len(set(start.part[rows])) == PARTS


def test_gradients_reach_every_weight_but_those_of_the_closed_form(begun):
    corpus, rows, choices, model, start = begun
    batches = Batches(corpus, rows, corpus.places(30)[rows], 12, choices, start=start)
    (x, closed), _ = batches.read(0)
    target = torch.randn(12, model.config.d, generator=torch.Generator().manual_seed(0))
    model(x, closed).sub(target).square().sum().backward()
    assert model.output.weight.grad.abs().min() > 0
    torch.nn.init.eye_(model.output.weight)  # from zero, the first step moves this weight alone
    model(x, closed).sub(target).square().sum().backward()
    without = {name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()}
    assert without == {"scale", "closed_form.mean", "closed_form.weights"}


@pytest.mark.parametrize("changes", [{}, {"microbatch": 5, "surrogates": True}])
def test_a_stopped_run_ends_with_the_same_weights(tmp_path, pack, changes):
    pretrain(pack, tmp_path / "whole", config(method="residual", **changes))
    pretrain(pack, tmp_path / "parts", config(method="residual", **changes), stop_step=3)
    pretrain(pack, tmp_path / "parts", config(method="residual", **changes))
    assert_equal_weights(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    first, last = weights(tmp_path / "whole", 4), weights(tmp_path / "whole")
    assert_equal_weights(*({k: v for k, v in one.items() if "closed_form" in k} for one in (first, last)))
    assert not torch.equal(first["output.weight"], last["output.weight"])


def test_chunks_and_their_coordinates_stay_together(tmp_path, pack):
    still = {"d": 8, "layers": 2, "heads": 2, "ff": 8, "dropout": 0.0}
    for name, microbatch in (("whole", None), ("chunks", 5)):
        exact = {"architecture": still, "precision": "64-true", "microbatch": microbatch}
        pretrain(pack, tmp_path / name, config(method="residual", **exact))
    assert_equal_weights(weights(tmp_path / "whole"), weights(tmp_path / "chunks"), atol=1e-6)


def test_the_model_is_applied_published_and_judged_by_what_it_began_as(tmp_path, pack, recordings):
    outcome = pretrain(pack, tmp_path / "run", config(method="residual", learning_rate=1e-2, held_out=0.7))
    assert "against the closed-form student" in outcome.verdict
    log = numbers(tmp_path / "run").set_index("step")
    table = pd.read_csv(tmp_path / "run" / "alignment.tsv", sep="\t", na_values="n/a").set_index("map")
    assert table.loc["closed_form", "cka_debiased"] == pytest.approx(log.loc[0, "cka_debiased"], abs=1e-6)
    assert table.loc["model", "cka_debiased"] == pytest.approx(log.loc[outcome.step, "cka_debiased"], abs=1e-6)
    assert "initial" not in table.index
    encoder = load_encoder("fbert", outcome.folder)
    with pytest.raises(CheckpointError, match="on top of a closed form; use the encoder name 'fbert'"):
        load_encoder("fbert-1m", outcome.folder)
    stored = load_file(outcome.folder / "model.safetensors")
    assert np.abs(stored["output.weight"]).max() > 0
    spec = importlib.util.spec_from_file_location("alone", outcome.folder / "modeling_fbert.py")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    mixed = [3, 1, 0, 2, *range(4, 10)]
    series = recordings[0][1]
    embedded = alone.FBert.from_pretrained(outcome.folder).embed(series[:, mixed], [NAMES[i] for i in mixed])
    expected = encoder.embed([series], NAMES, 2.0)[0]
    np.testing.assert_allclose(embedded, expected, atol=1e-5)
    assert np.abs(expected).max() > 0.01
    assert json.loads((outcome.folder / "config.json").read_text())["training"].endswith("on top of the closed form")
    path = outcome.folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="the tensors are not those that were written"):
        load_encoder("fbert", outcome.folder)
