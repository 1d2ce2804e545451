"""How an encoder is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class Pretraining(Choices):
    """The corpus, the student, and the optimisation."""

    corpus: str | None = option(
        None,
        "pretrain",
        "folder of a packed corpus or of one in the public layout, or its hub id [OUTPUT_DIR/corpus]",
    )
    public_corpus: Path | None = option(
        None, "pretrain", "pack: also write it to this folder in the public layout", in_file=True
    )
    roi_labels: Path | None = option(
        None, "pretrain", "names of the parcels of a public corpus, one per line", in_file=True
    )
    size: str = option("1m", "pretrain", "size of the student; small is for trying out", choices=("small", "1m", "8m"))
    steps: int = option(300_000, "pretrain", "optimiser steps")
    batch_size: int | None = option(
        None,
        "pretrain",
        "windows per step, over all devices [1024; 128 with kl, as the paper]",
        in_file=True,
    )
    learning_rate: float | None = option(
        None,
        "pretrain",
        "peak learning rate [8.5e-4; with kl 3e-4, or 1e-4 for 8m]",
        in_file=True,
    )
    loss: str = option("cka", "pretrain", "objective", choices=("cka", "kl"))
    warmup: int | None = option(None, "pretrain", "steps of linear warm-up [100; 2000 for 8m with kl]", in_file=True)
    architecture: tuple[str, ...] = option(
        (), "pretrain", "FIELD=NUMBER: a student of another size (d=64 layers=2)", in_file=True
    )
    microbatch: int | None = option(
        None, "pretrain", "recordings in memory at a time (same gradient) [all]", in_file=True
    )
    held_out: float = option(
        0.1, "pretrain", "share of families kept out of training, to choose the checkpoint", in_file=True
    )
    probe: Path | None = option(
        None,
        "pretrain",
        "outputs of another cohort: as in the paper, a frozen linear probe of its --targets chooses the checkpoint; "
        "without them identification between its sessions",
        in_file=True,
    )
    accept_unproven: bool = option(
        False,
        "pretrain",
        "exit with 0 also where the model is not proven better than random weights on held-out people",
        in_file=True,
    )
    checkpoint_every: int = option(2000, "pretrain", "steps between checkpoints", in_file=True)
    checkpoint_minutes: float = option(
        15.0, "pretrain", "also save this often, to go on from; 0: only the above", in_file=True
    )
    window: int = option(80, "pretrain", "volumes that the student sees", in_file=True)
    devices: int | None = option(None, "pretrain", "processes or accelerators per node [as started by srun, else 1]")
