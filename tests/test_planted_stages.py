"""Faults planted in real series (37 people, two sessions), brought through a list, are named by the command."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.outputs.tables import read_table, write_table
from tests.command import main

pytestmark = pytest.mark.shared

PARCELS = 100
"""Of the 400: enough to know people, and cheap."""
SLOPE = "bprs_lm_slope"


@pytest.fixture(scope="module")
def scans(shared):
    """Series (234, 100) by person and session of everybody who was scanned twice."""
    stored = np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False)
    names = [tuple(key.split("_")) for key in stored.files]
    people = [person for person, _ in names]
    return {
        name: np.asarray(stored["_".join(name)][:, :PARCELS], dtype=float)
        for name in names
        if people.count(name[0]) == 2
    }


@pytest.fixture(scope="module")
def table(shared, scans):
    """One row per person."""
    rows = read_table(shared / "data" / "stages" / "participants.tsv").drop_duplicates("participant_id")
    return rows[rows["participant_id"].isin({person for person, _ in scans})][["participant_id", "site", SLOPE]]


@pytest.fixture
def check(tmp_path, capsys):
    """Write series, list and table, run the check; return the findings by check, and the pairs."""

    def run(scans, table, *options):
        np.savez(tmp_path / "series.npz", **{"_".join(name): series for name, series in scans.items()})
        about = {"path": "series.npz", "kind": "series", "atlas": "Schaefer", "repetition_time": 2.0, "mean_fd": 0.1}
        rows = [
            {
                "participant_id": person,
                "session_id": session.removeprefix("ses-"),
                "key": f"{person}_{session}",
                **about,
            }
            for person, session in scans
        ]
        write_table(tmp_path / "list.tsv", pd.DataFrame(rows))
        write_table(tmp_path / "bids" / "participants.tsv", table)
        command = [tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={tmp_path / 'list.tsv'}"]
        command += ["--targets", SLOPE, "--analyses", "check", "--nprocs", "1", *options]
        code = main([*map(str, command)])
        assert code == 0, capsys.readouterr().err
        found, pairs = (read_table(tmp_path / "out" / "group" / f"{name}.tsv") for name in ("check", "check_pairs"))
        return found.set_index("check"), pairs.set_index("verdict")

    return run


def of_session(scans, session):
    return sorted(name for name in scans if name[1] == session)


def without_global_signal(series):
    whole = series.mean(axis=1, keepdims=True)
    return series - whole @ (np.linalg.pinv(whole) @ series)


def test_real_people_as_they_are_raise_no_alarm(check, scans, table):
    found, pairs = check(scans, table)
    assert found[found["level"] != "note"].empty, found["finding"].tolist()
    assert pairs.empty


def test_every_fault_of_the_scans_is_named_among_real_people(check, scans, table):
    """Each fault is in people of its own: a copy, a copy of another preprocessing, an exchange, moved labels."""
    sessions = sorted({session for _, session in scans})
    people = [person for person, _ in of_session(scans, sessions[1])]
    planted, second = dict(scans), sessions[1]
    rounding = 1e-7 * np.random.default_rng(0).standard_normal(scans[people[0], second].shape)
    planted[people[1], second] = scans[people[0], sessions[0]] + rounding
    planted[people[3], second] = without_global_signal(scans[people[2], sessions[0]])[:200]
    planted[people[4], second], planted[people[5], second] = scans[people[5], second], scans[people[4], second]
    moved = people[6:12]
    for place, person in enumerate(moved):
        planted[person, second] = scans[moved[place - 1], second]
    found, pairs = check(planted, table)
    copies = {frozenset(pair) for pair in pairs.loc[["same scan"], ["participant_id", "other"]].to_numpy().tolist()}
    assert copies == {frozenset(people[0:2]), frozenset(people[2:4])}
    exchanged = pairs.loc[["swapped sessions"], "participant_id"]
    assert set(exchanged) == {people[4], people[5]}
    displaced = pairs.loc[["another name"]]
    displaced = displaced[displaced["session"] == second]
    wrong = [row for row in displaced.itertuples() if row.participant_id not in moved]
    assert not wrong
    assert len(displaced) >= len(moved) - 2
    for row in displaced.itertuples():
        assert row.other == moved[moved.index(row.participant_id) - 1]
    for name in ("same scan", "swapped sessions", "another name"):
        assert found.loc[name, "level"] == "alarm"
        assert found.loc[name, "consequence"]
        assert found.loc[name, "remedy"]


def test_every_fault_of_the_table_is_named_among_real_people(check, scans, table):
    """A code, a target made of sites, lost zeros, relatives whom nobody declared, and sites."""
    rng = np.random.default_rng(1)
    site = np.array([f"s{row % 4}" for row in range(len(table))])
    score = pd.Series(site).map({"s0": -2.0, "s1": 0.0, "s2": 1.0, "s3": 3.0}).to_numpy()
    coded = table[SLOPE].to_numpy(dtype=float).copy()
    coded[[1, 5, 9]] = -818
    spoiled = table.assign(
        participant_id=table["participant_id"].str.replace("sub-0*", "", regex=True),
        site=site,
        family=[f"F{row // 2}" for row in range(len(table))],
        by_site=score + rng.standard_normal(len(table)),
        **{SLOPE: coded},
    )
    found, _ = check(scans, spoiled, "--targets", SLOPE, "by_site")
    assert f"missing_values {SLOPE}=-818" in found.loc["repeated extreme value", "remedy"]
    assert "by_site" in found.loc["site and target", "finding"]
    assert found.loc["participant_id", "n"] == len(table)
    assert "--family-column family" in found.loc["families", "remedy"]
    assert "--site-column site" in found.loc["site", "remedy"]
