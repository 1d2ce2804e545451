"""The connectomes of the participant level are found with all that lies beside them."""

from __future__ import annotations

import numpy as np

from fcpower_bids.cohort.features import list_connectomes
from fcpower_bids.outputs.names import QUALITY, TIMESERIES
from tests.planting.participant_outputs import ATLAS, add_embedding, add_output, other_atlas, recording, series_of


def test_a_connectome_knows_its_recording_its_atlas_and_what_lies_beside_it(tmp_path):
    path = add_output(tmp_path, "sub-01_ses-a_run-1_res-2", series_of(0), power="power0p5")
    add_embedding(tmp_path, "sub-01_ses-a_run-1_res-2", np.ones(3))
    (one,) = list_connectomes(tmp_path)
    assert one.path == path
    assert one.entities == recording("sub-01_ses-a_run-1_res-2").entities
    assert (one.participant, one.session, one.atlas_name) == ("sub-01", "ses-a", ATLAS.name)
    assert one.recording == recording("sub-01_ses-a_run-1_res-2").name
    assert one.powers == ("power0p5",)
    assert one.encoders == ("fbert1m",)
    assert one.beside(QUALITY).is_file()
    assert one.beside(TIMESERIES).is_file()
    assert one.facts["NuisanceStrategy"] == "24P"


def test_an_embedding_is_that_of_its_own_atlas_or_else_of_another(tmp_path):
    """Encoders have atlases of their own; what only one of them has belongs to the recording all the same."""
    other = other_atlas()
    for atlas in (ATLAS, other):
        add_output(tmp_path, "sub-01", series_of(0), atlas=atlas)
        add_embedding(tmp_path, "sub-01", np.ones(3), label="everywhere", under=atlas)
    add_embedding(tmp_path, "sub-01", np.ones(3), label="elsewhere", under=other_atlas("Zebra"))
    add_embedding(tmp_path, "sub-01", np.ones(3), label="elsewhere", under=other)
    add_embedding(tmp_path, "sub-02", np.ones(3), label="ofanother")
    for one in list_connectomes(tmp_path):
        assert one.encoders == ("elsewhere", "everywhere")
        assert f"_{one.atlas_name}_desc-everywhere_" in one.embedding("everywhere").name
        assert f"_{other.name}_desc-elsewhere_" in one.embedding("elsewhere").name
        assert one.embedding("elsewhere").is_file()


def test_they_are_sorted_and_sessions_are_optional(tmp_path):
    for name in ("sub-02", "sub-01_ses-b", "sub-01_ses-a"):
        add_output(tmp_path, name, series_of(1))
    found = [(one.participant, one.session) for one in list_connectomes(tmp_path)]
    assert found == [("sub-01", "ses-a"), ("sub-01", "ses-b"), ("sub-02", "n/a")]


def test_other_matrices_and_foreign_files_are_not_connectomes(tmp_path):
    path = add_output(tmp_path, "sub-01", series_of(0))
    for name in ("sub-01_notes.tsv", "sub-01_task-rest_stat-partialcorrelation_relmat.tsv", "README"):
        (path.parent / name).write_text("x")
    assert [one.path for one in list_connectomes(tmp_path)] == [path]
