"""Prediction under several parcellations: the same people on the same folds, so that only the parcels differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fcpower_bids.analyses.evaluate import RULE, compare, comparison_facts, evaluate, fold_scores
from fcpower_bids.analyses.features import EMBEDDING
from fcpower_bids.analyses.study import Study, open_study
from fcpower_bids.errors import Unfit
from fcpower_bids.records import Cohort, Table, tabulate
from fcpower_bids.settings import Settings

FACTS = {"Rule": RULE, "People": "The people and scans that every parcellation has, on one set of folds."}


def prepare(cohorts: Mapping[str, Cohort], settings: Settings) -> None:
    """Refuse a single parcellation, parcellations without a scan in common, and what allows no prediction."""
    shared, settings = _share(cohorts, settings)
    for cohort in shared.values():
        open_study(cohort, settings)


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


def analyse_parcellations(cohorts: Mapping[str, Cohort], settings: Settings) -> dict[str, Table]:
    """Predict under every parcellation (Table "mainfull", Appendix "AOMIC parcellation sweep"). Raises Unfit."""
    shared, settings = _share(cohorts, settings)
    first: Study | None = None
    frames, gains, facts = [], [], dict[str, Any]()
    for atlas, cohort in shared.items():
        study = open_study(cohort, settings)
        first = first or study
        if first.people.names != study.people.names:
            raise Unfit(f"The people of {atlas} have other phenotypes than those of the first parcellation.")
        facts |= study.facts() | comparison_facts(study)
        folds = fold_scores(study, evaluate(study, study.representations(), f"{atlas}, {{}}"))
        size = {"n_parcels": len(cohort.parcels), "n_people": len(study.people.names)}
        frames.append(folds.assign(atlas=atlas, **size))
        gains.append(compare(folds, study).assign(atlas=atlas))
    frame = pd.concat(frames, ignore_index=True)
    assert first is not None
    atlases = [
        compare(part, first, column="atlas").rename(columns={"representation": "atlas"}).assign(representation=name)
        for name, part in frame.groupby("representation", sort=False)
    ]
    return tabulate(
        facts | FACTS,
        parcellation_sweep=frame,
        parcellation_gains=pd.concat(gains, ignore_index=True),
        parcellation_comparisons=pd.concat(atlases, ignore_index=True),
    )
