"""What a run leaves on disk: checkpoints that it can be resumed from bit by bit, and its log.

::

    OUTPUT/log.tsv
    OUTPUT/checkpoints/step-0002000/{config.json,model.safetensors,state.json[,optimizer.safetensors]}
    OUTPUT/model/{config.json,model.safetensors,README.md}     the chosen checkpoint

Only the newest checkpoint keeps the state of the optimiser. No pickle is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer

from fcpower_bids.encoders.checkpoints import ModelCard, load_strictly, read_tensors, write_model
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.store import replace_folder, write_text

OPTIMIZER = "optimizer.safetensors"
COLUMNS = (
    *("step", "loss", "learning_rate", "gradient_norm", "steps_per_s", "mfu"),
    *("cka", "cka_debiased", "select", "confirm"),
)


@dataclass(frozen=True)
class RunFolder:
    """The output folder of one pretraining run.

    Attributes
    ----------
    path : Path
    fingerprint : str
        Digest of everything that must be the same when the run is resumed.
    """

    path: Path
    fingerprint: str

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint of one step."""
        return self.path / "checkpoints" / f"step-{step:07d}"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in ascending order."""
        folders = (self.path / "checkpoints").glob("step-*")
        return sorted(int(match[1]) for f in folders if (match := re.fullmatch(r"step-(\d+)", f.name)))

    def save(self, step: int, model: FBert, optimizer: Optimizer, card: ModelCard) -> None:
        """Write the checkpoint of a step, whole or not at all; the ones before it stay.

        Raises
        ------
        DatasetError
            It could not be written; says which checkpoint the run goes on from.
        """

        def write(folder: Path) -> None:
            write_model(folder, model, model.config, card)
            save_file(_optimizer_tensors(model, optimizer), folder / OPTIMIZER)
            state = {"step": step, "fingerprint": self.fingerprint}
            write_text(folder / "state.json", json.dumps(state) + "\n")

        try:
            replace_folder(self.checkpoint(step), write)
        except OSError as error:
            last = max((s for s in self.steps() if s < step), default=None)
            where = "there is none before it" if last is None else f"step {last} is intact"
            raise DatasetError(
                f"The checkpoint of step {step} could not be written to {self.path} ({error}); {where}. "
                "Make room and start again: training resumes from there."
            ) from error
        for other in self.steps():
            if other != step:
                (self.checkpoint(other) / OPTIMIZER).unlink(missing_ok=True)

    def resume(self, model: FBert, optimizer: Optimizer) -> int:
        """Restore the newest complete checkpoint; return its step, or 0 where there is none.

        Raises
        ------
        UsageError
            The folder holds a run with other choices or another corpus.
        CheckpointError
            The newest checkpoint is damaged.
        """
        steps = [step for step in self.steps() if (self.checkpoint(step) / OPTIMIZER).exists()]
        if not steps:
            return 0
        folder = self.checkpoint(steps[-1])
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if state["fingerprint"] != self.fingerprint:
            raise UsageError(
                f"{self.path} holds a run with other choices or another corpus; remove it or give another folder."
            )
        load_strictly(model, read_tensors(folder / "model.safetensors"), str(folder))
        _restore_optimizer(model, optimizer, folder / OPTIMIZER)
        return int(state["step"])

    def read_log(self, until: int) -> pd.DataFrame:
        """Rows of the log up to a step: what came after the resumed checkpoint happens again."""
        path = self.path / "log.tsv"
        if not path.exists():
            return pd.DataFrame(columns=list(COLUMNS))
        log = pd.read_csv(path, sep="\t", na_values="n/a")
        return log[log["step"] <= until]

    def write_log(self, rows: list[Mapping[str, Any]]) -> None:
        """Write the log in one step."""
        text = pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(
            sep="\t", index=False, na_rep="n/a", lineterminator="\n"
        )
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / "log.tsv", text)


def _optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, torch.Tensor]:
    names = [name for name, _ in model.named_parameters()]
    state = optimizer.state_dict()["state"]
    return {f"{names[i]}|{key}": value.cpu().contiguous() for i, s in state.items() for key, value in s.items()}


def _restore_optimizer(model: nn.Module, optimizer: Optimizer, path: Path) -> None:
    names = {name: i for i, (name, _) in enumerate(model.named_parameters())}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(path).items():
        name, _, kind = key.partition("|")
        state.setdefault(names[name], {})[kind] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
