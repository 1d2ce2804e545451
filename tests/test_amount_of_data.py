"""As much data of everybody: --equal-minutes through the command, against the series files."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from fcpower_bids.outputs.tables import read_matrix
from tests.command import main
from tests.planting.planted import TR, make_cohort
from tests.referee import ridge

PEOPLE = 14
SHORTEST = 80
ROLES = "test", "train"
QUICK = ["--replace", "--quiet", "--nprocs", "1", "--folds", "3", "--inner-folds", "2", "--repeats", "1"]
QUICK += ["--permutations", "0", "--min-time", "60"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """People with scans of 80 to 120 volumes; the first has two runs in session a, three of them one session."""
    cohort, series = make_cohort(tmp_path_factory.mktemp("amount"), PEOPLE)
    lengths = np.random.default_rng(0).integers(SHORTEST + 1, 121, 2 * PEOPLE)
    lengths[5] = SHORTEST
    for (person, session), each, length in zip(series, series.values(), lengths, strict=True):
        cohort.put(person, session, each[:length], mean_fd=0.1, degrees_of_freedom=length / 4)
    shutil.rmtree(cohort.out / "sub-001" / "ses-a")
    cohort.put(0, "a_run-1", series[0, "a"][:50], mean_fd=0.1)
    cohort.put(0, "a_run-2", series[0, "a"][50:], mean_fd=0.3)
    for person in (3, 8, 9):
        shutil.rmtree(cohort.out / f"sub-{person + 1:03d}" / "ses-b")
    return cohort


def run(cohort, *options, code=0):
    command = [cohort.bids, cohort.out, "group", *QUICK, "--targets", "score", *options]
    assert main([*map(str, command)]) == code


def written_series(cohort, person, session):
    """The stored runs of a scan put end to end, read from the files."""
    paths = sorted((cohort.out / person / session).rglob("*_stat-mean_timeseries.tsv"))
    return np.concatenate([read_matrix(path)[0] for path in paths])


def kernel_of_first_volumes(cohort, people, sessions, volumes):
    """Double loop: FC of the first volumes of every session, put end to end over sessions; correlation of edges."""
    rows = []
    for person in people:
        total, weight = 0.0, 0
        for session in sessions[person]:
            part = written_series(cohort, person, session)[:volumes]
            total, weight = total + (len(part) - 1) * np.corrcoef(part.T), weight + len(part) - 1
        rows.append((total / weight)[np.triu_indices(60, 1)])
    return np.corrcoef(rows)


def test_predictions_are_those_of_the_first_minutes_of_the_written_series(made):
    run(made, "--equal-minutes", "--analyses", "prediction", "--representations", "fc", "--penalties", "0.7")
    scans = made.table("scans")
    people = sorted(set(scans["participant_id"]))
    sessions = scans.groupby("participant_id")["session"].apply(list)
    shortest = min(len(written_series(made, one, session)) for one in people for session in sessions[one])
    assert shortest == SHORTEST
    assert (scans["volumes"] == shortest).all()
    assert (scans["seconds"] == shortest * TR).all()
    assert sessions.map(len).max() == 2
    kernel = kernel_of_first_volumes(made, people, sessions, shortest)
    target = made.phenotypes.set_index("participant_id")["score"][people].to_numpy()
    folds, expected = made.table("folds"), np.empty(len(people))
    for _, part in folds.groupby("fold"):
        test, train = (np.flatnonzero(np.isin(people, part["participant_id"][part["role"] == role])) for role in ROLES)
        expected[test] = ridge(kernel, target, train, test, 0.7)
    told = made.table("predictions").set_index("participant_id")["predicted"]
    np.testing.assert_allclose(told[people], expected, rtol=0, atol=1e-5)
    page = (made.out / "group.html").read_text()
    assert f"cut to {shortest * TR / 60:.2f} min" in page
    assert "People have 1 to 2 scans" in page


def test_cut_scans_are_no_finding_any_more(made):
    """The scores follow the length of the scans: named as they are, not when everybody has the same."""
    run(made, "--analyses", "check")
    before = made.phenotypes
    minutes = made.table("scans").groupby("participant_id")["seconds"].sum()
    made.phenotypes = before.assign(score=before["participant_id"].map(minutes).to_numpy() / 60)
    try:
        run(made, "--analyses", "check")
        found = made.table("check")
        assert "amount of data and target" in set(found["check"])
        assert found.loc[found["check"] == "amount of data and target", "remedy"].str.contains("--equal-minutes").all()
        run(made, "--analyses", "check", "--equal-minutes")
        assert "amount of data and target" not in set(made.table("check")["check"])
    finally:
        made.phenotypes = before


def test_degrees_of_freedom_shrink_with_the_scan(made):
    run(made, "--analyses", "check")
    before = made.table("scans").set_index(["participant_id", "session"])
    run(made, "--analyses", "check", "--equal-minutes")
    after = made.table("scans").set_index(["participant_id", "session"])
    expected = before["degrees_of_freedom"] * SHORTEST / before["volumes"]
    np.testing.assert_allclose(after["degrees_of_freedom"], expected)


def test_without_series_it_is_refused(made, tmp_path, capsys):
    shutil.copytree(made.root, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "out" / "group", ignore_errors=True)
    next((tmp_path / "copy" / "out" / "sub-002").rglob("*_timeseries.tsv")).unlink()
    command = [tmp_path / "copy" / "bids", tmp_path / "copy" / "out", "group", *QUICK, "--equal-minutes"]
    assert main([*map(str, command)]) == 3
    assert "--equal-minutes needs the cleaned series of every scan" in capsys.readouterr().err
    assert not (tmp_path / "copy" / "out" / "group").exists()
