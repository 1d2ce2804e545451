"""Commands as they are given: records of runs, weights that are fetched, folders that are closed, threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from fcpower_bids.cli import commands
from fcpower_bids.cli.commands import prefetch
from fcpower_bids.encoders import HUB_IDS, checkpoints
from fcpower_bids.encoders.checkpoints import ModelCard, read_config, save_checkpoint
from fcpower_bids.encoders.fbert import FBert, FBertConfig
from fcpower_bids.outputs.tables import read_toml
from fcpower_bids.store import digest_of
from tests.cases.cohorts import PEOPLE, group, read, write_series, write_table
from tests.cases.people import files, run


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


@pytest.fixture
def outputs(exact_demo, exact_run, tmp_path):
    """Outputs that were cleaned not at all, and the words that make their pages again."""
    out = shutil.copytree(exact_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    return out, (exact_demo[0], out, "participant", "--reports-only", "-c", tmp_path / "c.toml")


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
