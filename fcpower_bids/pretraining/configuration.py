"""The choices of a pretraining run; the defaults are those of the paper (Appendix J)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fcpower_bids.encoders.fbert import SIZES, FBertConfig
from fcpower_bids.errors import UsageError
from fcpower_bids.pretraining.losses import LOSSES

DOES_NOT_CHANGE_THE_RUN = (
    *("devices", "num_nodes", "accelerator", "microbatch", "log_every", "tensorboard", "checkpoint_minutes", "steps"),
    *("resident_mb", "compile"),
)
"""Fields that may differ when a run is resumed: they decide where and how fast, not what, is computed.

The number of steps may only grow, which `fcpower_bids.pretraining.run_state` sees to.
"""

LEAST = dict.fromkeys(
    ("steps", "batch_size", "window", "checkpoint_every", "log_every", "devices", "num_nodes", "microbatch"), 1
) | {"resident_mb": 0}
"""Smallest values."""

CHOICES = (
    ("encoder", "the encoder", tuple(SIZES)),
    ("loss", "the loss", tuple(LOSSES)),
    ("sampling_unit", "what is drawn", ("windows", "recordings")),
    ("held_out_by", "what is held out", ("family", "dataset")),
)
"""Fields that take one of a few words, how a sentence calls them, and the words."""


@dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides a pretraining run, apart from the corpus.

    Attributes
    ----------
    encoder : str
        ``"fbert-1m"`` or ``"fbert-8m"``.
    architecture : dict
        Fields of `FBertConfig` that differ from that size, e.g. ``{"d": 64, "layers": 2}``.
    loss : str
        ``"cka"``, ``"kl"`` or ``"cka_debiased"``.
    steps : int
        Steps of the cosine schedule, and of the run.
    batch_size : int
        Recordings per step over all devices; reduced to the corpus if that is smaller.
    window : int
        Timepoints that the student sees.
    sampling_unit : str
        What is drawn with equal chance: ``"windows"`` (the paper) or ``"recordings"``.
    roi_labels : tuple of str
        Names of the parcels of a corpus that does not say them.
    learning_rate, warmup, weight_decay, clip : float, int, float, float
        Peak rate of AdamW, steps of linear warm-up, its decay, largest norm of the gradient.
    surrogates : bool
        Replace every window by a phase surrogate with the same connectivity.
    seed : int
        Of the initial weights, the batches, the split and dropout.
    precision : str
        As in Lightning Fabric: ``"32-true"``, ``"bf16-mixed"``, ``"16-mixed"``, ``"64-true"``.
    accelerator : str
        Where to run.
    devices, num_nodes : int or None
        Processes per node, and nodes; None for as many as torchrun or srun started, else one.
    compile : bool
        Let ``torch.compile`` fuse the student: the same but for rounding (and for the masks of dropout).
    resident_mb : int or None
        Size of a corpus in MB up to which it is held on the device; a larger one is streamed from disk. See
        `fcpower_bids.pretraining.corpus.opened.Corpus.to`.
    microbatch : int or None
        Recordings per device that are in memory at a time (GradCache: the same gradient, one more forward pass).
    held_out : float
        Share of the families kept out of training: half of them select the checkpoint, the other half confirm it.
    held_out_by : str
        What is held out whole: ``"family"`` or ``"dataset"``; the share is then one of the datasets.
    checkpoint_every, log_every : int
        Steps.
    checkpoint_minutes : float
        Minutes after which the run can be resumed at the latest; 0 for regular checkpoints only.
    exclude_from_corpus : tuple of str
        ``dataset`` or ``dataset/subject`` that must not be in the corpus.
    purpose, licence : str
        For the card of the model.
    tensorboard : bool
        Also log to TensorBoard (which has to be installed).
    """

    encoder: str = "fbert-1m"
    architecture: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "cka"
    steps: int = 300_000
    batch_size: int = 1024
    window: int = 80
    sampling_unit: str = "windows"
    roi_labels: tuple[str, ...] = ()
    learning_rate: float = 8.5e-4
    warmup: int = 100
    weight_decay: float = 1e-4
    clip: float = 1.0
    surrogates: bool = False
    seed: int = 0
    precision: str = "32-true"
    accelerator: str = "auto"
    devices: int | None = None
    num_nodes: int | None = None
    compile: bool = False
    resident_mb: int | None = None
    microbatch: int | None = None
    held_out: float = 0.1
    held_out_by: str = "family"
    checkpoint_every: int = 2000
    checkpoint_minutes: float = 15.0
    log_every: int = 50
    exclude_from_corpus: tuple[str, ...] = ()
    purpose: str = "research"
    licence: str = "n/a"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        problems = []
        for name, words, known in CHOICES:
            if (value := getattr(self, name)) not in known:
                problems.append(f"{words} must be one of {', '.join(known)}, not '{value}'")
        if not 0 <= self.held_out < 1:
            problems.append(f"the held-out share must be at least 0 and below 1, not {self.held_out}")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                problems.append(f"{name} must be at least {least}")
        if problems:
            raise UsageError(f"The pretraining configuration is impossible: {'; '.join(problems)}.")

    def model_config(self, n_parcels: int) -> FBertConfig:
        """Architecture of the student on `n_parcels` parcels."""
        try:
            return FBertConfig(**{"n_parcels": n_parcels, **SIZES[self.encoder], **self.architecture})
        except (TypeError, ValueError) as error:
            raise UsageError(f"The architecture of the encoder is impossible: {error}") from None

    def fingerprint(self) -> str:
        """Digest of the choices that a resumed run must share."""
        values = {k: v for k, v in dataclasses.asdict(self).items() if k not in DOES_NOT_CHANGE_THE_RUN}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def in_words(self) -> str:
        """Name the choices that decide what the encoder learns."""
        views = ", phase surrogates" if self.surrogates else ""
        views += "" if self.precision == "32-true" else f", {self.precision}"
        return (
            f"{self.loss}, batch {self.batch_size}, learning rate {self.learning_rate:g}, warm-up {self.warmup}, "
            f"{self.steps} steps, windows of {self.window} volumes drawn by {self.sampling_unit}{views}"
        )

    def rate(self, step: int) -> float:
        """Learning rate of a step counted from 0: linear warm-up, then cosine to 0 at `steps`."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def paper_optimisation(encoder: str, loss: str) -> dict[str, Any]:
    """Return batch, learning rate and warm-up of the paper for one size and objective (Appendix J).

    `cka_debiased`, which is not the paper's, takes those of `cka`.
    """
    if loss != "kl":
        return {"batch_size": 1024, "learning_rate": 8.5e-4, "warmup": 100}
    rate, warmup = (1e-4, 2000) if encoder == "fbert-8m" else (3e-4, 100)
    return {"batch_size": 128, "learning_rate": rate, "warmup": warmup}
