"""The constants of the paper, the schedule, impossible choices, and what follows where nobody chose."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest

from fcpower_bids.errors import UsageError
from fcpower_bids.pretrain.engine import PretrainConfig, paper_optimisation
from fcpower_bids.workflows.pretraining import pretrain_config
from tests.command import parse_settings
from tests.pretrain.outputs import run_pretrain


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


def test_all_impossible_choices_are_named_at_once():
    with pytest.raises(UsageError) as caught:
        PretrainConfig(encoder="x", loss="y", held_out=1.0, steps=0, microbatch=0)
    for word in ("encoder", "loss", "held-out", "steps", "microbatch"):
        assert word in str(caught.value)
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
    log = pd.read_csv(folder / "log.tsv", sep="\t", index_col="step", na_values="n/a")
    assert log.loc[1, "learning_rate"] == pytest.approx(8.5e-4 / 100)
