"""The choices of a training run, and its losses."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fcpower_bids.encoders.fbert import SIZES, FBertConfig
from fcpower_bids.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]


def centre(K: Tensor) -> Tensor:
    """Doubly centred kernel H K H with H = I - 11'/B."""
    return K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True) + K.mean()


def cka(E: Tensor, K: Tensor) -> Tensor:
    """Centred kernel alignment of E E' and K, Equation 5 of the paper. E (B, d), K (B, B)."""
    E, K = _at_least_float32(E, K)
    e = E - E.mean(0)
    gram = e @ e.T if E.shape[1] > E.shape[0] else e.T @ e
    return (e * (K @ e)).sum() / (gram.norm() * centre(K).norm())


def unbiased_centre(K: Tensor) -> Tensor:
    """U-centred kernel: zero diagonal, and every row sums to 0 (Szekely & Rizzo 2014)."""
    n = K.shape[0]
    K = K - torch.diag_embed(K.diagonal())
    rows = K.sum(1) / (n - 2)
    U = K - rows[:, None] - rows[None, :] + K.sum() / ((n - 1) * (n - 2))
    return U - torch.diag_embed(U.diagonal())


def cka_debiased(E: Tensor, K: Tensor) -> Tensor:
    """CKA of E (B, d) and K (B, B) from the unbiased HSIC (Song et al. 2012): 0 expected where they are unrelated."""
    E, K = _at_least_float32(E, K)
    e = E - E.mean(0)
    S, U = unbiased_centre(e @ e.T), unbiased_centre(K)
    return (S * U).sum() / (S.norm() * U.norm())


def teacher_logits(K: Tensor, temperature: float = 0.2) -> Tensor:
    """Logits -d~^2 / T_t of the KL target, d~^2 standardised over the pairs i != j of the batch; diagonal -inf."""
    others = ~torch.eye(len(K), dtype=torch.bool, device=K.device)
    squared = 2 - 2 * K
    pairs = squared[others]
    standardised = (squared - pairs.mean()) / pairs.std(correction=0)
    return (-standardised / temperature).masked_fill(~others, -torch.inf)


def kl(E: Tensor, K: Tensor, temperature: float = 0.07, teacher_temperature: float = 0.2) -> Tensor:
    """Mean over i of KL(softmax_{j != i} t_i || softmax_{j != i} s_i), Equation 6 of the paper. E (B, d), K (B, B)."""
    E, K = _at_least_float32(E, K)
    n = len(K)
    others = ~torch.eye(n, dtype=torch.bool, device=K.device)
    e = F.normalize(E, dim=1)
    student = (e @ e.T / temperature)[others].view(n, n - 1).log_softmax(1)
    teacher = teacher_logits(K, teacher_temperature)[others].view(n, n - 1).log_softmax(1)
    return F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def diagonal_share(K: Tensor) -> float:
    """Share of the diagonal in the squared norm of the centred teacher kernel."""
    H = centre(K.double())
    return float(H.diagonal().square().sum() / H.square().sum())


def _at_least_float32(E: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    E = E.float() if E.dtype in (torch.float16, torch.bfloat16) else E
    return E, K.to(E.dtype)


LOSSES: dict[str, Loss] = {
    "cka": lambda E, K: 1 - cka(E, K),
    "kl": kl,
}
"""Losses by name; the default of the paper is ``cka``."""


DOES_NOT_CHANGE_THE_RUN = ("devices", "microbatch", "log_every", "checkpoint_minutes", "steps")
"""Fields that may differ when a run is resumed: they decide where and how fast, not what, is computed.

The number of steps may only grow, which `fcpower_bids.pretrain.train` sees to.
"""

LATER = {"probe": ""}
"""Fields that runs of earlier versions lack, and the value that they then had."""

LEAST = dict.fromkeys(("steps", "batch_size", "window", "checkpoint_every", "log_every", "devices", "microbatch"), 1)
"""Smallest values."""

CHOICES = (
    ("encoder", "the encoder", tuple(SIZES)),
    ("loss", "the loss", tuple(LOSSES)),
    ("sampling_unit", "what is drawn", ("windows", "recordings")),
)
"""Fields that take one of a few words, how a sentence calls them, and the words."""


@dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides a pretraining run, apart from the corpus."""

    encoder: str = "fbert-1m"  # ``"fbert-1m"`` or ``"fbert-8m"``
    # fields of `FBertConfig` that differ from that size, e.g. ``{"d": 64, "layers": 2}``.
    architecture: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "cka"  # ``"cka"`` or ``"kl"``
    steps: int = 300_000  # steps of the cosine schedule, and of the run
    batch_size: int = 1024  # windows per step over all devices; reduced to the corpus if that is smaller
    window: int = 80  # timepoints that the student sees
    sampling_unit: str = "windows"  # unit drawn with equal chance: ``"windows"`` (the paper) or ``"recordings"``
    roi_labels: tuple[str, ...] = ()  # names of the parcels of a corpus that does not say them
    # learning_rate, warmup, weight_decay, clip: peak rate of AdamW, steps of linear warm-up, its decay, largest norm of
    # the gradient
    learning_rate: float = 8.5e-4
    warmup: int = 100
    weight_decay: float = 1e-4
    clip: float = 1.0
    seed: int = 0  # of the initial weights, the batches, the split and dropout
    precision: str = "32-true"  # as in Lightning Fabric: ``"32-true"``, ``"bf16-mixed"``
    devices: int | None = None  # processes per node; None for as many as torchrun or srun started, else one
    # recordings per device that are in memory at a time (GradCache: the same gradient, one more forward pass)
    microbatch: int | None = None
    # share of the families kept out of training: half of them select the checkpoint, the other half confirm it
    held_out: float = 0.1
    probe: str = ""  # what chooses the checkpoint besides the held-out families: an external cohort, in words
    # checkpoint_every, log_every: steps
    checkpoint_every: int = 2000
    # minutes after which the run can be resumed at the latest; 0 for regular checkpoints only
    checkpoint_minutes: float = 15.0
    log_every: int = 50

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
        values = {k: v for k, v in values.items() if k not in LATER or v != LATER[k]}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def in_words(self) -> str:
        """Name the choices that decide what the encoder learns."""
        views = "" if self.precision == "32-true" else f", {self.precision}"
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
    """Return batch, learning rate and warm-up of the paper for one size and objective (Appendix J)."""
    if loss != "kl":
        return {"batch_size": 1024, "learning_rate": 8.5e-4, "warmup": 100}
    rate, warmup = (1e-4, 2000) if encoder == "fbert-8m" else (3e-4, 100)
    return {"batch_size": 128, "learning_rate": rate, "warmup": warmup}
