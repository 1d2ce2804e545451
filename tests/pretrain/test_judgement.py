"""What a run says of its model, against a computation of its own; and that it learns of real people."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from fcpower_bids.core.alignment import kernel_alignment
from fcpower_bids.encoders import load_encoder
from fcpower_bids.encoders.fbert import FBert
from fcpower_bids.pretrain.engine import EVALUATION, draw_batch
from fcpower_bids.pretrain.judgement import CONFIRM, SELECT, TRAIN, split_families
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import QUICK, checkpoints, plant_outputs
from tests.referee import power_edges
from tests.running import run as command

JUDGED = True
WINDOW, SHARE = 20, 0.4
LEARNING = (
    *("--architecture", "d=32", "layers=2", "heads=4", "ff=64", "dropout=0.0"),
    *("--batch-size", "64", "--steps", "120", "--learning-rate", "0.005", "--held-out", str(SHARE)),
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Series of 120 people with two sessions, as the participant level leaves them."""
    folder = tmp_path_factory.mktemp("learned")
    return folder, plant_outputs(folder, made_recordings(people=80))


@pytest.fixture(scope="module")
def run(planted):
    """Folder of a run that proves its model to be far better than random weights on unseen people."""
    folder, _ = planted
    with checkpoints(40):
        command(folder / "bids", folder / "out", "pretrain", *QUICK, *LEARNING, "--corpus", folder / "corpus", code=0)
    assert facts_of(folder / "out")["LowerLimit"] > 0.05
    return folder / "out"


def read(out, name: str = "alignment") -> pd.DataFrame:
    index = "map" if name == "alignment" else "step"
    return pd.read_csv(out / "encoder" / f"{name}.tsv", sep="\t", na_values="n/a", index_col=index)


def facts_of(out) -> dict:
    return json.loads((out / "encoder" / "alignment.json").read_text())


def edges_of(series: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    edges = power_edges(np.corrcoef(series.T), alpha)
    edges = edges - edges.mean()
    return edges / np.linalg.norm(edges)


def hsic(K: np.ndarray, L: np.ndarray, debiased: bool) -> float:
    """Equation 3 of Gretton et al. 2005, and equation 5 of Song et al. 2012, up to a constant."""
    n = len(K)
    if not debiased:
        H = np.eye(n) - 1 / n
        return float(np.trace(H @ K @ H @ L))
    K, L = K * (1 - np.eye(n)), L * (1 - np.eye(n))
    return float(np.trace(K @ L) + K.sum() * L.sum() / (n - 1) / (n - 2) - 2 * (K.sum(0) @ L.sum(0)) / (n - 2))


def cka(K: np.ndarray, L: np.ndarray, debiased: bool = True) -> float:
    return hsic(K, L, debiased) / np.sqrt(hsic(K, K, debiased) * hsic(L, L, debiased))


class Referee:
    """The held-out people of one run, from the written tables."""

    def __init__(self, planted, out, seed: int) -> None:
        folder, tables = planted
        table = pd.read_csv(folder / "corpus" / "recordings.tsv", sep="\t", dtype={"subject": str, "family": str})
        series = [pd.read_csv(tables[name], sep="\t").to_numpy() for name in table["id"]]
        self.z = [((one - one.mean(0)) / one.std(0, ddof=1)).astype(np.float16).astype(float) for one in series]
        people = table["subject"].to_numpy()
        roles = split_families(people, SHARE, seed)
        self.rows = np.flatnonzero(roles != TRAIN)
        self.people, self.roles = people[self.rows], roles[self.rows]
        edges = np.array([edges_of(series[row], 0.35) for row in self.rows])
        self.teacher = edges @ edges.T
        places = np.array([len(self.z[row]) - WINDOW + 1 for row in self.rows])
        self.views = []
        for view in range(8):
            members, starts = draw_batch(places, len(places), (seed, EVALUATION, view), "recordings")
            first = dict(zip(members.tolist(), starts.tolist(), strict=True))
            windows = [self.z[row][first[i] : first[i] + WINDOW] for i, row in enumerate(self.rows)]
            self.views.append(np.array(windows))
        encoder = load_encoder("fbert", out / "encoder" / "model")
        shape = encoder.model.config
        maps = {
            "model": [self.embedding(encoder.model)],
            "random-init": [self.embedding(FBert(shape, 1000 + k)) for k in range(10)],
            "fc": [lambda windows: np.array([edges_of(window) for window in windows])],
            "fc_power": [lambda windows: np.array([edges_of(window, 0.35) for window in windows])],
            "initial": [self.embedding(FBert(shape, seed))],
        }
        self.kernels = {name: [self.kernel(one) for one in each] for name, each in maps.items()}

    @staticmethod
    def embedding(model):
        def embed(windows):
            with torch.inference_mode():
                return model.eval()(torch.from_numpy(windows).float()).double().numpy()

        return embed

    def kernel(self, one) -> np.ndarray:
        E = np.mean([one(view) for view in self.views], axis=0)
        E = E - E.mean(0)
        return E @ E.T


@pytest.fixture(scope="module")
def referee(planted, run):
    return Referee(planted, run, 0)


def test_every_number_follows_from_the_tables_of_the_user(run, referee):
    found = read(run)
    (K,) = referee.kernels["model"]
    for debiased in (False, True):
        aligned = kernel_alignment(K, referee.teacher, debiased)
        assert aligned == pytest.approx(cka(K, referee.teacher, debiased), abs=1e-12)
        assert kernel_alignment(K, 3 * K + 7, debiased) == pytest.approx(1, abs=1e-12)
    row, without = read(run, "log").loc[facts_of(run)["Step"]], []
    for name, half in (("select", SELECT), ("confirm", CONFIRM)):
        rows = np.ix_(referee.roles == half, referee.roles == half)
        assert row[name] == pytest.approx(cka(K[rows], referee.teacher[rows]), abs=2e-3)
    for person in sorted(set(referee.people)):
        rows = np.ix_(referee.people != person, referee.people != person)
        without.append(cka(K[rows], referee.teacher[rows]))
    assert row["cka_se"] == pytest.approx(np.sqrt((len(without) - 1) * np.var(without)), rel=0.02)
    for name, kernels in referee.kernels.items():
        expected = {
            "cka": np.mean([cka(K, referee.teacher, False) for K in kernels]),
            "cka_debiased": np.mean([cka(K, referee.teacher) for K in kernels]),
        }
        for column, value in expected.items():
            assert found.loc[name, column] == pytest.approx(value, abs=2e-3), (name, column)
    dimensions = dict.fromkeys(("model", "random-init", "initial"), 32) | dict.fromkeys(("fc", "fc_power"), 45)
    assert found["dimensions"].dropna().to_dict() == dimensions


def test_the_verdict_counts_families_and_leaves_the_optimism_of_the_choice_off(run, referee):
    (K,) = referee.kernels["model"]
    everyone, people = np.ones(len(referee.people), dtype=bool), sorted(set(referee.people))
    n, found, expected = len(people), read(run), {}
    for name in ("initial", "random-init"):
        others = referee.kernels[name]

        def gains(kept: np.ndarray, others=others) -> np.ndarray:
            block = np.ix_(kept, kept)
            teacher = referee.teacher[block]
            return np.array([cka(K[block], teacher) - cka(one[block], teacher) for one in others])

        without = np.array([gains(referee.people != one).mean() for one in people])
        each = gains(everyone)
        of_people, of_seed = (n - 1) * without.var(), 0.0 if len(each) == 1 else 1.1 * each.var(ddof=1)
        freedom = (of_people + of_seed) ** 2 / (of_people**2 / (n - 1) + of_seed**2 / 9)
        low = each.mean() - stats.t.ppf(0.95, freedom) * np.sqrt(of_people + of_seed)
        assert found.loc[name, "ahead"] == pytest.approx(each.mean(), abs=2e-3)
        assert found.loc[name, "ahead_low"] == pytest.approx(low, abs=4e-3)
        expected[low] = each.mean()
    facts = facts_of(run)
    log = read(run, "log").loc[[int(path.name[5:]) for path in sorted((run / "encoder" / "checkpoints").iterdir())]]
    first, second = log["select"].idxmax(), log["confirm"].idxmax()
    falls = (log["select"] - log["confirm"])[first] + (log["confirm"] - log["select"])[second]
    assert facts["Optimism"] == pytest.approx(falls / 2)
    off = max(falls / 2, 0)
    assert facts["LowerLimit"] == pytest.approx(min(expected) - off, abs=4e-3)
    assert facts["Difference"] == pytest.approx(expected[min(expected)] - off, abs=2e-3)
    best = log["cka_debiased"].idxmax()
    as_good = log.index[log["cka_debiased"] >= log.loc[best, "cka_debiased"] - log.loc[best, "cka_se"]]
    assert facts["Step"] == as_good.max()
    plain = found.loc[["fc", "fc_power"], "cka_debiased"]
    assert plain.idxmax() == "fc_power"
    assert f"FC^α of the window ({plain.max():.3f}): the model is" in facts["Verdict"]
    assert (facts["Families"], facts["Recordings"]) == (n, len(referee.people))


def test_an_unproven_model_is_not_called_usable(tmp_path, planted):
    """Two steps: the model is written, and the exit code is 7."""
    words = ("pretrain", *QUICK, *LEARNING, "--steps", 2, "--corpus", planted[0] / "corpus", "--learning-rate", 1e-6)
    told = command(planted[0] / "bids", tmp_path / "out", *words, code=7).err
    assert "The model is not proven to be better than random weights on people it never saw" in told
    assert "not proven" in load_encoder("fbert", tmp_path / "out" / "encoder" / "model").card.verdict
    told = command(planted[0] / "bids", tmp_path / "none", *words, "--held-out", "0.01", code=7).err
    assert "too few people were held out" in told
