"""Names that a file states lead nowhere out of its folder: planted in what is read, and sought in the source."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cli.commands import CHECKSUMS, fetch_weights
from fcpower_bids.clinic.fit import CARD, REFERENCE, load_model, save_model
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.group import FinishedAnalyses
from fcpower_bids.outputs.status import write_status_table
from fcpower_bids.store import digest_of, stored_path
from tests.running import run_app

WORD = "the diary of the user"
"""Of the files that a name leads to: no output may hold it, and no command may remove it."""


@pytest.fixture
def outputs(exact_run, tmp_path):
    """Outputs beside a file of the user."""
    (tmp_path / "diary.tsv").write_text(f"{WORD}\n")
    (tmp_path / "diary.json").write_text(json.dumps({WORD: WORD}))
    return shutil.copytree(exact_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))


def absolute(output):
    return str(output.parent / "diary.tsv")


def climbing(output):
    return "sub-01/../../diary.tsv"


def linked(output):
    (output / "sub-01" / "diary.tsv").symlink_to(output.parent / "diary.tsv")
    return "sub-01/diary.tsv"


PLANTS = (absolute, climbing, linked)


def plant(output, name):
    """Name a file of the user among the outputs of a recording."""
    status = sorted((output / "logs" / "status").glob("sub-01*.json"))[0]
    facts = json.loads(status.read_text())
    status.write_text(json.dumps({**facts, "outputs": [*facts["outputs"], name]}))
    return status.stem


@pytest.mark.parametrize("kind", PLANTS)
def test_a_status_removes_no_file_of_the_user(exact_demo, outputs, tmp_path, kind):
    name = kind(outputs)
    recording = plant(outputs, name)
    found = run_app(
        exact_demo[0], outputs, "--atlas", "builtin", "--min-time", "90000", "--participant-label", "01", "--replace"
    )
    assert found.states()[recording] == "excluded"
    assert (tmp_path / "diary.tsv").read_text() == f"{WORD}\n"


@pytest.mark.parametrize("kind", PLANTS)
def test_a_status_leads_to_no_file_of_the_user(outputs, kind):
    name = kind(outputs)
    recording = plant(outputs, name)
    table = write_status_table(outputs).set_index("recording")
    if kind is not linked:
        assert table["state"][recording] == "failed"


def test_an_atlas_of_a_sidecar_leads_nowhere(exact_demo, outputs):
    for sidecar in outputs.glob("sub-01/**/func/*.json"):
        facts = json.loads(sidecar.read_text())
        if "Atlas" in facts:
            sidecar.write_text(json.dumps({**facts, "Atlas": {**facts["Atlas"], "Space": "../../../../diary"}}))
    found = run_app(exact_demo[0], outputs, "--atlas", "builtin", "--reports-only", "--participant-label", "01")
    assert found.code == 4
    assert "Traceback" not in found.err
    assert "leads out of that folder" in found.err
    assert WORD not in (outputs / "sub-01.html").read_text()


@pytest.mark.parametrize("name", ["../diary.tsv", "{0}/diary.tsv"])
def test_results_and_models_name_only_their_own(tmp_path, name):
    folder, diary, name = tmp_path / "own", tmp_path / "diary.tsv", name.format(tmp_path)
    folder.mkdir()
    diary.write_text(WORD)
    digest = FinishedAnalyses(folder)
    digest._entries = {"check": {"key": "k", "files": {name: "x"}}}
    (folder / "analyses.json").write_text(json.dumps(digest._entries))
    assert FinishedAnalyses(folder).names == []

    (folder / CHECKSUMS).write_text(f"file\tsha256\n{name}\t{digest_of(diary)}\n")
    with pytest.raises(DatasetError, match="leads out"):
        fetch_weights("fbert-1m", folder)

    nothing = pd.DataFrame(columns=list(REFERENCE.columns))
    card = json.loads((save_model(folder / "m", {"a": np.zeros(2)}, {}, nothing) / CARD).read_text())
    card["Digests"][name] = digest_of(diary)
    (folder / "m" / CARD).write_text(json.dumps(card))
    with pytest.raises(DatasetError, match="leads out"):
        load_model(folder / "m")
    assert diary.read_text() == WORD


def test_the_annex_of_a_dataset_is_no_place_outside(tmp_path):
    kept = tmp_path / ".git" / "annex" / "objects" / "x"
    kept.parent.mkdir(parents=True)
    kept.write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.tsv").symlink_to(kept)
    assert stored_path(tmp_path / "out", "x.tsv").read_text() == "x"
