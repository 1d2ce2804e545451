"""Commands as they are given: records of runs, weights that are fetched, folders that are closed, threads."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fcpower_bids.cli import commands
from fcpower_bids.cli.commands import fetch_weights, prefetch
from fcpower_bids.encoders import HUB_IDS, checkpoints
from fcpower_bids.encoders.checkpoints import ModelCard, read_config, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.tables import read_toml
from fcpower_bids.store import digest_of
from tests.cases.cohorts import PEOPLE, group, read, write_series, write_table
from tests.cases.people import files, run
from tests.command import main
from tests.planting.participant_outputs import make_outputs


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """Thirty people, and the answer to one question, that an earlier one was replaced with."""
    folder = write_series(tmp_path_factory.mktemp("answered"))
    numbers = {"age": range(30), "iq": [number * 7 % 30 for number in range(30)]}
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, **numbers)
    assert group(folder, "--analyses", "prediction", "--targets", "age", "--replace") == 0
    return folder


def test_a_record_gives_no_leave_to_replace(answered, capsys):
    """It has what was chosen, not what was done with a single run: to replace, to try, to make the pages again."""
    record, before = answered / "out" / "logs" / "settings_group.toml", files(answered / "out" / "group")
    assert not {"replace", "dry_run", "reports_only"} & set(read_toml(record))
    assert group(answered, "-c", record, "--targets", "iq") == 2
    assert "--replace" in capsys.readouterr().err
    assert files(answered / "out" / "group") == before
    assert group(answered, "-c", record) == 0
    assert set(read(answered, "prediction_summary")["target"]) == {"age"}


@pytest.mark.parametrize(
    "target",
    ["old=age>=1.2.3", "old=age>=", "old=age>=nan", "=age>=4"],
)
def test_a_cut_that_is_no_number_is_refused_before_any_table_is_read(answered, capsys, target):
    assert group(answered, "--targets", target) == 2
    assert f"--targets '{target}' must be NAME=COLUMN>=NUMBER." in capsys.readouterr().err


@pytest.mark.parametrize(("target", "number"), [("old = age >= 2.E+1", 20), ("old=age>=+3.5", 3.5)])
def test_a_cut_is_made_at_any_number(answered, target, number):
    words = ("--analyses", "prediction", "--targets", target, "--name", "cut", "--replace")
    assert group(answered, *words) == 0
    predictions = read(answered, "cut/predictions").dropna(subset="observed").set_index("participant_id")["observed"]
    assert predictions.to_dict() == {person: float(age >= number) for age, person in enumerate(PEOPLE)}


@pytest.fixture
def outputs(exact_demo, exact_run, tmp_path):
    """Outputs that were cleaned not at all, and the words that make their pages again."""
    out = shutil.copytree(exact_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    return out, (exact_demo[0], out, "participant", "--reports-only", "-c", tmp_path / "c.toml")


def test_pages_alone_are_of_the_choices_that_the_record_has_whatever_file_is_given(outputs, tmp_path):
    out, words = outputs
    before = (out / "logs" / "CITATION.md").read_text()
    for text in ("nprocs = 1\n", (out / "logs" / "settings.toml").read_text()):
        (tmp_path / "c.toml").write_text(text)
        (out / "sub-01.html").unlink()
        found = run(*words)
        assert found.code == 0, found.err
        assert (out / "sub-01.html").is_file()
        assert (out / "logs" / "CITATION.md").read_text() == before


@pytest.mark.parametrize("line", ["filter_order = 3", 'transforms = ["power"]\nnprocs = 1'])
def test_pages_alone_are_refused_where_a_file_chooses_otherwise(outputs, tmp_path, line):
    """Also what was not chosen when the outputs were made, which their record does not have."""
    out, words = outputs
    (tmp_path / "c.toml").write_text(line)
    before = files(out)
    found = run(*words)
    assert found.code == 2
    name = line.partition(" ")[0].replace("_", "-")
    assert f"--{name} is not what the outputs were made with" in found.err
    assert len(found.err.splitlines()) == 1
    assert files(out) == before
    other = run(*words[:-2], "--head-radius", "40")
    assert other.code == 2
    assert "--head-radius is not what the outputs were made with" in other.err


SMALL_MODEL = FBertConfig(3, d=8, layers=1, heads=2, ff=16)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one checkpoint and a file that nobody needs; it remembers what was asked of it."""
    folder = tmp_path / "hub"
    save_checkpoint(folder, FBert(SMALL_MODEL, 0), SMALL_MODEL, ModelCard(("a", "b", "c")))
    (folder / "pickle.bin").touch()
    asked = []

    def locate(weights, revision=None):
        asked.append((weights, revision))
        return folder

    monkeypatch.setattr(checkpoints, "locate", locate)
    return asked


def test_weights_are_copied_with_checksums_and_fetched_once(hub, tmp_path):
    target = tmp_path / "fetched"
    assert prefetch(["--folder", str(target), "--weights", "fbert-1m"]) == 0
    assert hub == [(HUB_IDS["fbert-1m"], None)]
    folder = target / "weights" / "fbert-1m"
    listed = [line.split("\t") for line in (folder / commands.CHECKSUMS).read_text().splitlines()[1:]]
    assert {name: int(size) for name, _, size in listed} == {
        path.name: path.stat().st_size for path in folder.iterdir() if path.name != commands.CHECKSUMS
    }
    assert all(digest_of(folder / name) == digest for name, digest, _ in listed)
    assert read_config(folder)[1].roi_labels == ("a", "b", "c")
    assert not (folder / "pickle.bin").exists()
    prefetch(["--folder", str(target), "--weights", "fbert-1m"])
    assert len(hub) == 1, "what is there is verified, not fetched again"


def test_weights_that_changed_are_noticed(hub, tmp_path):
    folder = fetch_weights("owner/name", tmp_path / "name")
    assert hub == [("owner/name", None)]
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    with pytest.raises(DatasetError, match=r"model\.safetensors is not what was fetched"):
        fetch_weights("owner/name", folder)


def refusing(function, folder: Path):
    """What of the system needs to enter the folder, as it answers to all but root."""

    def guard(path, *more, **how):
        place = "" if isinstance(path, int) else os.fspath(path)
        needed = place == str(folder) if function.__name__ == "scandir" else place.startswith(f"{folder}/")
        if needed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
        return function(path, *more, **how)

    return guard


def swallowing(asked):
    """``is_dir`` and its kin, as from 3.14 on."""

    def answer(path, *more, **how):
        try:
            return asked(path, *more, **how)
        except PermissionError:
            return False

    return answer


@pytest.mark.skipif(sys.version_info < (3, 11), reason="paths of Python 3.10 keep functions of the system of their own")
@pytest.mark.parametrize(
    ("closed", "command"),
    [
        ("bids", "{0}/bids {0}/new participant"),
        ("out/sub-03", "{0}/bids {0}/out group --analyses fingerprinting"),
    ],
)
def test_a_closed_folder_is_not_called_absent(tmp_path, monkeypatch, capsys, closed, command):
    make_outputs(tmp_path, people=3)
    for name in ("stat", "scandir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name), tmp_path / closed))
    for name in ("is_dir", "is_file", "exists"):
        monkeypatch.setattr(Path, name, swallowing(getattr(Path, name)))
    code = main(command.format(tmp_path).split())
    said = capsys.readouterr().err
    assert code == 2, said
    assert f"{tmp_path / closed}" in said
    assert "is closed to you" in said
    assert "Traceback" not in said


THREADS = """
import sys
from fcpower_bids import app

def level(settings):
    import numpy, scipy.linalg
    from threadpoolctl import threadpool_info
    print({pool["num_threads"] for pool in threadpool_info()})
    return 0

app.level_of = lambda settings: level
sys.exit(app.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("level", "number"), [("participant", 1), ("group", 2)])
def test_blas_has_the_threads_that_are_asked_for_whatever_the_environment(level, number, tmp_path):
    named = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    words = [str(tmp_path), str(tmp_path / "out"), level, *(["--omp-nthreads", "2"] if number == 2 else [])]
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str({min(number, os.cpu_count() or 1)}), done.stderr
