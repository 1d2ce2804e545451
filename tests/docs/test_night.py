"""The script of a clinic's night, as it is in the documentation: new scans, a broken one, and the night after."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fcpower_bids.outputs.tables import read_table
from tests.conftest import copy_study
from tests.docs.pages import DOCS
from tests.running import run_group

AUDIT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \S+ exit=(\d+) sha256=(\w{16}) fcpower_bids (.*)")
NAME = "target-planted-score-fc-power"
PREDICTED = f"group/predicted/{NAME}.tsv"


@pytest.fixture
def study(cohort_of_24, tmp_path):
    """The cohort, with a model of its scores."""
    place = tmp_path / "study"
    place.mkdir()
    copy_study(cohort_of_24, place)
    chosen = ("--targets", "planted_score", "--representations", "fc_power", "--analyses", "prediction", "--repeats", 1)
    quick = ("--folds", 5, "--inner-folds", 3, "--permutations", 0, "--quiet", "--nprocs", 1)
    assert run_group(place / "in", place / "out", *chosen, *quick, "--save-models", "--accept-no-skill") == 0
    return place


@pytest.fixture
def night(study, tmp_path):
    """Run one night on ``tmp_path/bids``, and its program: gives the exit code and the lines that the audit gained."""
    program = tmp_path / "bin" / "fcpower_bids"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fcpower_bids "$@"\n')
    program.chmod(0o755)
    more = {"PATH": f"{program.parent}:{os.environ['PATH']}", "NIGHT_OPTIONS": "--atlas builtin --nprocs 1 --quiet"}
    more["PREDICT_OPTIONS"] = "--accept-no-skill"

    def run():
        audit = tmp_path / "out" / "logs" / "audit.log"
        before = audit.read_text().splitlines() if audit.exists() else []
        model = study / "out" / "group" / "models" / f"{NAME}_model"
        command = ["sh", DOCS / "examples" / "night.sh", tmp_path / "bids", tmp_path / "out", model]
        done = subprocess.run([*map(str, command)], env=os.environ | more, check=False)
        lines = audit.read_text().splitlines()
        assert lines[: len(before)] == before  # nothing in it is ever changed
        return done.returncode, [AUDIT.fullmatch(line).groups() for line in lines[len(before) :]]

    return run, program


def bring(study: Path, bids: Path, person: str) -> Path:
    """Copy the first session of one person; return the series."""
    for name in ("dataset_description.json", "derivatives/fmriprep/dataset_description.json"):
        (bids / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(study / "in" / name, bids / name)
    place = Path("derivatives/fmriprep") / person / "ses-a"
    shutil.copytree(study / "in" / place, bids / place)
    return next((bids / place).rglob("*_desc-preproc_bold.nii.gz"))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def test_a_night_names_what_is_broken_and_goes_on_and_the_next_adds_to_its_audit(night, study, tmp_path):
    run, program = night
    out = tmp_path / "out"
    bring(study, tmp_path / "bids", "sub-01")
    series = bring(study, tmp_path / "bids", "sub-02")
    series.write_bytes(series.read_bytes()[: series.stat().st_size // 2])  # it is still being copied
    code, lines = run()
    assert (code, [line[0] for line in lines]) == (4, ["4", "4"])
    assert [line[1] for line in lines] == [digest(out / "logs" / "status.tsv"), digest(out / PREDICTED)]
    assert [re.split(r" ", line[2])[0 if "predict" in line[2] else 2] for line in lines] == ["participant", "predict"]
    rows = read_table(out / PREDICTED).set_index("participant_id")
    assert rows["state"].to_dict() == {"sub-01": "predicted", "sub-02": "refused"}
    assert rows.loc["sub-02", "quality"] == "stop"
    program.write_text("#!/bin/sh\n")  # the next night all goes well
    code, lines = run()
    assert (code, [line[0] for line in lines]) == (0, ["0", "0"])
