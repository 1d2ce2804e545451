"""The pretrain level: train the encoder on a corpus, which is packed first where it is ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from fcpower_bids.errors import Unproven, UsageError
from fcpower_bids.outputs.dataset import note_command
from fcpower_bids.settings import Settings
from fcpower_bids.settings.command import command_of
from fcpower_bids.workflows.encoder.packing import ready_corpus
from fcpower_bids.workflows.run_progress import say

SHARED = (
    *("loss", "steps", "window", "sampling_unit", "surrogates", "compile", "resident_mb", "devices"),
    *(
        "num_nodes",
        "accelerator",
        "microbatch",
        "held_out",
        "held_out_by",
        "checkpoint_every",
        "checkpoint_minutes",
        "exclude_from_corpus",
        "tensorboard",
    ),
)
"""Options that the pretraining configuration has under the same name."""

REMEDY = "Do not use it: train on more people, longer, or hold out more; --accept-unproven accepts it as it is."

FOLLOWING = ("batch_size", "learning_rate", "warmup")
"""Options that follow objective and size where nobody chose them."""


def run_pretrain(settings: Settings) -> int:
    """Train an encoder on the cleaned series in ``output_dir`` and return the exit code.

    The corpus grows by what is new; an interrupted run goes on where it stopped.
    """
    from fcpower_bids.pretraining.processes import on_all_processes  # loads torch

    return on_all_processes(pretrain_config(settings), partial(_pretrain, settings))


def _pretrain(settings: Settings, processes: Any) -> int:
    """Do the share of one process: the first packs and tells, all train."""
    from fcpower_bids.pretraining.train import train  # loads torch

    config = pretrain_config(settings)
    processes.first_only(partial(say, f"Training {config.encoder}: {config.in_words()}", settings))
    corpus = processes.first_only(partial(ready_corpus, settings))
    if settings.dry_run:
        return 0
    whole = command_of(settings.as_dict(), whole=True)
    processes.first_only(partial(note_command, settings.output_dir, settings.level, whole))
    result = train(processes, corpus, settings.output_dir / "encoder", config)
    processes.first_only(partial(_tell, settings, result))
    if not result.proven and not settings.accept_unproven:
        raise Unproven(f"{result.verdict} {REMEDY}")
    return 0


def _tell(settings: Settings, result: Any) -> None:
    say(f"Encoder: {result.folder} (step {result.step} of {result.last_step})", settings)
    if result.confirmed is not None:
        say(
            f"Held-out alignment {result.confirmed:.3f}, confirmed on families that did not choose the checkpoint; "
            f"optimism of the choice {result.optimism:+.3f}",
            settings,
        )
    from fcpower_bids.reports.training import write_training_page  # only the end of a run needs it

    say(f"Page: {write_training_page(settings)}", settings)
    if result.proven:
        say(result.verdict, settings)
        say(f"Use it: --encoder fbert --encoder-weights {result.folder}", settings)
    elif settings.accept_unproven:
        say(f"{result.verdict} It is accepted as you asked (--accept-unproven).", settings)


def pretrain_config(settings: Settings) -> Any:
    """Return the pretraining configuration that the settings ask for; what is not chosen is the paper's."""
    from fcpower_bids.pretraining.configuration import PretrainConfig, paper_optimisation  # loads torch
    from fcpower_bids.pretraining.processes import best_precision

    pairs = (item.partition("=") for item in settings.architecture)
    architecture = {name: float(value) if "." in value else int(value) for name, _, value in pairs}
    encoder = settings.encoder or "fbert-1m"
    chosen = {name: value for name in FOLLOWING if (value := getattr(settings, name)) is not None}
    return PretrainConfig(
        encoder=encoder,
        architecture=architecture,
        seed=settings.random_seed,
        roi_labels=_roi_labels(settings.roi_labels),
        precision=settings.precision or best_precision(settings.accelerator),
        **{name: getattr(settings, name) for name in SHARED},
        **(paper_optimisation(encoder, settings.loss) | chosen),
    )


def _roi_labels(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); give a text file with one name per line.") from error
