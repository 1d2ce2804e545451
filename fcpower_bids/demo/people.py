"""The people of the demo: who they are, and the true connectome of each recording.

Log-covariances are drawn in the modes of a population connectome. A person deviates by the same amount in every
mode, strong or weak; a session disturbs the strongest modes alone. FC is dominated by the strongest modes, so it sees
the session; FC^alpha flattens the spectrum, so it sees the person. One factor moves a fixed pattern in the weaker
modes: the planted phenotypes depend on it, the null phenotype on nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fcpower_bids.core.arrays import FloatArray
from fcpower_bids.demo.design import DemoDesign
from fcpower_bids.imaging.atlas.builtin import N_PARCELS, PARCELS_PER_POSITION

# Chosen so that 24 people suffice: true identification and prediction are clearly better with FC^0.35 than with FC.
LOG_RANGE = 4.5
PERSON = 0.15
SESSION = 0.6
FACTOR = 2.5
STRONG_MODES = 8
SPARED_MODES = 4

LOADINGS = {"reasoning": 0.9, "memory": 0.85, "speed": 0.8, "vocabulary": 0.8, "attention": 0.75}
"""How much of the planted factor each measure of ``phenotype/cognition.tsv`` carries."""


@dataclass(frozen=True)
class Population:
    """Shared by all people: modes (P, P) in columns, their log-variances (P,), pattern of the factor (P, P)."""

    modes: FloatArray
    log_variances: FloatArray
    pattern: FloatArray


@dataclass(frozen=True)
class People:
    """One row per participant: the planted factor, and the columns of the two phenotype tables."""

    factor: FloatArray
    participants: dict[str, list[Any]]
    cognition: dict[str, list[Any]]


def draw_population(rng: np.random.Generator) -> Population:
    """Draw the shared modes: the same position and mirror-image parcels go together, the rest is chance."""
    parcel = np.arange(N_PARCELS)
    mirror = parcel % (N_PARCELS // 2)
    position = mirror // PARCELS_PER_POSITION
    blocks = 0.3 + 0.8 * np.equal.outer(position, position) + 0.5 * np.equal.outer(mirror, mirror)
    modes = np.linalg.eigh(blocks + 0.2 * _draw_symmetric(N_PARCELS, rng))[1][:, ::-1]
    # LAPACK is free to flip a mode; a fixed sign gives the same people on every machine.
    modes = modes * np.sign(modes[np.argmax(np.abs(modes), axis=0), parcel])
    pattern = _draw_symmetric(N_PARCELS, rng)
    pattern[:SPARED_MODES] = pattern[:, :SPARED_MODES] = 0.0
    return Population(modes, np.linspace(0.0, -LOG_RANGE, N_PARCELS), pattern / np.linalg.norm(pattern))


def draw_people(design: DemoDesign, rng: np.random.Generator) -> People:
    """Draw who takes part. The last third come as pairs of siblings, who share half of the factor's variance."""
    n_people = design.subjects
    first_sibling = n_people - 2 * (n_people // 6)
    person = np.arange(n_people)
    family = np.where(person < first_sibling, person, first_sibling + (person - first_sibling) // 2)
    own, shared = rng.standard_normal((2, n_people))
    factor = np.where(person < first_sibling, own, np.sqrt(0.5) * (own + shared[family]))
    if n_people > 2:
        factor = (factor - factor.mean()) / factor.std()
    participants: dict[str, list[Any]] = {
        "age": rng.integers(20, 70, n_people).tolist(),
        "sex": rng.choice(["F", "M"], n_people).tolist(),
        "site": rng.choice(["north", "south"], n_people).tolist(),
        "family_id": [f"F{number + 1:02d}" for number in family],
        "planted_score": _draw_measure(factor, 0.9, rng),
        "null_score": _draw_measure(factor, 0.0, rng),
    }
    cognition: dict[str, list[Any]] = {name: _draw_measure(factor, load, rng) for name, load in LOADINGS.items()}
    cognition["attention"][-1] = "n/a"
    return People(factor, participants, cognition)


def draw_person(rng: np.random.Generator) -> FloatArray:
    """Draw how one person deviates from the population, (P, P) in the basis of the modes."""
    return PERSON * _draw_symmetric(N_PARCELS, rng)


def draw_connectome(population: Population, person: FloatArray, factor: float, rng: np.random.Generator) -> FloatArray:
    """Draw the true correlation matrix of one recording of a person, shape (P, P)."""
    log_covariance = np.diag(population.log_variances) + person + FACTOR * factor * population.pattern
    log_covariance[:STRONG_MODES, :STRONG_MODES] += SESSION * _draw_symmetric(STRONG_MODES, rng)
    values, vectors = np.linalg.eigh(log_covariance)
    vectors = population.modes @ vectors
    covariance = (vectors * np.exp(values)) @ vectors.T
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def _draw_symmetric(size: int, rng: np.random.Generator) -> FloatArray:
    matrix = rng.standard_normal((size, size))
    return (matrix + matrix.T) / 2


def _draw_measure(factor: FloatArray, loading: float, rng: np.random.Generator) -> list[float]:
    """A score with mean 100 and standard deviation 15 that correlates with the factor as the loading says."""
    score = loading * factor + np.sqrt(1 - loading**2) * rng.standard_normal(len(factor))
    return np.round(100 + 15 * score, 2).tolist()
