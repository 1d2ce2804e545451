"""A model fitted on everyone, how wide its intervals are, and what its user has to know."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fcpower_bids._version import __version__
from fcpower_bids.analyses.baselines import BASELINES, find_added
from fcpower_bids.analyses.evaluate import POOLED_MEAN, WITHIN_MEAN, main_score, make_solver
from fcpower_bids.analyses.features import FC, FC_POWER, build_representations, expand_names
from fcpower_bids.analyses.prediction import SUMMARY
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.analyses.targets import join_target_builders
from fcpower_bids.clinic.page import say_skill, was_tested
from fcpower_bids.cohort.feature_choice import gather_preprocessing
from fcpower_bids.cohort.recordings import selected_of
from fcpower_bids.core.arrays import FloatArray, Rows
from fcpower_bids.core.differences import SIGNIFICANT
from fcpower_bids.core.krr import LAST_DECADE, decades
from fcpower_bids.core.nested import score_penalties
from fcpower_bids.core.probe import ModelArrays, predict_from_arrays, ridge_model_arrays
from fcpower_bids.core.scores import best_penalty
from fcpower_bids.errors import DatasetError, FcPowerError, Unfit
from fcpower_bids.outputs.group import Attempts, find_table
from fcpower_bids.outputs.tables import plain, read_connectome, read_table, write_json
from fcpower_bids.parallel import say
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings
from fcpower_bids.settings.options import PERMUTE
from fcpower_bids.store import digest_of, load_json, replace_folder, stored_path

MODEL_REPRESENTATIONS = (FC, FC_POWER)
"""Representations of exportable models: features that follow from one connectome alone."""
ERROR, LEVEL = "pooled_mse", 0.9
FEWEST_SHOWN = 5
"""People below which a model has no numbers of a group: they would be those of single people."""
UNTESTED: dict[str, Any] = {"P": math.nan, "Permutations": 0.0, "OverPeople": math.nan}


class FinalModel(NamedTuple):
    """A model that can be handed on: arrays, and JSON-ready facts for its user."""

    arrays: ModelArrays
    facts: dict[str, Any]
    paths: frozenset[Path] = frozenset()  # the connectomes that it was fitted on; no file has them


# --- Intervals ------------------------------------------------------------------------------------------------------


def conformal_radius(residuals: ArrayLike, people: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Split-conformal radius of a scan of one more person, people weighing equally; (n,) each.

    With the coverage that it claims: the nominal one, or less where the people are too few for that.
    """
    size = np.abs(np.asarray(residuals, dtype=float))
    _, labels, counts = np.unique(np.asarray(people), return_inverse=True, return_counts=True)
    claimed = min(level, len(counts) / (len(counts) + 1))
    order = np.argsort(size, kind="stable")
    mass = np.cumsum((1 / ((len(counts) + 1) * counts[labels]))[order])
    # rounding of the sum must not push the quantile to the next residual
    place = int(np.searchsorted(mass, claimed * (1 - 1e-12)))
    return float(size[order][min(place, len(size) - 1)]), claimed


def measure_coverage(residuals: ArrayLike, people: ArrayLike, folds: ArrayLike, level: float = LEVEL) -> float:
    """Share of the members of a fold in the interval of the other folds, mean over folds; NaN for one fold."""
    values, members, labels = np.asarray(residuals, dtype=float), np.asarray(people), np.asarray(folds)
    parts = [part for part in (labels == fold for fold in np.unique(labels)) if not part.all()]
    limits = [conformal_radius(values[~part], members[~part], level)[0] for part in parts]
    held = [np.mean(np.abs(values[part]) <= limit) for part, limit in zip(parts, limits, strict=True)]
    return float(np.mean(held)) if held else math.nan


def interval_facts(residuals: pd.DataFrame) -> dict[str, Any]:
    """Radius of the interval, the coverage that it claims, and how often it held on the folds, each by the others.

    For two classes also how far from a class the score of 90 % of its members stays, and how often it did.
    """
    radius, claimed = conformal_radius(residuals["residual"], residuals["person"])
    coverage = measure_coverage(residuals["residual"], residuals["person"], residuals["fold"])
    facts: dict[str, Any] = {"HoldsFor": "a person like these, of the same site", "NominalCoverage": claimed}
    facts |= {"Radius": radius, "Scans": len(residuals), "MeasuredCoverage": coverage}
    for name, part in residuals.groupby("observed_class"):
        columns = part["residual"], part["person"]
        facts.setdefault("RadiusOfClasses", {})[str(name)] = conformal_radius(*columns)[0]
        facts.setdefault("CoverageOfClasses", {})[str(name)] = measure_coverage(*columns, part["fold"])
    return facts


# --- Skill ----------------------------------------------------------------------------------------------------------


def held_out_residuals(
    study: Study, fit: Callable[[FloatArray, Rows], ModelArrays], single: FloatArray, person: Rows, known: Rows
) -> tuple[pd.DataFrame, FloatArray]:
    """Predict every single scan, as a model is given later, by a model without its person and their relatives.

    `fit`: from targets (n,) and training rows to a model. `single` (n_scans, E): features of single scans, `person`
    (n_scans,): row of the person of each. `known`: people whose target is known. Returns one row per scan, which is not
    written (``guess`` is the error of the mean of the training people), and the similarity (n_scans,) of each scan to
    the training people of the fold that held it out.
    """
    built, target = join_target_builders(study.targets, study.people.covariates), study.targets[0]
    pair = (str(negative_class(study)), str(target.positive))
    parts, similarity = [], np.full(len(person), np.nan)
    for fold, test in enumerate(study.divide(known)):
        train, scans = np.setdiff1d(known, test), np.flatnonzero(np.isin(person, test))
        values = (built(train) if callable(built) else built)[:, 0]
        guesses, similarity[scans] = predict_from_arrays(fit(values, train), single[scans])
        observed, predicted = values[person[scans]], guesses[:, 0]
        part = pd.DataFrame({"fold": str(fold), "person": person[scans], "predicted": predicted, "observed": observed})
        part = part.assign(residual=predicted - observed, guess=values[train].mean() - observed)
        part["observed_class"] = [pair[int(high)] if target.is_binary else None for high in observed > 0.5]
        parts.append(part)
    return pd.concat(parts, ignore_index=True), similarity


def negative_class(study: Study) -> str | None:
    """The class that is coded as 0; None for a target of numbers."""
    target = study.targets[0]
    names = map(str, study.people.phenotypes[target.name].dropna()) if target.is_binary else ()
    return next((name for name in names if name != target.positive), None)


def tested_at_group_level(results: Path, target: str, representation: str) -> dict[str, Any]:
    """The corrected p of a model, its permutations and its score over held-out people; `UNTESTED` without a table."""
    path, baselines = find_table(results, SUMMARY.name), find_table(results, BASELINES)
    table = read_table(path) if path.is_file() else pd.DataFrame(columns=["target", "representation"])
    rows = table[(table["target"].astype(str) == target) & (table["representation"] == representation)]
    if rows.empty:
        return UNTESTED
    row = rows.iloc[0]
    score = "auc" if pd.notna(row["auc_pooled_mean"]) else "r"
    facts = {"P": row["p_max_targets"], "Permutations": row["n_permutations"]}
    within = row["ranked_by"] == WITHIN_MEAN  # of sites that are held out, as the p is
    facts |= {"OverPeople": row[f"{score}_{WITHIN_MEAN if within else POOLED_MEAN}"], "WithinSites": within}
    added = find_added(read_table(baselines), target, representation) if baselines.is_file() else None
    return facts | ({} if added is None else {"Beside": added.clause("the connectome")})


def judge_skill(tested: Mapping[str, Any], residuals: pd.DataFrame, score: str) -> dict[str, Any]:
    """Facts of a model about its skill: a test that finds it, and an error below that of the guess."""
    error, guess = (float((residuals[name] ** 2).mean() ** 0.5) for name in ("residual", "guess"))
    skilled = bool(tested["P"] < SIGNIFICANT and error < guess)
    return {**tested, "Found": skilled, "Score": score, "Error": error, "ErrorOfGuess": guess}


# --- The model ------------------------------------------------------------------------------------------------------


def fit_final_model(
    cohort: Cohort, settings: Settings, target: str, representation: str, tested: Mapping[str, Any] = UNTESTED
) -> FinalModel:
    """Fit one regression on everyone whose target is known, the penalty by the folds of the preset. Raises Unfit."""
    columns = settings.group.composites.get(target)
    wanted = f"{target}={','.join(columns)}" if columns else target
    # Of one target and one representation; the folds only serve to select the penalty.
    choices = {"targets": (wanted,), "representations": (representation,), "repeats": 1, "sites": PERMUTE}
    choices["stratify"] = False
    study = open_study(cohort, settings.changed(**choices))  # type: ignore[arg-type]
    people, preset, binary = study.people, study.preset, study.targets[0].is_binary
    if binary and preset.covariates:
        raise Unfit(
            f"A model of the two classes of '{target}' cannot be saved with covariates. Leave out --covariates, or "
            "--save-models."
        )
    chosen = next(study.representations())
    built = join_target_builders(study.targets, people.covariates)
    values = (built(np.arange(len(people.names))) if callable(built) else built)[:, 0]
    known = np.flatnonzero(~np.isnan(values))
    # The penalty that predicts best over as many folds as the inner loop has, families whole.
    solver = make_solver(chosen, preset)
    penalties = decades(solver.unit, range(-LAST_DECADE, LAST_DECADE + 1)) if solver.unit else solver.penalties
    # The score that selects: a correlation knows no scale, and here the numbers themselves are read.
    selection = settings.group.selection or (preset.selection if binary else ERROR)
    folds = study.divide(known)
    scores = score_penalties(solver, penalties, values[:, None], folds, selection)
    # A penalty of 0 interpolates the training people; it makes no model for others.
    penalty = float(penalties[best_penalty(np.where(penalties[:, None] > 0, scores, np.nan), penalties)[0]])
    features = np.asarray(chosen.features()[:], dtype=float)
    rows = np.concatenate([people.scans[person] for person in known])
    person, single = np.repeat(known, [len(people.scans[member]) for member in known]), chosen
    if any(len(scans) > 1 for scans in people.scans):
        names, groups = expand_names(study.cohort, study.settings), [np.array([row]) for row in rows]
        single = next(build_representations(study.cohort, groups, names, study.settings))
    scans = features[person] if single is chosen else np.asarray(single.features()[:], dtype=float)

    def fit(y: FloatArray, train: Rows) -> ModelArrays:
        return ridge_model_arrays(features[train], y[train], penalty, chosen.kernel, preset.intercept)

    residuals, similarity = held_out_residuals(study, fit, scans, person, known)
    arrays, observed, interval = fit(values, known), values[known], interval_facts(residuals)
    facts = _describe(study, known, rows) | {"Penalty": penalty, "Selection": selection}
    facts |= {"Interval": interval, "TargetRange": [0.0, 1.0]}
    if target in settings.group.classes:
        facts |= dict(zip(("CutColumn", "CutAt"), settings.group.classes[target], strict=True))
    if not binary:
        # a quantity of which no training person has a negative value ends at 0; a residual of covariates does not
        interval["Least"] = 0.0 if observed.min() >= 0 and not preset.covariates else None
        facts["TargetRange"] = list(_outwards(float(observed.min()), float(observed.max())))
    facts["Skill"] = judge_skill(tested, residuals, main_score(study.targets[0]))
    if len(rows) >= FEWEST_SHOWN:  # mean and SD over scans, rounded to the numbers of many
        facts["Similarity"] = [float(f"{value:.4g}") for value in (similarity.mean(), similarity.std(ddof=1))]
    return FinalModel(arrays, facts, frozenset(path for row in rows if cohort.paths for path in cohort.paths[row]))


def _describe(study: Study, known: NDArray[np.intp], rows: Rows) -> dict[str, Any]:

    def spread(values: pd.Series) -> list[float]:
        there = values.dropna()
        return list(_outwards(float(there.min()), float(there.max()))) if len(there) else []

    target, cohort, (representation,) = study.targets[0], study.cohort, study.settings.group.representations
    scans, times = cohort.scans.iloc[rows], [cohort.repetition_times[row] for row in rows if cohort.repetition_times]
    sites = {} if study.people.sites is None else pd.Series(study.people.sites[known]).value_counts()
    column = next((name for name in cohort.phenotypes if str(name).lower() == "age"), None)
    ages = pd.Series(dtype=float)
    for session in scans["session"].unique() if column is not None else ():  # all of them are trained on
        there = scans["session"] == session
        with suppress(DatasetError):  # nothing is known of it
            table = cohort.phenotypes_of(rows[there.to_numpy()])
            at_session = table.reindex(scans.loc[there, "participant_id"].astype(str))[column]
            ages = pd.concat([ages, pd.to_numeric(at_session, errors="coerce")])
    return {
        "Target": target.name,
        "PositiveClass": target.positive,
        "NegativeClass": negative_class(study),
        "CompositeOf": list(study.settings.group.composites.get(target.name, ())),
        "Covariates": list(study.preset.covariates),
        "Representation": representation,
        "Alpha": study.settings.method.alpha if representation == FC_POWER else 1.0,
        "Kernel": study.settings.group.kernel,
        "Preset": study.preset.name,
        "NumberOfPeople": int(known.size),
        "NumberOfScans": len(scans),
        "Sites": {str(name): int(n) for name, n in sites.items()},
        "AgeRange": spread(ages),
        "MeanFDRange": spread(scans["mean_fd"]),
        "RepetitionTimeRange": spread(pd.Series(times, dtype=float)),
        "SecondsRange": spread(scans["seconds"]),
        "Parcels": list(cohort.parcels),
        "ParcelsOfScans": len(cohort.all_parcels or cohort.parcels),
        "MissingValues": list(study.settings.group.missing_values),
        "Caution": "Predictions hold for people, scanners and preprocessing like those of the training cohort. "
        "The weights are a sum of the training scans: who has these gets the values of their people.",
    }


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Ends of a range on a round value beyond it: an exact extreme is the number of a single person."""
    if not high > low:
        return low, high
    tenth = (high - low) / 10
    power = 10.0 ** math.floor(math.log10(tenth))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= tenth * (1 - 1e-9))
    return round((math.ceil(low / step) - 1) * step, 10), round((math.floor(high / step) + 1) * step, 10)


FORMAT = "fcpower_bids model 11"
CARD, WEIGHTS = "model.json", "weights.npz"
RECOGNISED_BY, DECIMALS = 48, 2
"""Edges that identify scans: so many, with so few decimals, that no rounding of another machine changes them."""
WHERE = "Models are the folders of OUTPUT_DIR/group/models, made with --save-models."


def model_path(folder: Path, target: str, representation: str) -> Path:
    """Return where the model of a target is kept."""
    wanted = f"target-{target}_{representation}"
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", wanted).strip("-")
    digest = "" if stem == wanted.replace("_", "-") else f"-{hashlib.sha256(wanted.encode()).hexdigest()[:6]}"
    return folder / f"{stem}{digest}_model"


def save_model(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> Path:
    """Write a fitted model in one step: its arrays, and last ``model.json`` with the digests."""

    def fill(folder: Path) -> None:
        np.savez(folder / WEIGHTS, **arrays)  # type: ignore[arg-type]
        digests = {file.name: digest_of(file) for file in sorted(folder.iterdir())}
        card = {"Format": FORMAT, "SoftwareVersion": __version__, **plain(facts), "Digests": digests}
        write_json(folder / CARD, {**card, "Digests": {**digests, CARD: _digest_of(card)}})

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_folder(path, fill)
    return path


def load_model(path: Path) -> FinalModel:
    """Read a fitted model. Raises DatasetError."""
    if not (path / CARD).is_file():
        raise DatasetError(f"There is no model in {path}. {WHERE}")
    damaged = DatasetError(f"{path} is not a model of fcpower_bids, or it is damaged. {WHERE}")
    try:
        facts = load_json(path / CARD)
        if not isinstance(facts, dict) or facts.get("Format") != FORMAT:
            raise DatasetError(f"{path} is not a model that this version can read ({FORMAT} is needed).")
        digests: dict[str, str] = dict(facts.get("Digests") or {})
        if CARD not in digests:
            raise damaged
        facts["Digests"] = {name: digest for name, digest in digests.items() if name != CARD}
        computed = {name: digest_of(stored_path(path, name)) for name in facts["Digests"]}
    except (OSError, ValueError, TypeError) as error:
        raise damaged from error
    computed[CARD] = _digest_of(facts)
    if changed := [name for name, digest in digests.items() if computed[name] != digest]:
        raise DatasetError(f"{path}/{changed[0]} is not the file that was written with the model. Copy it again.")
    # these are the files as they were written: a failure from here on is a mistake of ours
    with np.load(path / WEIGHTS, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return FinalModel(arrays, facts)


def _digest_of(card: Mapping[str, Any]) -> str:
    """Digest of what ``model.json`` says, however it is laid out, its own digest apart."""
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()


def scan_digest(salt: str, edges: np.ndarray) -> str:
    """Digest of a connectome (E,): the same scan, under whatever name, has the same one in the same model."""
    return hashlib.sha256(salt.encode() + edges.tobytes()).hexdigest()[:16]


def telling_edges(matrix: np.ndarray, names: Sequence[str], parcels: Sequence[str]) -> np.ndarray:
    """Return some correlations of a connectome (P, P), rounded: scans differ in them, roundings of a scan do not.

    `names` of its rows; `parcels`: those of the model, in whose order the correlations are taken.
    """
    place = {name: row for row, name in enumerate(names)}
    rows = [place[name] for name in parcels if name in place]
    matrix = matrix[np.ix_(rows, rows)]
    edges = matrix[np.triu_indices(len(matrix), 1)]
    some = edges[np.linspace(0, len(edges) - 1, min(RECOGNISED_BY, len(edges))).astype(int)]
    return np.nan_to_num(np.round(some, DECIMALS), nan=9.0) + 0.0  # + 0.0: minus zero is zero


def save_models(cohort: Cohort, settings: Settings, attempts: Attempts) -> None:
    """Write a model of every target under every representation that follows from one connectome alone."""
    for target in (*cohort.targets, *settings.group.composites):
        for representation in (name for name in settings.group.representations if name in MODEL_REPRESENTATIONS):
            name = f"model of {target} from {representation}"
            there = "prediction" in attempts.done  # tables of this cohort, and not of an earlier one
            tested = tested_at_group_level(settings.results, target, representation) if there else UNTESTED
            path = attempts.run(name, partial(write_model, cohort, settings, target, representation, tested))
            if path is not None:
                say(f"Model: {path}", settings)


def refuse_without_skill(facts: Mapping[str, Any]) -> None:
    """Refuse a model without skill. Raises DatasetError."""
    if not facts["Skill"]["Found"]:
        tested = was_tested(facts["Skill"])
        remedy = "do not use it" if tested else "test it (--analyses prediction, --permutations 1000)"
        raise DatasetError(f"{say_skill(facts)}: {remedy}.")


def write_model(
    cohort: Cohort, settings: Settings, target: str, representation: str, tested: Mapping[str, Any]
) -> Path:
    """Fit a model of one target and write its folder. Raises Unfit, DatasetError."""
    path = model_path(settings.results / "models", target, representation)
    try:
        model = fit_final_model(cohort, settings, target, representation, tested)
        refuse_without_skill(model.facts)
    except FcPowerError:
        if path.is_dir():  # of other people, data or choices, as it could not be made now
            shutil.rmtree(path)
            say(f"{path}: the model of earlier data is removed, as none can be made now.", settings)
        raise
    used = [connectome for connectome in selected_of(settings).connectomes if connectome.path in model.paths]
    # The salt keeps digests of different models apart, and is the same when a model is made again.
    salt = hashlib.sha256(model.arrays["weights"].tobytes()).hexdigest()[:16]
    facts = {
        **model.facts,
        "Preprocessing": gather_preprocessing(used),
        "Salt": salt,
        "TrainingScans": sorted(
            scan_digest(salt, _telling(connectome.path, connectome.path.stat().st_mtime_ns, cohort.parcels))
            for connectome in used
        ),
    }
    return save_model(path, model.arrays, facts)


@cache
def _telling(path: Path, _changed: int, parcels: tuple[str, ...]) -> np.ndarray:
    """Read the 48 numbers that identify a scan, once for all models of a run."""
    return telling_edges(*read_connectome(path), parcels)
