"""Pretraining learns something that holds for people it never saw (real recordings, split by person)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.pretrain.configuration import PretrainConfig
from fcpower_bids.pretrain.corpus import open_pack
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.pretrain.selection import TRAIN, HeldOut, split_families
from fcpower_bids.pretrain.train import pretrain

SMALL = {"d": 64, "layers": 2, "heads": 4, "ff": 128, "dropout": 0.0}
HALF = 117
PARCELS = 100
SEEDS = (0, 1)


def halves_of_scans(shared):
    """Every scan as two recordings of 117 volumes of 100 parcels: 55 people, 184 recordings.

    Four neighbours of the 400 cortical parcels (in the order of the atlas, so of one network) are averaged: with the
    few recordings there are, a student of 400 inputs learns the recordings and not what they have in common.
    """
    stored = np.load(shared / "data" / "stages" / "timeseries.npz")
    for key in stored.files:
        subject, session = key.removeprefix("sub-").split("_ses-")
        series = stored[key][:, :400].astype(float)
        series = ((series - series.mean(axis=0)) / series.std(axis=0)).reshape(len(series), PARCELS, 4).mean(axis=2)
        for half in (0, 1):
            facts = {
                "id": f"{key}_half-{half}",
                "dataset": "stages",
                "subject": subject,
                "session": session,
                "repetition_time": 2.0,
                "parcel_names": [f"parcel{i}" for i in range(PARCELS)],
            }
            yield facts, lambda series=series, half=half: series[half * HALF : (half + 1) * HALF]


def train_and_score(pack, folder, seed):
    """Debiased CKA of held-out people before and after 100 steps, and that of three random encoders."""
    config = PretrainConfig(
        architecture=SMALL,
        steps=100,
        batch_size=110,
        learning_rate=2e-3,
        warmup=20,
        held_out=0.3,
        checkpoint_every=50,
        seed=seed,
    )
    pretrain(pack, folder, config)
    log = pd.read_csv(folder / "log.tsv", sep="\t", na_values="n/a").set_index("step")
    corpus = open_pack(pack)
    roles = split_families(corpus.families, config.held_out, config.seed)
    rows = np.flatnonzero(roles != TRAIN)
    held_out = HeldOut(corpus, rows, roles[rows], config.window, config.seed)
    random = [held_out.evaluate(FBert(config.model_config(PARCELS), 100 + k))["cka_debiased"] for k in range(3)]
    return log.loc[0, "cka_debiased"], log.loc[100, "cka_debiased"], float(np.mean(random)), log["loss"]


def test_100_steps_align_unseen_people_with_the_teacher(shared, tmp_path):
    """Over two splits and initialisations (docs/encoder.md has the numbers); a shuffled teacher does not do it."""
    pack_corpus(halves_of_scans(shared), tmp_path / "pack", alpha=0.35)
    results = [train_and_score(tmp_path / "pack", tmp_path / f"run{seed}", seed) for seed in SEEDS]
    start, trained, random = (np.array([result[i] for result in results]) for i in range(3))
    assert (trained > start).all()
    assert (trained > random).all()
    assert (trained - start).mean() > 0.03
    assert (trained - random).mean() > 0.03
    for *_, loss in results:
        assert loss[100] < loss[50] - 0.03
