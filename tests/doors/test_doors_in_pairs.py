"""Ways in meet ways on, for scans of more than one shape: right numbers, or a sentence that says why not.

Eight people have series that are known; each way in has them, and the numbers follow from the series by numpy alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_table as table
from tests.cases.people import Told, run
from tests.running import PLAIN, run_app

ALPHA, PEOPLE, TR = 0.35, 8, 2.5
SCORE = "planted_score"
Scan = tuple[str, str]
"""Label of the person, and letter of the session."""


@dataclass(frozen=True)
class Shape:
    """How much was scanned, and what was decided about it."""

    volumes: int = 60
    sessions: int = 1
    decided: str = "nothing"

    @property
    def left_out(self) -> tuple[str, ...]:
        return ("04",) if self.decided == "one rejected" else ()


SHAPES = {
    "one short scan, one person rejected": Shape(volumes=40, decided="one rejected"),
    "one scan, all accepted": Shape(decided="all accepted"),
    "two sessions": Shape(sessions=2),
}


@dataclass(frozen=True)
class Truth:
    """A dataset with voxels and the table of people, and the series (T, P) that were put into the voxels."""

    bids: Path
    series: dict[Scan, np.ndarray]

    def scores(self) -> dict[str, float]:
        table = pd.read_csv(self.bids / "participants.tsv", sep="\t")
        return dict(zip(table["participant_id"].str.removeprefix("sub-"), table[SCORE], strict=True))


def make_truth(folder: Path, shape: Shape) -> Truth:
    design = DemoDesign.tiny(subjects=PEOPLE, sessions=shape.sessions, volumes=shape.volumes, noise=0, nuisance=0)
    known = make_dataset(folder / "bids", design)
    scans = [tuple(name.split("_")[:2]) for name in known.recordings]
    labels = [(person.removeprefix("sub-"), session.removeprefix("ses-")) for person, session in scans]
    return Truth(folder / "bids", dict(zip(labels, known.painted, strict=True)))


def flattened(series: np.ndarray) -> np.ndarray:
    """FC^alpha, from the series by numpy alone."""
    return power(np.corrcoef(series.T))


def power(fc: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(fc)
    values[values <= 1e-10 * values.max()] = 0
    return (vectors * values**ALPHA) @ vectors.T


def features_of(truth: Truth, person: str) -> np.ndarray:
    """Edges of FC^alpha of a person: sessions are averaged as Fisher z, as the preset ``paper`` does."""
    fc = [np.corrcoef(series.T) for (label, _), series in truth.series.items() if label == person]
    with np.errstate(divide="ignore"):
        mean = np.tanh(np.mean([np.arctanh(one) for one in fc], axis=0))
    np.fill_diagonal(mean, 1)
    return power(mean)[np.triu_indices(len(mean), 1)]


def ridge(rows: np.ndarray, target: np.ndarray, new: np.ndarray, penalty: float) -> np.ndarray:
    """Kernel ridge regression with an intercept on correlations between people, by numpy alone."""
    known, other = (
        (each - each.mean(1, keepdims=True)) / np.linalg.norm(each - each.mean(1, keepdims=True), axis=1, keepdims=True)
        for each in (rows, new)
    )
    centre = known.mean(0)
    known, other = known - centre, other - centre
    weights = np.linalg.solve(known @ known.T + penalty * np.eye(len(known)), target - target.mean())
    return other @ known.T @ weights + target.mean()


# ---------------------------------------------------------------------------------------------------- ways in


@dataclass(frozen=True)
class Entered:
    """An output folder, what it was made from, and the options by which the group level is told of the source."""

    bids: Path
    out: Path
    truth: Truth
    shape: Shape
    options: tuple[str, ...] = ()

    @property
    def people(self) -> list[str]:
        return sorted({label for label, _ in self.truth.series} - set(self.shape.left_out))

    def scans(self) -> list[Scan]:
        return [scan for scan in sorted(self.truth.series) if scan[0] not in self.shape.left_out]


def participant(bids: Path, out: Path, *options: str) -> None:
    run = run_app(bids, out, "--atlas", "builtin", *PLAIN, "--min-time", "30", "--nprocs", "1", "--quiet", *options)
    assert run.code == 0, run.err


def by_fmriprep(folder: Path, truth: Truth, shape: Shape) -> Entered:
    participant(truth.bids, folder / "out")
    return Entered(truth.bids, folder / "out", truth, shape)


def people_only(folder: Path, truth: Truth) -> Path:
    bids = folder / "people"
    bids.mkdir(parents=True)
    shutil.copy(truth.bids / "participants.tsv", bids / "participants.tsv")
    return bids


def by_xcpd(folder: Path, truth: Truth, shape: Shape) -> Entered:
    root = folder / "xcp_d"
    root.mkdir(parents=True)
    about = {"Name": "xcp_d", "BIDSVersion": "1.9.0", "DatasetType": "derivative", "GeneratedBy": [{"Name": "xcp_d"}]}
    (root / "dataset_description.json").write_text(json.dumps(about))
    for (label, session), series in truth.series.items():
        func = root / f"sub-{label}" / f"ses-{session}" / "func"
        func.mkdir(parents=True)
        stem = f"sub-{label}_ses-{session}_task-rest_space-fsLR_seg-Toy_stat-mean_timeseries"
        names = [f"Area{number}" for number in range(series.shape[1])]
        pd.DataFrame(series, columns=names).to_csv(func / f"{stem}.tsv", sep="\t", index=False)
        (func / f"{stem}.json").write_text(json.dumps({"RepetitionTime": TR}))
    return Entered(people_only(folder, truth), folder / "out", truth, shape, options=("-d", f"xcpd={root}"))


def by_cpac(folder: Path, truth: Truth, shape: Shape) -> Entered:
    """ABIDE as C-PAC left it: one session, no repetition time."""
    root = folder / "Outputs" / "cpac" / "filt_noglobal" / "rois_toy"
    root.mkdir(parents=True)
    for (label, _), series in truth.series.items():
        header = "\t".join(f"#{number + 1}" for number in range(series.shape[1]))
        np.savetxt(root / f"{label}_rois_toy.1D", series, delimiter="\t", header=header, comments="")
    return Entered(
        people_only(folder, truth), folder / "out", truth, shape, options=("-d", f"cpac={folder / 'Outputs' / 'cpac'}")
    )


def by_list(folder: Path, truth: Truth, shape: Shape, kind: str = "series") -> Entered:
    """Every second file is text and the others are arrays; the table states no repetition time."""
    source = write_list(folder, truth.series, kind)
    return Entered(people_only(folder, truth), folder / "out", truth, shape, options=source)


def write_list(folder: Path, scans: dict[Scan, np.ndarray], kind: str) -> tuple[str, str]:
    """Write series or their matrices and the list of them; return the option that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, ((label, session), series) in enumerate(scans.items()):
        values = series if kind == "series" else np.corrcoef(series.T)
        path = folder / f"{label}{session}{'.1D' if number % 2 else '.npy'}"
        np.savetxt(path, values, fmt="%.17g") if number % 2 else np.save(path, values)
        rows.append({"participant_id": f"sub-{label}", "session_id": session, "path": path.name, "kind": kind})
    pd.DataFrame(rows).to_csv(folder / "list.tsv", sep="\t", index=False)
    return ("-d", f"list={folder / 'list.tsv'}")


def by_list_of_matrices(folder: Path, truth: Truth, shape: Shape) -> Entered:
    return by_list(folder, truth, shape, "matrix")


WAYS_IN: dict[str, Callable[[Path, Truth, Shape], Entered]] = {
    "fMRIPrep": by_fmriprep,
    "XCP-D": by_xcpd,
    "C-PAC": by_cpac,
    "list of series": by_list,
    "list of matrices": by_list_of_matrices,
}


@cache
def truth_of(folder: Path, volumes: int, sessions: int) -> Truth:
    return make_truth(folder / f"truth_{volumes}_{sessions}", Shape(volumes, sessions))


def enter(folder: Path, way: str, shape: Shape) -> Entered:
    """Bring the eight people in by one way, and write the decisions about them."""
    truth = truth_of(folder, shape.volumes, shape.sessions)
    entered = WAYS_IN[way](folder / way.replace(" ", "_") / f"{shape.volumes}_{shape.sessions}", truth, shape)
    decide(entered)
    return entered


def decide(entered: Entered) -> None:
    labels = sorted({label for label, _ in entered.truth.series})
    decision = {"nothing": {}, "one rejected": dict.fromkeys(entered.shape.left_out, "reject")}
    decision["all accepted"] = dict.fromkeys(labels, "accept")
    rows = [f"sub-{label}\t{word}\n" for label, word in decision[entered.shape.decided].items()]
    if rows:
        entered.out.mkdir(parents=True, exist_ok=True)
        (entered.out / "exclude.tsv").write_text("participant_id\tdecision\n" + "".join(rows))


QUICK = ("--min-time", "30", "--folds", "2", "--inner-folds", "2", "--repeats", "1", "--permutations", "0")
QUICK += ("--preset", "paper")
GROUP = (*QUICK, "--targets", SCORE, "--quiet", "--nprocs", "1", "--representations", "fc_power")


def group(entered: Entered, *options: object, analyses: tuple[str, ...] = ("prediction",)) -> Told:
    return run(
        entered.bids, entered.out, "group", *GROUP, *entered.options, "--analyses", *analyses, *options,
        "--name", "doors",
    )  # fmt: skip


def predicts(entered: Entered) -> str:
    """The group level: the score of people who are held out is that of a ridge regression by numpy."""
    ended = group(entered, "--save-models", "--accept-no-skill")
    if ended.code:
        return ended.err
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
        return ended.err
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
        return ended.err
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


WAYS_ON: dict[str, Callable[[Entered], str]] = {
    "group": predicts,
    "models then predict": applies_a_model,
    "identify": identifies,
}


ONE_SCAN = "Fingerprinting needs two sessions of the same people"
SHORT, ACCEPTED, TWO = SHAPES
MODELLED = ("group", "models then predict")
WALKS = {
    ("fMRIPrep", TWO): ("identify", *MODELLED),
    ("XCP-D", ACCEPTED): MODELLED,
    ("C-PAC", ACCEPTED): MODELLED,
    ("list of series", SHORT): MODELLED,
    ("list of matrices", SHORT): MODELLED,
}
"""Ways on from a way in with a shape."""


def why_not(way_in: str, way_on: str, sessions: int) -> str:
    """What a cell says in place of numbers; nothing where it has them."""
    if way_on == "identify" and sessions == 1:
        return ONE_SCAN
    return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("doors")


@pytest.mark.parametrize(("way_in", "shape"), WALKS)
def test_every_way_on_ends_in_right_numbers_or_says_why_not(way_in, shape, folder):
    entered = enter(folder, way_in, SHAPES[shape])
    for way_on in WALKS[way_in, shape]:
        said, expected = WAYS_ON[way_on](entered), why_not(way_in, way_on, SHAPES[shape].sessions)
        assert (expected in said) if expected else not said, f"{way_in}, {way_on}: {said}"
        assert "internal error" not in said
