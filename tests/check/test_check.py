"""Sound cohorts are not accused, and what misleads is named."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.check import columns as recognition
from fcpower_bids.check.check import check_cohort
from fcpower_bids.check.pairs import build_similarity
from fcpower_bids.core.duplicates import recognise_groups
from tests.analyses.cohorts import choose
from tests.check.cohorts import in_memory
from tests.doors.ways_on import run, table
from tests.planting.planted import draw_series


def test_twenty_sound_cohorts_are_not_accused():
    accused = 0
    for seed in range(20):
        settings = choose(targets=("age", "score", "patient"), nprocs=1)
        tables, _ = check_cohort(in_memory(draw_series(16, seed=seed), seed), settings)
        accused += bool((tables["check"].frame["level"] != "note").any())
    assert accused <= 1


def test_of_a_large_cohort_some_people_say_whether_sites_are_told(monkeypatch):
    drawn = draw_series(24, "a")
    artefact = np.random.default_rng(0).standard_normal((120, 1)) @ np.random.default_rng(1).standard_normal((1, 60))
    cohort = in_memory({key: series + 0.5 * (key[0] % 2) * series.std() * artefact for key, series in drawn.items()})
    cohort.phenotypes["site"] = ["one", "two"] * 12
    kernel = build_similarity(cohort, choose())
    (everyone,) = recognition.check_recognition(cohort, kernel, choose(site_column="site"))
    assert everyone.n == 24
    assert "drawn" not in everyone.finding
    monkeypatch.setattr(recognition, "MOST_PEOPLE", 20)
    (some,) = recognition.check_recognition(cohort, kernel, choose(site_column="site"))
    rows = np.sort(np.random.default_rng(choose().random_seed).choice(24, 20, replace=False))
    expected = recognise_groups(kernel[np.ix_(rows, rows)], np.array(["one", "two"])[rows % 2])
    assert (some.n, some.value) == (20, expected.share)
    assert "where chance is 50 % (of 20 people drawn at random)." in some.finding


def test_two_protocols_of_the_same_people_are_named_and_one_is_not(tmp_path):
    """Everyone's second scan has another repetition time and an artefact of it; then the same scans without either."""
    bids, rng = tmp_path / "bids", np.random.default_rng(5)
    bids.mkdir()
    (bids / "dataset_description.json").write_text('{"Name": "two protocols", "BIDSVersion": "1.9.0"}')
    artefact, people = rng.standard_normal((8, 1)), [f"sub-{number:02d}" for number in range(16)]
    for name, second, size in (("two", 0.8, 1.0), ("noise", 0.8, 0.0), ("one", 2.0, 1.0)):
        rows = []
        for label in people:
            mixture = rng.standard_normal((8, 8))
            for session, time in (("ses-1", 2.0), ("ses-2", second)):
                shared = size * (session == "ses-2") * artefact @ rng.standard_normal((1, 200))
                path = tmp_path / f"{name}_{label}_{session}.npy"
                np.save(path, (mixture @ rng.standard_normal((8, 200)) + 3 * shared).T)
                rows.append((label, session, path.name, "series", time))
        names = ["participant_id", "session_id", "path", "kind", "repetition_time"]
        pd.DataFrame(rows, columns=names).to_csv(tmp_path / f"{name}.tsv", sep="\t", index=False)
        ended = run(bids, tmp_path / name, "group", "-d", f"list={tmp_path / f'{name}.tsv'}", "--check", "--quiet")
        assert ended.code == 0, ended.said
        found = table(tmp_path / name / "group" / "check.tsv").set_index("check")
        assert ("repetition time and session" in found.index) == (name == "two")
        if name == "two":
            row = found.loc["repetition time and session"]
            assert (row["level"], row["n"]) == ("look", 16)
            assert row["value"] == pytest.approx(common_change(tmp_path, name, people), rel=1e-6)
            assert "repetition times of 0.8 s and of 2 s" in row["finding"]
            assert "no session has both" in row["consequence"]


def common_change(folder, name, people):
    """Mean product of the changes of two people over the mean square of a change, from the files, by numpy."""
    vectors = []
    for label in people:
        for session in ("ses-1", "ses-2"):
            values, modes = np.linalg.eigh(np.corrcoef(np.load(folder / f"{name}_{label}_{session}.npy"), rowvar=False))
            power = (modes * np.maximum(values, 0) ** 0.35) @ modes.T
            edges = power[np.triu_indices(8, 1)]
            edges = edges - edges.mean()
            vectors.append(edges / np.linalg.norm(edges))
    changes = np.array(vectors[1::2]) - np.array(vectors[::2])
    products, n = changes @ changes.T, len(changes)
    return (products.sum() - np.trace(products)) / (n - 1) / np.trace(products)
