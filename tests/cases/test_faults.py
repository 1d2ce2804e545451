"""Faults of files and of the machine, through the command: what it says, the exit code, what is on the disk after."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.cli.run import main
from tests.cases.people import LABELS, run, table, write_list
from tests.running import PATIENCE, PLAIN, contents, run_app

QUICK = ("--atlas", "builtin", *PLAIN, "--nprocs", "1")


@pytest.mark.parametrize("name", ["sub-02", "sub-02/ses-a", "sub-01/ses-b/func", "sub-02/figures", "logs"])
def test_a_link_that_leads_out_of_the_output_folder_is_refused_before_the_first_write(exact_demo, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.txt").write_text("kept")
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    found = run_app(exact_demo[0], tmp_path / "out", *QUICK)
    assert found.code == 3
    assert name in found.err
    assert contents(elsewhere) == {"kept.txt": b"kept"}
    assert contents(tmp_path / "out", "work") == {}


def test_a_link_that_stays_inside_is_followed(exact_demo, tmp_path):
    (tmp_path / "out" / "others" / "sub-02").mkdir(parents=True)
    (tmp_path / "out" / "sub-02").symlink_to("others/sub-02")
    assert run_app(exact_demo[0], tmp_path / "out", *QUICK, "--participant-label", "02").code == 0


def test_the_group_level_does_not_write_through_a_link_either(exact_run, exact_demo, tmp_path, capsys):
    shutil.copytree(exact_run.output, tmp_path / "out", symlinks=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "group").symlink_to(tmp_path / "elsewhere")
    assert main([str(exact_demo[0]), str(tmp_path / "out"), "group", "--nprocs", "1"]) == 3
    assert "'group' is named as a file" in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def finished(exact_demo, tmp_path_factory):
    """Dataset and outputs in one folder, so that a copy of both is theirs too."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(exact_demo[0], folder / "in", symlinks=True)
    assert run_app(folder / "in", folder / "out", *QUICK, "--transforms", "power", "fisher_z").code == 0
    return folder


@pytest.fixture
def copy_of_exact(finished, tmp_path):
    """Dataset and finished outputs of the exact demo, to be damaged."""
    shutil.copytree(finished, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("name", ["filter.json", "in/dataset_description.json"])
def test_json_that_is_nested_too_deeply_is_refused_by_name(copy_of_exact, name):
    (copy_of_exact / name).write_text(DEEP)
    more = ("--bids-filter-file", copy_of_exact / name) if name == "filter.json" else ()
    run = run_app(copy_of_exact / "in", copy_of_exact / "new", *QUICK, *more)
    assert (run.code, str(copy_of_exact / name) in run.err) == (2 if more else 3, True), run.err
    assert contents(copy_of_exact / "new", "work") == {} if (copy_of_exact / "new").exists() else True


def test_a_sidecar_that_is_nested_too_deeply_costs_its_recording_alone(copy_of_exact):
    (path,) = (copy_of_exact / "in").rglob("sub-01_ses-a_*bold.json")
    path.write_text(DEEP)
    run = run_app(copy_of_exact / "in", copy_of_exact / "new", *QUICK)
    assert sorted(run.states().values()) == ["done", "done", "done", "failed"]
    assert run.code == 4
    assert path.name in run.err


@pytest.mark.parametrize("pattern", ["logs/**/sub-01_ses-a*.json", "work/**/*.json"])
def test_what_the_application_wrote_for_itself_is_made_anew(copy_of_exact, pattern):
    options = ("--transforms", "power", "fisher_z", "--bids-database-dir", copy_of_exact / "out" / "work" / "index")
    assert run_app(copy_of_exact / "in", copy_of_exact / "out", *QUICK, *options).code == 0
    before = contents(copy_of_exact / "out", "work", "logs")
    paths = list((copy_of_exact / "out").glob(pattern))
    assert paths
    for path in paths:
        path.write_text(DEEP)
    run = run_app(copy_of_exact / "in", copy_of_exact / "out", *QUICK, *options)
    assert run.code == 0, run.err
    assert contents(copy_of_exact / "out", "work", "logs") == before


def objects(path):
    np.savez(path, series=np.array([{}]), json=np.array("{}"))


def one_array_less(path):
    with np.load(path) as file:
        kept = {name: file[name] for name in file.files if name != "coverage"}
    np.savez(path, **kept)


def a_parcel_less(path):
    with np.load(path) as file:
        np.savez(path, **{name: file[name][:, 1:] if name == "series" else file[name] for name in file.files})


def arrays_of(folder):
    """Tables and arrays; sidecars name the place of the dataset."""
    return {name: content for name, content in contents(folder, "work", "logs").items() if name[-3:] in ("tsv", "npy")}


def forget(folder, pattern="*"):
    """Make the run of a recording begin again, as where it was killed before its status was written."""
    for path in (folder / "out" / "logs" / "status").glob(f"{pattern}.json"):
        path.unlink()


@pytest.mark.parametrize("damage", [objects, one_array_less, a_parcel_less])
def test_damaged_parcel_means_in_the_work_folder_are_made_anew(copy_of_exact, damage):
    folder = copy_of_exact
    options = (*QUICK, "--transforms", "power", "fisher_z")
    before, means = arrays_of(folder / "out"), list((folder / "out" / "work").rglob("*.npz"))
    assert len(means) == 4
    forget(folder)
    damage(means[0])
    run = run_app(folder / "in", folder / "out", *options)
    assert run.code == 0, run.err
    assert arrays_of(folder / "out") == before


@pytest.mark.parametrize("place", ["sub-01/ses-a/func", "sub-01/figures", "work/parcels", "logs/status"])
def test_what_a_killed_run_left_half_written_is_swept_by_the_next(copy_of_exact, place):
    folder = copy_of_exact / "out"
    (other,) = (path.name for path in (folder / "sub-02" / "ses-a" / "func").glob("*relmat.npy"))
    names = [path.name for path in (folder / place).glob("*sub-01_ses-a*")]
    names += [name.replace("scale-60", "scale-61") for name in names if "scale-60" in name]  # of an earlier atlas
    left = [folder / place / f".{name}.0123456789abcdef.part" for name in names]
    for path in left:
        path.write_text("half")
    (folder / "sub-02" / "ses-a" / "func" / f".{other}.0123456789abcdef.part").write_text("of a run at work")
    (name,) = (path.stem for path in (folder / "logs" / "status").glob("sub-01_ses-a_*.json"))
    note = folder / "logs" / "crashes" / f"{name}_sink.txt"
    note.parent.mkdir(exist_ok=True)
    note.write_text("Traceback")
    forget(copy_of_exact, "sub-01_ses-a*")
    assert run_app(copy_of_exact / "in", folder, *QUICK, "--transforms", "power", "fisher_z").code == 0
    assert left
    assert not [path for path in (*left, note) if path.exists()]
    assert list(folder.rglob(".*.part")) == [folder / "sub-02" / "ses-a" / "func" / f".{other}.0123456789abcdef.part"]


@pytest.mark.parametrize("words", [("--help",), ("participant", "--atlas", "builtin", "--dry-run")])
def test_a_reader_who_has_enough_is_no_error(exact_demo, tmp_path, words):
    folders = () if words == ("--help",) else (exact_demo[0], tmp_path / "out")
    ended = start(*folders, *words)
    ended.stdout.close()
    assert ended.stderr.read() == ""
    assert ended.wait(PATIENCE) in (0, 141)


@pytest.mark.parametrize("place", ["fcpower_bids.errors", "fcpower_bids.settings", "numpy"])
def test_an_interrupt_before_the_command_line_can_answer_is_quiet(exact_demo, tmp_path, place):
    """Sent by the process itself when it imports a module."""
    finder = "import importlib.abc as a, os, runpy, signal, sys\nclass Finder(a.MetaPathFinder):\n"
    finder += f"    def find_spec(self, name, *_):\n        name == {place!r} and os.kill(os.getpid(), signal.SIGINT)\n"
    finder += "sys.meta_path.insert(0, Finder())\nrunpy.run_module('fcpower_bids', run_name='__main__')\n"
    words = (exact_demo[0], tmp_path / "out", "participant", "--atlas", "builtin")
    ended = start(*words, program=("-c", finder))
    assert "Traceback" not in ended.stderr.read()
    assert ended.wait(PATIENCE) in (-signal.SIGINT, 130)


def start(*words, program=("-m", "fcpower_bids")):
    command = [sys.executable, *program, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def header_of(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """The header of an array, without what it promises."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def zipped(path: Path, header: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fc.npy", header + b"\0" * 64)


PROMISES = {
    "eight terabytes": (".npy", lambda path: path.write_bytes(header_of((1_000_000, 1_000_000)) + b"\0" * 64)),
    "a little more than there is": (".npy", lambda path: path.write_bytes(header_of((6, 7)) + b"\0" * 6 * 6 * 8)),
    "less than there is": (".npy", lambda path: path.write_bytes(header_of((6, 5)) + b"\0" * 6 * 6 * 8)),
    "eight terabytes in an archive": (".npz", lambda path: zipped(path, header_of((1_000_000, 1_000_000)))),
}


@pytest.mark.parametrize("kind", PROMISES)
def test_an_array_that_promises_what_it_has_not_costs_its_scan_alone(kind, tmp_path):
    ending, spoil = PROMISES[kind]
    source = write_list(tmp_path, LABELS[:5])
    rows = table(source)
    (tmp_path / "0_003_.npy").unlink()
    spoil(tmp_path / f"0_003_{ending}")
    rows["path"] = rows["path"].str.replace("0_003_.npy", f"0_003_{ending}")
    rows.to_csv(source, sep="\t", index=False)
    (tmp_path / "bids").mkdir()
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={source}", "--check", "--min-time", "0")
    assert found.code == 0, found.err
    assert f"0_003_{ending}" in found.err
    assert table(tmp_path / "out" / "group" / "scans.tsv")["participant_id"].tolist() == [
        "sub-001",
        "sub-002",
        "sub-004",
        "sub-005",
    ]
