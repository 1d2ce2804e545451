"""How connectomes were made, from their sidecars, and what differs between those of a model and a new one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fcpower_bids.cohort.features import Connectome
from fcpower_bids.cohort.inclusion import read_quality

GRAVE = ("atlas", "nuisance strategy", "band")
"""Preprocessing that changes the numbers of a brain: a model is applied across these only on request."""
NAMED = ("space", "censoring threshold")


def preprocessing_of(one: Connectome) -> dict[str, str]:
    """Describe how a connectome was made; facts missing from its sidecar are ``unknown``."""
    facts = one.facts
    band = facts.get("SoftwareFilters")
    return {
        "atlas": one.atlas_name,
        "nuisance strategy": str(facts.get("NuisanceStrategy", "unknown")),
        "band": _band(band) if isinstance(band, Mapping) else str(band or "none"),
        "space": one.space,
        "censoring threshold": str(facts.get("CensoringThresholdMillimetres", "none")),
    }


def _band(filters: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {_choices(how)}" for name, how in sorted(filters.items())) or "none"


def _choices(how: Any) -> str:
    """``(high pass 0.01 Hz, low pass 0.08 Hz, order 2, ...)``."""
    if not isinstance(how, Mapping):
        return f"({how})"
    limits = {"HighPassHz": "high pass", "LowPassHz": "low pass"}
    words = []
    for key, value in sorted(how.items()):
        name = limits.get(key, key.lower())
        words.append(f"no {name}" if value is None else f"{name} {value}{' Hz' if key in limits else ''}")
    return f"({', '.join(words)})"


def gather_preprocessing(those: Iterable[Connectome]) -> dict[str, list[str]]:
    """Return all ways in which connectomes were made, by what differs."""
    found: dict[str, set[str]] = {name: set() for name in (*GRAVE, *NAMED)}
    for one in those:
        for name, value in preprocessing_of(one).items():
            found[name].add(value)
    return {name: sorted(values) for name, values in found.items()}


def differences(one: Connectome, of_model: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return differences from the connectomes of a model: those that change numbers, and those only worth naming."""
    own = preprocessing_of(one)
    unlike = {
        name: f"{name} {own[name]}, the model's {' or '.join(of_model[name])}"
        for name in own
        if of_model.get(name) and own[name] not in of_model[name]
    }
    return [unlike[name] for name in GRAVE if name in unlike], [unlike[name] for name in NAMED if name in unlike]


def repetition_time(one: Connectome) -> float:
    """Seconds between volumes, NaN where not known."""
    quality = read_quality(one)
    return round(quality.seconds / quality.volumes, 9) if quality.volumes > 0 else math.nan
