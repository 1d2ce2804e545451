"""The run: F-BERT trained by kernel alignment, step by step; its checkpoints, its log, interruption and resumption."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer
from tqdm import tqdm

from fcpower_bids.encoders.checkpoints import (
    CheckpointError,
    ModelCard,
    digest_tensors,
    load_weights,
    save_checkpoint,
    write_model,
)
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.errors import DatasetError, FcPowerError, UsageError
from fcpower_bids.pretrain.corpus import Corpus, open_corpus, prepare_corpus
from fcpower_bids.pretrain.engine import (
    BATCH,
    LOSSES,
    SAVE,
    STOP,
    WISHES,
    Gradient,
    PretrainConfig,
    Processes,
    diagonal_share,
    draw_batch,
    handled,
    make_optimizer,
    windows_that_fit,
)
from fcpower_bids.pretrain.judgement import VIEWS, Choice, ExternalCohort, choose_checkpoint, divide, judge, write_card
from fcpower_bids.schema import TABLES
from fcpower_bids.store import atomic, load_json, replace_folder, sweep, write_text

LOG, ALIGNMENT = TABLES["log"], TABLES["alignment"]
TIMED = 20
"""Steps by which the length of a run is foreseen."""
SCHEDULE, MOST_WARM = "schedule.json", 10
"""File of the steps that the minutes of a run had time for, of which one in so many is warm-up at most."""
OPTIMIZER, STATE = "optimizer.safetensors", "state"
logger = logging.getLogger(__name__)


class Interrupted(FcPowerError):
    """The run was asked to stop and left a checkpoint."""

    exit_code = 130


def train(
    processes: Processes,
    corpus: Path,
    output: Path,
    config: PretrainConfig,
    stop_step: int | None = None,
    probe: ExternalCohort | None = None,
    tell: Callable[[str], None] = logger.info,
    note: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Train F-BERT on a corpus, or go on with an interrupted run in `output`: the share of one process.

    `tell` is given what the first process has to say of the length of the run. `note` is called by the first process
    when no choice is refused any more.
    """
    processes.first_only(lambda: prepare_corpus(corpus, output))
    opened = open_corpus(corpus, output, processes.fabric.device)
    if config.minutes:
        config = _follow_minutes(processes, opened, output, config)
        tell_first = partial(tell, f"That many minutes have time for {config.steps} steps, {config.warmup} of warm-up.")
        processes.first_only(tell_first)
    run = _Run(processes, opened, output, config, probe)
    processes.first_only(note)
    for folder in (output, output / "checkpoints"):
        processes.first_only(partial(sweep, folder))  # of a run that was killed
    run.train(min(stop_step or config.steps, config.steps), tell)
    return run.outcome()


def _follow_minutes(processes: Processes, corpus: Corpus, output: Path, config: PretrainConfig) -> PretrainConfig:
    """Steps and warm-up that fill the minutes, from a few timed steps; an interrupted run goes on with its own."""
    path, run = output / SCHEDULE, RunFolder(output, "")
    choices = hashlib.sha256(f"{config.fingerprint()} {config.minutes} {corpus.sha256}".encode()).hexdigest()

    def noted() -> dict[str, Any] | None:
        known = load_json(path) if path.is_file() else {}
        has_begun = bool(known) and (run.interim.exists() or bool(run.steps()))
        return known if has_begun or known.get("choices") == choices else None  # else of what left no checkpoint

    known = processes.first_only(noted)
    if known is None:
        trial, started = _Run(processes, corpus, output / "trial", config, None), time.perf_counter()
        for step in range(2 * TIMED):  # the first ones also find out how to compute; nothing is written
            started = time.perf_counter() if step == TIMED else started
            trial._one_step(step)
        steps = max(MOST_WARM, round(60 * float(config.minutes or 0) * TIMED / (time.perf_counter() - started)))
        mine: dict[str, Any] = {
            "minutes": config.minutes,
            "steps": steps,
            "warmup": min(config.warmup, steps // MOST_WARM),
            "choices": choices,
        }
        known = processes.first_only(lambda: mine)
        processes.first_only(lambda: write_text(path, json.dumps(known) + "\n"))
    if known["minutes"] != config.minutes:
        raise UsageError(f"{output} holds a run of {known['minutes']:g} minutes; remove it or give another folder.")
    return replace(config, steps=int(known["steps"]), warmup=int(known["warmup"]), minutes=None)


class _Run:
    def __init__(
        self, processes: Processes, corpus: Corpus, output: Path, config: PretrainConfig, probe: ExternalCohort | None
    ) -> None:
        fabric = processes.fabric
        self.processes, self.fabric, self.config, self.corpus, self.probe = processes, fabric, config, corpus, probe
        self.rows, self.held_out = divide(corpus, config)
        places = corpus.places(config.window)
        self.places = places[self.rows]
        world = fabric.world_size
        self.size = min(config.batch_size, len(self.rows)) // world * world  # of a batch
        if self.size < max(4, world):
            raise DatasetError(
                f"Only {len(self.rows)} recordings of at least {config.window} volumes are left for training; "
                "pack more recordings or hold out fewer."
            )
        training = replace(config, batch_size=self.size).in_words()
        self.card = write_card(self.rows, self.held_out, config, training)
        processes.first_only(self._admit_probe)
        self.model = config.model_config(len(corpus.parcel_names)).build(config.seed)
        wrapped, self.optimizer = fabric.setup(self.model, make_optimizer(self.model, config, fabric.device))
        fitting = windows_that_fit(config, self.model.config, fabric.device)
        chunk = -processes.agree(-fitting)  # the least of all processes, which must take the same path
        self.gradient = Gradient(fabric, wrapped.train(), LOSSES[config.loss], chunk)
        fingerprint = hashlib.sha256(f"{config.fingerprint()} {corpus.sha256} {not config.probe}".encode()).hexdigest()
        self.folder = RunFolder(output, fingerprint)
        self.step = self.folder.resume(self.model, self.optimizer)
        self.log: list[Mapping[str, Any]] = self.folder.read_log(self.step).to_dict("records")  # type: ignore[assignment]
        self.share = diagonal_share(corpus.kernel_of(self._draw(0)[0]))
        self.n_short = int((places == 0).sum())

    def _admit_probe(self) -> None:
        if self.probe is not None:  # the first process has it
            self.card = self.probe.known_to(self.card)

    def train(self, until: int, tell: Callable[[str], None]) -> None:
        """Train up to a step; evaluate and write a checkpoint at regular steps, at the end, and when asked to."""
        config, saved, begin = self.config, time.monotonic(), time.monotonic()
        first = self.step
        if self.fabric.is_global_zero:
            if self.n_short:
                logger.warning("%d recordings are shorter than %d volumes and not used.", self.n_short, config.window)
            if self.size < config.batch_size:
                logger.warning("The batch is reduced to %d windows, all that the corpus allows.", self.size)
            logger.info(
                "%d recordings train, %d are held out; from step %d. The diagonal is %.0f %% of the squared norm of "
                "the centred teacher kernel of a batch of %d: the larger it is, the more a larger batch would help.",
                *(len(self.rows), len(self.held_out.rows), first, 100 * self.share, self.size),
            )
        noted, seconds = self.step, time.perf_counter()
        if not self.log:
            self._note({"step": 0}, evaluated=True)
        quiet = None if self.fabric.is_global_zero else True
        wishes: set[int] = set()
        with handled(lambda number, _: wishes.add(WISHES[number])):  # type: ignore[index]
            for step in tqdm(range(self.step, until), disable=quiet, desc="pretraining", unit="step"):
                loss, norm = self._one_step(step)
                self.step = step + 1
                if self.step - first == TIMED and until - self.step > TIMED and self.fabric.is_global_zero:
                    minutes = (until - self.step) * (time.monotonic() - begin) / TIMED / 60
                    hours = f"about {minutes / 60:.1f} hours" if minutes > 120 else f"about {minutes:.0f} minutes"
                    length = hours if minutes > 1 else "less than a minute"
                    tell(f"The {until - self.step} steps that are left take {length} (--minutes).")
                regular = self.step % config.checkpoint_every == 0 or self.step == until
                if regular or self.step % config.log_every == 0:
                    if not np.isfinite(float(loss)):
                        raise UsageError(f"The loss is {float(loss)} at step {self.step}: lower the learning rate.")
                    speed = (self.step - noted) / (time.perf_counter() - seconds)
                    noted, seconds = self.step, time.perf_counter()
                    row = {"step": self.step, "loss": float(loss), "gradient_norm": float(norm)}
                    row |= {"learning_rate": config.rate(step), "steps_per_s": speed}
                    self._note(row, evaluated=regular)
                late = 0 < 60 * config.checkpoint_minutes < time.monotonic() - saved
                # a signal, or the time: all processes do the same after the same step
                wish = self.processes.agree(max(wishes | {SAVE if late and not regular else 0}))
                wishes.discard(SAVE)
                if regular or wish:
                    card = replace(self.card, step=self.step)
                    state = (self.step, self.model, self.optimizer, card, not regular)
                    self.processes.first_only(lambda state=state: self.folder.save(*state))  # type: ignore[misc]
                    saved = time.monotonic()
                if wish == STOP and self.step < config.steps:
                    raise Interrupted(f"Stopped as asked after step {self.step}; the same command goes on from there.")
        self.fabric.barrier()

    def _draw(self, step: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of the table (B,), and which window of each: a function of the step, so nothing is saved to resume."""
        key = (self.config.seed, BATCH, step)
        members, chosen = draw_batch(self.places, self.size, key)
        return self.rows[members], chosen

    def _one_step(self, step: int) -> tuple[Tensor, Tensor]:
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.rate(step)
        rows, chosen = self._draw(step)
        share = self.size // self.fabric.world_size  # of this process
        mine = slice(self.fabric.global_rank * share, (self.fabric.global_rank + 1) * share)
        x = self.corpus.windows(rows[mine], chosen[mine], self.config.window)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.gradient.accumulate(x, self.corpus.kernel_of(rows), (self.config.seed, step))
        norm = self.fabric.clip_gradients(
            self.gradient.model, self.optimizer, max_norm=self.config.clip, error_if_nonfinite=False
        )
        self.optimizer.step()
        return loss, norm

    def _note(self, row: dict[str, Any], evaluated: bool) -> None:
        """Add a row to the log, with scores on held-out people where it is evaluated."""
        first = self.fabric.is_global_zero
        if evaluated and first and self.held_out.sufficient:
            row |= self.held_out.evaluate(self.model)
        if evaluated and self.probe is not None:
            row |= self.probe.score(self.model, self.card)
        self.log.append(row)
        if first:
            table = pd.DataFrame(self.log, columns=list(LOG.columns))
            table = table[[name for name in LOG.columns if name in LOG.needed or table[name].notna().any()]]
            write_text(self.folder.path / "log.tsv", _table_text(table))

    def outcome(self) -> dict[str, Any]:
        """Choose a checkpoint, and (on one process) write it as the model of this run; return what became of it."""
        step, how, choice = self._choose()
        optimism = 0.0 if choice is None or self.config.probe else choice.optimism  # of what the verdict is about
        card = replace(self.card, step=step, selection=how)
        # First without a verdict: a comparison that fails costs the comparison alone.
        model, path = self.model.config.build(), self.folder.path / "model"
        load_weights(model, self.folder.checkpoint(step))
        self.processes.first_only(lambda: save_checkpoint(path, model, model.config, card, {}))
        verdict = self.processes.first_only(lambda: self._compare(step, optimism, model))
        result: dict[str, Any] = {"folder": path, "step": step, "last_step": self.step}
        result |= {name: getattr(choice, name, None) for name in ("selected", "confirmed", "optimism")}
        result |= {"diagonal_share": self.share, "n_train": len(self.rows), "n_held_out": len(self.held_out.rows)}
        result |= {"proven": verdict["Proven"], "verdict": verdict["Verdict"]}
        proven = replace(card, optimism=result["optimism"], verdict=result["verdict"])
        self.processes.first_only(
            lambda: save_checkpoint(path, model, model.config, proven, result | {"folder": Path("model")})
        )
        return result

    def _choose(self) -> tuple[int, str, Choice | None]:
        log = self.folder.read_log(self.step)  # written by the first process, read by all
        saved = log[log["step"].isin(self.folder.steps())]
        if not (self.config.probe or self.held_out.sufficient):
            return self.step, "last step; too few people were held out to choose", None
        halves, n = saved[["select", "confirm"]], len(saved)
        if self.config.probe:
            choice = choose_checkpoint(halves, saved["probe"].fillna(saved["probe_identification"]))
            how = f"best of {n} checkpoints by the frozen probe of {self.config.probe}, as in the paper"
        else:
            choice = choose_checkpoint(halves, saved["cka_debiased"], saved["cka_se"])
            how = (
                f"latest of {n} checkpoints within one standard error (jackknife over families) of the best debiased "
                "CKA with the teacher on held-out families (family-disjoint from training)"
            )
        return int(saved["step"].iloc[choice.position]), how, choice

    def _compare(self, step: int, optimism: float, model: FBert) -> dict[str, Any]:
        """Compare the model with methods without training, and write the table and a sidecar with the verdict."""
        table, verdict = judge(self.held_out, self.config, optimism, model)
        facts = {"Step": step, "DiagonalShare": self.share, "Views": VIEWS, **verdict, **ALIGNMENT.describe()}
        write_text(self.folder.path / "alignment.tsv", _table_text(table))
        write_text(self.folder.path / "alignment.json", json.dumps(facts, indent=2) + "\n")
        return verdict


def _table_text(table: pd.DataFrame) -> str:
    return table.to_csv(sep="\t", index=False, na_rep="n/a", lineterminator="\n")


@dataclass(frozen=True)
class RunFolder:
    """The output folder of one pretraining run."""

    path: Path
    fingerprint: str  # digest of everything that must be the same when the run is resumed

    @property
    def interim(self) -> Path:
        """Folder of the one checkpoint that only serves to go on: it is not a candidate for the model."""
        return self.path / "interim"

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint of one step."""
        return self.path / "checkpoints" / f"step-{step:07d}"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in ascending order."""
        folders = (self.path / "checkpoints").glob("step-*")
        return sorted(int(match[1]) for f in folders if (match := re.fullmatch(r"step-(\d+)", f.name)))

    def save(self, step: int, model: FBert, optimizer: Optimizer, card: ModelCard, interim: bool = False) -> None:
        """Write the checkpoint of a step, whole or not at all; the ones before it stay. Raises DatasetError."""

        def write(folder: Path) -> None:
            write_model(folder, model, model.config, card)
            names = [name for name, _ in model.named_parameters()]
            moments = optimizer.state_dict()["state"]
            tensors = {f"{names[i]}|{key}": v.cpu().contiguous() for i, s in moments.items() for key, v in s.items()}
            with atomic(folder / OPTIMIZER, flush=False) as part:  # the folder is written whole
                facts = {"step": step, "fingerprint": self.fingerprint, "sha256": digest_tensors(tensors)}
                save_file(tensors, part, {STATE: json.dumps(facts)})  # of several entries the order would be random

        try:
            replace_folder(self.interim if interim else self.checkpoint(step), write)
        except OSError as error:
            last = max((s for s in self.steps() if s < step), default=None)
            where = "there is none before it" if last is None else f"step {last} is intact"
            raise DatasetError(
                f"The checkpoint of step {step} could not be written to {self.path} ({error}); {where}. "
                "Make room and start again: training resumes from there."
            ) from error
        if not interim:
            shutil.rmtree(self.interim, ignore_errors=True)
            for other in self.steps()[:-2]:  # the last two can be gone on from: one may be damaged
                (self.checkpoint(other) / OPTIMIZER).unlink(missing_ok=True)

    def resume(self, model: FBert, optimizer: Optimizer) -> int:
        """Restore the newest checkpoint that is whole; return its step, or 0. Raises UsageError, DatasetError."""
        places = [self.interim, *(self.checkpoint(step) for step in reversed(self.steps()))]
        damaged: list[DatasetError] = []
        for folder in [place for place in places if (place / OPTIMIZER).exists()]:
            try:
                return self._restore(folder, model, optimizer)
            except DatasetError as error:
                damaged.append(error)
                logger.warning(
                    "%s is damaged: training goes on from the checkpoint before it, if there is one.", folder
                )
        if damaged:
            raise damaged[0]
        return 0

    def _restore(self, folder: Path, model: FBert, optimizer: Optimizer) -> int:
        indices = {name: i for i, (name, _) in enumerate(model.named_parameters())}
        moments: dict[int, dict[str, Tensor]] = {}
        try:
            with safe_open(folder / OPTIMIZER, "pt") as file:
                facts = json.loads((file.metadata() or {}).get(STATE, "{}"))
            if facts.get("fingerprint") != self.fingerprint:
                raise UsageError(
                    f"{self.path} holds a run with other choices, another number of steps, another corpus or version; "
                    "remove it or give another folder."
                )
            load_weights(model, folder)
            stored = load_file(folder / OPTIMIZER)
            if facts["sha256"] != digest_tensors(stored):
                raise CheckpointError(f"{OPTIMIZER} is not what was written")
            for key, value in stored.items():
                name, _, kind = key.partition("|")
                moments.setdefault(indices[name], {})[kind] = value
        except (CheckpointError, SafetensorError, OSError, KeyError, ValueError) as error:
            raise _damaged(folder, error) from error
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        return int(facts["step"])

    def read_log(self, until: int) -> pd.DataFrame:
        """Rows of the log up to a step: steps after the resumed checkpoint happen again."""
        path, columns = self.path / "log.tsv", list(LOG.columns)
        if not path.exists():
            return pd.DataFrame(columns=columns)
        try:
            log = pd.read_csv(path, sep="\t", na_values="n/a")
            before = log.astype(float)["step"] <= until
        except (ValueError, KeyError) as error:
            raise _damaged(path, error) from error
        if not path.read_bytes().endswith(b"\n"):
            raise _damaged(path, "it ends too early")
        return log[before].reindex(columns=columns)


def _damaged(path: Path, why: object) -> DatasetError:
    return DatasetError(
        f"{path} is damaged ({why}), so the run cannot go on from there. Remove the folder of the encoder and run the "
        "same command again: training begins anew."
    )
