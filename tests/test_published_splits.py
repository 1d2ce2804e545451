"""CBIG's unit data with the outer folds of its MATLAB code, and faults planted in real series: the command."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from scipy.io import loadmat

from fcpower_bids.core.folds import PRESETS, cbig_folds
from fcpower_bids.core.krr import KernelRidge
from fcpower_bids.core.nested import nested_cv
from fcpower_bids.core.targets import remove_covariates
from fcpower_bids.outputs.tables import read_table, write_table
from tests.core.test_cbig import read_example
from tests.planting.planted import without_global_signal
from tests.running import run_group

pytestmark = pytest.mark.shared
SEEDS, FOLDS, PARCELS = (1, 2, 3), 5, 6
LARGE = [each for each in PRESETS["cbig"].penalties if each > 1e-3]


def write_people(root, golden, names):
    """Features as the edges of small matrices: their correlations between people are those of the features."""
    features = loadmat(golden / "input" / "feature.mat")["feature_mat"].T
    upper = np.triu_indices(PARCELS, 1)
    padded = np.hstack([features, np.repeat(features.mean(axis=1, keepdims=True), upper[0].size - 11, axis=1)])
    for name, edges in zip(names, padded, strict=True):
        matrix = np.eye(PARCELS)
        matrix[upper] = 0.1 * (edges - edges.mean()) / np.abs(edges - edges.mean()).max()
        np.save(root / f"{name}.npy", matrix + np.triu(matrix, 1).T)
    table = pd.DataFrame({"participant_id": names, "path": [f"{name}.npy" for name in names]})
    table.to_csv(root / "list.tsv", sep="\t", index=False)


def write_phenotypes(bids, reference, names):
    """CO, the same in another order, and the covariates, whose names are returned."""
    bids.mkdir()
    (bids / "dataset_description.json").write_text('{"Name": "unit", "BIDSVersion": "1.9.0"}')
    stored = loadmat(reference / "1" / "air_quality_covariate.mat")["covariates"].astype(float)
    y = loadmat(reference / "1" / "CO_groundtruth.mat")["y"].astype(float)[:, 0]
    shuffled = 0.3 * y + np.random.default_rng(0).permutation(y)
    people = pd.DataFrame({"participant_id": names, "co": y, "shuffled": shuffled})
    people[[f"c{i}" for i in range(stored.shape[1])]] = stored
    people.to_csv(bids / "participants.tsv", sep="\t", index=False)
    return people.columns[3:]


def write_splits(path, reference, names):
    """The outer folds of their three seeds."""
    splits = pd.DataFrame({"participant_id": names})
    for seed in SEEDS:
        of_seed = loadmat(reference / str(seed) / "no_relative_5_fold_sub_list.mat", squeeze_me=True)["sub_fold"]
        splits[f"seed_{seed}"] = np.argmax([each["fold_index"] for each in of_seed], axis=0) + 1
    splits.to_csv(path, sep="\t", index=False)


@pytest.fixture(scope="module")
def written(shared, tmp_path_factory):
    golden, root = shared / "golden" / "cbig_krr", tmp_path_factory.mktemp("cbig")
    reference = golden / "reference_output"
    names = ["sub-" + each.replace("-", "") for each in (golden / "input" / "data_id.txt").read_text().split()]
    write_people(root, golden, names)
    covariates = write_phenotypes(root / "bids", reference, names)
    write_splits(root / "splits.tsv", reference, names)
    asked = ("-d", f"list={root / 'list.tsv'}", "--preset", "cbig", "--nprocs", "1", "--quiet")
    asked += ("--targets", "co", "shuffled", "--inner-folds", FOLDS, "--folds-file", root / "splits.tsv")
    asked += ("--covariates", *covariates, "--representations", "fc", "--analyses", "prediction")
    for options in ((), ("--penalties", *LARGE, "--name", "large")):
        run_group(root / "bids", root / "out", *asked, *options)
    return root / "out" / "group", reference, names


def tables(group, target):
    """Penalties by repeat and fold, predictions by repeat and person."""
    folds, predictions = (read_table(group / f"{name}.tsv") for name in ("prediction", "predictions"))
    folds, predictions = (each[each["target"] == target] for each in (folds, predictions))
    return folds.set_index(["repeat", "fold"])["penalty"], predictions.set_index(["repeat", "participant_id"])


def test_published_penalties_and_predictions_follow_from_the_outer_folds_alone(written):
    group, reference, names = written
    penalties, predicted = tables(group, "co")
    for repeat, seed in enumerate(SEEDS):
        final = loadmat(reference / str(seed) / f"final_result_CO_{seed}.mat", squeeze_me=True)
        np.testing.assert_array_equal(penalties.loc[repeat], final["optimal_lambda"])
        # At their penalty of 1e-5 the stored numbers are rounded to this: a solution in extended precision with the
        # stored kernel and targets is as far from them.
        ours = predicted["predicted"].loc[repeat].loc[names]
        np.testing.assert_allclose(ours, final["y_predict_concat"], rtol=0, atol=1e-8)


def test_published_predictions_of_larger_penalties_are_met_to_rounding(written):
    group, reference, names = written
    penalties, predicted = tables(group / "large", "co")
    for repeat, seed in enumerate(SEEDS):
        own = predicted.loc[repeat].loc[names]
        for fold in range(FOLDS):
            file = f"fold_{fold + 1}/acc_CO_{seed}.mat"
            losses = loadmat(reference / str(seed) / "innerloop_cv" / file)["loss"].ravel()
            stored = loadmat(reference / str(seed) / "test_cv" / file)["y_p"].ravel()
            allowed = [i for i, each in enumerate(PRESETS["cbig"].penalties) if each in LARGE]
            best = min(allowed, key=lambda i: losses[i].item())
            assert penalties.loc[repeat, fold] == PRESETS["cbig"].penalties[best]
            ours = own.loc[own["fold"] == fold, "predicted"]
            np.testing.assert_allclose(ours, stored[best].item().ravel(), rtol=0, atol=1e-10)


def test_the_inner_folds_are_those_of_matlab(written, shared):
    """A target whose penalty hangs on the inner folds, by the functions that reproduce MATLAB's own numbers."""
    group, _, names = written
    penalties, predicted = tables(group / "large", "shuffled")
    example = read_example(shared / "golden" / "cbig_krr")
    y = read_table(group.parents[1] / "bids" / "participants.tsv")["shuffled"].to_numpy(float)[:, None]
    folds = cbig_folds(example.subjects, FOLDS, FOLDS, SEEDS)
    solver = KernelRidge(example.kernel, LARGE)
    residuals = functools.partial(remove_covariates, y, example.covariates)
    expected = nested_cv(solver, residuals, folds, selection="mean_predictive_cod")
    assert np.unique(expected.chosen).size > 2
    np.testing.assert_array_equal(penalties, expected.chosen[:, 0])
    for fold, values in zip(folds, expected.predicted, strict=True):
        ours = predicted["predicted"].loc[fold.repeat].loc[[names[row] for row in fold.test]]
        np.testing.assert_allclose(ours, values[:, 0], rtol=0, atol=1e-10)


COLUMNS = 100
"""Of the 400: enough to know people, and cheap."""
SLOPE = "bprs_lm_slope"


@pytest.fixture(scope="module")
def scans(shared):
    """Series (234, 100) by person and session of everybody who was scanned twice."""
    stored = np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False)
    names = [tuple(key.split("_")) for key in stored.files]
    people = [person for person, _ in names]
    return {
        name: np.asarray(stored["_".join(name)][:, :COLUMNS], dtype=float)
        for name in names
        if people.count(name[0]) == 2
    }


@pytest.fixture(scope="module")
def table(shared, scans):
    """One row per person."""
    rows = read_table(shared / "data" / "stages" / "participants.tsv").drop_duplicates("participant_id")
    return rows[rows["participant_id"].isin({person for person, _ in scans})][["participant_id", "site", SLOPE]]


@pytest.fixture
def check(tmp_path):
    """Write series, list and table, run the check; return the findings by check, and the pairs."""

    def run(scans, table):
        np.savez(tmp_path / "series.npz", **{"_".join(name): series for name, series in scans.items()})
        about = {"path": "series.npz", "kind": "series", "atlas": "Schaefer", "repetition_time": 2.0, "mean_fd": 0.1}
        columns = ["participant_id", "session_id", "key"]
        names = [(person, session.removeprefix("ses-"), f"{person}_{session}") for person, session in scans]
        rows = [dict(zip(columns, name, strict=True)) | about for name in names]
        write_table(tmp_path / "list.tsv", pd.DataFrame(rows))
        write_table(tmp_path / "bids" / "participants.tsv", table)
        asked = ("-d", f"list={tmp_path / 'list.tsv'}", "--targets", SLOPE, "--analyses", "check", "--nprocs", "1")
        run_group(tmp_path / "bids", tmp_path / "out", *asked)
        found, pairs = (read_table(tmp_path / "out" / "group" / f"{name}.tsv") for name in ("check", "check_pairs"))
        return found.set_index("check"), pairs.set_index("verdict")

    return run


def test_real_people_as_they_are_raise_no_alarm(check, scans, table):
    found, pairs = check(scans, table)
    assert found[found["level"] != "note"].empty, found["finding"].tolist()
    assert pairs.empty


def test_every_fault_of_the_scans_is_named_among_real_people(check, scans, table):
    """Each fault is in people of its own: a copy, a copy of another preprocessing, an exchange, moved labels."""
    sessions = sorted({session for _, session in scans})
    people = sorted(person for person, session in scans if session == sessions[1])
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
