"""Does pretraining learn when people are many? The learning curve of docs/encoder.md on made people, by the command.

    python -m benchmarks.made_people --people 250 1000 4000 8000 --steps 4000 --accelerator gpu

Every person has a covariance of their own around a shared one with the spectrum of real connectomes: other eigenvalues
and, by a small random mixing, other eigenvectors. Encoders of the paper's size learn from one recording of 240 volumes
of each. Then each of 200 people that no encoder saw looks for themselves, by one window of 80 volumes, in another one
of the same recording, which shares no volume with it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.pretraining import Map, encode
from fcpower_bids.core.filters.alignment import kernel_alignment
from fcpower_bids.core.filters.student import (
    connectivity_edges,
    fit_student,
    power_edges,
    principal_coordinates,
)
from fcpower_bids.core.regression.kernels import normalise_rows
from fcpower_bids.core.signal.timeseries import z_score
from fcpower_bids.encoders.checkpoints import load_strictly, read_config, read_tensors
from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig
from fcpower_bids.slices.pretraining.corpus.packing import pack_corpus
from fcpower_bids.slices.pretraining.corpus.teacher import teacher_vector
from fcpower_bids.slices.pretraining.judgement import fit_components

WINDOW, LENGTH, UNSEEN = 80, 240, 200
MIXING = 0.2
"""How far eigenvectors of a person are from the shared ones: FC finds every second person, FC^0.35 almost all."""
GAINS = 0.1
"""Spread of the logarithm of their eigenvalues."""
BAND = (0.01, 0.08)
"""Hz; a volume takes two seconds."""


def slow_noise(rng: np.random.Generator, width: int) -> np.ndarray:
    """Independent columns (T, width) that hold the frequencies of the band alone."""
    waves = np.fft.rfft(rng.standard_normal((LENGTH, width)), axis=0)
    hertz = np.fft.rfftfreq(LENGTH, 2.0)
    waves[(hertz < BAND[0]) | (hertz > BAND[1])] = 0.0
    return np.fft.irfft(waves, LENGTH, axis=0)


class People:
    """A series for every number."""

    def __init__(self, n_parcels: int) -> None:
        order = np.arange(1, n_parcels + 1)
        self.basis = np.linalg.qr(np.random.default_rng(0).standard_normal((n_parcels, n_parcels)))[0]
        self.root = np.sqrt(order**-1.3 * np.exp(-3.0 * order / n_parcels))
        self.names = [f"parcel{number:03d}" for number in range(n_parcels)]

    def series(self, number: int) -> np.ndarray:
        """Series (T, P) of a person."""
        rng = np.random.default_rng([1, number])
        mixing = np.eye(len(self.root)) + MIXING * rng.standard_normal(self.basis.shape) / np.sqrt(len(self.root))
        own = self.root * np.exp(GAINS * rng.standard_normal(len(self.root)))
        return z_score(slow_noise(rng, len(own)) @ (self.basis @ mixing * own).T)

    def source(self, number: int) -> Any:
        """The recording of a person, for a pack."""
        facts = {"dataset": "made", "repetition_time": 2.0, "parcel_names": self.names}
        name = f"{number:05d}"
        return {**facts, "id": f"made/sub-{name}", "subject": name}, partial(self.series, number)


def score(features: Map, unseen: np.ndarray) -> dict[str, float]:
    """Share of searches that find the person, and debiased alignment with FC^0.35 of the whole recordings."""
    first, last = features(unseen[:, :WINDOW]), features(unseen[:, -WINDOW:])
    similarity = normalise_rows(first) @ normalise_rows(last).T
    found = [(one.argmax(axis=1) == np.arange(len(one))).mean() for one in (similarity, similarity.T)]
    teacher = np.stack([teacher_vector(one, 0.35) for one in unseen])
    centred = [one - one.mean(0) for one in (first, last)]
    alignment = [kernel_alignment(one @ one.T, teacher @ teacher.T, debiased=True) for one in centred]
    return {"identification": float(np.mean(found)), "alignment": float(np.mean(alignment))}


def without_training(people: People, unseen: np.ndarray, model: FBertConfig) -> list[dict[str, Any]]:
    """FC, FC^0.35, principal components and the closed form of 1,000 other people, and three random encoders."""
    others = [people.series(number) for number in range(1000)]
    windows = np.stack([one[:WINDOW] for one in others])
    teacher = np.corrcoef([teacher_vector(one, 0.35) for one in others])
    mean, weights = fit_student(power_edges(windows, 0.35), principal_coordinates(teacher, model.d))
    components = fit_components(connectivity_edges(windows), model.d)
    maps: dict[str, Map] = {
        "FC": connectivity_edges,
        "FC^0.35": lambda x: power_edges(x, 0.35),
        f"PCA-{model.d} of FC, whitened": lambda x: components(connectivity_edges(x)),
        "closed form": lambda x: (power_edges(x, 0.35) - mean) @ weights,
    }
    rows = [{"map": name, **score(one, unseen)} for name, one in maps.items()]
    random = [score(encode(FBert(model, 100 + k)), unseen) for k in range(3)]
    return [*rows, {"map": "random weights", **pd.DataFrame(random).mean().to_dict()}]


def train(people: People, number: int, unseen: np.ndarray, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Pack, train by the command, and score what it wrote."""
    started = time.monotonic()
    pack_corpus(map(people.source, range(number)), folder / "pack", n_processes=options.nprocs)
    packed = time.monotonic()
    (folder / "bids").mkdir()
    command = [sys.executable, "-m", "fcpower_bids", folder / "bids", folder / "out", "pretrain"]
    command += ["--corpus", folder / "pack", "--encoder", options.encoder, "--steps", options.steps]
    command += ["--accelerator", options.accelerator, "--accept-unproven", "--quiet"]
    subprocess.run([*map(str, command)], check=True)
    checkpoint = folder / "out" / "encoder" / "model"
    model = read_config(checkpoint)[0].build()
    load_strictly(model, read_tensors(checkpoint / "model.safetensors"), str(checkpoint))
    log = pd.read_csv(folder / "out" / "encoder" / "log.tsv", sep="\t", na_values="n/a").dropna(subset=["steps_per_s"])
    return {
        **{"map": options.encoder, "people": number, **score(encode(model), unseen)},
        **{"steps_per_s": log["steps_per_s"].median(), "share": log["mfu"].median()},
        **{"packing_s": packed - started, "training_s": time.monotonic() - packed},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, nargs="+", default=[250, 1000, 4000, 8000])
    parser.add_argument("--parcels", type=int, default=100)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--encoder", choices=list(SIZES), default="fbert-1m")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--nprocs", type=int, default=2, help="processes that pack")
    options = parser.parse_args()
    people = People(options.parcels)
    unseen = np.stack([people.series(10**6 + i) for i in range(UNSEEN)])
    model = FBertConfig(options.parcels, **SIZES[options.encoder])
    print(pd.DataFrame(without_training(people, unseen, model)).round(3).to_string(index=False), flush=True)
    for number in options.people:
        with tempfile.TemporaryDirectory() as folder:
            row = train(people, number, unseen, options, Path(folder))
        print({name: round(one, 3) if isinstance(one, float) else one for name, one in row.items()}, flush=True)


if __name__ == "__main__":
    main()
