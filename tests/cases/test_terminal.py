"""The last lines of a group run are its answer: every number in them is computed again from the series."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import KernelCenterer

from tests.cases.cohorts import PEOPLE, group, read, write_table

SESSIONS, PARCELS, PENALTY = ("a", "b"), 8, 0.1
UPPER = np.triu_indices(PARCELS, 1)
QUICK = ("--folds", 3, "--inner-folds", 2, "--repeats", 2, "--permutations", 39, "--nprocs", 1)
UNKNOWN, SHORT = PEOPLE[4], PEOPLE[7]
"""A person without the target, and one whose second scan has a minute where three are asked for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Series of people who mix their parcels in ways of their own; the first two go together as intelligence has it."""
    folder, random, rows = tmp_path_factory.mktemp("answers"), np.random.default_rng(3), []
    iq = np.round(random.standard_normal(len(PEOPLE)), 3)
    for person, value in zip(PEOPLE, iq, strict=True):
        mixture = np.eye(PARCELS) + 0.15 * random.standard_normal((PARCELS, PARCELS))
        for session in SESSIONS:
            series = random.standard_normal((30 if (person, session) == (SHORT, "b") else 150, PARCELS)) @ mixture
            series[:, 1] += 3 * np.tanh(2 * value) * series[:, 0]
            np.save(folder / f"{person}_{session}.npy", series)
            rows.append((person, session, f"{person}_{session}.npy", "series", 2.0))
    names = ["participant_id", "session_id", "path", "kind", "repetition_time"]
    pd.DataFrame(rows, columns=names).to_csv(folder / "list.tsv", sep="\t", index=False)
    known = np.where(np.array(PEOPLE) == UNKNOWN, np.nan, 1.0)
    noise, ill = np.round(random.standard_normal(len(PEOPLE)), 3), np.arange(len(PEOPLE)) % 2
    people = {"participant_id": PEOPLE, "iq": iq * known, "noise": noise * known, "ill": ill * known}
    write_table(folder / "bids" / "participants.tsv", **people)
    return folder


def correlations(folder, session):
    return {path.name[:7]: np.corrcoef(np.load(path), rowvar=False) for path in folder.glob(f"*_{session}.npy")}


def flatten(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.clip(values, 0, None) ** 0.35) @ vectors.T


KEYS = ["fc", "fc_power"]
OF = {"FC": np.copy, "FC^0.35": flatten}


def scores(folder, target, representation):
    """Score of all predictions of each repeat, by scikit-learn on the folds that the run wrote."""
    first, second = (correlations(folder, session) for session in SESSIONS)
    del second[SHORT]
    people = [person for person in PEOPLE if person != UNKNOWN]
    edges = []
    for person in people:
        scans = np.array([scan[person][UPPER] for scan in (first, second) if person in scan])
        matrix = np.eye(PARCELS)
        matrix[UPPER] = matrix.T[UPPER] = scans.mean(axis=0)  # as of one longer scan
        edges.append(OF[representation](matrix)[UPPER])
    kernel = np.corrcoef(edges)
    values = pd.read_csv(folder / "bids" / "participants.tsv", sep="\t", index_col=0)[target].loc[people].to_numpy()
    for _, repeat in read(folder, f"{target}/folds").groupby("repeat"):
        guess = np.full(len(people), np.nan)
        for _, part in repeat.groupby("fold"):
            role = part.set_index("participant_id")["role"].reindex(people)
            train, test = (np.flatnonzero(role == name) for name in ("train", "test"))
            level, centre = values[train].mean(), KernelCenterer().fit(kernel[np.ix_(train, train)])
            model = KernelRidge(alpha=PENALTY, kernel="precomputed")
            model.fit(centre.transform(kernel[np.ix_(train, train)]), values[train] - level)
            guess[test] = model.predict(centre.transform(kernel[np.ix_(test, train)])) + level
        yield roc_auc_score(values, guess) if target == "ill" else np.corrcoef(values, guess)[0, 1]


@pytest.mark.parametrize("target", ["iq", "ill"])
def test_the_last_lines_of_a_group_run_are_what_the_series_give(folder, target, capsys):
    words = ("--targets", target, "--penalties", PENALTY, "--name", target, "--min-time", 180)
    assert group(folder, *words, quick=QUICK) == 0
    lines = capsys.readouterr().err.splitlines()
    answer = re.compile(rf"{target}: (r|AUC) (-?\d\.\d\d) with (FC\S*), p = (\d\.\d+) \(.*below (\S+) in 95.*: (.*)")
    label, score, best, p, needed, verdict = next(match for line in lines if (match := answer.fullmatch(line))).groups()
    assert label == ("AUC" if target == "ill" else "r")
    every = {name: list(scores(folder, target, name)) for name in OF}
    own = dict(
        zip(OF, read(folder, f"{target}/prediction_summary").set_index("representation")["p_max"][KEYS], strict=True)
    )
    assert (
        min(every, key=lambda name: (own[name], -np.mean(every[name]))) == best
    )  # score and p are of one and the same
    assert float(score) == pytest.approx(np.mean(every[best]), abs=0.00501)
    null = read(folder, f"{target}/null").pivot(index="permutation", columns="representation", values="score")
    if target != "ill":
        np.testing.assert_allclose(null.loc[0, KEYS], [every[name][0] for name in OF], atol=1e-9)
        largest = null.max(axis=1)
        assert float(p) == pytest.approx((largest >= every[best][0] - 1e-12).mean(), abs=5e-4)
        assert float(needed) == pytest.approx(largest[1:].max(), abs=0.00501)
    assert (verdict == "predicted better than chance") == (float(p) < 0.05) == (target == "iq")

    first, second = (correlations(folder, session) for session in SESSIONS)
    del second[SHORT]
    for name, change in OF.items():
        (line,) = (line for line in lines if line.startswith(f"{name} finds the person in"))
        asked, known = ({person: change(scan)[UPPER] for person, scan in scans.items()} for scans in (first, second))
        both = [person for person in PEOPLE if person in asked and person in known]
        similarity = np.corrcoef([asked[each] for each in both], [known[each] for each in both])
        similarity = similarity[: len(both), len(both) :]
        hits = np.r_[similarity.argmax(axis=0), similarity.argmax(axis=1)] == np.tile(np.arange(len(both)), 2)
        share, searches, chance = re.search(r"in (\S+) % of (\d+) searches .*chance (\S+) %", line).groups()
        assert int(searches) == len(hits) == 58
        assert float(share) == pytest.approx(100 * hits.mean(), abs=0.501)
        assert float(chance) == pytest.approx(100 / len(both), abs=0.0501)
    assert "Left out: 1 recording, 1 value" in lines
    assert [line for line in lines if SHORT in line and "60 s are left" in line]
    assert lines[-1].endswith(f"Page: {folder / 'out' / f'group_{target}.html'}")
