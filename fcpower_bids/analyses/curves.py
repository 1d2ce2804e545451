"""Prediction and identification from fewer people and shorter scans."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcpower_bids.analyses.evaluate import compare, cross_validate, fold_scores, make_solver
from fcpower_bids.analyses.features import build_representations, expand_names, scans_without_features
from fcpower_bids.analyses.fingerprinting import can_identify, repeated_scans
from fcpower_bids.analyses.scan_parts import ScanLength, choose_minutes, length_facts, long_enough, shorten_scans
from fcpower_bids.analyses.study import Study, open_study, plan_scan_blocks
from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.core.differences import subject_bootstrap
from fcpower_bids.core.folds import Fold
from fcpower_bids.core.identification import Identification, identify, units_of
from fcpower_bids.core.krr import BlockRidge, Regression
from fcpower_bids.core.nested import NestedResult
from fcpower_bids.errors import NotInCohort, Unfit
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort, Looked, Table, tabulate
from fcpower_bids.settings import Settings

IDENTIFIED = (10, 25, 50, 100, 150, 200, 250, 300, 500, 1000, 2000, 5000)
"""People to identify, as far as there are."""
DRAWS = 20
"""Subsets of each size (the paper's Table "gridfp")."""
STREAM_OF_SUBSETS = 21
"""Last part of the seed of the subsets."""


IDENTIFICATION_CURVE_FACTS = {
    "Rule": (
        "Every scan looks for the most similar scan (Pearson correlation of the features) of the other session among "
        "the people of the subset who have both. Subsets are drawn from the seed; all people are one subset."
    ),
    "GainRule": (
        "People are the unit: the difference of each person's searches is averaged over the subsets that hold them, "
        "and people are resampled; p_greater = (1 + resamples of at most 0) / (1 + resamples). A t-test over subsets "
        "that share people, as in the paper, takes the same people for new evidence."
    ),
}


def identification_curves(
    cohort: Cohort, lengths: Sequence[ScanLength], settings: Settings, facts: dict[str, Any]
) -> dict[str, Table]:
    """Accuracy at every scan length, one similarity matrix each, for all numbers of people."""
    usable, seed = ~scans_without_features(cohort, expand_names(cohort, settings)), settings.method.random_seed
    rows, gains, most = [], [], 0
    for length in lengths:
        part = length.cohort
        scans = repeated_scans(part, usable[length.rows])
        persons, sessions = (part.scans[key].astype(str).to_numpy()[scans] for key in ("participant_id", "session"))
        families = plan_scan_blocks(part, persons, settings).families
        everyone = np.unique(persons)
        smaller = sorted({size for size in settings.group.sample_sizes or IDENTIFIED if 2 <= size < len(everyone)})
        subsets = {size: _draw(everyone, size, seed) for size in smaller} | {len(everyone): [everyone]}
        most = max(most, len(everyone))
        by_size: dict[int, dict[str, list[Identification]]] = {size: {} for size in subsets}
        groups = [np.array([row]) for row in scans]
        for representation in build_representations(part, groups, length.names, settings):
            similarity = representation.similarity()
            for size, drawn in subsets.items():
                kept = [np.flatnonzero(np.isin(persons, people)) for people in drawn]
                by_size[size][representation.name] = [
                    identify(similarity[np.ix_(members, members)], persons[members], sessions[members])
                    for members in kept
                ]
        for size, by_name in by_size.items():
            cell = {"n_people": size, "minutes": length.minutes, "part": length.part}
            rows += [
                {"representation": name, **cell, "draw": draw, "accuracy": result.accuracy, "chance": result.chance}
                for name, draws in by_name.items()
                for draw, result in enumerate(draws)
            ]
            gains += [
                {**cell, "representation": later, "reference": earlier}
                | compare_draws(by_name[later], by_name[earlier], seed, families)
                for earlier, later in combinations(by_name, 2)
            ]
    about = IDENTIFICATION_CURVE_FACTS | facts | {"NumberOfPeople": most, "Draws": DRAWS}
    about["Alpha"] = settings.method.alpha
    return tabulate(about, identification_curves=rows, identification_gains=gains)


def compare_draws(
    first: Sequence[Identification],
    second: Sequence[Identification],
    seed: int,
    families: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Compare two representations on the same subsets of people, with people, or families, as the unit."""
    differences = [later.credit - earlier.credit for later, earlier in zip(first, second, strict=True)]
    by_draw = np.array([difference.mean() for difference in differences])
    people = np.concatenate([draw.person for draw in first])
    names, numbers = np.unique(people, return_inverse=True)
    mean = np.bincount(numbers, np.concatenate(differences)) / np.bincount(numbers)
    low, high, draws = subject_bootstrap(mean, units_of(names, families), seed=seed)
    return {
        "mean_difference": float(by_draw.mean()),
        "sd_difference": float(by_draw.std(ddof=1)) if len(by_draw) > 1 else np.nan,
        "ci_low": float(low),
        "ci_high": float(high),
        "p_greater": float((1 + (draws <= 0).sum()) / (1 + len(draws))),
        "n_draws": len({frozenset(draw.person.tolist()) for draw in first}),
    }


def _draw(everyone: NDArray[Any], size: int, seed: int) -> list[NDArray[Any]]:
    """Subsets of one size."""
    orders = (np.random.default_rng((seed, draw, STREAM_OF_SUBSETS)) for draw in range(DRAWS))
    return [rng.permutation(everyone)[:size] for rng in orders]


SIZE_FACTS = {
    "SizeRule": (
        "Training people are left out inside the outer folds, the test people stay the same in every cell; the first n "
        "of one random order per fold train, drawn from the seed, the repeat and the fold, so sizes are nested."
    ),
    "GainRule": (
        "Corrected resampled t-test on per-fold scores with n_test/n_train of the cell: few training people and large "
        "test sets make it conservative. p_greater is one-sided; cells are not corrected for each other."
    ),
}


SUBSAMPLE_FACTS = {
    "SizeRule": (
        f"{DRAWS} random subsamples of the people, drawn from the seed, each with a cross-validation of its own: the "
        "repeat is the number of the subsample. Test sets shrink as training sets do. The last size is everyone, with "
        "the repeats of the study."
    ),
    "GainRule": SIZE_FACTS["GainRule"],
}


def _open(cohort: Cohort, settings: Settings) -> Study | None:
    """The study; None where there is nothing to predict, and people who can be identified all the same."""
    try:
        return open_study(cohort, settings)
    except NotInCohort as error:
        if can_identify(cohort) and not settings.group.targets:
            return None
        if len(cohort.phenotypes.columns):
            raise
        sentence = "Learning curves need phenotypes to predict, or two people with two sessions to identify."
        raise NotInCohort(sentence) from error


def analyse_learning_curves(cohort: Cohort, settings: Settings) -> Looked:
    """Repeat prediction and identification with fewer people and with shorter scans.

    Source: the paper, Figures "curves" and "duration", Tables "gridfull", "grid8m", "gridfp". Raises Unfit.
    """
    lengths = choose_minutes(cohort, settings.group.scan_minutes)
    study = _open(cohort, settings)
    if study is not None:
        choose_sizes(study)
    for kept in {rows.tobytes(): rows for rows in (long_enough(cohort, length) for length in lengths)}.values():
        part = cohort.keep(kept)
        if part is not cohort and study is not None:
            open_study(part, settings)
        if part is not cohort and can_identify(cohort):
            repeated_scans(part, np.ones(len(kept), bool))
    yield {}
    notes: list[str] = []
    parts = list(shorten_scans(cohort, lengths, settings, notes))
    facts = length_facts(cohort, lengths) | ({"Notes": list(dict.fromkeys(notes))} if notes else {})
    tables = prediction_curves(study, parts, facts) if study else {}
    if can_identify(cohort):
        tables |= identification_curves(cohort, parts, settings, facts)
    yield tables


def prediction_curves(study: Study, lengths: Sequence[ScanLength], facts: dict[str, Any]) -> dict[str, Table]:
    """Scores at every scan length, one kernel each, for all numbers of training people."""
    settings, everyone = study.settings, with_fewer(study)
    frames, gains = [], []
    for length in lengths:
        studies, people = everyone, study.people
        if len(length.cohort.scans) < len(study.cohort.scans):
            fewer = open_study(length.cohort, settings)
            studies, people = with_fewer(fewer, as_far=True), fewer.people
        results: dict[int, dict[str, NestedResult]] = {size: {} for size in studies}
        for representation in build_representations(length.cohort, people.scans, length.names, settings):
            solver = make_solver(representation, study.preset)
            kernel = representation.similarity() if representation.kernel == "correlation" else None
            label = f"{representation.name}, {length.minutes:.3g} min"
            for size in track(studies, f"learning curve of {label}", settings):
                results[size][representation.name] = cross_validate_smaller(solver, kernel, studies[size])
        for size, predictions in results.items():
            cell: dict[str, Any] = {"n_people": size, "minutes": length.minutes, "part": length.part}
            folds = fold_scores(studies[size], predictions)
            frames.append(folds.assign(**cell))
            gains.append(compare(folds, studies[size]).assign(**cell))
    about = study.facts() | (SUBSAMPLE_FACTS if settings.group.subsamples else SIZE_FACTS) | facts
    about |= {"Subsamples" if settings.group.subsamples else "TrainingPeople": list(everyone)}
    curves, differences = (pd.concat(parts, ignore_index=True) for parts in (frames, gains))
    return tabulate(about, learning_curves=curves, learning_gains=differences)


def with_fewer(study: Study, as_far: bool = False) -> dict[int, Study]:
    """The study with fewer people by their number, as in `choose_sizes`: fewer that train, or subsamples."""
    sizes, seed = choose_sizes(study, as_far), study.settings.method.random_seed
    if not study.settings.group.subsamples:
        return {size: dataclasses.replace(study, folds=shrink_folds(study.folds, size, seed)) for size in sizes}
    everyone = np.arange(len(study.people.names))
    subsamples = {size: _draw(everyone, size, seed) for size in sizes[:-1]}
    return {size: study.within(people) for size, people in subsamples.items()} | {sizes[-1]: study}


SIZES = (25, 50, 100, 150, 250, 350, 500, 700, 1000, 1500, 2000, 3500, 5000, 7500, 10000, 20000)
"""Training people, as far as the smallest training set goes."""
WORTH_A_BLOCK = 0.55
"""Share of the people who train, up to which decomposing their block of the kernel in every fold is cheaper."""
STREAM = 20
"""Last part of the seed of a fold's order of people, which no other random stream of the folds has."""


def choose_sizes(study: Study, as_far: bool = False) -> tuple[int, ...]:
    """Numbers of people who train, or of a subsample: those asked for, else `SIZES`, and at last all. Raises Unfit.

    All are called by the largest training set. `as_far`: those asked for are taken as far as there are people.
    """
    preset, asked = study.preset, study.settings.group.sample_sizes
    if study.settings.group.subsamples:
        if (
            study.settings.group.stratify
            or study.cohort.folds is not None
            or study.held_out
            or preset.splits != "random"
        ):
            raise Unfit(
                "subsamples draws random folds; it does not go with stratify, held-out sites, folds from a file, or "
                "the folds of CBIG."
            )
        least, n = 2 * preset.n_folds, len(study.people.names)
        for size in () if as_far else asked:
            if not least <= size <= n:
                raise Unfit(f"Subsamples of {size} people are not possible: give {least} (two for each fold) to {n}.")
        return (*(size for size in sorted(set(asked)) or SIZES if least <= size < n), n)
    sets = [fold.train.size for fold in study.folds]
    smallest, largest = min(sets), max(sets)
    least = 2 * max(len(fold.inner) for fold in study.folds)
    for size in () if as_far else asked:
        if not least <= size <= smallest:
            raise Unfit(
                f"{size} training people are not possible: the smallest training set has {smallest}, and the inner "
                f"folds need {least}."
            )
    if smallest < least:
        raise Unfit(
            f"The folds train on {smallest} people, which is fewer than two per inner fold ({least}); use fewer folds."
        )
    chosen = [size for size in asked or SIZES if least <= size < smallest + bool(asked)]
    return tuple(sorted({*chosen, largest}))


def shrink_folds(folds: Sequence[Fold], size: int, seed: int) -> tuple[Fold, ...]:
    """Keep some of the training people of every fold, and all of its test people.

    Each fold has one random order of its training people, drawn from ``(seed, repeat, fold)``; the first `size` train.
    A larger size therefore adds people to a smaller one. Families stay whole in the inner loop.
    """
    shrunk = []
    for fold in folds:
        if size < fold.train.size:
            # Drawn inner fold by inner fold in turn, so that no inner fold runs empty.
            rng = np.random.default_rng((seed, fold.repeat, fold.fold + 1, STREAM))
            turns = np.concatenate([np.arange(rows.size) for rows in fold.inner])
            orders = np.concatenate([rng.permutation(rows) for rows in fold.inner])
            ties = rng.permutation(turns.size)
            kept = np.sort(orders[np.lexsort((ties, turns))][:size])
            inner = tuple(rows[np.isin(rows, kept)] for rows in fold.inner)
            fold = dataclasses.replace(fold, train=kept, inner=tuple(rows for rows in inner if rows.size))
        shrunk.append(fold)
    return tuple(shrunk)


def cross_validate_smaller(solver: Regression, kernel: FloatArray | None, study: Study) -> NestedResult:
    """Predict all targets of a study whose folds train on some of the people. Shapes and units: kernel (n, n)."""
    size = max(fold.train.size for fold in study.folds)
    if kernel is not None and size <= WORTH_A_BLOCK * len(kernel):
        solver = BlockRidge(kernel, solver.penalties, study.preset.intercept, solver.unit, solver.notes)
    return cross_validate(solver, study)
