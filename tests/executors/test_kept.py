"""A long run that was ended goes on after the last penalty that it finished, with the tables of an undisturbed one."""

from __future__ import annotations

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.core.regression import ridge
from fcpower_bids.executors import kept
from fcpower_bids.executors.kept import fingerprint, forget_kept, keep_result, keeping
from fcpower_bids.outputs.tables import read_table

SMALL = ("--analyses", "prediction", "--permutations", "5", "--folds", "3", "--repeats", "1", "--quiet", "--nprocs=1")


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Folder with series of 20 people, their scores and the list of them."""
    folder, generator = tmp_path_factory.mktemp("people"), np.random.default_rng(20261125)
    rows = ["participant_id\tpath\tkind"]
    for number in range(20):
        np.save(folder / f"{number}.npy", generator.standard_normal((60, 12)))
        rows.append(f"sub-{number:02d}\t{number}.npy\tseries")
    (folder / "list.tsv").write_text("\n".join(rows) + "\n")
    rows = ["participant_id\tscore\tother\tage\tpatient"]
    for number in range(20):
        score, other, age = generator.standard_normal(3)
        rows.append(f"sub-{number:02d}\t{score:.4f}\t{other:.4f}\t{age:.4f}\t{number % 2}")
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    return folder


def group(people, output, *more):
    return main(
        [
            *map(str, (people, output, "group", "-d", f"list={people / 'list.tsv'}", "--targets", "score")),
            *(*SMALL, *more),
        ]
    )


class Ended(BaseException):
    """The end of a job by a cluster, which no code of ours can answer."""


@pytest.fixture
def parts(monkeypatch):
    """Every kernel is too large to be inverted for all penalties; list of inversions, which end at `parts.last`."""

    class Inversions(list):
        last = 10**9

    made, part = Inversions(), ridge.KernelPenalties.part

    def counted(solver, penalty):
        if len(made) == made.last:
            raise Ended
        made.append(penalty)
        return part(solver, penalty)

    monkeypatch.setattr(ridge.KernelPenalties, "part", counted)
    monkeypatch.setattr(ridge, "available_bytes", lambda: 0)
    return made


@pytest.mark.parametrize(
    "choices",
    [
        (),
        ("--covariates", "age"),
        ("--targets", "patient", "--covariates", "age"),
        ("--targets", "both=score,other"),
    ],
)
def test_an_ended_run_goes_on_with_the_same_bits(people, tmp_path, parts, monkeypatch, choices):
    monkeypatch.setattr(kept, "QUICK", 0.0)
    assert group(people, tmp_path / "whole", *choices) == 0
    needed = len(parts)
    assert not list((tmp_path / "whole").rglob("*.npz"))
    parts.clear()
    parts.last = needed // 2
    with pytest.raises(Ended):
        group(people, tmp_path / "ended", *choices)
    assert len(list((tmp_path / "ended" / "work" / "kept").rglob("*.npz"))) == needed // 2
    parts.clear()
    parts.last = 10**9
    assert group(people, tmp_path / "ended", *choices) == 0
    assert len(parts) == needed - needed // 2
    for table in sorted((tmp_path / "whole" / "group").glob("prediction*.tsv")):
        assert (tmp_path / "ended" / "group" / table.name).read_bytes() == table.read_bytes()
    assert not (tmp_path / "ended" / "work" / "kept" / "group").exists()


def test_other_choices_find_nothing_that_was_kept(people, tmp_path, parts, monkeypatch):
    monkeypatch.setattr(kept, "QUICK", 0.0)
    assert group(people, tmp_path / "one", "--seed", "3") == 0
    needed = len(parts)
    parts.clear()
    parts.last = needed // 2
    with pytest.raises(Ended):
        group(people, tmp_path / "two")
    parts.clear()
    parts.last = 10**9
    assert group(people, tmp_path / "two", "--seed", "3") == 0
    assert len(parts) == needed
    columns = "prediction_summary"
    one, two = (read_table(tmp_path / name / "group" / f"{columns}.tsv") for name in ("one", "two"))
    assert one.equals(two)


def test_quick_results_are_not_kept_and_damaged_ones_are_made_again(tmp_path, monkeypatch):
    def keep(key):
        return keep_result(key, lambda: np.arange(3.0), lambda array: {"x": array}, lambda named: named["x"])

    with keeping(tmp_path / "kept"):
        assert keep(lambda: fingerprint(1)).tolist() == [0, 1, 2]
        assert not (tmp_path / "kept").exists()
        monkeypatch.setattr(kept, "QUICK", 0.0)
        keep(lambda: fingerprint(1))
    (file,) = (tmp_path / "kept").iterdir()
    (tmp_path / "kept" / "mine.npz").touch()
    file.write_bytes(file.read_bytes()[:-30])
    with keeping(tmp_path / "kept"):
        assert keep(lambda: fingerprint(1)).tolist() == [0, 1, 2]
    forget_kept(tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine.npz"]
