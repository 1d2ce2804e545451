"""Each thing that can be wrong with one recording: its own sentence, with the file and the remedy."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fcpower_bids.inputs.discover import find_recordings
from tests.planting.trees import MNI, N_VOLUMES, add_run, describe, nifti, put, settings, table, zipped

RUN = "sub-01_task-rest"
BOLD = f"{RUN}_{MNI}_desc-preproc_bold.nii.gz"
SIDECAR = f"{RUN}_{MNI}_desc-preproc_bold.json"
MASK = f"{RUN}_{MNI}_desc-brain_mask.nii.gz"
CONFOUNDS = f"{RUN}_desc-confounds_timeseries.tsv"
ALL = {"bold", "mask", "confounds", "TR"}


@pytest.fixture
def root(tmp_path):
    root = describe(tmp_path / "fmriprep")
    add_run(root, "sub-02_task-rest")
    return root


@pytest.fixture
def folder(root):
    return add_run(root, RUN)


def the_problem(root):
    """The one problem there is; the other recording goes on."""
    found = find_recordings(settings(root))
    assert [recording.subject for recording in found.recordings] == ["02"]
    (problem,) = found.problems
    assert (problem.recording, problem.kind) == (f"{RUN}_{MNI}", "failed")
    return problem


def test_a_sound_recording_has_no_problem(root, folder):
    found = find_recordings(settings(root))
    assert (len(found.recordings), found.problems, found.notes, found.volumes) == (2, (), (), (N_VOLUMES,) * 2)
    first = found.recordings[0]
    assert (first.bold, first.mask, first.confounds) == (folder / BOLD, folder / MASK, folder / CONFOUNDS)
    assert first.confounds_metadata == folder / f"{RUN}_desc-confounds_timeseries.json"
    assert first.sidecar == folder / SIDECAR
    assert first.repetition_time == 2.0
    assert first.name == f"{RUN}_{MNI}"


FAULTS = {
    "mask missing": (MASK, None, "has no brain mask: sub-01_task-rest_space-MNI", {"mask"}),
    "mask empty": (MASK, b"", f"{MASK} is empty", {"mask"}),
    "confounds empty": (CONFOUNDS, b"", f"{CONFOUNDS} is empty", {"confounds"}),
    "confounds short": (CONFOUNDS, table(3), "has 3 rows but .* has 5 volumes", {"confounds"}),
    "bold empty": (BOLD, b"", f"{BOLD} is empty", {"bold"}),
    "bold not gzip": (BOLD, nifti(), "is not gzip although its name says so", {"bold"}),
    "bold is a pointer": (BOLD, b"/annex/objects/MD5E-s1--a.nii.gz\n", "stands for content.*datalad", {"bold"}),
    "bold no image": (BOLD, gzip.compress(b"no image at all"), "cannot be read as an image", {"bold"}),
    "bold 3-D": (BOLD, zipped(0), "has shape .* four dimensions", {"bold"}),
    "bold of one volume": (BOLD, zipped(1), "holds a single volume", {"bold"}),
    "JSON broken": (SIDECAR, "{", f"{SIDECAR} is not valid JSON", {"TR"}),
    "TR no number": (SIDECAR, {"RepetitionTime": "two"}, "'two', which is no number", {"TR"}),
    "TR in milliseconds": (SIDECAR, {"RepetitionTime": 2000}, "of 2000, which cannot be seconds.*milliseconds", {"TR"}),
    "TR not finite": (SIDECAR, '{"RepetitionTime": NaN}', "cannot be seconds", {"TR"}),
    "TR disagrees": (SIDECAR, {"RepetitionTime": 2.1}, "of 2.1 s but the header of .* gives 2 s", {"TR"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_sentence(root, folder, fault):
    name, content, sentence, wrong = FAULTS[fault]
    (folder / name).unlink()
    if content is not None:
        put(folder / name, content)
    problem = the_problem(root)
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(problem.sentence)
    assert str(folder) in problem.sentence
    assert ALL - set(problem.usable) - {"TR"} == wrong - {"TR"}
    assert ("TR" in problem.usable) == ("TR" not in wrong)


def test_all_that_is_wrong_is_told_at_once(root, folder):
    (folder / MASK).unlink()
    put(folder / CONFOUNDS, table(2))
    put(folder / SIDECAR, {"RepetitionTime": 1.0})
    problem = the_problem(root)
    assert problem.usable == ("bold",)
    for part in ("has no brain mask", "has 2 rows", "of 1 s but the header"):
        assert part in problem.sentence


@pytest.mark.parametrize(
    ("header_tr", "stated", "expected"), [(2.0, None, 2.0), (0.0, 2.5, 2.5), (2.0, 2.015, 2.015), (2.0, "2.0", 2.0)]
)
def test_json_and_header_complete_each_other(root, header_tr, stated, expected):
    folder = add_run(root, RUN, bold=zipped(header_tr=header_tr))
    put(folder / SIDECAR, {"RepetitionTime": stated})
    assert find_recordings(settings(root)).recordings[0].repetition_time == expected


def test_implausible_header_is_told_when_there_is_no_json(root):
    folder = add_run(root, RUN, bold=zipped(header_tr=25.0))
    (folder / SIDECAR).unlink()
    assert "of 25.0, which cannot be seconds" in the_problem(root).sentence


def test_a_file_that_is_closed_to_the_user_is_named(root, folder, monkeypatch):
    """As root nothing is closed, so that the system says it here for this one file."""
    opened = Path.open

    def refuse(path, *given, **named):
        if path.name == MASK:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *given, **named)

    monkeypatch.setattr(Path, "open", refuse)
    assert f"{MASK} may not be read (Permission denied): give yourself read access" in the_problem(root).sentence
