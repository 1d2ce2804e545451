"""Eight people whose series are known, as every way in has them, and the numbers that follow from the series alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from fcpower_bids.demo import DemoDesign, make_dataset
from tests.planting.pipelines import write_regressors
from tests.planting.surfaces import make_motion
from tests.running import PLAIN, run_app

ALPHA, PEOPLE, TR = 0.35, 8, 2.5
SCORE = "planted_score"
RUN = "rfMRI_REST1_LR"
Scan = tuple[str, str]
"""Label of the person, and letter of the session."""


@dataclass(frozen=True)
class Shape:
    """How much was scanned, and what was decided about it."""

    volumes: int = 60
    sessions: int = 1
    decided: str = "nothing"
    space: str = "MNI152NLin2009cAsym"

    @property
    def left_out(self) -> tuple[str, ...]:
        return ("04",) if self.decided == "one rejected" else ()


SHORT = Shape(volumes=40, decided="one rejected")
ONE = Shape(decided="all accepted")
TWO = Shape(sessions=2)
SHAPES = {
    "one short scan, one person rejected": SHORT,
    "one scan, all accepted": ONE,
    "one scan": Shape(),
    "two sessions": TWO,
}


@dataclass(frozen=True)
class Truth:
    """What was put into the files.

    Attributes
    ----------
    bids : Path
        Dataset with voxels, and the table of people.
    series : dict of Scan to ndarray (T, P)
    known_as : dict of str to str
        The label in the table of people, where the outputs have another.
    """

    bids: Path
    series: dict[Scan, np.ndarray]
    known_as: dict[str, str] = field(default_factory=dict)

    def scores(self) -> dict[str, float]:
        table = pd.read_csv(self.bids / "participants.tsv", sep="\t")
        scores = dict(zip(table["participant_id"].str.removeprefix("sub-"), table[SCORE], strict=True))
        return {own: scores[label] for own, label in self.known_as.items()} or scores


def make_truth(folder: Path, shape: Shape) -> Truth:
    design = DemoDesign.tiny(
        subjects=PEOPLE, sessions=shape.sessions, volumes=shape.volumes, noise=0, nuisance=0, space=shape.space
    )
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
    """An output folder, and what it was made from.

    Attributes
    ----------
    bids, out : Path
    truth : Truth
    shape : Shape
    exact : float
        How near its numbers are to those of the truth.
    has_series : bool
        Whether it holds series, or matrices alone.
    options : tuple of str
        What the group level needs to be told each time: the source.
    """

    bids: Path
    out: Path
    truth: Truth
    shape: Shape
    exact: float = 1e-6
    has_series: bool = True
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


def by_hcp(folder: Path, truth: Truth, shape: Shape) -> Entered:
    """The same voxels in the folders of the HCP, which have no sessions."""
    motion = make_motion(shape.volumes)
    for label, _ in truth.series:
        results = folder / "hcp" / label / "MNINonLinear" / "Results" / RUN
        write_regressors(results, motion)
        (bold,) = truth.bids.rglob(f"sub-{label}_*desc-preproc_bold.nii.gz")
        shutil.copy(bold, results / f"{RUN}.nii.gz")
        shutil.copy(
            bold.with_name(bold.name.replace("desc-preproc_bold", "desc-brain_mask")), results / "brainmask_fs.2.nii.gz"
        )
    shutil.copy(truth.bids / "participants.tsv", folder / "hcp" / "participants.tsv")
    participant(folder / "hcp", folder / "out")
    return Entered(folder / "hcp", folder / "out", truth, shape)


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
    return Entered(
        people_only(folder, truth), folder / "out", truth, shape, has_series=kind == "series", options=source
    )


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
    "HCP": by_hcp,
    "XCP-D": by_xcpd,
    "C-PAC": by_cpac,
    "list of series": by_list,
    "list of matrices": by_list_of_matrices,
}
ONE_SESSION = ("HCP", "C-PAC")


@cache
def truth_of(folder: Path, volumes: int, sessions: int, space: str) -> Truth:
    place = folder / f"truth_{volumes}_{sessions}_{space}"
    return make_truth(place, Shape(volumes, sessions, space=space))


def enter(folder: Path, way: str, shape: Shape) -> Entered:
    """Bring the eight people in by one way, and write the decisions about them."""
    space = "MNI152NLin6Asym" if way == "HCP" else shape.space
    truth = truth_of(folder, shape.volumes, shape.sessions, space)
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
