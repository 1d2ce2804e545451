"""``status``, ``export``, ``predict`` and ``identify`` on outputs that may be read and not written."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.outputs.tables import read_table
from fcpower_bids.slices.clinic import identify, predict
from fcpower_bids.slices.sharing import export
from tests.slices.clinic.planted import group, make_cohort, make_pairs, models

LOADED = (export, identify, predict)
"""Before this process becomes somebody else, who may not enter the folders of Python's own modules."""

NOBODY = 65534


@contextmanager
def read_only(folder: Path):
    """Nothing in a folder can be written to, by root neither, who becomes somebody else."""
    user, folders = os.geteuid(), [folder, *(one for one in folder.rglob("*") if one.is_dir())]
    for one in folders:
        one.chmod(0o555)
    if not user:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if not user:
            os.seteuid(user)
        for one in folders:
            one.chmod(0o755)


@pytest.fixture
def place():
    """A folder that everybody may enter, with one that everybody may write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "mine").mkdir()
    (folder / "mine").chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def outputs(exact_run, place):
    return shutil.copytree(exact_run.output, place / "out", ignore=shutil.ignore_patterns("work"))


def test_status_is_told_and_not_written(outputs, capsys):
    (outputs / "logs" / "status.tsv").write_text("recording\tstate\nof-yesterday\tdone\n")
    with read_only(outputs):
        assert main(["status", str(outputs)]) == 0
    said = capsys.readouterr().out
    assert "4 done" in said
    assert f"{outputs} is closed to you, so logs/status.tsv and index.html stay as they are." in said
    assert "of-yesterday" in (outputs / "logs" / "status.tsv").read_text()


def test_a_copy_keeps_who_is_who_beside_it(outputs, place, capsys):
    share = place / "mine" / "share"
    with read_only(outputs):
        assert main(["export", str(outputs), str(share)]) == 0
    said, ids = capsys.readouterr().out, place / "mine" / "share_shared_ids.tsv"
    assert f"Who is who: {ids}" in said
    names = read_table(ids).set_index("participant_id")["shared_id"]
    assert {path.name for path in share.glob("sub-*") if path.is_dir()} == {f"sub-{name}" for name in names}
    assert not ids.stat().st_mode & 0o077


def test_predictions_go_to_a_table_elsewhere(place, capsys):
    root = make_cohort(place, 0.95, new=3)
    assert group(root) == 0
    (model,), table = models(root), place / "mine" / "table.tsv"
    assert main(["predict", str(model), str(root / "new"), "--no-pages"]) == 0
    usual = (root / "new" / "group" / "predicted" / "target-age-fc.tsv").read_text()
    with read_only(root / "new"):
        assert main(["predict", str(model), str(root / "new")]) == 2
        said = capsys.readouterr().err
        assert main(["predict", str(model), str(root / "new"), "--table", str(table), "--no-pages"]) == 0
    assert f"{root / 'new'} is closed to you, so no table and no page can be written there" in said
    assert "--table FILE --no-pages" in said
    assert table.read_text() == usual


def test_a_refusal_names_no_temporary_file(place, capsys):
    out = make_pairs(place, people=4)
    (out / "group").mkdir()
    with read_only(out):
        assert main(["identify", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"{out / 'group'} is closed to you, so identify_pairs.tsv cannot be written. Open it, or choose" in said
