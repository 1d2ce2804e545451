"""``fcpower_bids export``: a search for the people, paths and names of the outputs finds nothing in the copy."""

from __future__ import annotations

import csv
import getpass
import gzip
import json
import re
import shutil
import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fcpower_bids
from fcpower_bids.cli.run import main
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.dataset import describe_without_folders, without_folders
from fcpower_bids.slices.sharing.export import labels_in
from fcpower_bids.store import DIGESTS, change_of
from tests.running import contents, run_rounded

PACKAGE = Path(fcpower_bids.__file__).parent
PEOPLE = {"01": "NDARJANE7", "02": "NDARJOHN8"}
HOME = "/home/jdoe/secret study"


@pytest.fixture
def outputs(exact_run, tmp_path):
    """The outputs of two people with telling names, with paths and names wherever a text can hold them."""
    output = tmp_path / "jdoe" / "out"
    for path in sorted(exact_run.output.rglob("*")):
        parts = path.relative_to(exact_run.output).parts
        if path.is_dir() or parts[0] == "work":
            continue
        name, content = "/".join(parts), path.read_bytes()
        for old, new in PEOPLE.items():
            name = name.replace(f"sub-{old}", f"sub-{new}")
            content = content if path.suffix == ".gz" else content.replace(f"sub-{old}".encode(), f"sub-{new}".encode())
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(content)
    sidecar = next(output.rglob("*desc-fcpower_qc.json"))
    sidecar.write_text(json.dumps({**json.loads(sidecar.read_text()), "Atlas": f"from {HOME}/atlas.nii.gz"}))
    group = output / "group"
    group.mkdir()
    (group / "predictions.tsv").write_text("participant_id\tobserved\nsub-NDARJANE7\t63\n")
    (group / "scores.tsv").write_text(
        f"site\tn_people\tr\nnorth\t40\t0.3\n=cmd()\t30\t-0.1\n{HOME}/x\t9\t1\nrare\t2\t1\n"
    )
    (group / "check.tsv").write_text("finding\nNDARJANE7 and another\n")
    (group / "folds.tsv.gz").write_bytes(gzip.compress(b"participant_id\nsub-NDARJANE7\n"))
    (group / "slips.tsv").write_text("finding\nses-ndarjane7 is odd\n")
    (group / "failed.tsv").write_text("finding\nA7 was not finished\n")
    failed = {"recording": "sub-A7_task-rest", "state": "failed", "stage": "inputs", "reason": "A7 has no mask."}
    status = json.loads(next((output / "logs" / "status").glob("*.json")).read_text())
    (output / "logs" / "status" / "sub-A7_task-rest.json").write_text(json.dumps({**status, **failed, "outputs": {}}))
    (group / "pairs.tsv").write_text("finding\nsub-NDARJANE7 and sub-OTHER\n")
    return output


def texts(folder):
    for name, content in contents(folder).items():
        yield name, name
        if name.endswith(".npy"):  # the bytes of numbers are any letters
            content = content.partition(b"\n")[0]
        yield name, (gzip.decompress(content) if name.endswith(".gz") else content).decode(errors="replace")


def test_nothing_tells_who_and_where(outputs, tmp_path, capsys):
    share = tmp_path / "share"
    assert main(["export", str(outputs), str(share)]) == 0
    told = capsys.readouterr().out
    words = [
        *PEOPLE.values(),
        "A7",
        "ndarjane7",
        "jdoe",
        "secret study",
        str(tmp_path),
        str(outputs),
        "OTHER",
        "/in/derivatives",
    ]
    # A machine that is called by a word of our own, "node" or "runner", cannot be told from that word.
    ours = " ".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    words += [word for word in (socket.gethostname(), getpass.getuser()) if len(word) > 2 and word not in ours]
    for name, text in texts(share):
        assert [word for word in words if re.search(rf"\b{re.escape(word)}\b", text)] == [], name
        assert not re.search(r"(^|[\s\"'(])/(home|tmp|data|root)/", text), name
    assert not list(share.glob("*.html"))
    assert not (share / "logs").exists()
    for words in (
        "group/predictions.tsv (it has a row per person)",
        "group/check.tsv",
        "group/slips.tsv",
        "group/failed.tsv",
        "1 rows of group/scores.tsv",
        "folds.tsv.gz (it is too long",
    ):
        assert words in told
        assert words in (share / "README.md").read_text()


def test_the_numbers_are_the_same_under_the_new_names(outputs, tmp_path):
    share = tmp_path / "share"
    array = max(outputs.rglob("*_relmat.npy"))
    array.write_bytes(array.read_bytes()[:-20] + b" NDARJANE7 sub-12345")  # numbers may look so
    assert main(["export", str(outputs), str(share)]) == 0
    with (outputs / "logs" / "shared_ids.tsv").open() as lines:
        shared = {row["participant_id"]: row["shared_id"] for row in csv.DictReader(lines, delimiter="\t")}
    assert set(shared) == {*PEOPLE.values(), "A7"}
    assert len(set(shared.values())) == 3
    count = 0
    for path in outputs.glob("sub-*/**/*_relmat.tsv"):
        name = str(path.relative_to(outputs))
        for old, new in shared.items():
            name = name.replace(f"sub-{old}", f"sub-{new}")
        np.testing.assert_array_equal(*(pd.read_csv(one, sep="\t", index_col=0) for one in (path, share / name)))
        count += 1
    assert count == 12
    arrays = list(share.glob("sub-*/**/*_relmat.npy"))
    assert len(arrays) == len(list(outputs.glob("sub-*/**/*_relmat.npy")))
    assert all(array.stat().st_mtime_ns >= array.with_suffix(".tsv").stat().st_mtime_ns for array in arrays)
    scores = pd.read_csv(share / "group" / "scores.tsv", sep="\t")
    assert scores["site"].tolist() == ["north", "'=cmd()", "x"]
    assert scores["r"].tolist() == [0.3, -0.1, 1.0]
    description = json.loads((share / "dataset_description.json").read_text())
    assert description["DatasetType"] == "derivative"
    assert "DatasetLinks" not in description


def test_the_digests_are_those_of_the_copies(outputs, tmp_path):
    assert main(["export", str(outputs), str(tmp_path / "share")]) == 0
    files = [path for path in (tmp_path / "share").rglob("func/*") if path.suffix in (".tsv", ".npy")]
    assert len(files) > 20
    assert [path.name for path in files if change_of(path)] == []
    assert all(DIGESTS in json.loads(path.with_suffix(".json").read_text()) for path in files)


def test_the_tables_of_compact_outputs_are_those_of_the_plain_form(tmp_path):
    """Equal to the byte with their JSON, where the series are those that the compact form rounds."""
    make_dataset(tmp_path / "in", DemoDesign.tiny(subjects=2, troubles=True))
    for name, options in (("plain", ()), ("compact", ("--compact",))):
        words = ("--atlas", "builtin", "--combine-runs", "average", *options)
        run = run_rounded(tmp_path / "in", tmp_path / name, *words)
        assert run.code == 0, run.err
    assert main(["export", str(tmp_path / "plain"), str(tmp_path / "one")]) == 0
    shutil.copy(tmp_path / "plain" / "logs" / "shared_ids.tsv", tmp_path / "compact" / "logs")
    assert main(["export", str(tmp_path / "compact"), str(tmp_path / "two"), "--tables"]) == 0
    made = [path for kind in ("relmat", "timeseries", "bold") for path in (tmp_path / "two").rglob(f"*_{kind}.*")]
    assert {path.suffix for path in made if "timeseries" in path.name} == {".tsv", ".json"}
    assert sum(path.suffix == ".tsv" for path in made) > 12
    for path in made:
        known = tmp_path / "one" / path.relative_to(tmp_path / "two")
        if path.suffix == ".json":
            facts, expected = (json.loads(each.read_text()) for each in (path, known))
            assert facts.pop("ConfigurationHash") != expected.pop("ConfigurationHash")
            assert facts == expected
        else:
            assert path.read_bytes() == known.read_bytes(), path.name
    listed = (tmp_path / "two" / ".exported").read_text().splitlines()
    assert len(listed) == len(set(listed))


def test_what_a_killed_export_left_is_removed(outputs, tmp_path):
    left = tmp_path / ".share.0123456789abcdef.part"
    left.mkdir()
    (left / "half.tsv").write_text("sub-")
    assert main(["export", str(outputs), str(tmp_path / "share")]) == 0
    assert not left.exists()


def test_a_second_copy_has_the_same_names_and_removes_nothing_of_others(outputs, tmp_path, capsys):
    share = tmp_path / "share"
    assert main(["export", str(outputs), str(share)]) == 0
    before = contents(share)
    for name in ("notes.txt", "sub-of-mine/notes.txt"):
        (share / name).parent.mkdir(exist_ok=True)
        (share / name).write_text("x")
        assert main(["export", str(outputs), str(share)]) == 2
        assert f"has 1 files that no export has written ({name})" in capsys.readouterr().err
        assert (share / name).read_text() == "x"
        (share / name).unlink()
    (share / "sub-of-mine").rmdir()
    gone = next(share.glob("sub-*/**/*.tsv"))
    gone.write_text("stale")
    assert main(["export", str(outputs), str(share)]) == 0
    assert contents(share) == before


def test_a_link_out_of_the_outputs_is_not_followed(outputs, tmp_path, capsys):
    secret = tmp_path / "secret.json"
    secret.write_text('{"secret": 1}')
    for name in ("group/scores.json", "dataset_description.json"):
        path = outputs / name
        content = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        path.symlink_to(secret)
        assert main(["export", str(outputs), str(tmp_path / "share")]) == 3
        assert "leads out of that folder" in capsys.readouterr().err
        assert not (tmp_path / "share").exists()
        path.unlink()
        if content is not None:
            path.write_bytes(content)


def test_places_that_would_do_harm_are_refused(outputs, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    for place in (outputs / "share", outputs, tmp_path, tmp_path / "full", tmp_path / "full" / "thesis.txt" / "share"):
        assert main(["export", str(outputs), str(place)]) == 2
    assert (tmp_path / "full" / "thesis.txt").read_text() == "x"
    shutil.rmtree(outputs / "logs" / "status")
    assert main(["export", str(outputs), str(tmp_path / "share")]) == 3
    assert "holds no finished recordings" in capsys.readouterr().err
    assert not (tmp_path / "share").exists()


def test_outputs_hold_no_absolute_path_outside_the_logs(exact_run, exact_demo):
    for name, content in contents(exact_run.output, "logs", "work").items():
        for place in (exact_run.output.parent, exact_demo[0]):
            assert str(place).encode() not in content, name


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("/data/a/x.nii.gz:/data/b/x.tsv", "x.nii.gz:x.tsv"),
        ("from /home/j doe/secret study/atlas.nii.gz, then", "from atlas.nii.gz, then"),
        ("C:\\Users\\me\\f.tsv", "f.tsv"),
        ("file:///data/x/y", "y"),
        ("https://example.org/a/b, mm/s, and/or", "https://example.org/a/b, mm/s, and/or"),
        ("bids:fmriprep:sub-01/ses-a/x.tsv", "bids:fmriprep:sub-01/ses-a/x.tsv"),
    ],
)
def test_paths_are_told_from_other_slashes(text, short):
    assert without_folders(text) == short


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("/my data/in/sub-01/x_bold.nii is cut. See logs/a.txt.", "sub-01/x_bold.nii is cut. See logs/a.txt."),
        ("'/my data/in' and /other/place/y.tsv, or /z/a.", "'in' and y.tsv, or a."),
        ("https://example.org/a/b, mm/s, and/or 3/4", "https://example.org/a/b, mm/s, and/or 3/4"),
    ],
)
def test_sentences_name_files_from_their_dataset_on(text, short):
    assert describe_without_folders(text, ["/my data/in"]) == short


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("NDARJANE7", "ses-ndarjane7_x and"),
        ("12345", "id: 12345."),
        ("A7", "both (A7, Kim)"),
        ("Kim", "{'note': 'Kim'}"),
        ("01", "see 01, who moved"),
        ("7", "patient 7 moved"),
        ("X", "Subject: X"),
    ],
)
def test_labels_are_found_without_their_entity(label, text):
    assert labels_in(text, [label], short=True) == {label}


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("12345", "0.12345\t-12345\t12345.5\t123456"),
        ("A7", "A70 ses-A7 A7-x"),
        ("01", "session 01\t01\t01:30\t0.01 2024-01-01"),
        ("7", "7 people, 7.5 and\t7"),
        ("X", "the X axis"),
    ],
)
def test_numbers_sessions_and_words_are_no_labels(label, text):
    assert labels_in(text, [label], short=True) == set()
