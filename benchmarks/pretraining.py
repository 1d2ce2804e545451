"""The learning curve of docs/encoder.md: unseen people of `shared/data/stages` found again from 80 volumes.

    python -m benchmarks.pretraining --shared ../shared

The 37 people with two sessions are divided into three parts. For each part encoders are trained on 11, 22 or all of the
other people, and every scan of the part looks for its person in the other session, by the first and by the second 80
volumes, with the encoder and with what needs no training. Parcels are the 400 of the cortex.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fcpower_bids.core.alignment import kernel_alignment
from fcpower_bids.core.identification import identify
from fcpower_bids.core.kernels import normalise_rows
from fcpower_bids.encoders.checkpoints import load_weights, read_config
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.pretrain.corpus import teacher_vector_and_rank
from fcpower_bids.pretrain.engine import PretrainConfig, on_all_processes
from fcpower_bids.pretrain.packing import pack_corpus
from fcpower_bids.pretrain.train import train

PARCELS, WINDOW, PARTS = 400, 80, 3
STARTS = (0, 80)
SIZES = (11, 22)
EVERYBODY = 42
"""The others are 42 or 43."""
Scans = dict[tuple[str, str], np.ndarray]
Map = Callable[[np.ndarray], np.ndarray]


def read_scans(shared: Path) -> Scans:
    """Z-scored series of every scan by person and session."""
    stored = np.load(shared / "data" / "stages" / "timeseries.npz")
    scans = {}
    for key in stored.files:
        person, session = key.removeprefix("sub-").split("_ses-")
        series = stored[key][:, :PARCELS].astype(float)
        scans[person, session] = (series - series.mean(0)) / series.std(0, ddof=1)
    return scans


def divide(scans: Scans) -> list[tuple[list[str], list[str]]]:
    """Unseen people with two sessions, and the others in a random order, of each part."""
    everyone = sorted({person for person, _ in scans})
    twice = [person for person in everyone if sum(one == person for one, _ in scans) == 2]
    rng = np.random.default_rng(0)
    order = rng.permutation(twice)
    parts = [sorted(order[i::PARTS].tolist()) for i in range(PARTS)]
    return [(part, rng.permutation([one for one in everyone if one not in part]).tolist()) for part in parts]


def score(features: Map, scans: Scans, people: list[str]) -> dict[str, float]:
    """Share of searches that find the person from one window, and debiased alignment with FC^0.35 of whole scans."""
    keys = [key for key in scans if key[0] in people]
    each = [features(np.stack([scans[key][start : start + WINDOW] for key in keys])) for start in STARTS]
    persons, sessions = zip(*keys, strict=True)
    rows = [normalise_rows(one) for one in each]
    found = [identify(a @ b.T, persons, sessions).accuracy for a in rows for b in rows]
    teacher = np.stack([teacher_vector_and_rank(scans[key], 0.35)[0] for key in keys])
    centred = [one - one.mean(0) for one in each]
    alignment = [kernel_alignment(one @ one.T, teacher @ teacher.T, debiased=True) for one in centred]
    return {"identification": float(np.mean(found)), "alignment": float(np.mean(alignment))}


def encode(model: FBert) -> Map:
    """Embeddings of windows by a model."""

    def embed(windows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model.eval()(torch.from_numpy(windows.astype(np.float32))).double().numpy()

    return embed


def sources(scans: Scans, people: list[str]) -> list[Any]:
    """Recordings for the pack."""
    names = [f"parcel{i}" for i in range(PARCELS)]
    return [
        (
            {
                "id": f"stages/sub-{person}_ses-{session}",
                "dataset": "stages",
                "subject": person,
                "session": session,
                "repetition_time": 2.0,
                "parcel_names": names,
            },
            lambda series=series: series,
        )
        for (person, session), series in scans.items()
        if person in people
    ]


def without_training(scans: Scans, unseen: list[str], config: PretrainConfig) -> list[dict[str, Any]]:
    """FC and FC^0.35 of the window, and three random encoders."""
    maps: dict[str, Map] = {
        f"FC^{alpha:g}": lambda x, alpha=alpha: np.stack([teacher_vector_and_rank(window, alpha)[0] for window in x])
        for alpha in (1.0, 0.35)
    }
    rows = [{"map": name, **score(one, scans, unseen)} for name, one in maps.items()]
    random = [score(encode(FBert(config.model_config(PARCELS), 100 + k)), scans, unseen) for k in range(3)]
    return [*rows, {"map": "random-init", **pd.DataFrame(random).mean().to_dict()}]


def trained(scans: Scans, seen: list[str], unseen: list[str], config: PretrainConfig) -> list[dict[str, Any]]:
    """Scores at every checkpoint of a run."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pack_corpus(sources(scans, seen), folder / "pack", alpha=0.35)
        work = partial(train, corpus=folder / "pack", output=folder / "run", config=config)
        on_all_processes(config, work)
        rows = []
        for checkpoint in sorted((folder / "run" / "checkpoints").glob("step-*")):
            model = read_config(checkpoint)[0].build()
            load_weights(model, checkpoint)
            step = int(checkpoint.name.removeprefix("step-"))
            rows.append({"map": "F-BERT", "people": len(seen), "step": step, **score(encode(model), scans, unseen)})
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/stages")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--architecture", nargs="+", default=["d=64", "layers=2", "heads=4", "ff=128"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    scans, rows = read_scans(options.shared), []
    size = {name: int(number) for name, _, number in (item.partition("=") for item in options.architecture)}
    for part, (unseen, others) in enumerate(divide(scans)):
        config = PretrainConfig(
            architecture={**size, "dropout": 0.0},
            steps=options.steps,
            batch_size=64,
            learning_rate=options.learning_rate,
            warmup=20,
            held_out=0.0,
            checkpoint_every=max(1, options.steps // 4),
            seed=part,
        )
        rows += [{"part": part, **row} for row in without_training(scans, unseen, config)]
        for n in (*SIZES, len(others)):
            rows += [{"part": part, **row} for row in trained(scans, others[:n], unseen, config)]
            table = pd.DataFrame(rows).replace({"people": len(others)}, EVERYBODY).fillna({"people": 0, "step": 0})
            print(table.groupby(["map", "people", "step"])[["identification", "alignment"]].mean().round(3), flush=True)


if __name__ == "__main__":
    main()
