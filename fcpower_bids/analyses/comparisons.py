"""Two comparisons: encoders and connectivity, and parcellations; each on the same people and folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import (
    RULE,
    compare,
    comparison_facts,
    correct_within,
    describe_each,
    evaluate,
    fold_scores,
    pooled_scores,
)
from fcpower_bids.analyses.features import EMBEDDING, build_representations, expand_names, scans_without_features
from fcpower_bids.analyses.fingerprinting import can_identify, compare_pairs, repeated_scans
from fcpower_bids.analyses.study import open_study, plan_scan_blocks
from fcpower_bids.core.identification import identify
from fcpower_bids.errors import Unfit
from fcpower_bids.parallel import track
from fcpower_bids.records import Cohort, Looked, tabulate
from fcpower_bids.settings import Settings

IDENTIFICATION = "identification"
"""Value of the column of targets for the identification of people."""
NOT_KNOWN = "n/a"

FACTS = {
    "Probe": (
        "Ridge regression with a linear kernel on z-scored features (Preset.fit_transforms_on: whose), for every "
        "representation, on one set of folds and the people that all representations describe."
    ),
    "PooledAndPerFold": "Tests use the scores per fold; pooled scores are what the paper's Table 'bench' prints.",
    "IdentificationTest": (
        "Exact sign flips of the net number of searches that each person, or family of --family-column, wins under "
        "one of the two; the confidence limits resample these."
    ),
}


def analyse_encoders(cohort: Cohort, settings: Settings) -> Looked:
    """Compare representations as frozen features. Raises Unfit."""
    wanted = (*settings.group.representations, EMBEDDING) if cohort.embeddings else settings.group.representations
    settings = settings.changed(kernel="linear", representations=wanted)
    names = expand_names(cohort, settings)
    if len(names) < 2:
        raise Unfit("A comparison needs two representations or more; name them with --representations.")
    study = open_study(cohort, settings) if len(cohort.phenotypes.columns) else None
    if study is None and not can_identify(cohort):
        raise Unfit("A comparison needs phenotypes to predict, or two people with two sessions to identify.")
    yield {}
    summary: list[dict[str, Any]] = []
    pairs, folds = list[pd.DataFrame](), pd.DataFrame()
    if study:
        results = evaluate(study, study.representations())
        folds = fold_scores(study, results)
        scored = describe_each(study, folds, pooled_scores(study, results)).values()
        summary, pairs = [row | {"pooled": row["pooled_mean"]} for row in scored], [compare(folds, study)]
    facts = FACTS | (study.facts() if study else {})
    if can_identify(cohort):
        rows = repeated_scans(cohort, ~scans_without_features(cohort, names))
        persons, sessions = (cohort.scans[key].astype(str).to_numpy()[rows] for key in ("participant_id", "session"))
        blocks = plan_scan_blocks(cohort, persons, settings)
        each_scan = build_representations(cohort, [np.array([row]) for row in rows], names, settings)
        identified = {
            representation.name: identify(representation.similarity(), persons, sessions)
            for representation in track(each_scan, "identification", settings, len(names))
        }
        about = {"target": IDENTIFICATION, "score": "accuracy"}
        summary += [
            {**about, "representation": name, "pooled": result.accuracy, "fold_sd": result.interval(blocks.families)[0]}
            | {"n_scored": len(result.credit)}
            for name, result in identified.items()
        ]
        renamed = {"difference": "mean_difference", "p_people": "p_two_sided"}
        compared = pd.DataFrame(compare_pairs(identified, settings, blocks.families)).rename(columns=renamed)
        pairs.append(correct_within(compared.assign(**about), ["target"]))
    inputs = {name: describe_input(name, cohort) for name in names}
    tables = tabulate(
        facts,
        encoders=[inputs[row["representation"]] | row for row in summary],
        encoder_comparisons=pd.concat(pairs, ignore_index=True),
    )
    yield tables | (tabulate(facts, encoder_folds=folds) if study else {})


def describe_input(name: str, cohort: Cohort) -> dict[str, Any]:
    """Input of a representation, from the sidecars of embeddings; ``n/a`` where they lack it."""
    row: dict[str, Any] = {"representation": name, "minutes": float(np.median(cohort.scans["seconds"])) / 60}
    kind, _, label = name.partition(":")
    if kind != EMBEDDING:
        n = len(cohort.parcels)
        return row | {"params": n * (n - 1) // 2, "parcels": n, "atlas": NOT_KNOWN, "scan": "full"}
    facts: Mapping[str, Any] = cohort.embedding_facts.get(label, {})
    keys = {"params": "n_parameters", "parcels": "n_parcels", "atlas": "parcellation", "scan": "read"}
    return row | {column: facts.get(key) or NOT_KNOWN for column, key in keys.items()}


# --- Parcellations ----------------------------------------------------------------------------------------------------

PARCELLATION_FACTS = {"Rule": RULE, "People": "The people and scans that every parcellation has, on one set of folds."}


def _share(cohorts: Mapping[str, Cohort], settings: Settings) -> tuple[dict[str, Cohort], Settings]:
    """Return the scans that every parcellation has, and the choices without embeddings."""
    if len(cohorts) < 2:
        raise Unfit(
            f"The sweep needs two parcellations or more, and there is {', '.join(cohorts) or 'none'}; run the "
            "participant level with several names after --atlas."
        )
    names = tuple(name for name in settings.group.representations if EMBEDDING not in name)
    if not names:
        raise Unfit("The sweep compares connectomes; add fc or fc_power to --representations.")
    keys = {
        atlas: pd.MultiIndex.from_frame(cohort.scans[["participant_id", "session"]].astype(str))
        for atlas, cohort in cohorts.items()
    }
    common = set.intersection(*(set(key) for key in keys.values()))
    if not common:
        raise Unfit(f"No scan is described by all of the parcellations {', '.join(cohorts)}.")
    shared = {atlas: cohort.keep(np.flatnonzero(keys[atlas].isin(common))) for atlas, cohort in cohorts.items()}
    return shared, settings.changed(representations=names)


def analyse_parcellations(cohorts: Mapping[str, Cohort], settings: Settings) -> Looked:
    """Predict under every parcellation (Table "mainfull", Appendix "AOMIC parcellation sweep"). Raises Unfit."""
    shared, settings = _share(cohorts, settings)
    studies = {atlas: open_study(cohort, settings) for atlas, cohort in shared.items()}
    first = next(iter(studies.values()))
    for atlas, study in studies.items():
        if first.people.names != study.people.names:
            raise Unfit(f"The people of {atlas} have other phenotypes than those of the first parcellation.")
    yield {}
    frames, gains, facts = [], [], dict[str, Any]()
    for atlas, study in studies.items():
        facts |= study.facts() | comparison_facts(study)
        folds = fold_scores(study, evaluate(study, study.representations(), f"{atlas}, {{}}"))
        size = {"n_parcels": len(study.cohort.parcels), "n_people": len(study.people.names)}
        frames.append(folds.assign(atlas=atlas, **size))
        gains.append(compare(folds, study).assign(atlas=atlas))
    frame = pd.concat(frames, ignore_index=True)
    atlases = [
        compare(part, first, column="atlas").rename(columns={"representation": "atlas"}).assign(representation=name)
        for name, part in frame.groupby("representation", sort=False)
    ]
    yield tabulate(
        facts | PARCELLATION_FACTS,
        parcellation_sweep=frame,
        parcellation_gains=pd.concat(gains, ignore_index=True),
        parcellation_comparisons=pd.concat(atlases, ignore_index=True),
    )
