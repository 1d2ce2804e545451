"""Ways in meet ways on: people have series that are known, and the numbers follow from these by numpy alone."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.core.connectome import spectral_power
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.outputs.tables import read_table as table
from tests import referee
from tests.elsewhere.sources import read_connectome
from tests.running import PLAIN, Finished, run, run_app

ALPHA, SCORE, REJECTED = 0.35, "planted_score", "04"
Series = dict[tuple[str, str], np.ndarray]
"""Series (T, P) by label and session."""


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> tuple[Path, Series]:
    """A dataset with voxels and the table of people, and the series that were put into the voxels."""
    folder = tmp_path_factory.mktemp("doors") / "bids"
    known = make_dataset(folder, DemoDesign.tiny(subjects=8, sessions=2, volumes=60, noise=0, nuisance=0))
    scans = [tuple(part.partition("-")[2] for part in name.split("_")[:2]) for name in known.recordings]
    return folder, dict(zip(scans, known.painted, strict=True))


def features_of(series: Series, person: str) -> np.ndarray:
    """Edges of FC^alpha of a person, whose sessions of one length are put end to end."""
    fc = [np.corrcoef(values.T) for (label, _), values in series.items() if label == person]
    return referee.power_edges(np.mean(fc, axis=0), ALPHA)


def ridge(rows: np.ndarray, target: np.ndarray, new: np.ndarray, penalty: float) -> np.ndarray:
    """Kernel ridge regression with an intercept on correlations between people, by scikit-learn."""
    kernel, train = np.corrcoef(np.vstack([rows, new])), np.arange(len(rows))
    return referee.ridge(kernel, target, train, np.arange(len(rows), len(kernel)), penalty)


# Ways in: each gives the options by which the group level is told of the source


def by_fmriprep(folder: Path, series: Series) -> tuple[str, ...]:
    words = ("--atlas", "builtin", *PLAIN, "--min-time", "30", "--nprocs", "1", "--quiet")
    assert run_app(folder / "bids", folder / "out", *words).code == 0
    return ()


def by_list(folder: Path, series: Series) -> tuple[str, ...]:
    """Every second file is text and the others are arrays; the table states no repetition time."""
    rows = []
    for number, ((label, session), values) in enumerate(series.items()):
        path = folder / f"{label}{session}{'.1D' if number % 2 else '.npy'}"
        np.savetxt(path, values, fmt="%.17g") if number % 2 else np.save(path, values)
        rows.append({"participant_id": f"sub-{label}", "session_id": session, "path": path.name, "kind": "series"})
    pd.DataFrame(rows).to_csv(folder / "list.tsv", sep="\t", index=False)
    return ("-d", f"list={folder / 'list.tsv'}")


GROUP = ("--min-time", 30, "--folds", 2, "--inner-folds", 2, "--repeats", 1, "--permutations", 0, "--nprocs", 1)
GROUP += ("--preset", "paper", "--quiet", "--targets", SCORE, "--representations", "fc_power", "--name", "doors")


@pytest.mark.parametrize("way", [by_fmriprep, by_list])
def test_every_way_in_leads_to_right_numbers(way, truth, tmp_path):
    bids, everything = truth
    shutil.copytree(bids, tmp_path / "bids") if way is by_fmriprep else (tmp_path / "bids").mkdir()
    shutil.copy(bids / "participants.tsv", tmp_path / "bids" / "participants.tsv")
    source, out = way(tmp_path, everything), tmp_path / "out"
    out.mkdir(exist_ok=True)
    (out / "exclude.tsv").write_text(f"participant_id\tdecision\nsub-{REJECTED}\treject\n")
    series = {scan: values for scan, values in everything.items() if scan[0] != REJECTED}
    group = partial(run, tmp_path / "bids", out, "group", *GROUP, *source, code=0)
    predicts(group, out, series, tmp_path / "bids" / "participants.tsv")
    applies_a_model(out, series)
    identifies(group, out, series)


def predicts(group: partial[Finished], out: Path, series: Series, people: Path) -> None:
    """The score of people who are held out is that of a ridge regression by scikit-learn."""
    group("--analyses", "prediction", "--save-models", "--any-skill")
    results = out / "group" / "doors"
    written, folds = table(results / "predictions.tsv"), table(results / "folds.tsv")
    penalties = table(results / "prediction.tsv").set_index("fold")["penalty"]
    assert sorted(written["participant_id"]) == sorted({f"sub-{label}" for label, _ in series})
    scores = table(people).set_index("participant_id")[SCORE]
    for fold, of_fold in folds.groupby("fold"):
        train, test = (of_fold.loc[of_fold["role"] == role, "participant_id"].tolist() for role in ("train", "test"))
        rows, new = (np.array([features_of(series, name[4:]) for name in each]) for each in (train, test))
        expected = ridge(rows, scores[train].to_numpy(), new, penalties[fold])
        own = written[written["fold"] == fold].set_index("participant_id")["predicted"]
        np.testing.assert_allclose(own[test], expected, atol=1e-5)


def applies_a_model(out: Path, series: Series) -> None:
    """A model of these people, applied to their scans: what its weights give; nothing of who is rejected."""
    (model,) = (out / "group" / "doors" / "models").glob("*fc-power*")
    run("predict", model, out, code=4)
    with np.load(model / "weights.npz") as arrays:
        weights, level = arrays["weights"][:, 0], float(arrays["intercept"][0])
    found = table(next((out / "group" / "predicted").glob("target-*[!e].tsv")))
    is_rejected = found["participant_id"] == f"sub-{REJECTED}"
    assert (found["state"] == np.where(is_rejected, "refused", "predicted")).all()
    own = found.set_index(["participant_id", "session"])["prediction"]
    for (label, _), values in series.items():
        edges = referee.power_edges(np.corrcoef(values.T), ALPHA)
        edges = (edges - edges.mean()) / np.linalg.norm(edges - edges.mean())
        assert np.isclose(own.loc[f"sub-{label}"], edges @ weights + level, atol=1e-5).any(), label


def identifies(group: partial[Finished], out: Path, series: Series) -> None:
    """Identification across sessions: nearest neighbours by numpy."""
    group("--analyses", "fingerprinting", "--replace")
    people = sorted({label for label, _ in series})
    fc = {scan: np.corrcoef(values.T) for scan, values in series.items()}
    one, other = (np.array([referee.power_edges(fc[label, day], ALPHA) for label in people]) for day in "ab")
    found = table(out / "group" / "doors" / "identification.tsv").set_index("representation")
    assert found.loc["fc_power", "accuracy"] == referee.identified(one, other)


STAGES = Path(__file__).parents[2] / "examples" / "stages"
UPPER = np.triu_indices(400, 1)


@pytest.fixture(scope="module")
def series():
    with np.load(STAGES / "series.npz", allow_pickle=False) as archive:
        return {key: archive[key].astype(float) for key in archive.files if key != "parcels"}


def identification(features):
    """Mean of both directions; ``features`` by scan."""
    people = sorted({key.split("_")[0] for key in features})
    return referee.identified(*([features[f"{one}_{day}"] for one in people] for day in ("ses-1", "ses-2")))


def test_the_series_are_those_of_the_source(shared, series):
    with np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False) as source:
        assert len(series) == 74
        for key, values in series.items():
            own = source[key][:, :400].astype(float)
            standard = (own - own.mean(axis=0)) / own.std(axis=0)
            np.testing.assert_allclose(values / 1000, standard, atol=0.00051)
        twice = {key.split("_")[0] for key in source.files if key.endswith("ses-2")}
    assert {key.split("_")[0] for key in series} == twice


def test_identification_of_37_people_is_the_published_one(series, tmp_path):
    source = ("-d", f"list={STAGES / 'list.tsv'}")
    run(STAGES, tmp_path / "out", "group", *source, "--analyses", "fingerprinting", "--nprocs", "2", code=0)
    found = table(tmp_path / "out" / "group" / "identification.tsv").set_index("representation")
    written = found["accuracy"]
    percent = (100 * found[["accuracy", "ci_low", "ci_high"]]).itertuples()
    cells = [f"{row.accuracy:.0f} % ({row.ci_low:.0f} to {row.ci_high:.0f})" for row in percent]
    readme = (STAGES.parents[1] / "README.md").read_text(encoding="utf-8").replace("**", "")
    assert " | ".join(cells) in readme, "the interval that the README states"
    connectomes = {key: np.corrcoef(values, rowvar=False) for key, values in series.items()}
    key = min(connectomes)
    (path,) = (tmp_path / "out").rglob(f"{key.replace('_', '*')}*_stat-mean_timeseries.npy")
    np.testing.assert_allclose(read_connectome(path), connectomes[key], rtol=0, atol=1e-12)
    assert written["fc"] == pytest.approx(identification({k: m[UPPER] for k, m in connectomes.items()}))
    assert written["fc"] == pytest.approx(0.838, abs=5e-4)
    raised = {key: spectral_power(matrix, ALPHA)[UPPER] for key, matrix in connectomes.items()}
    assert written["fc_power"] == identification(raised) == 1


def test_painted_people_have_their_own_connectomes(painted_people, series):
    """Cleaning takes the invented artefacts out, and its filter the ends of the band."""
    found = {}
    for path in (painted_people / "out").glob("sub-*/ses-*/func/*_stat-pearsoncorrelation_relmat.tsv"):
        key = "_".join(path.name.split("_")[:2])
        found[key] = read_matrix(path)[0]
        true = np.corrcoef(series[key], rowvar=False)
        assert np.corrcoef(found[key][UPPER], true[UPPER])[0, 1] > 0.8
    assert len(found) == 4
    assert identification({key: spectral_power(matrix, ALPHA)[UPPER] for key, matrix in found.items()}) == 1
