"""Weights that were trained here, hidden behind a configuration that says as little as a released card."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from fcpower_bids.encoders import load_encoder
from fcpower_bids.slices.pretraining.configuration import PretrainConfig
from fcpower_bids.slices.pretraining.corpus.packing import pack_corpus
from fcpower_bids.slices.pretraining.train import pretrain
from fcpower_bids.slices.published_encoders.audit import main

P = 16
TRAINED = [f"P{i:02d}" for i in np.random.default_rng(5).permutation(P)]
RECORDED = TRAINED[::-1]
HIDDEN = {"norm_first": True, "activation": "relu"}
STATED = {"n_regions": P, "hidden_size": 16, "layers": 2, "heads": 2, "ff": 32}
BASE = np.random.default_rng(0).standard_normal((8, P))
MODES = np.random.default_rng(1).standard_normal((4, 8, P)) / 2


def person(*number):
    """Series whose connectome differs from others along the same few directions; parcels in the order of training."""
    rng = np.random.default_rng(number)
    loadings = BASE + np.tensordot(rng.standard_normal(4), MODES, 1)
    return rng.standard_normal((120, 8)) @ loadings + rng.standard_normal((120, P)) / 2


def source(i):
    facts = {"id": f"d/{i:03d}", "dataset": "d", "subject": f"{i:03d}", "repetition_time": 2.0}
    return {**facts, "parcel_names": TRAINED}, lambda: person(1, i)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """The folder of the model, the series of other people, and what the model embeds."""
    folder = tmp_path_factory.mktemp("hidden")
    torch.set_num_threads(1)
    pack_corpus([source(i) for i in range(120)], folder / "pack")
    shape = {"d": 16, "layers": 2, "heads": 2, "ff": 32, "dropout": 0.0, **HIDDEN}
    choices = {"steps": 200, "batch_size": 64, "window": 40, "warmup": 20, "learning_rate": 3e-3, "held_out": 0.0}
    config = PretrainConfig(architecture=shape, checkpoint_every=1000, accelerator="cpu", **choices)
    model = pretrain(folder / "pack", folder / "run", config).folder
    series, paths = [person(2, i)[:, ::-1] for i in range(30)], []
    embedded = load_encoder("fbert", model).embed(series, RECORDED, 2.0)
    for i, one in enumerate(series):
        paths.append(str(folder / f"sub-{i}_timeseries.tsv"))
        np.savetxt(paths[-1], one, delimiter="\t", header="\t".join(RECORDED), comments="", fmt="%.17g")
    (model / "config.json").write_text(json.dumps(STATED))
    return model, paths, series, embedded


def test_what_is_hidden_is_found_or_said_to_be_undecided(hidden, tmp_path, capsys):
    model, paths, series, embedded = hidden
    written = tmp_path / "found.json"
    assert main(["fbert", str(model), *paths, "--repetition-time", "2", "--write", str(written)]) == 0
    first, _, second = capsys.readouterr().out.partition("\n\n")
    leads, ranked = (pd.DataFrame([line.split("\t") for line in text.splitlines()]) for text in (first, second))
    leads = leads.rename(columns=leads.iloc[0]).iloc[1:].set_index("field")
    truth = {"order": "reversed", **HIDDEN, "pe": "sinusoidal", "cls_position": True}
    assert set(leads.index) == set(truth)
    wrong = [field for field, value in truth.items() if leads.loc[field, "best"] != str(value)]
    assert set(leads.loc[wrong, "decided"]) <= {"no"}
    assert leads.loc[["order", "norm_first"], "decided"].tolist() == ["yes", "yes"]
    assert (leads["lead"].astype(float) >= leads["lead_low"].astype(float)).all()
    scores = ranked.iloc[1:][ranked.shape[1] - 1].astype(float)
    assert scores.is_monotonic_decreasing
    by_order = ranked.iloc[1:].groupby(0)[ranked.shape[1] - 1].max().astype(float)
    assert by_order["reversed"] - by_order.drop("reversed").max() == pytest.approx(
        float(leads.loc["order", "lead"]), abs=2e-4
    )
    found = load_encoder("fbert", model, aux=(written,)).embed(series, RECORDED, 2.0)
    similar = [np.corrcoef(one, other)[0, 1] for one, other in zip(found, embedded, strict=True)]
    assert np.median(similar) > 0.9
    assert json.loads(written.read_text())["roi_labels"] == TRAINED


def test_only_what_is_not_stated_is_tried(hidden, tmp_path, capsys):
    model, paths, _, _ = hidden
    rest = tmp_path / "rest.json"
    rest.write_text(json.dumps({**HIDDEN, "pe": "sinusoidal", "roi_labels": TRAINED}))
    words = ["fbert", str(model), *paths[:9], "--repetition-time", "2", "--encoder-config", str(rest)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert len(out.partition("\n\n")[2].splitlines()) == 1 + 2  # cls_position; tensors refuse a final norm
    assert main([*words[:6], "--repetition-time", "2"]) == 4
    assert "at least 8 recordings" in capsys.readouterr().err
