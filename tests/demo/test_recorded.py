"""Series of real people in `examples/stages`: as they are, painted into voxels, and through both levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.doors.ways_on import table

STAGES = Path(__file__).parents[2] / "examples" / "stages"
UPPER = np.triu_indices(400, 1)
ALPHA = 0.35


@pytest.fixture(scope="module")
def series():
    with np.load(STAGES / "series.npz", allow_pickle=False) as archive:
        return {key: archive[key].astype(float) for key in archive.files if key != "parcels"}


def identification(features):
    """Mean of both directions; ``features`` by scan."""
    people = sorted({key.split("_")[0] for key in features})
    first, second = (np.array([features[f"{one}_{day}"] for one in people]) for day in ("ses-1", "ses-2"))
    across = np.corrcoef(first, second)[: len(people), len(people) :]
    return np.mean([across.argmax(axis=axis) == np.arange(len(people)) for axis in (0, 1)])


def test_the_series_are_those_of_the_source(shared, series):
    with np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False) as source:
        assert len(series) == 74
        for key, values in series.items():
            own = source[key][:, :400].astype(float)
            standard = (own - own.mean(axis=0)) / own.std(axis=0)
            np.testing.assert_allclose(values / 1000, standard, atol=0.00051)
        twice = {key.split("_")[0] for key in source.files if key.endswith("ses-2")}
    assert {key.split("_")[0] for key in series} == twice


def test_the_people_are_those_of_the_source(shared):
    own, source = table(STAGES / "participants.tsv"), table(shared / "data" / "stages" / "participants.tsv")
    there = source.drop_duplicates("participant_id").set_index("participant_id").loc[own["participant_id"]]
    assert there[own.columns[1:]].reset_index(drop=True).equals(own[own.columns[1:]])
