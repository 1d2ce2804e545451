"""Errors in a set of choices, found before any work is done, each with its remedy."""

from __future__ import annotations

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fcpower_bids import analyses, transforms
from fcpower_bids.encoders import ENCODERS
from fcpower_bids.settings import Settings, options
from fcpower_bids.settings.options import HOLD_OUT, PERMUTE, Pretraining, as_class, is_composite

OURS = ("logs", "sourcedata", "group", "corpus", "encoder")
"""Folders of the output, whichever level makes them."""
TAKEN = ("models", "predicted", "index")
"""Names in ``group/``, and of pages, that no results can have."""
SHARES = ("min_coverage", "held_out", "shrink_to_identity")
POSITIVE = (
    *("repeats", "folds", "inner_folds", "batch_size", "window", "filter_order"),
    *("devices", "omp_nthreads"),
)
NOT_NEGATIVE = (
    *("band_stop_min", "band_stop_max", "checkpoint_minutes", "random_seed", "steps"),
    *("high_pass", "low_pass", "fd_thresh", "min_time", "permutations", "nprocs", "mem_mb", "max_mean_fd"),
)
OF_ENCODERS = ("torch", "safetensors", "huggingface_hub")
"""Packages of the extra without which no encoder runs; torch is large, and nothing else needs it."""
OF_TRAINING = (*OF_ENCODERS, "lightning")


def problems_of(settings: Settings) -> list[str]:
    """Return every reason why these settings cannot work, in plain sentences."""
    checks = (_folders, _cleaning, _numbers, _choices, _names, _files, _encoder, _group)
    return [problem for check in checks for problem in check(settings)]


def _folders(settings: Settings) -> Iterator[str]:
    bids, out = settings.bids_dir.absolute(), settings.output_dir.absolute()
    if out == bids:
        yield f"The output folder {out} is the input folder. Choose another, such as {bids}/derivatives/fcpower_bids."
    elif out.exists() and not out.is_dir():
        yield f"The output {out} is a file. Choose a folder."
    else:
        for path in (*(out / name for name in OURS), settings.work):
            if path.exists() and not path.is_dir():
                yield f"{path} is a file, and the run keeps a folder of that name. Move it away."


def _cleaning(settings: Settings) -> Iterator[str]:
    method = settings.method
    high, low = method.band
    if high is not None and low is not None and high >= low:
        yield f"--high-pass {high} Hz must be below --low-pass {low} Hz."
    kind, low, high = method.motion_filter_type, method.band_stop_min, method.band_stop_max
    if kind is None and (low is not None or high is not None):
        yield "--band-stop-min and --band-stop-max belong to a --motion-filter-type: choose notch or lp."
    if kind is not None and not low:
        yield f"--motion-filter-type {kind} needs --band-stop-min, in breaths per minute."
    if kind == "notch" and (not high or (low and low >= high)):
        yield "--motion-filter-type notch needs a --band-stop-max above its --band-stop-min, in breaths per minute."
    if kind == "lp" and high is not None:
        yield "--band-stop-max is not used by --motion-filter-type lp: leave it out."
    step = 4 if kind == "notch" else 2
    if kind is not None and (method.motion_filter_order < step or method.motion_filter_order % step):
        yield f"motion_filter_order {method.motion_filter_order} must be a multiple of {step} for {kind}."
    radius = method.head_radius
    if radius not in (None, "auto") and not (re.fullmatch(r"\d+(\.\d*)?", str(radius)) and float(str(radius)) > 0):
        yield f"--head-radius {radius} must be a number of mm above 0, or 'auto'."
    if settings.group.alpha_selection is not None and settings.level != "group":
        yield (
            f"--alpha {settings.group.alpha_selection} chooses the exponent of a cohort, so it works at group level "
            "only. Give a number."
        )
    if not 0 < method.alpha <= 1:
        limits = "(1 is FC itself; the limit 0 is 'log_euclidean')"
        yield f"--alpha {method.alpha:g} must be above 0 and at most 1 {limits}."


def _numbers(settings: Settings) -> Iterator[str]:
    for name, option in options().items():
        value = settings[name]
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            continue
        fault = ""
        if not math.isfinite(value):
            fault = "must be a finite number"
        elif name in SHARES and not 0 <= value <= 1:
            fault = "is a share and must be between 0 and 1"
        elif name in POSITIVE and value < 1:
            fault = "must be at least 1"
        elif name in NOT_NEGATIVE and value < 0:
            fault = "must not be negative"
        elif name == "eigenvalue_floor" and value <= 0:
            fault = "is the least eigenvalue and must be above 0"
        elif name in ("folds", "inner_folds") and value == 1:
            fault = "leaves nothing to train on; give at least 2"
        if fault:
            yield f"{option.flag} {value} {fault}."
    given = settings.group.penalties
    if any(not math.isfinite(value) or value < 0 for value in given) or len(set(given)) < len(given):
        yield "penalties must be different numbers of at least 0."


def _choices(settings: Settings) -> Iterator[str]:
    """Values from a configuration file have not passed argparse."""
    for name, option in options().items():
        if option.choices and settings[name] not in (option.default, *option.choices):
            yield f"{option.flag} must be one of {', '.join(option.choices)}."
    if settings.method.dummy_scans != "auto" and not settings.method.dummy_scans.isdigit():
        yield f"--dummy-scans {settings.method.dummy_scans} must be a whole number or 'auto'."


def _names(settings: Settings) -> Iterator[str]:
    group = settings.group
    for option, kind, names, known in (
        ("--transforms", "transform", settings.method.transforms, transforms.NAMES),
        ("--analyses", "analysis", group.analyses, (analyses.ALL, analyses.CHECK, *analyses.NAMES)),
    ):
        for name in names:
            if name not in known:
                yield f"{option} {name}: there is no such {kind}. Choose from: {', '.join(known)}."
    composites = [item for item in group.targets if is_composite(item)]
    for item in composites:
        if not all(part.strip() for part in item.partition("=")):
            yield f"--targets {item} must be NAME=COLUMN,COLUMN,..."
    for item in group.targets:
        if (made := as_class(item)) and not (all(made[:2]) and math.isfinite(made[2])):
            yield f"--targets '{item}' must be NAME=COLUMN>=NUMBER."
    for name, times in Counter(item.partition("=")[0].strip() for item in composites).items():
        if times > 1:
            yield f"--targets {name}=... is given twice. Give each a name of its own."


def _files(settings: Settings) -> Iterator[str]:
    named = ("bids_filter_file", "exclude_file", "folds_file", "use_plugin")
    given = [(name, path) for name in named if (path := settings[name]) is not None]
    for name, path in (*given, *(("phenotypes", path) for path in settings.group.phenotypes)):
        if not path.is_file():
            kind = "is no file. Name one." if path.exists() else "is not there. Correct the path."
            kind = "is a folder. Name a file in it." if path.is_dir() else kind
            yield f"--{name.replace('_', '-')} {path} {kind}"
    for folder in settings.method.atlas_dir:
        if not folder.is_dir():
            yield f"--atlas-dir {folder} is not a folder."
    if settings.method.strategy.endswith((".yml", ".yaml")) and not Path(settings.method.strategy).is_file():
        yield f"--strategy {settings.method.strategy} is not there."
    if settings.run.executor and "://" not in settings.run.executor:
        yield f"--executor {settings.run.executor} is no address of a Dask scheduler, such as tcp://node:8786."


def _encoder(settings: Settings) -> Iterator[str]:
    method = settings.method
    if method.encoder is not None and method.encoder not in ENCODERS:
        yield f"--encoder {method.encoder}: there is no such encoder. Choose from: {', '.join(ENCODERS)}."
    if method.encoder is None and method.encoder_weights is not None:
        yield "--encoder-weights needs --encoder to say what the weights belong to."
    trains = settings.level == "pretrain"
    needed = OF_TRAINING if trains else OF_ENCODERS if method.encoder else ()
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        asked, extra = ("The level pretrain", "pretrain") if trains else ("--encoder", "encoder")
        yield f"{asked} needs {', '.join(missing)}. Install it: pip install 'fcpower_bids[{extra}]'."
    if settings.pretraining.minutes is not None:
        if settings.pretraining.minutes <= 0:
            yield f"--minutes {settings.pretraining.minutes:g} must be above 0."
        if settings.pretraining.steps != Pretraining.steps:
            yield "--steps and --minutes both say how long is trained. Give one of them."
    for item in settings.pretraining.architecture:
        if not re.fullmatch(r"[a-z_]+=\d+(\.\d+)?", item):
            yield f"architecture {item} must be FIELD=NUMBER, such as d=64."


def _group(settings: Settings) -> Iterator[str]:
    group = settings.group
    if group.folds_file and group.sites == HOLD_OUT:
        yield "--folds-file and --sites hold-out both say who is tested. Give one of them."
    if group.name and (group.name in TAKEN or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", group.name)):
        yield f"--name {group.name} must be at most 64 letters, digits, - and _, and not {' or '.join(TAKEN)}."
    if group.sites != PERMUTE and group.site_column is None and not settings.inputs.derivatives:  # which may be sites
        yield f"--sites {group.sites} needs the column of sites. Give --site-column."
    if group.sites not in (PERMUTE, HOLD_OUT) and group.alpha_selection is not None:
        yield f"--alpha {group.alpha_selection} chooses the exponent on features as they are. Leave out --sites."
    embedded = [name for name in group.representations if "embedding" in name]
    if group.equal_minutes and embedded:
        yield f"--equal-minutes cuts scans, and {embedded[0]} is known of whole scans only. Leave out one of them."
    if group.save_models and group.sites not in (PERMUTE, HOLD_OUT):
        yield "--save-models writes models of features as they are. Leave out --sites."
    if group.nbs_threshold is not None and group.nbs_threshold <= 0:
        yield f"nbs_threshold {group.nbs_threshold} is a size of t and must be above 0."
