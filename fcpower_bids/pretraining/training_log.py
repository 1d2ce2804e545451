"""How fast a run is, and TensorBoard."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import torch

from fcpower_bids.encoders.fbert import FBertConfig, forward_flops
from fcpower_bids.errors import UsageError
from fcpower_bids.pretraining.configuration import PretrainConfig


def step_flops(model: FBertConfig, config: PretrainConfig, batch_size: int) -> int:
    """Floating-point operations of one step.

    Forward and backward cost three forward passes; GradCache embeds once more.
    """
    passes = 3 if config.microbatch is None else 4
    return passes * forward_flops(model, config.window) * batch_size


def peak_megabytes() -> float:
    """Largest memory so far: of the accelerator, or of this process where there is none."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


class Clock:
    """Speed since the last reading.

    Parameters
    ----------
    step : int
        Where the run starts.
    steps : int
        Where it ends.
    flops : int
        Per step, over all processes.
    limit : float
        Operations per second that the devices reach in a large matrix product.
    """

    def __init__(self, step: int, steps: int, flops: int, limit: float) -> None:
        self.step, self.steps, self.flops, self.limit = step, steps, flops, limit
        self.time = time.perf_counter()

    def read(self, step: int) -> dict[str, float]:
        """Steps per second, the share of the measured matrix-product rate (MFU), memory and time left."""
        now = time.perf_counter()
        rate = (step - self.step) / (now - self.time)
        self.step, self.time = step, now
        return {
            "steps_per_s": rate,
            "mfu": rate * self.flops / self.limit,
            "peak_mb": peak_megabytes(),
            "seconds_left": (self.steps - step) / rate,
        }


def open_tensorboard(folder: Path) -> Any:
    """Writer of TensorBoard event files below the output folder.

    Raises
    ------
    UsageError
        TensorBoard is not installed.
    """
    from lightning.fabric.loggers import TensorBoardLogger  # loads torch

    try:
        return TensorBoardLogger(folder, name="tensorboard", version="")
    except ModuleNotFoundError:
        raise UsageError("TensorBoard is not installed: pip install tensorboard, or leave the option out.") from None
