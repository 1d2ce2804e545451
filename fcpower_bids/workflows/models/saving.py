"""A cohort to the folder of a model: fitted, with how its connectomes were made and which scans it has seen."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cache
from pathlib import Path

import numpy as np

from fcpower_bids.analyses.models.calibration import RESIDUALS
from fcpower_bids.analyses.models.final_model import fit_final_model
from fcpower_bids.analyses.models.reference import REFERENCE
from fcpower_bids.cohort.feature_choice import choose_connectomes
from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.cohort.preprocessing import gather_preprocessing
from fcpower_bids.outputs.models import model_path, save_model, scan_digest, telling_edges
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.records import Cohort
from fcpower_bids.settings import Settings


def write_model(cohort: Cohort, settings: Settings, target: str, representation: str) -> Path:
    """Fit a model of one target and write its folder.

    Raises
    ------
    fcpower_bids.errors.Unfit
        As `fit_final_model`.
    """
    model = fit_final_model(cohort, settings, target, representation)
    places = set(zip(cohort.scans["participant_id"].astype(str), cohort.scans["session"].astype(str), strict=True))
    own = dataclasses.replace(settings, atlas=(cohort.atlas,))
    chosen, _ = choose_connectomes(list_connectomes(settings.output_dir), own)
    used = [one for one in chosen if (one.participant, one.session) in places]
    # The salt keeps digests of different models apart, and is the same when a model is made again.
    salt = hashlib.sha256(model.arrays["weights"].tobytes()).hexdigest()[:16]
    facts = {
        **model.facts,
        "Preprocessing": gather_preprocessing(used),
        "Salt": salt,
        "TrainingScans": sorted(scan_digest(salt, _telling(one.path, one.path.stat().st_mtime_ns)) for one in used),
    }
    path = model_path(settings.results / "models", target, representation)
    return save_model(path, model.arrays, facts, [(RESIDUALS, model.residuals), (REFERENCE, model.reference)])


@cache
def _telling(path: Path, _changed: int) -> np.ndarray:
    """Read what tells a scan from others once for all models of a run: 48 numbers."""
    return telling_edges(read_matrix(path)[0])
