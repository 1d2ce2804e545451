"""Steps per second of pretraining, and their share of the product rate, on the accelerator if there is one.

Usage: python benchmarks/pretrain.py [--accelerator auto] [--batch 1024] [--steps 100] [--precision ...] [--compile]

The real loop is timed: a pack of random recordings is trained on, windows are drawn and cut out of it at every step
(resident on a GPU, streamed with ``--resident-mb 0``), and the figures are those of the log of the run, where the first
row is left out (allocations, compilation). On an accelerator the loss of one batch is also compared with that of the
CPU (1e-5 in float32, 1e-3 in bfloat16), and the exit status is 1 if it differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from fcpower_bids.encoders.fbert import SIZES, FBert, FBertConfig
from fcpower_bids.slices.pretraining.configuration import LOSSES, PretrainConfig
from fcpower_bids.slices.pretraining.corpus.packing import pack_corpus
from fcpower_bids.slices.pretraining.engine import Gradient
from fcpower_bids.slices.pretraining.processes import best_precision, make_fabric
from fcpower_bids.slices.pretraining.train import pretrain

WINDOW, PARCELS, LENGTH = 80, 450, 200


def recordings(n: int) -> Iterator[tuple[dict[str, Any], Any]]:
    names = [f"P{i}" for i in range(PARCELS)]
    for i in range(n):
        facts = {"id": f"random/sub-{i:05d}", "dataset": "random", "subject": f"{i:05d}"}
        load = partial(np.random.default_rng(i).standard_normal, (LENGTH, PARCELS))
        yield {**facts, "repetition_time": 2.0, "parcel_names": names}, load


def time_run(size: str, options: argparse.Namespace, folder: Path) -> None:
    precision = options.precision or best_precision(options.accelerator)
    every = max(1, options.steps // 4)
    config = PretrainConfig(
        size,
        steps=options.steps,
        batch_size=options.batch,
        precision=precision,
        accelerator=options.accelerator,
        compile=options.compile,
        resident_mb=options.resident_mb,
        microbatch=options.microbatch,
        held_out=0.0,
        checkpoint_every=10**9,
        checkpoint_minutes=0,
        log_every=every,
    )
    pretrain(folder / "pack", folder / size, config)
    log = pd.read_csv(folder / size / "log.tsv", sep="\t", na_values="n/a").dropna(subset=["steps_per_s"]).iloc[1:]
    rate, share = 1 / (1 / log["steps_per_s"]).mean(), 1 / (1 / log["mfu"]).mean()
    print(f"{size} {precision}: batch {options.batch}, {rate:.2f} steps/s, {share:.0%} of the measured product rate")


def loss_on(accelerator: str, precision: str) -> float:
    fabric = make_fabric(PretrainConfig(accelerator=accelerator, precision=precision))
    raw = FBert(FBertConfig(PARCELS, **SIZES["fbert-1m"], dropout=0.0))
    model, _ = fabric.setup(raw, torch.optim.SGD(raw.parameters()))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, WINDOW, PARCELS, generator=generator).to(fabric.device)
    kernel = torch.from_numpy(np.corrcoef(np.random.default_rng(0).standard_normal((64, 500)))).float()
    return float(Gradient(fabric, model, LOSSES["cka"]).accumulate((x,), kernel.to(fabric.device), (0, 0)))


def devices_agree(accelerator: str) -> bool:
    exact, agree = loss_on("cpu", "32-true"), True
    for precision, tolerance in (("32-true", 1e-5), ("bf16-mixed", 1e-3)):
        difference = abs(loss_on(accelerator, precision) - exact)
        agree &= difference < tolerance
        print(f"loss on the accelerator in {precision} minus CPU in float32: {difference:.1e} (at most {tolerance:g})")
    return agree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--precision", default=None)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--microbatch", type=int, default=None)
    parser.add_argument("--resident-mb", type=int, default=None)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        with threadpool_limits(1):  # as everywhere; many threads made the teachers of a machine of 16 cores slow
            pack_corpus(recordings(options.batch + options.batch // 4), Path(name) / "pack")
        for size in options.sizes:
            time_run(size, options, Path(name))
    if torch.cuda.is_available() and options.accelerator != "cpu":
        sys.exit(0 if devices_agree(options.accelerator) else 1)
    print("No accelerator: the agreement of devices was not checked.")


if __name__ == "__main__":
    main()
