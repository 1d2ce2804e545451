"""The installation test passes here, and names the step where one coefficient, one order or one weight was changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import fcpower_bids
from fcpower_bids.cli.run import main
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.workflows.selftest import compare_steps, read_answers

PACKAGE = Path(fcpower_bids.__file__).parent


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selftest") / "new"
    assert main(["selftest", str(folder), "--encoder-weights", str(write_encoder(folder.parent / "mine"))]) == 0
    return folder


def write_encoder(folder: Path) -> Path:
    from fcpower_bids.encoders.checkpoints import ModelCard, save_checkpoint
    from fcpower_bids.encoders.fbert import FBert, FBertConfig

    config = FBertConfig(n_parcels=3, d=8, layers=1, heads=2)
    save_checkpoint(folder, FBert(config, seed=4), config, ModelCard(("a", "b", "c")))
    return folder


def test_this_installation_computes_what_it_should(tested, capsys):
    table = read_table(tested / "selftest.tsv").set_index("step")
    assert set(table["verdict"]) == {"as stored"}
    assert len(table) >= 9
    assert (table["difference"] <= table["tolerance"]).all()
    assert main(["selftest", str(tested)]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("step", "pattern", "change"),
    [
        ("atlas", "out/sourcedata/atlases/**/*_dseg.tsv", lambda table: table.iloc[[1, 0, *range(2, len(table))]]),
        ("connectivity", "out/**/*_stat-pearsoncorrelation_relmat.tsv", lambda table: table.iloc[::-1]),
        ("power", "out/**/*_desc-power0p35_relmat.tsv", lambda table: table.replace(table.iloc[3, 5], 0.9)),
    ],
)
def test_the_first_step_that_differs_is_named(tested, tmp_path, step, pattern, change):
    shutil.copytree(tested, tmp_path / "copy")
    file = next((tmp_path / "copy").glob(pattern))
    change(pd.read_csv(file, sep="\t")).to_csv(file, sep="\t", index=False)
    assert compare_steps(tmp_path / "copy", read_answers(None)).first_fault == step
    file.unlink()
    assert compare_steps(tmp_path / "copy", read_answers(None)).first_fault == step


def test_an_encoder_is_tested_with_its_weights(tested, tmp_path):
    """One weight changed, and no proof: a step that differs, and one with nothing to compare with."""
    from safetensors.numpy import load_file, save_file

    record = json.loads((tested / "selftest.json").read_text())
    assert "encoder mine" in record["steps"]
    weights = shutil.copytree(tested.parent / "mine", tmp_path / "mine")
    tensors = load_file(weights / "model.safetensors")
    name = max(tensors, key=lambda one: tensors[one].size)
    tensors[name].flat[0] += 1e-4
    save_file(tensors, weights / "model.safetensors")
    assert compare_steps(tested, read_answers(None), [weights]).first_fault == "encoder mine"
    config = json.loads((weights / "config.json").read_text())
    del config["proof"]
    (weights / "config.json").write_text(json.dumps(config))
    outcome = compare_steps(tested, read_answers(None), [weights])
    assert outcome.first_fault is None
    assert outcome.table.set_index("step").loc["encoder mine", "verdict"] == "not stored"
    against = compare_steps(tested, read_answers(tested / "selftest.json"), [weights])
    assert against.first_fault == "encoder mine", "an earlier record is compared with"


def run_changed(folder, module, old, new):
    """The command of a copy of the program in which one line is another."""
    shutil.copytree(PACKAGE, folder / "fcpower_bids", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "fcpower_bids" / module
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    command = [sys.executable, "-m", "fcpower_bids", "selftest"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_a_changed_coefficient_of_the_filter_is_named_by_the_command(tmp_path):
    done = run_changed(tmp_path, "core/signal/filtering.py", 'output="sos")', 'output="sos") * [1.001, 1, 1, 1, 1, 1]')
    assert done.returncode == 1, done.stderr
    assert "the first step that differs is 'bandpass'" in done.stdout


def test_a_program_that_ends_with_an_error_has_failed_whatever_it_has_written(tested, tmp_path):
    outcome = compare_steps(tested, read_answers(None), broken="fcpower_bids")
    assert outcome.first_fault == "fcpower_bids"
    assert outcome.table.set_index("step").loc["fcpower_bids", "verdict"] == "failed"
    done = run_changed(tmp_path, "demo/__main__.py", "from __future__ import annotations", "1 / 0")
    assert done.returncode == 1, "a mistake of the program is no input that cannot be used"
    assert "ZeroDivisionError" in done.stdout
    assert "the first step that differs is 'input'" in done.stdout


def test_an_earlier_record_shows_what_moved(tested, tmp_path, capsys):
    earlier = json.loads((tested / "selftest.json").read_text())
    earlier["steps"]["power"]["rms"] *= 1.01
    (tmp_path / "earlier.json").write_text(json.dumps(earlier))
    outcome = compare_steps(tested, read_answers(tmp_path / "earlier.json"))
    row = outcome.table.set_index("step").loc["power"]
    assert row["verdict"] == "different"
    assert row["difference"] == pytest.approx(0.01 / 1.01)
    (tmp_path / "broken.json").write_text("{}")
    assert main(["selftest", "--against", str(tmp_path / "broken.json")]) == 3
    assert "no record of a self-test" in capsys.readouterr().err
