"""What is damaged, copied or uneven is named by the group level, and sound cohorts are not accused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.check import check_cohort
from fcpower_bids.core.connectome import pearson_connectivity
from fcpower_bids.core.edges import vectorise_edges
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_matrix, read_series
from fcpower_bids.records import Cohort
from tests.analyses.cohorts import choose, cohort_of
from tests.cases.people import table
from tests.command import main
from tests.planting.planted import TR, Planted, draw_series, draw_table, make_cohort
from tests.referee import ridge
from tests.running import run_app, run_group

SOUND, SAME = 3, 0.02
"""People who are left as they are, and the difference of FC below which it is unchanged."""
FC = "_stat-pearsoncorrelation_relmat"
CHOICES = ("--min-time", "0", "--analyses", "spectrum_geometry", "--quiet")


def digit(path, _):
    """Another digit on the diagonal, in the middle of a table."""
    content = bytearray(path.read_bytes())
    content[content.index(b"\t1", len(content) // 2) + 1] ^= 0x04
    path.write_bytes(content)


def half(path, _):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def from_another(path, other):
    for ending in (".tsv", ".npy", ".json"):
        shutil.copyfile(other.with_suffix(ending), path.with_suffix(ending))


STORED = {
    "a digit of a connectome": (f"{FC}.tsv", digit, "outside -1 to 1"),
    "half a series": ("_stat-mean_timeseries.tsv", half, "is cut short"),
    "a connectome of another person": (f"{FC}.tsv", from_another, "run the participant level again"),
}


def shuffled(matrix):
    """The same values in other places."""
    upper = np.triu_indices(len(matrix), 1)
    new = np.eye(len(matrix))
    new[upper] = np.random.default_rng(0).permutation(matrix[upper])
    return new + np.triu(new, 1).T


MATRICES = {
    "values in other places": (shuffled, "eigenvalue"),
    "two parcels of one name": (lambda matrix: matrix, "two parcels of one name"),
    "that of another person": (lambda matrix: matrix, "identical"),
    "a diagonal of zeros": (lambda matrix: np.where(np.eye(len(matrix)) > 0, 0.0, matrix), ""),
    "two digits": (lambda matrix: matrix.round(2), ""),
}
"""What is done to the matrix of a list, and the words; none where FC is as it was."""


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Both output folders of the group level, and who has which damage; a cell of the table of people is a formula."""
    root, damages = tmp_path_factory.mktemp("damaged"), list(MATRICES)
    make_dataset(root / "in", DemoDesign.tiny(subjects=SOUND + len(damages), sessions=1))
    run = run_app(root / "in", root / "out", "--atlas", "builtin", "--nprocs", "1", "--quiet")
    assert run.code == 0, run.err
    sound = {path.name.partition("_")[0]: read_matrix(path) for path in run.files(f"sub-*{FC}.tsv")}
    people = dict(zip(damages, list(sound)[SOUND:], strict=True))
    matrices = sound | {
        person: (MATRICES[kind][0](sound[person][0]), sound[person][1]) for kind, person in people.items()
    }
    matrices[people["that of another person"]] = sound["sub-01"]
    (root / "theirs").mkdir()
    for person, (values, names) in matrices.items():
        header = [names[0], *names[:1], *names[2:]] if person == people["two parcels of one name"] else names
        pd.DataFrame(values, columns=header).to_csv(root / "theirs" / f"{person}.tsv", sep="\t", index=False)
    rows = pd.DataFrame({"participant_id": list(matrices), "path": [f"{person}.tsv" for person in matrices]})
    rows.assign(kind="matrix").to_csv(root / "theirs" / "list.tsv", sep="\t", index=False)
    for kind, person in zip(STORED, list(sound)[SOUND:], strict=False):
        ending, damage, _ = STORED[kind]
        damage(*(next((root / "out").rglob(f"{label}_*{ending}")) for label in (person, "sub-01")))
        people[kind] = person
    assert run_group(root / "in", root / "out", *CHOICES) == 0
    assert run_group(root / "in", root / "listed", "-d", f"list={root / 'theirs' / 'list.tsv'}", *CHOICES) == 0
    return root, people, sound


@pytest.mark.parametrize("kind", [*STORED, *MATRICES])
def test_what_was_damaged_is_named_or_leaves_fc_as_it_was(group, kind):
    root, people, sound = group
    out, words = (root / "out", STORED[kind][2]) if kind in STORED else (root / "listed", MATRICES[kind][1])
    excluded, person = table(out / "group" / "excluded.tsv"), people[kind]
    used = person in set(table(out / "group" / "scans.tsv")["participant_id"])
    assert used == (not words)
    assert words in " ".join(excluded.loc[excluded["participant_id"] == person, "reason"])
    if used:
        (ours,) = out.rglob(f"{person}_*{FC}.npy")
        assert np.nanmax(np.abs(read_series(ours)[0] - sound[person][0])) < SAME


PEOPLE = 14
SHORTEST = 80
ROLES = "test", "train"
QUICK = ["--replace", "--quiet", "--nprocs", "1", "--folds", "3", "--inner-folds", "2", "--repeats", "1"]
QUICK += ["--permutations", "0", "--min-time", "60"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """People with scans of 80 to 120 volumes; the first has two runs in session a, three of them one session."""
    cohort, series = make_cohort(tmp_path_factory.mktemp("amount"), PEOPLE)
    lengths = np.random.default_rng(0).integers(SHORTEST + 1, 121, 2 * PEOPLE)
    lengths[5] = SHORTEST
    for (person, session), each, length in zip(series, series.values(), lengths, strict=True):
        cohort.put(person, session, each[:length], mean_fd=0.1, degrees_of_freedom=length / 4)
    shutil.rmtree(cohort.out / "sub-001" / "ses-a")
    cohort.put(0, "a_run-1", series[0, "a"][:50], mean_fd=0.1)
    cohort.put(0, "a_run-2", series[0, "a"][50:], mean_fd=0.3)
    for person in (3, 8, 9):
        shutil.rmtree(cohort.out / f"sub-{person + 1:03d}" / "ses-b")
    return cohort


def run(cohort, *options, code=0):
    command = [cohort.bids, cohort.out, "group", *QUICK, "--targets", "score", *options]
    assert main([*map(str, command)]) == code


def written_series(cohort, person, session):
    """The stored runs of a scan put end to end, read from the files."""
    paths = sorted((cohort.out / person / session).rglob("*_stat-mean_timeseries.tsv"))
    return np.concatenate([read_matrix(path)[0] for path in paths])


def kernel_of_first_volumes(cohort, people, sessions, volumes):
    """Double loop: FC of the first volumes of every session, put end to end over sessions; correlation of edges."""
    rows = []
    for person in people:
        total, weight = 0.0, 0
        for session in sessions[person]:
            part = written_series(cohort, person, session)[:volumes]
            total, weight = total + (len(part) - 1) * np.corrcoef(part.T), weight + len(part) - 1
        rows.append((total / weight)[np.triu_indices(60, 1)])
    return np.corrcoef(rows)


def test_predictions_are_those_of_the_first_minutes_of_the_written_series(made):
    run(made, "--equal-minutes", "--analyses", "prediction", "--representations", "fc", "--penalties", "0.7")
    scans = made.table("scans")
    people = sorted(set(scans["participant_id"]))
    sessions = scans.groupby("participant_id")["session"].apply(list)
    shortest = min(len(written_series(made, one, session)) for one in people for session in sessions[one])
    assert shortest == SHORTEST
    assert (scans["volumes"] == shortest).all()
    assert (scans["seconds"] == shortest * TR).all()
    assert sessions.map(len).max() == 2
    kernel = kernel_of_first_volumes(made, people, sessions, shortest)
    target = made.phenotypes.set_index("participant_id")["score"][people].to_numpy()
    folds, expected = made.table("folds"), np.empty(len(people))
    for _, part in folds.groupby("fold"):
        test, train = (np.flatnonzero(np.isin(people, part["participant_id"][part["role"] == role])) for role in ROLES)
        expected[test] = ridge(kernel, target, train, test, 0.7)
    told = made.table("predictions").set_index("participant_id")["predicted"]
    np.testing.assert_allclose(told[people], expected, rtol=0, atol=1e-5)


def test_degrees_of_freedom_shrink_with_the_scan(made):
    run(made, "--analyses", "check")
    before = made.table("scans").set_index(["participant_id", "session"])
    run(made, "--analyses", "check", "--equal-minutes")
    after = made.table("scans").set_index(["participant_id", "session"])
    expected = before["degrees_of_freedom"] * SHORTEST / before["volumes"]
    np.testing.assert_allclose(after["degrees_of_freedom"], expected)


ALIKE = 60


def draw(parcels: int, volumes: int, axis: float, own: float, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Series of people who differ along one axis, some very much; a further scan of the most usual; where all are."""
    rng = np.random.default_rng(seed)
    base, direction = rng.standard_normal((2, parcels, parcels))
    places = rng.permutation(axis * rng.standard_t(5, ALIKE))
    roots = [base + own * rng.standard_normal((parcels, parcels)) + place * direction for place in places]
    usual = int(np.argmin(np.abs(places)))
    return [rng.standard_normal((volumes, parcels)) @ root.T for root in (*roots, roots[usual])], places


def plant(root: Path, scans: list[np.ndarray]) -> Planted:
    cohort = Planted(root)
    for number, series in enumerate(scans):
        cohort.put(number, "a", series)
    cohort.phenotypes = draw_table(len(scans))
    return cohort


def compare_all(cohort: Planted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores and similarity of all pairs, and how wide the scores of each scan spread, from the tables of FC."""
    rows = []
    for path in sorted(cohort.out.glob("**/*stat-pearsoncorrelation_relmat.tsv")):
        values, vectors = np.linalg.eigh(pd.read_csv(path, sep="\t", index_col=0).to_numpy())
        values = np.where(values > 1e-10 * values[-1], values, 0)
        rows.append(((vectors * values**0.35) @ vectors.T)[np.triu_indices(len(values), 1)])
    similarity = np.corrcoef(rows)
    centred = similarity - similarity.mean(axis=0) - similarity.mean(axis=1)[:, None] + similarity.mean()
    apart = centred[np.triu_indices(len(rows), 1)]
    scores = (centred - np.median(apart)) / (1.4826 * np.median(np.abs(apart - np.median(apart))))
    spread = []
    for number, own in enumerate(scores):
        others = np.delete(own, number)
        spread.append(1.4826 * np.median(np.abs(others - np.median(others))))
    return scores, similarity, np.array(spread)


def run_check(cohort: Planted, name: str, *options: str) -> list[dict]:
    """Rows of ``check_pairs``, as the command writes them."""
    command = [cohort.bids, cohort.out, "group", "--targets", "age", "--analyses", "check", "--min-time", 60]
    assert main([*map(str, command), "--name", name, "--nprocs", "1", *options]) == 0
    return Planted(cohort.root, name).table("check_pairs").to_dict("records")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return plant(tmp_path_factory.mktemp("alike"), draw(40, 45, 0.25, 0.7, seed=1)[0])


@pytest.fixture(scope="module")
def expected(cohort):
    return compare_all(cohort)


def test_a_pair_stands_out_among_the_scores_of_both(cohort, expected):
    scores, similarity, spread = expected
    high = [(i, j) for i, j in np.argwhere(np.triu(scores >= 8, 1)).tolist() if j < ALIKE]
    assert high, "nobody to be misled by"
    assert all(scores[i, j] < 8 * max(spread[i], spread[j]) / 1.5 for i, j in high)
    found = run_check(cohort, "whole")
    usual = int(np.argmax(scores[-1, :-1]))
    assert [(row["verdict"], row["participant_id"], row["other"]) for row in found] == [
        ("place to look", f"sub-{usual + 1:03d}", f"sub-{ALIKE + 1:03d}")
    ]
    assert found[0]["score"] == pytest.approx(scores[usual, -1], rel=1e-10)
    assert found[0]["similarity"] == pytest.approx(similarity[usual, -1], rel=1e-10)


def test_where_a_copy_scores_no_more_than_people_far_out_the_series_tell(tmp_path):
    """With few parcels many people look like one scan by their connectomes alone."""
    scans, places = draw(20, 200, 0.3, 0.4, seed=4)
    far = int(np.argmax(np.abs(places)))
    scans[-1] = scans[far] + 0.3 * scans[far].std() * np.random.default_rng(0).standard_normal(scans[far].shape)
    cohort = plant(tmp_path, scans)
    scores, similarity, spread = compare_all(cohort)
    own = np.minimum(*np.meshgrid(np.diag(scores), np.diag(scores)))
    as_one = np.triu((scores >= 8) & (scores > 0.7 * own) & (similarity > 0.7), 1)
    assert as_one.sum() > 2
    assert scores[far, -1] < 8 * spread[[far, -1]].max() / 1.5, "the copy does not stand out"
    (found,) = run_check(cohort, "copied")
    assert (found["verdict"], found["participant_id"]) == ("same scan", f"sub-{far + 1:03d}")
    assert (found["other"], found["series_correlation"] > 0.9) == (f"sub-{ALIKE + 1:03d}", True)


def in_memory(drawn: dict[tuple[int, str], np.ndarray], seed: int = 0) -> Cohort:
    """Series by person and session, with phenotypes that depend on nothing."""
    rng = np.random.default_rng((seed, 3))
    people = 1 + max(person for person, _ in drawn)
    rows = [
        (f"sub-{person:03d}", session, TR * len(series), float(rng.uniform(0.05, 0.4)), 1)
        for (person, session), series in drawn.items()
    ]
    edges = np.stack([vectorise_edges(pearson_connectivity(each), weighted=False) for each in drawn.values()])
    table = draw_table(people, seed)
    table.index = [f"sub-{person:03d}" for person in range(people)]
    return cohort_of(edges, rows, table.drop(columns="participant_id"), list(drawn.values()))


def test_twenty_sound_cohorts_are_not_accused():
    accused = 0
    for seed in range(20):
        settings = choose(targets=("age", "score", "patient"), nprocs=1)
        tables = check_cohort(in_memory(draw_series(16, seed=seed), seed), settings)
        accused += bool((tables["check"].frame["level"] != "note").any())
    assert accused <= 1
