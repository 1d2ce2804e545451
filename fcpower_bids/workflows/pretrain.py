"""The pretrain level: pack the participant outputs, train the encoder on them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.outputs.names import parse_name
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.progress import say

SUFFIX = "_stat-mean_timeseries.tsv"
ATLAS_KEYS = ("atlas", "seg", "scale")

SHARED = (
    *("loss", "steps", "batch_size", "warmup", "learning_rate", "window", "surrogates", "precision", "devices"),
    *("num_nodes", "accelerator", "chunk", "held_out", "checkpoint_every", "evaluation", "tensorboard"),
)
"""Options that the pretraining configuration has under the same name."""


def run_pretrain(settings: Settings) -> int:
    """Train an encoder on the cleaned series in ``output_dir`` and return the exit code.

    The corpus grows by what is new; an interrupted run goes on where it stopped.
    """
    from fcpower_bids.pretraining.processes import on_all_processes

    return on_all_processes(pretrain_config(settings), partial(_pretrain, settings))


def _pretrain(settings: Settings, processes: Any) -> int:
    """Do the share of one process: the first packs and tells, all train."""
    from fcpower_bids.pretraining.train import train

    corpus = settings.corpus or settings.output_dir / "corpus"
    processes.first_only(partial(_pack, settings, corpus))
    if settings.dry_run:
        return 0
    result = train(processes, corpus, settings.output_dir / "encoder", pretrain_config(settings))
    processes.first_only(partial(_tell, settings, result))
    return 0


def _pack(settings: Settings, corpus: Path) -> None:
    from fcpower_bids.pretraining.packing import pack_corpus

    atlas = choose_atlas(_atlases(settings.output_dir), settings)
    table = pack_corpus(
        _recordings(settings, atlas), corpus, settings.exponent, atlas=atlas, evaluation=settings.evaluation
    )
    say(f"Corpus: {len(table)} recordings of {table['subject'].nunique()} people in {corpus}", settings)


def _tell(settings: Settings, result: Any) -> None:
    say(f"Encoder: {result.folder} (step {result.step} of {result.last_step})", settings)
    if result.confirmed is not None:
        say(
            f"Held-out alignment {result.confirmed:.3f}, confirmed on families that did not choose the checkpoint; "
            f"optimism of the choice {result.optimism:+.3f}",
            settings,
        )
    say(f"Use it: --encoder fbert --encoder-weights {result.folder}", settings)


def pretrain_config(settings: Settings) -> Any:
    """Return the pretraining configuration that the settings ask for."""
    from fcpower_bids.pretraining.configuration import PretrainConfig

    pairs = (item.partition("=") for item in settings.architecture)
    architecture = {name: float(value) if "." in value else int(value) for name, _, value in pairs}
    return PretrainConfig(
        encoder=settings.encoder or "fbert-1m",
        architecture=architecture,
        seed=settings.random_seed,
        **{name: getattr(settings, name) for name in SHARED},
    )


def _atlases(output_dir: Path) -> set[str]:
    """Return the atlases that series were written for: ``atlas-Schaefer2018_seg-7n_scale-400``."""
    names = {path.name for path in output_dir.glob(f"sub-*/**/func/*{SUFFIX}")}
    if not names:
        raise DatasetError(f"There are no cleaned series in {output_dir}. Run the participant level on it first.")
    entities = (parse_name(name)[0] for name in names)
    return {"_".join(f"{key}-{value}" for key, value in found if key in ATLAS_KEYS) for found in entities}


def choose_atlas(found: Iterable[str], settings: Settings) -> str:
    """Return the one atlas to train on: the only one, or the one whose name contains ``--atlas``.

    Raises
    ------
    UsageError
        If there are several and the choice is not clear.
    """
    found = sorted(found)
    if len(found) == 1:
        return found[0]
    wanted = re.sub(r"[^a-z0-9]", "", settings.atlas[0].lower())
    match = [name for name in found if wanted in re.sub(r"(atlas|seg|scale)-|[^a-zA-Z0-9]", "", name).lower()]
    match = match or [name for name in found if settings.atlas[0] in name]
    if len(match) != 1:
        raise UsageError(f"Several atlases were written: {', '.join(found)}. Choose one with --atlas.")
    return match[0]


def _recordings(settings: Settings, atlas: str) -> Iterable[Any]:
    from fcpower_bids.pretraining.derived_series import find_series

    dataset = settings.bids_dir.absolute().name
    return find_series(settings.output_dir, dataset, contains=f"_{atlas}_", families=_families(settings))


def _families(settings: Settings) -> dict[str, str]:
    """Return the family of each participant where the dataset says so, else nothing."""
    path = settings.bids_dir / "participants.tsv"
    if settings.family_column is None or not path.is_file():
        return {}
    table = read_table(path)
    if settings.family_column not in table or "participant_id" not in table:
        raise DatasetError(f"{path} has no column '{settings.family_column}' or no 'participant_id'.")
    known = table.dropna(subset=[settings.family_column])
    labels = known["participant_id"].str.removeprefix("sub-")
    return dict(zip(labels, known[settings.family_column].astype(str), strict=True))
