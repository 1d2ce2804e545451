"""Faults of files and of the machine, through the command: what it says, the exit code, what is on the disk after."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.cases.cohorts import LABELS, run, table, write_list
from tests.running import PATIENCE, PLAIN, contents, run_app, start_app

QUICK = ("--atlas", "builtin", *PLAIN, "--nprocs", "1")


@pytest.mark.parametrize("name", ["sub-02", "sub-01/ses-b/func"])
def test_a_link_that_leads_out_of_the_output_folder_is_refused_before_the_first_write(exact_demo, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.txt").write_text("kept")
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    found = run_app(exact_demo[0], tmp_path / "out", *QUICK, code=3)
    assert name in found.err
    assert contents(elsewhere) == {"kept.txt": b"kept"}
    assert contents(tmp_path / "out", "work") == {}


def test_the_group_level_does_not_write_through_a_link_either(outputs, exact_demo, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "group").symlink_to(tmp_path / "elsewhere")
    found = run(exact_demo[0], tmp_path / "out", "group", "--nprocs", "1", code=3)
    assert "'group' is named as a file" in found.err
    assert not list((tmp_path / "elsewhere").iterdir())


def promise(path: Path) -> None:
    """Write the header of an array of eight terabytes, without what it promises."""
    stream = io.BytesIO()
    shape = (1_000_000, 1_000_000)
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    content = stream.getvalue() + b"\0" * 64
    if path.suffix == ".npy":
        path.write_bytes(content)
        return
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fc.npy", content)


def test_arrays_that_promise_what_they_have_not_cost_their_scans_alone(tmp_path):
    source = write_list(tmp_path, LABELS[:8])
    rows = table(source)
    endings = {LABELS[2]: ".npy", LABELS[3]: ".npz"}
    for label, ending in endings.items():
        (tmp_path / f"sub-{label}.npy").unlink()
        promise(tmp_path / f"sub-{label}{ending}")
        rows["path"] = rows["path"].str.replace(f"sub-{label}.npy", f"sub-{label}{ending}")
    rows.to_csv(source, sep="\t", index=False)
    words = ("group", "-d", f"list={source}", "--analyses", "check", "--min-time", "0")
    run(tmp_path / "bids", tmp_path / "out", *words, code=0)
    reasons = table(tmp_path / "out" / "group" / "excluded.tsv").set_index("participant_id")["reason"]
    for label, ending in endings.items():
        assert f"sub-{label}{ending}" in reasons[f"sub-{label}"]
    kept = [f"sub-{label}" for label in (*LABELS[:2], *LABELS[4:8])]
    assert table(tmp_path / "out" / "group" / "scans.tsv")["participant_id"].tolist() == kept


DEEP = '{"bold":' * 100_000 + "1" + "}" * 100_000


@pytest.mark.parametrize("kind", ["the sidecar of quality", "the status"])
def test_a_json_without_a_bottom_costs_its_scan_alone(kind, troubled, troubled_demo):
    if kind == "the status":
        path = next((troubled / "logs" / "status").glob("sub-02_ses-a_*.json"))
    else:
        path = next((troubled / "sub-02" / "ses-a").rglob("*_desc-fcpower_qc.json"))
    path.write_text(DEEP)
    found = run(troubled_demo[0], troubled, "group", "--analyses", "check", "--min-time", "0", "--nprocs", "1", code=0)
    assert "internal error" not in found.err
    scans = table(troubled / "group" / "scans.tsv")
    assert ("sub-02", "ses-a") not in list(zip(scans["participant_id"], scans["session"], strict=True))
    assert "sub-02" in scans["participant_id"].tolist()
    reasons = table(troubled / "group" / "excluded.tsv")["reason"]
    assert any(path.name in reason for reason in reasons)
    again = run(troubled_demo[0], troubled, "participant", "--atlas", "builtin", "--nprocs", "1", "--quiet")
    assert again.code == 0 or kind != "the status"


def test_other_json_files_without_a_bottom_are_named(exact_demo, tmp_path):
    (weights := tmp_path / "weights").mkdir()
    (weights / "model.safetensors").write_bytes(b"")
    encoder = ("--encoder", "fbert", "--encoder-weights", weights)
    filters = tmp_path / "filter.json"
    for path, words in ((filters, ("--bids-filter-file", filters)), (weights / "config.json", encoder)):
        path.write_text(DEEP)
        found = run(exact_demo[0], tmp_path / "out", "participant", *words, *QUICK, code=2)
        assert path.name in found.err
        assert "(it is nested too deeply)" in found.err


def test_what_killed_processes_left_is_swept_by_the_next_run(exact_run, outputs, exact_demo):
    out = outputs
    shutil.copytree(exact_run.output / "work", out / "work")
    series = next(out.glob("sub-01/ses-a/func/*_stat-mean_timeseries.tsv"))
    figure = next(out.glob("sub-01/figures/*.npz"))
    for path in (series, figure, out / "index.html", out / "logs" / "status.tsv"):
        path.with_name(f".{path.name}.0123456789abcdef.part").write_text("half")
    crash = out / "logs" / "crashes" / f"{series.name.partition('_atlas-')[0]}_res-2_.txt"
    crash.parent.mkdir(exist_ok=True)
    crash.write_text("Traceback")
    for atlas in [*(out / "work" / "atlases").glob("*.json")]:
        atlas.write_text(DEEP)
    next(out.glob("sub-01/ses-a/func/*_stat-pearsoncorrelation_relmat.npy")).unlink()
    assert run(exact_demo[0], out, "participant", *QUICK, "--transforms", "power", "fisher_z").code == 0
    assert not list(out.rglob(".*.part"))
    assert not crash.exists()


@pytest.mark.parametrize(
    "words",
    [("--help",), ("{bids}", "{out}", "participant", "--dry-run", "--atlas", "builtin")],
)
def test_a_reader_that_has_ended_is_no_internal_error(words, exact_demo, tmp_path):
    given = [word.format(bids=exact_demo[0], out=tmp_path / "out") for word in words]
    command = [sys.executable, "-m", "fcpower_bids", *given]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE)
    os.close(write)
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    line = f"{shlex.join(map(str, command))} 2>&1 | head -0"
    both = subprocess.run(["sh", "-c", line], capture_output=True, check=False, timeout=PATIENCE)
    assert both.stdout == both.stderr == b""


def test_a_long_cell_is_cut(tmp_path):
    source = write_list(tmp_path, LABELS[:4])
    rows = table(source)
    rows["minutes"] = "1" * 5_000 + "x"
    rows.to_csv(source, sep="\t", index=False)
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={source}", "--analyses", "check", code=3)
    assert str(source) in found.err
    assert len(found.err) < 1_000


@pytest.mark.parametrize("place", ["fcpower_bids.errors", "numpy"])
def test_an_interrupt_before_the_command_line_can_answer_is_quiet(exact_demo, tmp_path, place):
    """Sent by the process itself when it imports a module."""
    finder = "import importlib.abc as a, os, runpy, signal, sys\nclass Finder(a.MetaPathFinder):\n"
    finder += f"    def find_spec(self, name, *_):\n        name == {place!r} and os.kill(os.getpid(), signal.SIGINT)\n"
    finder += "sys.meta_path.insert(0, Finder())\nrunpy.run_module('fcpower_bids', run_name='__main__')\n"
    ended = start_app(exact_demo[0], tmp_path / "out", "--atlas", "builtin", program=("-c", finder))
    assert "Traceback" not in ended.communicate(timeout=PATIENCE)[1]
    assert ended.returncode in (-signal.SIGINT, 130)
