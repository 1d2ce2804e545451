"""The one place that writes: whole or not at all, by one of all, and nowhere out of its folder."""

from __future__ import annotations

import ast
import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids import store
from fcpower_bids.clinic.fit import CARD, load_model, save_model
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.group import FinishedAnalyses
from fcpower_bids.store import digest_of, lock, stored_path
from tests.running import run_app

PACKAGE = Path(store.__file__).parent


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_are_on_the_disk_before_they_have_their_name(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.readlink(f"/proc/self/fd/{handle}")))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append(str(new)), replace(old, new)))
    store.write_text(tmp_path / "x", "text")
    assert [Path(event).name.split(".")[-1] for event in events] == ["part", "x"]


def test_a_folder_that_cannot_be_filled_leaves_the_old_one(tmp_path):
    folder = tmp_path / "model"
    store.replace_folder(folder, lambda new: (new / "a").write_text("old") and None)

    def fail(new: Path) -> None:
        (new / "a").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.replace_folder(folder, fail)
    assert names(tmp_path) == ["model"]
    assert (folder / "a").read_text() == "old"


WRITERS = {"replace", "rename", "write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "getpid"}
ALLOWED = {"store.py": "it is the place", "workflows/recording.py": "names the process at work"}


def calls(path: Path) -> set[str]:
    """Names of functions of the system or of paths that a module writes files with."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITERS:
            owner = node.func.value
            is_text = node.func.attr in ("replace", "rename") and not (isinstance(owner, ast.Name) and owner.id == "os")
            is_frame = node.func.attr == "rename" and any(word.arg for word in node.keywords)
            if not is_text and not is_frame:
                found.add(node.func.attr)
    return found


def test_nobody_else_writes():
    modules = [path for path in PACKAGE.rglob("*.py") if "demo" not in path.parts]
    found = {str(path.relative_to(PACKAGE)): calls(path) for path in modules}
    assert {name: used for name, used in found.items() if used and name not in ALLOWED} == {}
    assert found["store.py"] >= {"replace", "write_text", "write_bytes"}


def test_a_shared_file_is_written_once(tmp_path):
    path = store.write_shared(tmp_path, tmp_path / "logs" / "x", "text")
    before = path.stat()
    store.write_shared(tmp_path, path, "text")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert store.write_shared(tmp_path, path, "other").read_text() == "other"
    assert not (tmp_path / store.LOCKS).exists()


@pytest.mark.parametrize("folder", ["logs", "sourcedata/atlases/tpl-MNI152NLin6Asym"])
def test_what_the_killed_left_is_swept_and_what_is_being_written_is_not(tmp_path, folder):
    left, making = (store.beside(tmp_path / folder / name) for name in ("left.html", "making.toml"))
    left.parent.mkdir(parents=True, exist_ok=True)
    for path in (left, making):
        path.write_text("x")
    with lock(tmp_path / store.LOCKS / "making.toml"):
        store.sweep_shared(tmp_path)
        assert [path.exists() for path in (left, making)] == [False, True]
    store.sweep_shared(tmp_path)
    assert not making.exists()


WORD = "the diary of the user"
"""Of the files that a name leads to: no output may hold it, and no command may remove it."""


@pytest.fixture
def outputs(outputs, tmp_path):
    """Outputs beside a file of the user."""
    (tmp_path / "diary.tsv").write_text(f"{WORD}\n")
    (tmp_path / "diary.json").write_text(json.dumps({WORD: WORD}))
    (outputs / "sub-01" / "diary.tsv").symlink_to(tmp_path / "diary.tsv")
    return outputs


PLANTS = {
    "absolute": lambda output: str(output.parent / "diary.tsv"),
    "climbing": lambda output: "sub-01/../../diary.tsv",
    "linked": lambda output: "sub-01/diary.tsv",
}


@pytest.mark.parametrize("kind", PLANTS)
def test_a_status_removes_no_file_of_the_user(exact_demo, outputs, tmp_path, kind):
    status = next((outputs / "logs" / "status").glob("sub-01*.json"))
    facts = json.loads(status.read_text())
    status.write_text(json.dumps({**facts, "outputs": [*facts["outputs"], PLANTS[kind](outputs)]}))
    words = ("--atlas", "builtin", "--min-time", "90000", "--participant-label", "01", "--replace")
    found = run_app(exact_demo[0], outputs, *words)
    assert found.states()[status.stem] == "excluded"
    assert (tmp_path / "diary.tsv").read_text() == f"{WORD}\n"


def test_an_atlas_of_a_sidecar_leads_nowhere(exact_demo, outputs):
    for sidecar in outputs.glob("sub-01/**/func/*.json"):
        facts = json.loads(sidecar.read_text())
        if "Atlas" in facts:
            sidecar.write_text(json.dumps({**facts, "Atlas": {**facts["Atlas"], "Space": "../../../../diary"}}))
    found = run_app(exact_demo[0], outputs, "--atlas", "builtin", "--reports-only", "--participant-label", "01", code=4)
    assert "Traceback" not in found.err
    assert "leads out of that folder" in found.err
    assert WORD not in (outputs / "sub-01.html").read_text()


@pytest.mark.parametrize("name", ["../diary.tsv", "{0}/diary.tsv"])
def test_results_and_models_name_only_their_own(tmp_path, name):
    folder, diary, name = tmp_path / "own", tmp_path / "diary.tsv", name.format(tmp_path)
    folder.mkdir()
    diary.write_text(WORD)
    (folder / "analyses.json").write_text(json.dumps({"key": "k", "analyses": {"check": {"files": {name: "x"}}}}))
    assert FinishedAnalyses(folder).names == FinishedAnalyses(folder).begin("other") == []
    assert diary.read_text() == WORD

    card = json.loads((save_model(folder / "m", {"a": np.zeros(2)}, {}) / CARD).read_text())
    card["Digests"][name] = digest_of(diary)
    (folder / "m" / CARD).write_text(json.dumps(card))
    with pytest.raises(DatasetError, match="leads out"):
        load_model(folder / "m")
    assert diary.read_text() == WORD
    weights = save_model(folder / "linked", {"a": np.zeros(2)}, {}) / "weights.npz"
    weights.rename(tmp_path / "elsewhere.npz")
    weights.symlink_to(tmp_path / "elsewhere.npz")
    with pytest.raises(DatasetError, match="leads out"):
        load_model(folder / "linked")


def test_the_annex_of_a_dataset_is_no_place_outside(tmp_path):
    kept = tmp_path / ".git" / "annex" / "objects" / "x"
    kept.parent.mkdir(parents=True)
    kept.write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.tsv").symlink_to(kept)
    assert stored_path(tmp_path / "out", "x.tsv").read_text() == "x"


def test_a_full_disk_is_known_whichever_library_writes(tmp_path):
    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(OSError, match="No space left") as raised, store.atomic(tmp_path / "a.safetensors"):
        raise RuntimeError(said)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left") as raised, store.atomic(tmp_path / "a.tsv") as temporary:
        raise OSError(errno.ENOSPC, "No space left on device")
    named = store.explain_refusal(raised.value)
    assert named == store.explain_refusal(OSError(errno.ENOSPC, "No space left on device", str(temporary)))
    assert f"No space left on device while writing to {tmp_path / 'a.tsv'}: make room" in named
    assert "can be written" in store.explain_refusal(OSError(errno.EROFS, "Read-only file system", str(temporary)))
    closed = store.explain_refusal(OSError(errno.EACCES, "Permission denied", str(temporary)))
    assert closed.startswith(f"{tmp_path} is closed to you, so a.tsv cannot")
    assert store.explain_refusal(OSError(errno.ENOENT, "No such file or directory", str(temporary))) is None
    with pytest.raises(RuntimeError, match="ours"), store.atomic(tmp_path / "a.safetensors"):
        raise RuntimeError("ours")
    assert not list(tmp_path.iterdir())
