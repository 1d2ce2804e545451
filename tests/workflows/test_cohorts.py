"""From written files to what the analyses are given: one cohort per atlas, and facts of the embeddings."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.analyses import ALL
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.workflows import group
from fcpower_bids.workflows.group import open_cohorts, run_group
from tests.command import parse_settings
from tests.planting.participant_outputs import add_embedding, add_output, make_outputs, other_atlas, series_of

QUICK = {"folds": 3, "inner_folds": 2, "repeats": 1, "quiet": True, "targets": ("age",), "nprocs": 1}
QUICK |= {"permutations": 5}


@pytest.fixture
def settings(tmp_path):
    """Eight people with two sessions under two atlases, and an embedding."""
    made = make_outputs(tmp_path, people=8)
    for person in range(8):
        for session in "ab":
            name, seed = f"sub-{person + 1:02d}_ses-{session}", 100 * person + ord(session)
            add_output(made.output_dir, name, series_of(seed + 7), atlas=other_atlas())
            facts = {"n_parameters": 42, "n_parcels": 6, "parcellation": "Toy"}
            add_embedding(made.output_dir, name, series_of(seed)[:3, 0], **facts)
    return made.changed(**QUICK)


def test_one_cohort_per_atlas_where_an_analysis_compares_them(settings):
    cohort, each = open_cohorts(settings.changed(analyses=("parcellation_sweep", "prediction")))
    assert list(each) == ["atlas-Other_scale-6", "atlas-Toy_scale-6"]
    np.testing.assert_array_equal(cohort.edges, each["atlas-Other_scale-6"].edges)
    assert not np.array_equal(each["atlas-Toy_scale-6"].edges, cohort.edges)
    cohort, each = open_cohorts(settings.changed(analyses=("parcellation_sweep",), atlas=("Toy", "Other")))
    assert list(each) == ["Toy", "Other"]
    np.testing.assert_array_equal(cohort.edges, each["Toy"].edges)
    with pytest.raises(DatasetError, match="several atlases"):
        open_cohorts(settings.changed(analyses=("prediction",)))


def test_the_sweep_is_written_and_an_impossible_one_is_refused(settings):
    assert run_group(settings.changed(analyses=("parcellation_sweep",))) == 0
    frame = read_table(settings.output_dir / "group" / "parcellation_sweep.tsv")
    assert set(frame["atlas"]) == {"atlas-Other_scale-6", "atlas-Toy_scale-6"}
    with pytest.raises(DatasetError, match="two parcellations or more"):
        run_group(settings.changed(analyses=("parcellation_sweep",), atlas=("Toy",)))


def test_all_leaves_out_what_the_cohort_does_not_allow_with_its_reason(settings, monkeypatch):
    described = dict.fromkeys(("transform_screen", "spectral_controls", "edges"), lambda *_: {})
    monkeypatch.setattr(group, "ANALYSES", {name: ANALYSES[name] for name in ANALYSES} | described)  # which take long
    chosen = parse_settings([str(settings.bids_dir), str(settings.output_dir), "group", "--analyses", ALL])
    assert chosen.group.analyses == (ALL,)
    assert run_group(settings.changed(analyses=(ALL,), atlas=("Toy",), session_label=("a",))) == 0
    folder = settings.output_dir / "group"
    left_out = read_table(folder / "left_out.tsv").set_index("analysis")["reason"]
    assert "two parcellations" in left_out["parcellation_sweep"]
    assert "two sessions" in left_out["fingerprinting"]
    assert not {"prediction", "learning_curves", "encoder_comparison"} & set(left_out.index)
    assert (folder / "learning_curves.tsv").is_file()
    assert (folder / "encoders.tsv").is_file()
    with pytest.raises(DatasetError, match="fingerprinting: "):
        run_group(settings.changed(analyses=("fingerprinting", ALL), atlas=("Toy",), session_label=("a",)))


def test_embeddings_with_statistics_of_a_file_bring_a_warning(settings):
    for person in range(8):
        for session in "ab":
            name = f"sub-{person + 1:02d}_ses-{session}"
            statistics = {"statistics": "read from the auxiliary files"}
            add_embedding(settings.output_dir, name, series_of(person)[:3, 0], label="brainlm111m", **statistics)
    cohort, _ = open_cohorts(settings.changed(atlas=("Toy",)))
    (note,) = (note for note in cohort.notes if "statistics" in note)
    assert "embedding 'brainlm111m' were read from the auxiliary files, which may be of people who are tested" in note


def test_encoders_of_other_atlases_stand_in_one_comparison(settings):
    """The cohort is of one atlas; an encoder that was fed another one is compared with it on the same people."""
    for person in range(8):
        for session in "ab":
            name, seed = f"sub-{person + 1:02d}_ses-{session}", 100 * person + ord(session)
            vector, facts = series_of(seed)[:3, 1], {"n_parcels": 100, "parcellation": "Schaefer100"}
            atlas = {"Atlas": {"Name": other_atlas().name}}
            add_embedding(settings.output_dir, name, vector, label="brainmass", under=other_atlas(), **facts, **atlas)
    chosen = settings.changed(atlas=("Toy",), analyses=("encoder_comparison",))
    assert run_group(chosen) == 0
    rows = read_table(settings.output_dir / "group" / "encoders.tsv")
    inputs = rows.drop_duplicates("representation").set_index("representation")["atlas"].to_dict()
    assert inputs["embedding:brainmass"] == "Schaefer100"
    assert inputs["embedding:fbert1m"] == "Toy"
    again = chosen.changed(analyses=("learning_curves",), encoder="brainmass", encoder_weights="nowhere")
    cohort, _ = open_cohorts(again)  # its series are not those of this atlas: nothing is loaded
    assert cohort.encoders == {}
    add_embedding(
        settings.output_dir, "sub-01_ses-a", series_of(1)[:3, 0], "brainmass", other_atlas(), Atlas={"Name": "atlas-X"}
    )
    with pytest.raises(DatasetError, match="different weights or were read differently"):
        open_cohorts(chosen)
