"""The closed-form student through the commands, against ridge regression on the planted series."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from fcpower_bids.slices.pretraining.selection import TRAIN, split_families
from tests.doors.cohort import SHAPES, enter, flattened
from tests.doors.ways_on import group, run
from tests.running import as_copied

WINDOW, D = 30, 6
WORDS = ("--method", "closed-form", "--architecture", f"d={D}", "heads=1", "--window", WINDOW, "--held-out", "0.5")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    entered = enter(tmp_path_factory.mktemp("closed_form"), "list of series", SHAPES["one scan"])
    assert group(entered).code == 0  # the series come in
    said = ("--licence", "CC BY 4.0", "--purpose", "teaching")
    words = (*WORDS, "--dataset-name", "study", "--accept-unproven", "--quiet", *said)
    ended = run(entered.bids, entered.out, "pretrain", *words)
    return entered, words, ended


def edges_of(series: np.ndarray) -> np.ndarray:
    edges = flattened(series)[np.triu_indices(series.shape[1], 1)]
    edges = edges - edges.mean()
    return edges / np.linalg.norm(edges)


def expected_embedding(entered) -> dict[str, np.ndarray]:
    """Ridge regression of scikit-learn on windows of the planted series; embeddings of whole recordings."""
    series = {label: each for (label, _), each in entered.truth.series.items()}
    table = pd.read_csv(entered.out / "corpus" / "recordings.tsv", sep="\t", dtype={"subject": str})
    train = [label for label, role in zip(table["subject"], roles_of(table), strict=True) if role == TRAIN]
    whole = np.array([edges_of(series[label]) for label in train])
    U, size, _ = np.linalg.svd(whole - whole.mean(0), full_matrices=False)
    X, Y = [], []
    for label, point in zip(train, (U * size)[:, : len(train) - 1], strict=True):
        one = ((series[label] - series[label].mean(0)) / series[label].std(0, ddof=1)).astype(np.float16).astype(float)
        for start in np.linspace(0, len(one) - WINDOW, len(one) // WINDOW).round().astype(int):
            X.append(edges_of(one[start : start + WINDOW]))
            Y.append(point)
    X, Y = np.array(X), np.array(Y)
    ridge = Ridge(alpha=0.1 * ((X - X.mean(0)) ** 2).sum() / len(X)).fit(X, Y)
    return {label: (edges_of(one) - X.mean(0)) @ ridge.coef_.T for label, one in series.items()}


def roles_of(table: pd.DataFrame) -> np.ndarray:
    return split_families(table["subject"].to_numpy(), 0.5, 0)


def test_what_the_group_level_writes_is_ridge_regression_on_the_planted_series(fitted):
    entered, _, ended = fitted
    assert ended.code == 0, ended.said
    weights = entered.out / "encoder" / "model"
    ended = group(entered, "--encoder", "closed-form", "--encoder-weights", weights, "--representations", "embedding")
    assert ended.code == 0, ended.said
    paths = sorted(entered.out.rglob("*_desc-closedform_embedding.tsv"))
    assert len(paths) == len(entered.truth.series)
    for label, vector in expected_embedding(entered).items():
        (path,) = (path for path in paths if path.name.startswith(f"sub-{label}_"))
        found = pd.read_csv(path, sep="\t").to_numpy()[0]
        np.testing.assert_allclose(np.abs(found), np.abs(vector[: len(found)]), atol=5e-3)  # half precision, and signs


def test_a_residual_that_learned_nothing_is_ridge_regression_too(fitted, tmp_path):
    """At a learning rate of 0, and with what is left of its configuration in a file of its own."""
    entered, words, _ = fitted
    still = ("--method", "residual", "--steps", "1", "--learning-rate", "0", "--batch-size", "4")
    ended = run(entered.bids, tmp_path / "out", "pretrain", *words, "--corpus", entered.out / "corpus", *still)
    assert ended.code == 0, ended.said
    model = tmp_path / "out" / "encoder" / "model"
    facts = json.loads((model / "config.json").read_text())
    del facts["proof"]
    (tmp_path / "rest.json").write_text(json.dumps({"roi_labels": facts.pop("roi_labels")}))
    (model / "config.json").write_text(json.dumps(facts))
    words = ("--encoder", "fbert", "--encoder-weights", model, "--representations", "embedding")
    assert "does not state roi_labels" in group(entered, *words).said
    ended = group(entered, *words, "--encoder-config", tmp_path / "rest.json")
    assert ended.code == 0, ended.said
    for label, vector in expected_embedding(entered).items():
        (path,) = entered.out.rglob(f"sub-{label}_*_desc-fbert_embedding.tsv")
        found = pd.read_csv(path, sep="\t").to_numpy()[0]
        rest = np.zeros(len(found) - len(vector))  # as wide as F-BERT, where the teacher has fewer coordinates
        np.testing.assert_allclose(np.abs(found), np.abs([*vector, *rest]), atol=5e-3)


def test_page_card_and_files_are_those_of_a_model(fitted):
    entered, _, _ = fitted
    encoder, page = entered.out / "encoder", as_copied((entered.out / "pretrain.html").read_text())
    assert sorted(path.name for path in (encoder / "model").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "modeling_closed_form.py",
    ]
    card = json.loads((encoder / "model" / "config.json").read_text())
    facts = json.loads((encoder / "alignment.json").read_text())
    assert card["model_type"] == "closed-form"
    assert card["verdict"] == facts["Verdict"]
    assert (card["licence"], card["purpose"]) == ("CC BY 4.0", "teaching")
    assert card["corpus_licences"] == f"n/a ({len(card['trained_on'])} recordings)"
    text = (encoder / "model" / "README.md").read_text()
    assert "license: cc-by-4.0" in text
    assert "| purpose | teaching |" in text
    assert facts["Verdict"] in page
    assert "closed form: kernel ridge" in page
    rows = pd.read_csv(encoder / "alignment.tsv", sep="\t")["map"].tolist()
    assert rows == ["model", "random-init", "fc", "fc_power", "pca", "chance"]


def test_the_same_command_gives_the_same_bytes(fitted, tmp_path):
    entered, words, _ = fitted
    again = ("--corpus", entered.out / "corpus")
    assert run(entered.bids, tmp_path / "out", "pretrain", *words, *again).code == 0
    first, second = (out / "encoder" / "model" / "model.safetensors" for out in (entered.out, tmp_path / "out"))
    assert first.read_bytes() == second.read_bytes()


def test_one_folder_has_one_model(fitted, tmp_path):
    entered, words, _ = fitted
    again = ("--corpus", entered.out / "corpus", "--batch-size", "4", "--steps", "1")
    ended = run(entered.bids, entered.out, "pretrain", *words, *again, "--method", "steps")
    assert (ended.code, "holds a closed-form student" in ended.said) == (2, True)
    small = ("--architecture", "d=16", "layers=1", "heads=2")
    assert run(entered.bids, tmp_path / "out", "pretrain", *words, *again, "--method", "steps", *small).code == 0
    ended = run(entered.bids, tmp_path / "out", "pretrain", *words, *again)
    assert (ended.code, "holds a training run" in ended.said) == (2, True)


def test_a_student_cannot_be_asked_to_exceed_itself(fitted, tmp_path):
    entered, words, _ = fitted
    words = [word for word in words if word != "--accept-unproven"]
    again = ("--corpus", entered.out / "corpus", "--require", "closed-form")
    ended = run(entered.bids, tmp_path / "out", "pretrain", *words, *again)
    assert (ended.code, "which --require asks it to exceed" in ended.said) == (7, True)


def test_its_embedding_joins_fc_power_in_every_analysis_that_takes_it(tmp_path):
    """The similarity of people is the mean of the two, so the nearest neighbour is that of numpy."""
    entered = enter(tmp_path, "list of series", SHAPES["two sessions"])
    assert group(entered).code == 0
    assert run(entered.bids, entered.out, "pretrain", *WORDS, "--dataset-name", "study", "--accept-unproven").code == 0
    encoder = ("--encoder", "closed-form", "--encoder-weights", entered.out / "encoder" / "model")
    joined = ("fc_power", "embedding", "fc_power+embedding")
    ended = group(entered, *encoder, "--representations", *joined, analyses=("all",))
    assert ended.code == 0, ended.said
    results = entered.out / "group" / "doors"
    scores = pd.read_csv(results / "prediction_summary.tsv", sep="\t")["representation"].unique()
    assert list(scores) == ["fc_power", "embedding:closedform", "fc_power+embedding:closedform"]
    rows = {name: [] for name in ("a", "b")}
    for (label, session), series in entered.truth.series.items():
        (path,) = entered.out.rglob(f"sub-{label}_ses-{session}_*_desc-closedform_embedding.tsv")
        rows[session].append((edges_of(series), pd.read_csv(path, sep="\t").to_numpy()[0]))
    similar = sum(
        np.corrcoef([one[part] for one in rows["a"]], [one[part] for one in rows["b"]])[
            : len(rows["a"]), len(rows["a"]) :
        ]
        for part in (0, 1)
    )
    right = np.arange(len(similar))
    expected = np.mean([(similar.argmax(axis) == right).mean() for axis in (0, 1)])
    found = pd.read_csv(results / "identification.tsv", sep="\t").set_index("representation")
    assert found.loc["fc_power+embedding:closedform", "accuracy"] == pytest.approx(expected)
    assert "FC^0.35 + embedding closedform" in as_copied((entered.out / "group_doors.html").read_text())
