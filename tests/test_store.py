"""The one place that writes: whole or not at all, under names that nobody shares, and nobody else writes."""

from __future__ import annotations

import ast
import errno
import os
from pathlib import Path

import pytest

from fcpower_bids import store

PACKAGE = Path(store.__file__).parent


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = store.write_text(tmp_path / "x.tsv", "old\n")

    def write_and_fail():
        with store.atomic(path) as temporary:
            temporary.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_and_fail()
    assert path.read_text() == "old\n"
    assert names(tmp_path) == ["x.tsv"]


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


def test_a_full_disk_is_known_whichever_library_writes(tmp_path):
    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(OSError, match="No space left") as raised, store.atomic(tmp_path / "a.safetensors"):
        raise RuntimeError(said)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left") as raised, store.atomic(tmp_path / "a.tsv") as temporary:
        raise OSError(errno.ENOSPC, "No space left on device")
    named = store.explain_no_room(raised.value)
    assert named == store.explain_no_room(OSError(errno.ENOSPC, "No space left on device", str(temporary)))
    assert f"No space left on device while writing to {tmp_path / 'a.tsv'}: make room" in named
    assert "can be written" in store.explain_no_room(OSError(errno.EROFS, "Read-only file system", str(temporary)))
    assert store.explain_no_room(OSError(errno.EACCES, "Permission denied", str(temporary))) is None
    with pytest.raises(RuntimeError, match="ours"), store.atomic(tmp_path / "a.safetensors"):
        raise RuntimeError("ours")
    assert not list(tmp_path.iterdir())
