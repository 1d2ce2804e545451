"""A folder that may not be entered is called closed, on Pythons too that take it for absent (from 3.14 on)."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from tests.command import main
from tests.planting.participant_outputs import make_outputs


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
        ("bids", "{0}/bids {0}/new participant --derivatives x={0}/bids/derivatives/fmriprep"),
        ("out", "{0}/bids {0}/out group --analyses fingerprinting"),
        ("out", "predict {0}/out/group/models/x {0}/out"),
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
