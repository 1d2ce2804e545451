"""What nobody chose follows objective and size, is told, and is what the run does."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.command import main
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import plant_outputs

STUDENT = ("--architecture", "d=8", "layers=1", "heads=2", "ff=8", "dropout=0.0", "--window", "20")
SHORT = (
    "--steps",
    "2",
    "--checkpoint-every",
    "1",
    "--held-out",
    "0.1",
    "--nprocs",
    "1",
    "--accept-unproven",
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """200 recordings, 180 of which train: more than the batch of one objective, fewer than that of the other."""
    folder = tmp_path_factory.mktemp("planted")
    plant_outputs(folder, made_recordings(people=100))
    assert (
        main([str(folder / "bids"), str(folder / "out"), "pretrain", "--steps", "0", "--quiet", "--nprocs", "1"]) == 0
    )
    return folder


def train(planted, out, *options: str) -> tuple[dict, pd.DataFrame, str]:
    """Configuration and text of the model card, and log, of a run."""
    corpus = ("--corpus", str(planted / "out" / "corpus"))
    assert main([str(planted / "bids"), str(out), "pretrain", *corpus, *STUDENT, *SHORT, *options]) == 0
    folder = out / "encoder"
    log = pd.read_csv(folder / "log.tsv", sep="\t", index_col="step", na_values="n/a")
    return json.loads((folder / "model" / "config.json").read_text()), log, (folder / "model" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "told", "batch", "first_rate"),
    [
        ((), "cka, batch 1024, learning rate 0.00085, warm-up 100", 180, 8.5e-4 / 100),
        (("--size", "8m"), "cka, batch 1024, learning rate 0.00085, warm-up 100", 180, 8.5e-4 / 100),
        (("--loss", "kl"), "kl, batch 128, learning rate 0.0003, warm-up 100", 128, 3e-4 / 100),
        (
            ("--loss", "kl", "--size", "8m"),
            "kl, batch 128, learning rate 0.0001, warm-up 2000",
            128,
            1e-4 / 2000,
        ),
        (("--loss", "kl", "--warmup", "10"), "kl, batch 128, learning rate 0.0003, warm-up 10", 128, 3e-4 / 10),
        (("--batch-size", "64"), "cka, batch 64, learning rate 0.00085, warm-up 100", 64, 8.5e-4 / 100),
    ],
    ids=lambda value: " ".join(value) or "none" if isinstance(value, tuple) else "",
)
def test_what_was_not_chosen_is_the_papers(planted, tmp_path, capsys, options, told, batch, first_rate):
    config, log, card = train(planted, tmp_path / "out", *options)
    assert f": {told}, 2 steps, windows of 20 volumes drawn by windows\n" in capsys.readouterr().err
    loss, _, rest = told.split(", ", 2)
    used = f"{loss}, batch {batch}, {rest}, 2 steps, windows of 20 volumes drawn by windows"
    assert config["training"] == used
    assert f"| training | {used} |" in card
    assert log.loc[1, "learning_rate"] == pytest.approx(first_rate)
