"""The status of a recording decides whether it is done again."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fcpower_bids.outputs import status
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings


@pytest.fixture
def case(tmp_path):
    bold = tmp_path / "bold.nii.gz"
    bold.write_bytes(b"data")
    recording = Recording(bold, (("sub", "01"), ("task", "rest")), 2.0)
    chosen = Settings(tmp_path / "in", tmp_path / "out", "participant")
    output = tmp_path / "out" / "sub-01" / "x.tsv"
    output.parent.mkdir(parents=True)
    output.write_text("x")
    mark = status.fingerprint(recording, chosen.method, (), None)
    done = status.Status(recording.name, status.DONE, "write", fingerprint=mark, outputs=("sub-01/x.tsv",))
    status.write_status(chosen.output_dir, done)
    return recording, chosen, output


def test_an_atlas_is_known_by_its_content(case, tmp_path):
    recording, chosen, _ = case
    image = tmp_path / "atlas.nii"
    image.write_bytes(b"labels")
    atlas = Atlas((("atlas", "X"),), image, "MNI", (1, 2), ("a", "b"), ("n/a",) * 2, ("n/a",) * 2)
    mark = status.fingerprint(recording, chosen.method, [atlas], None)
    os.utime(image, (0, 0))
    assert status.fingerprint(recording, chosen.method, [atlas], None) == mark
    moved = replace(atlas, image=Path(shutil.copy(image, tmp_path / "copy.nii")))
    assert status.fingerprint(recording, chosen.method, [moved], None) == mark
    others = [replace(atlas, names=("b", "a")), replace(atlas, labels=(2, 1))]
    image.write_bytes(b"LABELS")
    marks = {
        status.fingerprint(recording, chosen.method, atlases, None)
        for atlases in ([atlas], *([one] for one in others), [])
    }
    assert len(marks | {mark}) == 5


@pytest.mark.parametrize("weights", ["best_model.pth", "jepa-ep300.pth.tar", "pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("in_folder", [False, True])
def test_not_finished_when_weights_or_what_comes_with_them_changed(case, tmp_path, weights, in_folder):
    recording, chosen, _ = case
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (weights, "gradients.csv", "README.md"):
        (folder / name).write_text("before")
    named = (folder, folder) if in_folder else (folder / weights, folder / "gradients.csv")
    chosen = chosen.changed(encoder="brain-jepa", encoder_weights=str(named[0]), encoder_aux=(named[1],))
    seen = {status.fingerprint(recording, chosen.method, (), None)}
    (folder / "README.md").write_text("something else")
    assert status.fingerprint(recording, chosen.method, (), None) in seen
    for name in (weights, "gradients.csv"):
        (folder / name).write_text("something else")
        mark = status.fingerprint(recording, chosen.method, (), None)
        assert mark not in seen
        seen.add(mark)


@pytest.mark.parametrize(
    ("noted", "sentence"),
    [
        (
            "OSError: [Errno 28] No space left on device: '/out/sub-01_relmat.tsv'",
            "No space left on device while writing to /out/sub-01_relmat.tsv: make room, and run the same command "
            "again.",
        ),
        (
            "OSError: [Errno 30] Read-only file system: '/out/x'",
            "Read-only file system while writing to /out/x: choose a folder that can be written, and run the same "
            "command again.",
        ),
        (
            "OSError: [Errno 28] No space left on device",
            "No space left on device while writing: make room, and run the same command again.",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/x'",
            "Internal error, please report it with logs/crashes/crash-1.txt (FileNotFoundError: [Errno 2] No such file "
            "or directory: '/x').",
        ),
    ],
)
def test_what_nipype_noted_of_a_full_disk_is_the_sentence_of_any_other(tmp_path, noted, sentence):
    note = tmp_path / "logs" / "crashes" / "crash-1.txt"
    note.parent.mkdir(parents=True)
    note.write_text(f"Node: app.sub_01.clean\n\nTraceback\n{noted}\n")
    assert status.explain_step(tmp_path, "sub_01") == sentence
