"""What the sidecars of the embeddings say: the size of the encoder, its parcels, and how it read the recordings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fcpower_bids.derivatives.feature_choice import choose_connectomes
from fcpower_bids.derivatives.features import list_connectomes
from fcpower_bids.derivatives.tables import read_json
from fcpower_bids.settings import Settings

OWN_ATLAS = "OfTheAtlasOfTheCohort"


def read_embedding_facts(labels: Collection[str], settings: Settings) -> dict[str, dict[str, Any]]:
    """Read the first sidecar of every embedding of the cohort; `load_cohort` has checked that the others agree.

    Parameters
    ----------
    labels : collection of str
        Names of the embeddings.
    settings : Settings
        The selection of the cohort.

    Returns
    -------
    dict of str to dict
        Labels without any sidecar are missing. `OWN_ATLAS` says whether the parcels are those of the cohort.
    """
    facts: dict[str, dict[str, Any]] = {}
    if not labels:
        return facts
    for one in choose_connectomes(list_connectomes(settings.output_dir), settings)[0]:
        for label in set(one.encoders) & set(labels) - set(facts):
            sidecar = one.embedding(label).with_suffix(".json")
            if sidecar.is_file():
                facts[label] = {**read_json(sidecar), OWN_ATLAS: dict(one.embeddings)[label] == one.atlas}
    return facts
