"""What can be done with people once they are in: each ends in right numbers, or in a sentence that says why not."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import safe_open

from tests.command import main
from tests.doors.cohort import SCORE, Entered, features_of, flattened, ridge

QUICK = ("--min-time", "30", "--folds", "2", "--inner-folds", "2", "--repeats", "1", "--permutations", "0")
QUICK += ("--preset", "paper")
GROUP = (*QUICK, "--targets", SCORE, "--quiet", "--nprocs", "1", "--representations", "fc_power")


@dataclass(frozen=True)
class Ended:
    """Exit code and words of a command."""

    code: int
    said: str


def run(*words: object) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Ended(code, out.getvalue() + err.getvalue())


def table(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="\t", na_values="n/a")


def group(entered: Entered, *options: object, analyses: tuple[str, ...] = ("prediction",)) -> Ended:
    return run(
        entered.bids, entered.out, "group", *GROUP, *entered.options, "--analyses", *analyses, *options,
        "--name", "doors",
    )  # fmt: skip


def predicts(entered: Entered) -> str:
    """The group level: the score of people who are held out is that of a ridge regression by numpy."""
    ended = group(entered, "--save-models", "--accept-no-skill")
    if ended.code:
        return ended.said
    results = entered.out / "group" / "doors"
    written, folds = table(results / "predictions.tsv"), table(results / "folds.tsv")
    penalties = table(results / "prediction.tsv").set_index("fold")["penalty"]
    assert sorted(written["participant_id"].str.removeprefix("sub-")) == entered.people
    scores = entered.truth.scores()
    for fold, of_fold in folds.groupby("fold"):
        train, test = (
            of_fold.loc[of_fold["role"] == role, "participant_id"].str.removeprefix("sub-").tolist()
            for role in ("train", "test")
        )
        rows, new = (np.array([features_of(entered.truth, label) for label in each]) for each in (train, test))
        expected = ridge(rows, np.array([scores[label] for label in train]), new, penalties[fold])
        own = written[written["fold"] == fold].set_index("participant_id")["predicted"]
        np.testing.assert_allclose(own[[f"sub-{label}" for label in test]], expected, atol=1e-5)
    return ""


def applies_a_model(entered: Entered) -> str:
    """A model of these people, applied to their scans: what its weights give; nothing of who is rejected."""
    models = list((entered.out / "group" / "doors" / "models").glob("*fc-power*"))
    ended = run("predict", *models, entered.out, "--accept-no-skill")
    rejected = {f"sub-{label}" for label in entered.shape.left_out if entered.shape.decided == "one rejected"}
    if ended.code != (4 if rejected else 0):
        return ended.said
    with np.load(models[0] / "weights.npz") as arrays:
        weights, level = arrays["weights"][:, 0], float(arrays["intercept"][0])
    found = table(next((entered.out / "group" / "predicted").glob("target-*[!e].tsv")))
    assert (found["state"] == np.where(found["participant_id"].isin(rejected), "refused", "predicted")).all()
    own = found.set_index(["participant_id", "session"])["prediction"]
    for label, session in entered.scans():
        edges = flattened(entered.truth.series[label, session])
        edges = edges[np.triu_indices(len(edges), 1)]
        edges = (edges - edges.mean()) / np.linalg.norm(edges - edges.mean())
        rows = own.loc[f"sub-{label}"]
        assert np.isclose(rows, edges @ weights + level, atol=1e-5).any(), (label, session)
    return ""


def identifies(entered: Entered) -> str:
    """Identification across sessions: nearest neighbours by numpy."""
    ended = group(entered, analyses=("fingerprinting",))
    if ended.code:
        return ended.said
    edges = {}
    for scan, series in entered.truth.series.items():
        matrix = flattened(series)
        edges[scan] = matrix[np.triu_indices(len(matrix), 1)]
    one, other = (np.array([edges[label, session] for label in entered.people]) for session in "ab")
    similarity = np.corrcoef(one, other)[: len(one), len(one) :]
    right = np.arange(len(one))
    expected = np.mean([(similarity.argmax(axis) == right).mean() for axis in (0, 1)])
    found = table(entered.out / "group" / "doors" / "identification.tsv").set_index("representation")
    assert found.loc["fc_power", "accuracy"] == expected
    return ""


def trains(entered: Entered) -> str:
    """Pack, train and embed: the pack holds the series, and each series gets the vector that the encoder gives."""
    words = ("--steps", "2", "--batch-size", "4", "--architecture", "d=16", "layers=1", "heads=2", "--quiet")
    window = ("--window", "30", "--held-out", "0.3", "--accept-unproven", "--dataset-name", "study")
    ended = run(entered.bids, entered.out, "pretrain", *words, *window)
    if ended.code:
        return ended.said
    return _packed(entered) or _embedded(entered)


def _packed(entered: Entered) -> str:
    corpus = entered.out / "corpus"
    rows = pd.read_csv(corpus / "recordings.tsv", sep="\t", dtype={"subject": str})
    assert len(rows) == len(entered.scans())
    for row in rows.itertuples():
        known = _scan(entered, row.subject, row.session)
        with safe_open(corpus / f"series-{row.shard:05d}.safetensors", "np") as shard:
            packed = shard.get_slice("series")[row.offset : row.offset + row.T]
        np.testing.assert_allclose(packed, (known - known.mean(0)) / known.std(0, ddof=1), atol=2e-3)
    return ""


def _scan(entered: Entered, label: str, session: str) -> np.ndarray:
    own = [
        series
        for (person, letter), series in entered.truth.series.items()
        if person == label and letter in (session, "a")
    ]
    return entered.truth.series.get((label, session), own[0])


def _embedded(entered: Entered) -> str:
    from fcpower_bids.encoders import load_encoder

    weights = entered.out / "encoder" / "model"
    ended = group(entered, "--encoder", "fbert", "--encoder-weights", weights, "--representations", "embedding")
    if ended.code:
        return ended.said
    vectors = sorted(entered.out.rglob("*_embedding.tsv"))
    assert len(vectors) == len(entered.scans())
    encoder = load_encoder("fbert", weights)
    for path in vectors:
        stem = path.name.partition("_desc-")[0]
        series = next(path.parent.glob(f"{stem}_stat-mean_timeseries.[nt][ps][yv]"))
        names = json.loads(series.with_suffix(".json").read_text()).get("Columns")
        values = np.load(series) if series.suffix == ".npy" else pd.read_csv(series, sep="\t")
        names = names or list(values.columns)
        expected = encoder.embed([np.asarray(values)], names, float("nan"))[0]
        np.testing.assert_allclose(table(path).to_numpy()[0], expected, atol=1e-5)
    return ""


def is_checked(entered: Entered) -> str:
    ended = run(entered.bids, entered.out, "group", *GROUP, *entered.options, "--check", "--name", "checked")
    if ended.code:
        return ended.said
    assert len(table(entered.out / "group" / "checked" / "scans.tsv")) == len(entered.scans())
    return ""


WAYS_ON: dict[str, Callable[[Entered], str]] = {
    "group": predicts,
    "models then predict": applies_a_model,
    "identify": identifies,
    "check": is_checked,
    "pack, pretrain, embed": trains,
}
