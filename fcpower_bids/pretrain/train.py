"""The run: F-BERT trained by kernel alignment, step by step."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from fcpower_bids.encoders.checkpoints import ModelCard, check_proof, load_strictly, read_tensors, save_checkpoint
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.pretrain.configuration import LOSSES, PretrainConfig, diagonal_share
from fcpower_bids.pretrain.corpus import Corpus, open_corpus, prepare_corpus
from fcpower_bids.pretrain.engine import BATCH, Gradient, draw_batch, make_optimizer
from fcpower_bids.pretrain.judgement import judge
from fcpower_bids.pretrain.probing import ExternalCohort
from fcpower_bids.pretrain.processes import Clock, Processes, on_all_processes
from fcpower_bids.pretrain.run_state import SAVE, STOP, Interrupted, RunFolder, heard
from fcpower_bids.pretrain.selection import VIEWS, Choice, HeldOut, choose_checkpoint, divide, write_card

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pretrained:
    """Outcome of a run."""

    folder: Path  # the model, for ``load_encoder("fbert", folder)``
    step: int  # step of the chosen checkpoint
    last_step: int
    # selected, confirmed, optimism: see `fcpower_bids.pretrain.selection.Choice`; None where too few people
    # were held out to choose
    selected: float | None
    confirmed: float | None
    optimism: float | None
    diagonal_share: float  # of the teacher kernel of the first batch
    # n_train, n_held_out: recordings
    n_train: int
    n_held_out: int
    proven: bool  # whether the model is better than random weights on people that it never saw
    verdict: str  # why, in a sentence


def pretrain(
    corpus: Path,
    output: Path,
    config: PretrainConfig | None = None,
    *,
    stop_step: int | None = None,
    probe: ExternalCohort | None = None,
) -> Pretrained:
    """Pretrain F-BERT on a corpus pack, or go on with an interrupted run in `output`."""
    config = config or PretrainConfig()
    work = partial(_as_dict, corpus=corpus, output=output, config=config, stop_step=stop_step, probe=probe)
    return Pretrained(**on_all_processes(config, work))


def _as_dict(processes: Processes, **arguments: Any) -> dict[str, Any]:
    return asdict(train(processes, **arguments))  # Lightning takes what comes back apart: a frozen class breaks it


def train(
    processes: Processes,
    corpus: Path,
    output: Path,
    config: PretrainConfig,
    stop_step: int | None = None,
    probe: ExternalCohort | None = None,
) -> Pretrained:
    """Do the share of one process in `pretrain`."""
    processes.first_only(lambda: prepare_corpus(corpus, output))
    opened = open_corpus(corpus, output, config.roi_labels, processes.fabric.device)
    run = _Run(processes, opened, output, config, probe)
    run.train(min(stop_step or config.steps, config.steps))
    return run.outcome()


class _Run:
    """One process of a run."""

    def __init__(
        self, processes: Processes, corpus: Corpus, output: Path, config: PretrainConfig, probe: ExternalCohort | None
    ) -> None:
        fabric, division = processes.fabric, divide(corpus, config)
        self.processes, self.fabric, self.config, self.corpus, self.probe = processes, fabric, config, corpus, probe
        self.rows, self.places = division.rows, division.places[division.rows]
        world = fabric.world_size
        self.size = min(config.batch_size, len(self.rows)) // world * world  # of a batch
        if self.size < max(4, world):
            raise DatasetError(
                f"Only {len(self.rows)} recordings of at least {config.window} volumes are left for training; "
                "pack more recordings or hold out fewer."
            )
        self.held_out = HeldOut(corpus, division.held_out, division.roles, config.window, config.seed)
        training = replace(config, batch_size=self.size).in_words()
        self.card = write_card(corpus, division, config, f"loss {config.loss}", training)
        processes.first_only(self._admit_probe)
        self.model = config.model_config(len(corpus.parcel_names)).build(config.seed)
        wrapped, self.optimizer = fabric.setup(self.model, make_optimizer(self.model, config, fabric.device))
        self.gradient = Gradient(fabric, wrapped.train(), LOSSES[config.loss], config.microbatch)
        fingerprint = hashlib.sha256(f"{config.fingerprint()} {corpus.sha256} {not config.probe}".encode()).hexdigest()
        self.folder = RunFolder(output, fingerprint, fabric.strategy.precision)
        self.step = self.folder.resume(self.model, self.optimizer, config.steps)
        self.log: list[Mapping[str, Any]] = self.folder.read_log(self.step).to_dict("records")  # type: ignore[assignment]
        self.share = diagonal_share(corpus.kernel_of(self._draw(0)[0]))
        if not fabric.is_global_zero:
            return
        if n_short := int((division.places == 0).sum()):
            logger.warning("%d recordings are shorter than %d volumes and not used.", n_short, config.window)
        if self.size < config.batch_size:
            logger.warning("The batch is reduced to %d windows, all that the corpus allows.", self.size)
        logger.info(
            "%d recordings train, %d are held out; from step %d. The diagonal is %.0f %% of the squared norm of the "
            "centred teacher kernel of a batch of %d: the larger it is, the more a larger batch would help.",
            *(len(self.rows), len(self.held_out.rows), self.step, 100 * self.share, self.size),
        )

    def _admit_probe(self) -> None:
        """Take the cohort of the probe, which the first process has, where no one of it is in the corpus."""
        if self.probe is not None:
            self.probe = self.probe.long_enough(self.config.window)
            self.card = self.probe.known_to(self.card)

    def train(self, until: int) -> None:
        """Train up to a step; evaluate and write a checkpoint at regular steps, at the end, and when asked to."""
        config, clock, saved = self.config, Clock(self.step, until), time.monotonic()
        if not self.log:
            self._note({"step": 0}, evaluated=True)
        quiet = None if self.fabric.is_global_zero else True
        with heard() as wishes:
            for step in tqdm(range(self.step, until), disable=quiet, desc="pretraining", unit="step"):
                loss, norm = self._one_step(step)
                self.step = step + 1
                regular = self.step % config.checkpoint_every == 0 or self.step == until
                if regular or self.step % config.log_every == 0:
                    numbers = {"loss": float(loss), "gradient_norm": float(norm), **clock.read(self.step)}
                    if not np.isfinite(numbers["loss"]):
                        raise UsageError(f"The loss is {numbers['loss']} at step {self.step}: lower the learning rate.")
                    self._note({"step": self.step, "learning_rate": config.rate(step), **numbers}, evaluated=regular)
                late = 0 < 60 * config.checkpoint_minutes < time.monotonic() - saved
                # a signal, or the time: all processes do the same after the same step
                wish = self.processes.agree(max(wishes.take(), SAVE if late and not regular else 0))
                if regular or wish:
                    self._save(interim=not regular)
                    saved = time.monotonic()
                if wish == STOP and self.step < config.steps:
                    raise Interrupted(f"Stopped as asked after step {self.step}; the same command goes on from there.")
        self.fabric.barrier()

    def _draw(self, step: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of the table (B,), and which window of each: a function of the step, so nothing is saved to resume."""
        key = (self.config.seed, BATCH, step)
        members, chosen = draw_batch(self.places, self.size, key, self.config.sampling_unit)
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
            self.folder.write_log(self.log)

    def _save(self, interim: bool) -> None:
        card = replace(self.card, step=self.step)
        state = (self.step, self.model, self.optimizer, card, self.config.steps, interim)
        self.processes.first_only(lambda: self.folder.save(*state))

    def outcome(self) -> Pretrained:
        """Choose a checkpoint, and (on one process) write it as the model of this run."""
        step, how, choice = self._choose()
        card = replace(self.card, step=step, selection=how)
        # First without a verdict: a comparison that fails costs the comparison alone.
        self.processes.first_only(lambda: self._write_model(card, {}))
        verdict = self.processes.first_only(lambda: self._compare(step, choice is not None and not self.config.probe))
        result = Pretrained(
            folder=self.folder.path / "model",
            step=step,
            last_step=self.step,
            selected=None if choice is None else choice.selected,
            confirmed=None if choice is None else choice.confirmed,
            optimism=None if choice is None else choice.optimism,
            diagonal_share=self.share,
            n_train=len(self.rows),
            n_held_out=len(self.held_out.rows),
            proven=verdict["Proven"],
            verdict=verdict["Verdict"],
        )
        about = asdict(replace(result, folder=Path("model")))
        proven = replace(card, optimism=result.optimism, verdict=result.verdict)
        self.processes.first_only(lambda: self._write_model(proven, about))
        return result

    def _choose(self) -> tuple[int, str, Choice | None]:
        """Return the step of the model, how it was chosen, and by which scores."""
        log = self.folder.read_log(self.step)  # written by the first process, read by all
        saved = log[log["step"].isin(self.folder.steps())]
        if not (self.config.probe or self.held_out.sufficient):
            return self.step, "last step; too few people were held out to choose", None
        by = saved["probe"].fillna(saved["probe_identification"]) if self.config.probe else None
        choice = choose_checkpoint(saved[["select", "confirm"]], by)
        score = "debiased CKA with the teacher on held-out families (family-disjoint from training)"
        score = f"the frozen probe of {self.config.probe}, as in the paper" if self.config.probe else score
        step = int(saved["step"].iloc[choice.position])
        return step, f"best of {len(saved)} checkpoints by {score}", choice

    def _compare(self, step: int, chosen: bool) -> dict[str, Any]:
        """Compare the model with methods without training, and write the table."""
        table, verdict = judge(self.held_out, self.rows, self.config, chosen, self._saved_model(step))
        facts = {"Step": step, "DiagonalShare": self.share, "Views": VIEWS, **verdict}
        self.folder.write_alignment(table, facts)
        return verdict

    def _saved_model(self, step: int) -> FBert:
        model = self.model.config.build()
        source = self.folder.checkpoint(step) / "model.safetensors"
        load_strictly(model, read_tensors(source), str(source))
        check_proof(source.parent, model.config, model.state_dict())
        return model

    def _write_model(self, card: ModelCard, about: Mapping[str, Any]) -> None:
        model = self._saved_model(card.step or 0)
        save_checkpoint(self.folder.path / "model", model, model.config, card, about)
