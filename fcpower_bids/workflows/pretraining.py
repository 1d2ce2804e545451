"""The level `pretrain`: a corpus of cleaned series, and the encoder that is trained on it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.targets import choose_targets
from fcpower_bids.cohort.assembly import sessions_of
from fcpower_bids.cohort.feature_choice import band_in, match_atlases
from fcpower_bids.cohort.people import Source, describe_unknown, load_people, shorten, tables_of
from fcpower_bids.cohort.recordings import Selected, describe_nothing_left, selected
from fcpower_bids.cohort.scans import parcels_of_all
from fcpower_bids.elsewhere.imports import bring_sources
from fcpower_bids.encoders import CORPUS_ID
from fcpower_bids.errors import DatasetError, Unproven, UsageError
from fcpower_bids.inputs.discover import label_remedy
from fcpower_bids.inputs.roots import (
    check_input_folder,
    dataset_identity,
    dataset_terms,
    is_of_others,
    output_folders,
    people_home,
    people_tables,
)
from fcpower_bids.outputs.dataset import TIMESERIES, parse_name, path_of
from fcpower_bids.outputs.tables import column_names, read_json, read_series, series_file
from fcpower_bids.parallel import executing, say
from fcpower_bids.settings import Method, Settings, options
from fcpower_bids.store import LOCKS, lock, sweep_shared, write_shared

# torch is loaded where it is used: the other levels do without it.

SHARED = (*("loss", "steps", "minutes", "window", "devices", "held_out", "checkpoint_minutes"),)
"""Options that the pretraining configuration has under the same name."""
FOLLOWING = ("batch_size", "learning_rate", "warmup")
"""Options that follow objective and size unless given."""
SMALL = {"d": 64, "layers": 2, "heads": 4, "ff": 128}
"""A student that learns something in a minute on two cores."""
REMEDY = "Do not use it: train on more people, longer, or hold out more."


def run_pretrain(settings: Settings) -> int:
    """Train an encoder on the cleaned series in ``output_dir`` and return the exit code; 0 steps make the corpus."""
    chosen, corpus = settings.pretraining, _corpus_folder(settings)
    if chosen.steps == 0:
        from fcpower_bids.pretrain.corpus import is_public

        if chosen.corpus == CORPUS_ID or is_public(corpus):
            raise UsageError(
                f"{chosen.corpus} is a corpus in the public layout, to which nothing is added: train on it."
            )
        table = _pack(settings, corpus)  # what is packed already is passed over
        if short := int((table["T"] < chosen.window).sum()):
            say(f"{short} of them have fewer volumes than window {chosen.window}: nothing trains on those.", settings)
        return 0
    from fcpower_bids.pretrain.engine import on_all_processes, started

    by, path = started(), settings.output_dir / LOCKS / "pretrain"
    with lock(path, wait=False) if by is None or by.rank == 0 else nullcontext(True) as is_free:
        if not is_free:
            raise UsageError(
                f"Another pretraining is at work in {settings.output_dir}: wait until it has ended, or give another "
                "output folder."
            )
        return on_all_processes(pretrain_config(settings), partial(_pretrain, settings))


def _in_words(config: Any) -> str:
    sizes = ", ".join(f"{name} {value:g}" for name, value in config.architecture.items())
    return f"{config.encoder} with {sizes}: {config.in_words()}" if sizes else f"{config.encoder}: {config.in_words()}"


def _pretrain(settings: Settings, processes: Any) -> int:
    """Do the share of one process: the first packs and reports, all train."""
    from fcpower_bids.pretrain.train import train

    config = pretrain_config(settings)
    processes.first_only(partial(say, f"Training {_in_words(config)}", settings))
    corpus = processes.first_only(partial(_ready_corpus, settings))
    cohorts = list[Any]()
    if settings.pretraining.probe is not None:  # the first process alone has the series
        config = replace(
            config, probe=processes.first_only(partial(_read_probe, settings, settings.pretraining.probe, cohorts))
        )
    probe = cohorts[0] if cohorts else None
    tell = partial(say, settings=settings)
    folder = settings.output_dir / "encoder"
    record = settings.output_dir / "logs" / "settings_pretrain.toml"
    note = partial(write_shared, settings.output_dir, record, settings.as_toml())
    result = train(processes, corpus, folder, config, probe=probe, tell=tell, note=note)
    processes.first_only(partial(_tell, settings, result))
    if not result["proven"] and processes.fabric.is_global_zero:  # the others have done their share
        raise Unproven(f"{result['verdict']} {REMEDY}")
    return 0


def pretrain_config(settings: Settings) -> Any:
    """Return the pretraining configuration that the settings ask for; what is not chosen is the paper's."""
    from fcpower_bids.pretrain.engine import PretrainConfig, best_precision, paper_optimisation

    pairs = (item.partition("=") for item in settings.pretraining.architecture)
    architecture: dict[str, float] = dict(SMALL) if settings.pretraining.size == "small" else {}
    architecture |= {name: float(value) if "." in value else int(value) for name, _, value in pairs}
    encoder = "fbert-8m" if settings.pretraining.size == "8m" else "fbert-1m"
    chosen = {name: value for name in FOLLOWING if (value := settings[name]) is not None}
    return PretrainConfig(
        encoder=encoder,
        architecture=architecture,
        seed=settings.method.random_seed,
        precision=best_precision(),
        **{name: settings[name] for name in SHARED},
        **(paper_optimisation(encoder, settings.pretraining.loss) | chosen),
    )


def _read_probe(settings: Settings, out: Path, cohorts: list[Any]) -> str:
    """Read the cohort of ``probe`` into a list, and return what it is called."""
    from fcpower_bids.notebook import load_cohort  # only the probe needs it, as the others
    from fcpower_bids.pretrain.judgement import FEWEST, ExternalCohort

    check_input_folder(out)
    tables = people_tables(out, notes := list[str]())
    for note in notes:
        say(note, settings)
    bids = tables[0].parent if tables else None
    shared = ("atlas", "family_column", "phenotypes", "work_dir", "targets")
    choices = {name: value for name in shared if (value := settings[name]) is not None}
    try:
        cohort = load_cohort(out, bids, per="scan", **choices)
    except DatasetError as error:
        raise DatasetError(f"The cohort of probe, {out}, cannot be read. {error}") from error
    window = settings.pretraining.window
    try:
        runs = [tuple(run for run in cohort.series(row) if len(run) >= window) for row in range(len(cohort))]
    except IndexError:
        raise DatasetError(
            f"{out} lacks series of some scans, and a probe embeds series; give other outputs."
        ) from None
    kept = np.array([bool(scan) for scan in runs])
    people, sessions = (np.array(labels)[kept] for labels in (cohort.names, cohort.sessions))
    names, groups = np.unique(people).tolist(), dict(zip(cohort.names, cohort.groups, strict=True))
    if len(names) < 2 * FEWEST:
        raise DatasetError(
            f"The cohort of probe has {len(names)} people with {window} volumes or more, and {2 * FEWEST} are "
            "needed: a probe of fewer would choose by chance."
        )
    table = cohort.phenotypes[kept].groupby(level=0).first().reindex(names)  # of the first session that has a value
    targets = tuple(choose_targets(table, cohort.choices)) if settings.group.targets else ()
    known = (dataset_identity(bids) if bids else "") or out.resolve().name
    scans, families = tuple(scan for scan in runs if scan), np.array([groups[name] for name in names])
    cohorts.append(ExternalCohort(known, cohort.parcels, scans, people, sessions, families, targets))
    return f"{known} ({len(names)} people: {', '.join(target.name for target in targets) or 'identification'})"


def _tell(settings: Settings, result: dict[str, Any]) -> None:
    from fcpower_bids.pretrain.page import write_training_page  # only the end needs it

    say("Encoder: {folder} (step {step} of {last_step})".format(**result), settings)
    if result["confirmed"] is not None:
        sentence = "Held-out alignment {selected:.3f}, {confirmed:.3f} without the optimism of the choice"
        if settings.pretraining.probe is not None:
            sentence = "Probe {selected:.3f} at the checkpoint that it chose"
        say(f"{sentence}; optimism of the choice {{optimism:+.3f}}".format(**result), settings)
    sweep_shared(settings.output_dir)
    say(f"Page: {write_training_page(settings)}", settings)
    if result["proven"]:
        say(result["verdict"], settings)
        say(f"Use it: --encoder fbert --encoder-weights {result['folder']}", settings)


# --- The corpus -----------------------------------------------------------------------------------------------------


def _corpus_folder(settings: Settings) -> Path:
    return Path(settings.pretraining.corpus) if settings.pretraining.corpus else settings.output_dir / "corpus"


def _ready_corpus(settings: Settings) -> Path:
    """Return the folder of the corpus to train on."""
    from fcpower_bids.encoders.checkpoints import fetch
    from fcpower_bids.pretrain.corpus import FILES, prepare_corpus

    corpus = _corpus_folder(settings)
    if not _is_whole(corpus, settings):
        _pack(settings, corpus)
    elif settings.pretraining.corpus == CORPUS_ID:
        corpus = fetch(CORPUS_ID, "dataset", list(FILES))  # 26 GB, or found in the cache of the hub
    with executing(settings.run, settings.work / "shared"):
        prepare_corpus(corpus, settings.output_dir / "encoder")
    return corpus


def _is_whole(corpus: Path, settings: Settings) -> bool:
    """Whether a corpus is trained on as it is: in the public layout, or where nothing of this dataset could join it.

    Choices of the packing are refused then; with a probe some may be of it.
    """
    from fcpower_bids.pretrain.corpus import is_public

    if settings.pretraining.corpus == CORPUS_ID or is_public(corpus):
        sentence = f"Corpus: {corpus}, in the public layout"
    else:
        door = selected(settings.output_dir)
        if settings.inputs.derivatives or _series(door) or door.left_out or not (corpus / "pack.json").is_file():
            return False
        sentence = f"Corpus: {corpus} as it is; {settings.output_dir} holds no series to add"
    of_packing = ["derivatives", "participant_label", "alpha"]
    of_packing += ["atlas", "family_column"] * (settings.pretraining.probe is None)
    if given := [option.flag for name in of_packing if settings[name] != (option := options()[name]).default]:
        raise UsageError(f"{given[0]} is of the packing, and this corpus is trained on as it is: leave it out.")
    say(sentence, settings)
    return True


def _pack(settings: Settings, corpus: Path) -> Any:
    """Pack the series of this dataset, and refuse a corpus with people of it who are not chosen now."""
    from fcpower_bids.pretrain.packing import pack_corpus

    check_input_folder(settings.bids_dir)
    if settings.inputs.derivatives:
        if "" not in output_folders(settings, settings.output_dir):
            raise UsageError("--derivatives of pretrain are series of another program: list=FILE or LAYOUT=FOLDER.")
        bring_sources(settings)
    if file := next((place for place in (corpus, *corpus.parents) if place.is_file()), None):
        raise UsageError(f"{file} is a file, so there can be no corpus in {corpus}. Choose a folder.")
    dataset = dataset_identity(settings.bids_dir)  # an encoder knows its people by it
    if not dataset:
        raise UsageError(
            f"{settings.bids_dir} has no dataset_description.json with a Name or a DatasetDOI, so its people could not "
            "be distinguished from those of other datasets in the corpus. Give it that file with a Name."
        )
    if is_of_others(settings.bids_dir, settings.output_dir):
        say(
            f"By its description {settings.bids_dir} is another dataset than that of the recordings in "
            f"{settings.output_dir}, and an encoder knows its people by it: give the BIDS_DIR of these recordings.",
            settings,
        )
    door = selected(settings.output_dir)
    atlases = sorted(_atlases(door, settings.output_dir))
    match = atlases
    if len(atlases) > 1 or settings.method.atlas != Method.atlas:
        match = sorted({name for spec in settings.method.atlas for name in match_atlases(spec, atlases)})
    if len(match) != 1:
        many = "Several atlases were" if len(atlases) > 1 else "Another atlas was"
        raise UsageError(f"{many} written: {', '.join(atlases)}. Choose one with --atlas.")
    (atlas,) = match
    chosen = {label.removeprefix("sub-") for label in settings.inputs.participant_label}
    sources = list(_sources(settings, door, atlas, dataset, corpus))
    there = {facts["subject"] for facts, _ in sources}
    if absent := sorted(chosen - there):
        raise DatasetError(f"{settings.output_dir} has no series of sub-{absent[0]}: {label_remedy(absent[0], there)}")
    listed = {facts["id"] for facts, _ in sources}
    sources = [source for source in sources if not chosen or source[0]["subject"] in chosen]
    # other output folders may be packed into it at the same time
    with ExitStack() as held, executing(settings.run, settings.work / "shared"):
        if not held.enter_context(lock(corpus / "lock", wait=False)):
            say(f"Another run packs into {corpus}; it is waited for.", settings)
            held.enter_context(lock(corpus / "lock"))
        table = pack_corpus(sources, corpus, settings.method.alpha, atlas=atlas, there=listed)
    others = sorted(set(table["subject"][table["dataset"] == dataset]) - chosen)
    if chosen and others:
        raise DatasetError(
            f"The corpus {corpus} already holds people that --participant-label does not name "
            f"({', '.join(others[:5])}); remove that folder, or give another one with --corpus."
        )
    people = len(table[["dataset", "subject"]].drop_duplicates())
    known = table["family"][table["dataset"] == dataset] != "n/a"
    if settings.group.family_column is None and known.any():
        lacking = f"; {(~known).sum()} recordings have none" * bool((~known).any())
        say(f"No --family-column is given: the corpus keeps what it has as family of everyone{lacking}.", settings)
    say(f"Corpus: {len(table)} recordings of {people} people in {corpus}", settings)
    return table


def _series(door: Selected) -> dict[Path, str]:
    """Series of the recordings that take part, and the name of their atlas."""
    there = {series_file(run.beside(TIMESERIES)): run.atlas_name for run in door.connectomes}
    return {path: atlas for path, atlas in there.items() if path.is_file()}


def _atlases(door: Selected, output_dir: Path) -> set[str]:
    """Return the atlases that series were written for: ``atlas-Schaefer2018_seg-7n_scale-400``."""
    if names := set(_series(door).values()):
        return names
    if door.connectomes:
        raise DatasetError(
            f"{output_dir} holds matrices and no series, and training needs series: give the group level the series of "
            "these scans (--derivatives) in another output folder."
        )
    if door.left_out:
        raise DatasetError(describe_nothing_left([scan.row() for scan in door.left_out], output_dir))
    raise DatasetError(f"There are no cleaned series in {output_dir}. Run the participant level on it first.")


def _sources(settings: Settings, door: Selected, atlas: str, dataset: str, corpus: Path) -> Iterator[Any]:
    """Yield series for the corpus, and what leaves it, with what the dataset says of families. Raises DatasetError.

    What is not to be used need not be there. Without families those of the corpus stay.
    """
    entities = parse_name(f"{atlas}_timeseries.tsv")[0]
    paths = {path: "" for path, name in _series(door).items() if name == atlas}
    paths |= {
        path_of(settings.output_dir, scan.entities, entities, TIMESERIES): scan.why
        for scan in door.left_out
        if scan.atlas_name in ("", atlas) and "task" in scan.labels
    }
    of_atlas = [run.beside(TIMESERIES) for run in door.connectomes if run.atlas_name == atlas]
    paths |= {path: "it has no series, which training needs" for path in of_atlas if series_file(path) not in paths}
    parcels = {path: tuple(column_names(path)) for path, why in paths.items() if not why}
    whole, of_others = parcels_of_all(parcels)
    for path, names in parcels.items():
        has = set(names)
        lacking = ", ".join([name for name in whole if name not in has][:3])
        paths[path] = of_others.get(path, "") or (f"it lacks the parcels {lacking}" if lacking else "")
    given = {path.absolute(): Source(path, is_given=True) for path in settings.group.phenotypes}
    home = people_home(settings.bids_dir)
    others = (path for path in tables_of(home) if path.absolute() not in given)
    tables = [*given.values(), *map(Source, others)]
    families: dict[str, str] | None = None
    if (column := settings.group.family_column) is not None:
        scanned = sessions_of((run.participant, run.session) for run in door.connectomes)
        people = load_people(tables, scanned, [("", home)], settings.group.missing_values)
        if column in people.conflicts:
            raise DatasetError(people.conflicts[column])
        there = [str(other) for other in people.frame]
        known = people.frame[column].dropna() if column in there else pd.Series(dtype=object)
        sentence = f"No phenotype table of {settings.bids_dir} has a column {describe_unknown(column, there)}"
        if set(known.index) & set(scanned):
            families = {str(person).removeprefix("sub-"): shorten(value) for person, value in known.items()}
        elif len(known):
            sentence = f"The column '{column}' is known of nobody whose series are here. Correct participant_id."
        if families is None and settings.pretraining.probe is None:
            raise DatasetError(sentence)
        if families is None:
            say(f"Of the corpus: {sentence}", settings)  # the column may be that of the probe
    outputs = settings.output_dir.resolve()
    # of a corpus within the outputs its own place: both may be moved together
    inside = corpus.resolve().is_relative_to(outputs)
    place = "within" if inside else hashlib.sha256(str(outputs).encode()).hexdigest()[:16]
    shared: dict[str, Any] = {"dataset": dataset, "place": place, **dataset_terms(settings.bids_dir)}
    for path, why in sorted(paths.items()):
        labels = dict(parse_name(path.name)[0])
        facts = {**shared, "id": f"{dataset}/{path.stem.removesuffix('_stat-mean_timeseries')}", "problem": why}
        facts |= {"subject": labels["sub"], "session": labels.get("ses")}
        facts |= {"repetition_time": math.nan, "source": "n/a", "parcel_names": None} if why else _describe(path, whole)
        facts |= {} if families is None else {"family": families.get(labels["sub"])}
        at = {} if why else {name: number for number, name in enumerate(parcels[path])}
        yield facts, partial(_read, path, [] if why else [at[name] for name in whole])


def _describe(path: Path, parcels: Sequence[str]) -> dict[str, Any]:
    """Facts of a series: what its JSON states (repetition time NaN where none), its parcels, its size and time."""
    sidecar = read_json(path.with_suffix(".json"))
    time = sidecar.get("RepetitionTime", math.nan)
    if "RepetitionTime" in sidecar and not (isinstance(time, (int, float)) and 0 < time < math.inf):
        raise DatasetError(
            f"{path.with_suffix('.json')} does not give a RepetitionTime; run the participant level again."
        )
    return {
        "repetition_time": float(time),
        "parcel_names": list(parcels),
        "source": f"{path.stat().st_size} {path.stat().st_mtime_ns}",
        "band": " ".join(str(edge or "n/a") for edge in band_in(sidecar)),
    }


def _read(path: Path, order: Sequence[int]) -> np.ndarray:
    return read_series(path)[0][:, order]
