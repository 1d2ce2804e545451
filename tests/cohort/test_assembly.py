"""The cohort as a whole: what the files say, in arrays, with every loss on record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cohort.assembly import load_cohort
from fcpower_bids.core.connectome.connectivity import pearson_connectivity
from fcpower_bids.core.connectome.edges import vectorise_edges
from fcpower_bids.demo.dataset import make_dataset
from fcpower_bids.demo.signals import DemoDesign
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.settings import Settings
from tests.command import main
from tests.planting.participant_outputs import (
    PARCELS,
    P,
    add_output,
    make_outputs,
    other_atlas,
    series_of,
    write_participants,
)


def edges_of(series):
    return vectorise_edges(pearson_connectivity(series), weighted=False)


def rows_of(cohort, what):
    table = cohort.excluded[cohort.excluded["what"] == what]
    return list(table[["participant_id", "session", "reason"]].itertuples(index=False, name=None))


def test_arrays_and_tables_say_what_the_files_say(tmp_path):
    settings = make_outputs(tmp_path)
    cohort = load_cohort(settings)
    assert list(cohort.scans["participant_id"]) == [f"sub-{i + 1:02d}" for i in range(6) for _ in "ab"]
    assert list(cohort.scans["session"]) == ["ses-a", "ses-b"] * 6
    expected = [edges_of(series_of(100 * i + ord(s))) for i in range(6) for s in "ab"]
    np.testing.assert_array_equal(cohort.edges, expected)
    assert cohort.parcels == PARCELS
    assert cohort.networks == ("Vis", "Vis", "Som", "Som", "n/a", "n/a")
    assert cohort.phenotypes["age"].tolist() == [20.0, 21.0, 22.0, 23.0, 24.0, 25.0]
    assert cohort.targets == ("age",)
    assert cohort.excluded.empty
    assert cohort.repetition_times == (2.0,) * 12
    np.testing.assert_array_equal(cohort.series[3]()[0], series_of(100 + ord("b")))


def test_the_second_time_gives_the_same_bits(tmp_path):
    settings = make_outputs(tmp_path, people=3)
    add_output(settings.output_dir, "sub-01_ses-a_task-rest", series_of(5, missing=(1,)))
    first, second = load_cohort(settings), load_cohort(settings)
    np.testing.assert_array_equal(first.edges, second.edges)
    pd.testing.assert_frame_equal(first.excluded, second.excluded)


def test_every_loss_is_on_record_and_nothing_is_filled_in(tmp_path):
    settings = make_outputs(tmp_path, people=8)
    out = settings.output_dir
    add_output(out, "sub-01_ses-a", series_of(900), mean_fd=0.9)
    add_output(out, "sub-02_ses-a", series_of(901, missing=(0, 1, 2)))
    add_output(out, "sub-03_ses-a", series_of(902, missing=(5,)))
    add_output(out, "sub-04_ses-b", series_of(100 * 4 + ord("a")))
    listed = tmp_path / "out_of_it.tsv"
    listed.write_text("participant_id\treason\nsub-08\tWithdrew\n")
    write_participants(settings.bids_dir / "participants.tsv", 9, score=[1, 2, -9999, 4, 5, 6, None, 8, 9])
    choices = {"max_mean_fd": 0.5, "drop_people_missing": 0.3, "exclude_file": listed, "targets": ("score",)}
    cohort = load_cohort(replace(settings, **choices))
    left_out = {(person, session) for person, session, _ in rows_of(cohort, "recording")}
    twins = {("sub-05", "ses-a"), ("sub-04", "ses-b")}
    assert left_out == {("sub-01", "ses-a"), ("sub-02", "ses-a"), ("sub-08", "ses-a"), ("sub-08", "ses-b")} | twins
    kept = set(zip(cohort.scans["participant_id"], cohort.scans["session"], strict=True))
    assert kept.isdisjoint(left_out)
    assert len(kept) == len(cohort.edges) == 10
    assert cohort.parcels == PARCELS[:5]
    assert rows_of(cohort, "parcel")[0][2].startswith("LH_f: ")
    assert np.isfinite(cohort.edges).all()
    assert [row[0] for row in rows_of(cohort, "person")] == ["sub-08", "sub-09"]
    assert rows_of(cohort, "value") == [
        ("sub-03", "n/a", "participants.tsv: score = -9999 read as missing"),
        ("sub-03", "n/a", "missing: score"),
        ("sub-07", "n/a", "missing: score"),
    ]
    assert np.isnan(cohort.phenotypes.loc["sub-03", "score"])


def test_without_any_phenotype_table_there_is_still_a_cohort(tmp_path):
    settings = make_outputs(tmp_path, people=2)
    (settings.bids_dir / "participants.tsv").unlink()
    cohort = load_cohort(settings)
    assert cohort.phenotypes.empty
    assert cohort.targets == ()
    assert cohort.excluded.empty


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"targets": ("agge",)}, r"column 'agge'. Did you mean 'age'"),
        ({"targets": ("site",)}, r"target 'site' is constant"),
        ({"site_column": "center"}, r"column 'center'"),
        ({"max_mean_fd": 0.01}, r"No recording of .* is left after 12 exclusions, such as .*--max-mean-fd 0.01 mm"),
        ({"task_id": ("nback",)}, r"--task-id nback"),
        ({"atlas": ("Glasser",)}, r"no FC of --atlas Glasser"),
    ],
)
def test_bad_choices_are_one_sentence_and_write_nothing(tmp_path, choices, words):
    settings = replace(make_outputs(tmp_path), **choices)
    with pytest.raises(DatasetError, match=words) as caught:
        load_cohort(settings)
    assert caught.value.exit_code == 3
    assert len(str(caught.value).splitlines()) == 1
    assert not settings.work.exists()


def test_mixed_parcels_and_strangers_are_told(tmp_path):
    settings = make_outputs(tmp_path)
    write_participants(settings.bids_dir / "participants.tsv", 1, participant_id=["NDAR1"])
    with pytest.raises(DatasetError, match=r"such as sub-NDAR1\) has scans \(such as sub-01\)"):
        load_cohort(settings)
    (settings.bids_dir / "participants.tsv").unlink()
    add_output(settings.output_dir, "sub-06_ses-b", series_of(1), atlas=other_atlas("Toy", tuple("uvwxyz")))
    with pytest.raises(DatasetError, match=r"parcels differ between people: .*sub-06"):
        load_cohort(settings)
    assert not list(settings.output_dir.glob("work/**/*.npy"))


def test_parcels_are_those_of_the_kept_scans(tmp_path):
    settings = make_outputs(tmp_path, people=4)
    for name, missing in (("sub-01_ses-a", (0,)), ("sub-02_ses-a", (0,)), ("sub-03_ses-a", (3,))):
        add_output(settings.output_dir, name, series_of(1000 + int(name[5]), missing=missing))
    cohort = load_cohort(replace(settings, drop_parcels_missing_in=0.2, drop_people_missing=0.0))
    assert cohort.parcels == PARCELS[1:]
    assert ("sub-03", "ses-a") not in set(zip(cohort.scans["participant_id"], cohort.scans["session"], strict=True))
    assert cohort.edges.shape == (7, (P - 1) * (P - 2) // 2)
    np.testing.assert_array_equal(cohort.edges[0], edges_of(series_of(1001, missing=(0,))[:, 1:]))


def test_what_the_application_wrote_is_a_cohort(tmp_path, monkeypatch):
    """From BOLD files to arrays, through the command line."""
    bids, out = tmp_path / "bids", tmp_path / "out"
    truth = make_dataset(bids, DemoDesign.tiny(sessions=1))
    monkeypatch.setattr("fcpower_bids.workflows.participant._report", lambda *_, **__: None)
    assert main([str(bids), str(out), "participant", "--atlas", "builtin", "--nprocs", "1", "-q"]) == 0
    cohort = load_cohort(Settings(bids, out, "group", min_time=60.0))
    assert cohort.scans["participant_id"].tolist() == ["sub-01", "sub-02"]
    assert cohort.edges.shape == (2, 60 * 59 // 2)
    (path,) = out.glob("sub-02/ses-a/func/*_stat-pearsoncorrelation_relmat.tsv")
    np.testing.assert_array_equal(cohort.edges[1], vectorise_edges(read_matrix(path)[0], weighted=False))
    np.testing.assert_allclose(edges_of(cohort.series[1]()[0]), cohort.edges[1], atol=1e-12)
    truly = vectorise_edges(truth.connectivity[1], weighted=False)
    assert np.corrcoef(truly, cohort.edges[1])[0, 1] > 0.5
    assert set(cohort.targets) >= {"age", "planted_score", "null_score"}
    assert len(set(cohort.networks)) == 6
