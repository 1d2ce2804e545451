"""The cohort of scripts and notebooks: what the files say, and estimators that give the numbers of the command."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import fractional_matrix_power
from sklearn.model_selection import PredefinedSplit

import fcpower_bids
from fcpower_bids.core.edges import vectorise_edges
from tests.command import main
from tests.docs.pages import DOCS, code_blocks, read
from tests.planting.participant_outputs import P, add_embedding, make_outputs, series_of, write_participants

PEOPLE = 24
NAMES = [f"sub-{number + 1:02d}" for number in range(PEOPLE)]
CHOICES = ("--folds", "4", "--inner-folds", "3", "--repeats", "2", "--permutations", "0", "--quiet", "--nprocs", "1")


def both_sessions(person):
    return np.vstack([series_of(100 * person + ord(session)) for session in "ab"])


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Twenty-four people in families of two, two sessions each, and the group level on them."""
    root = tmp_path_factory.mktemp("notebook")
    settings = make_outputs(root, PEOPLE)
    for number, name in enumerate(NAMES):
        for session in "ab":
            vector = np.random.default_rng(number).standard_normal(5) + (session == "b")
            add_embedding(settings.output_dir, f"{name}_ses-{session}", vector)
    strengths = [np.corrcoef(both_sessions(person).T)[0, 1] for person in range(PEOPLE)]
    noise = np.random.default_rng(7).standard_normal(PEOPLE)
    score = np.round(np.argsort(np.argsort(strengths)) + 8 * noise, 6)
    write_participants(root / "bids" / "participants.tsv", PEOPLE, score=score, noise=noise.round(6))
    words = [str(root / "bids"), str(root / "out"), "group", "--min-time", "60", "--analyses", "prediction", *CHOICES]
    assert main([*words, "--targets", "score", "noise", "--family-column", "family_id"]) == 0
    return root


@pytest.fixture(scope="module")
def cohort(outputs):
    choices = {"family_column": "family_id", "site_column": "site", "min_time": 60}
    return fcpower_bids.load_cohort(outputs / "out", outputs / "bids", **choices)


def table(outputs, name):
    return pd.read_csv(outputs / "out" / "group" / f"{name}.tsv", sep="\t", keep_default_na=False)


def test_rows_are_people_and_say_what_the_files_say(cohort):
    assert cohort.names == tuple(NAMES)
    assert (cohort.sessions, len(cohort), len(cohort.parcels)) == ((), PEOPLE, P)
    assert cohort.phenotypes.index.tolist() == NAMES
    assert cohort.phenotypes["age"].tolist() == [20.0 + person for person in range(PEOPLE)]
    assert cohort.groups.tolist() == [f"F{person // 2}" for person in range(PEOPLE)]
    assert cohort.sites.tolist() == ["x"] * PEOPLE
    assert len(cohort.scans) == 2 * PEOPLE
    np.testing.assert_array_equal(np.vstack(cohort.series(3)), both_sessions(3))


def test_connectomes_of_people_are_those_of_their_series_put_end_to_end(cohort):
    expected = np.stack([np.corrcoef(both_sessions(person).T) for person in range(PEOPLE)])
    assert cohort.connectomes.shape == expected.shape
    np.testing.assert_allclose(cohort.connectomes, expected, rtol=0, atol=1e-12)
    raised = [fractional_matrix_power(one, 0.35) for one in expected]
    np.testing.assert_allclose(cohort.power(0.35), raised, rtol=0, atol=1e-10)


def test_features_are_those_of_the_transformer(cohort):
    connectomes = cohort.connectomes
    ours = fcpower_bids.SpectralPower(0.35).fit_transform(connectomes)
    np.testing.assert_allclose(cohort.features("fc_power"), ours, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cohort.features("fc"), vectorise_edges(np.asarray(connectomes), weighted=False))
    means = [np.random.default_rng(person).standard_normal(5) + 0.5 for person in range(PEOPLE)]
    np.testing.assert_allclose(cohort.features("embedding:fbert1m"), means, rtol=0, atol=1e-12)


def test_estimators_predict_what_the_command_predicts(outputs, cohort):
    keys = ["representation", "target", "repeat", "fold"]
    folds, predictions = table(outputs, "folds"), dict(iter(table(outputs, "predictions").groupby(keys)))
    place = {name: row for row, name in enumerate(cohort.names)}
    y = cohort.phenotypes[["score", "noise"]].to_numpy()
    chosen = []
    for representation in ("fc", "fc_power"):
        features = cohort.features(representation)
        for (repeat, fold), rows in folds.groupby(["repeat", "fold"]):
            training, test = rows[rows["role"] == "train"], rows[rows["role"] == "test"]
            train = training["participant_id"].map(place).to_numpy()
            inner = PredefinedSplit(training["inner_fold"])
            model = fcpower_bids.CorrelationKernelRidgeCV(cv=inner).fit(features[train], y[train])
            chosen += [*model.penalty_]
            predicted = model.predict(features[test["participant_id"].map(place)])
            for column, target in enumerate(("score", "noise")):
                own = predictions[representation, target, repeat, fold].set_index("participant_id")["predicted"]
                expected = own[test["participant_id"]].astype(float)
                np.testing.assert_allclose(predicted[:, column], expected, rtol=0, atol=1e-8)
    assert min(chosen) < 1 < max(chosen)
    assert len(set(chosen)) > 3


def test_folds_of_the_splitter_are_those_of_the_command(outputs, cohort):
    folds = table(outputs, "folds")
    splitter = fcpower_bids.FamilyFolds(4, 2)
    y = cohort.phenotypes["age"]
    ours = [
        {cohort.names[row] for row in test} for _, test in splitter.split(cohort.connectomes, y, groups=cohort.groups)
    ]
    theirs = folds[folds["role"] == "test"].groupby(["repeat", "fold"])["participant_id"].agg(set).tolist()
    assert ours == theirs


def test_rows_can_be_scans_and_phenotypes_can_be_absent(outputs):
    scans = fcpower_bids.load_cohort(outputs / "out", per="scan", min_time=60)
    assert scans.names == tuple(name for name in NAMES for _ in "ab")
    assert scans.sessions == ("ses-a", "ses-b") * PEOPLE
    np.testing.assert_allclose(scans.connectomes[3], np.corrcoef(series_of(100 + ord("b")).T), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(scans.series(3)[0], series_of(100 + ord("b")))
    assert scans.phenotypes.shape == (2 * PEOPLE, 0)
    assert scans.sites is None
    assert scans.groups.tolist() == list(scans.names)


@pytest.mark.filterwarnings("ignore::FutureWarning:nilearn")
def test_the_examples_of_the_documentation_run(outputs, cohort, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("OUT", "BIDS"):
        (tmp_path / name).symlink_to(outputs / name.lower())
    said = {}
    for block in code_blocks(read(DOCS / "python.md"), "python"):
        exec(block, said)
    printed = capsys.readouterr().out
    assert read(DOCS / "python.md").count(printed.splitlines()[0]) == 1
    edges = vectorise_edges(said["matrices"])
    upper = fcpower_bids.SpectralPower(input="series").fit_transform(said["series"])
    np.testing.assert_allclose(edges, upper, rtol=0, atol=1e-12)
    assert said["X"].shape == edges.shape
    assert set(said["X"][0].round(9)) == set(edges[0].round(9))


def test_a_table_has_the_scans_and_the_phenotypes_of_every_row(outputs, cohort):
    shown, of_person = cohort.to_dataframe(), table(outputs, "scans").groupby("participant_id")
    assert shown.index.tolist() == NAMES
    assert shown["age"].tolist() == cohort.phenotypes["age"].tolist()
    np.testing.assert_allclose(shown["minutes"], of_person["seconds"].sum() / 60)
    np.testing.assert_allclose(shown["mean_fd"], of_person["mean_fd"].mean())
