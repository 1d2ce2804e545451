"""What an output folder holds, and what is said of it."""

from __future__ import annotations

import shutil

import pytest

from tests.cases.people import files, run, table

ATLAS = ("--atlas", "builtin", "--nprocs", "1", "--quiet")
FINGERPRINT = ("--analyses", "fingerprinting", "--quiet")


@pytest.mark.parametrize("parts", [(("01", "02"), ("03", "04")), (("04",), ("01", "02", "03"))])
def test_jobs_whose_folders_are_copied_together_are_one_run(parts, troubled_demo, troubled_run, tmp_path):
    """Their statuses, logs and table are left behind: sidecars alone say which scans take part, and why not."""
    folder, _ = troubled_demo
    whole = shutil.copytree(troubled_run.output, tmp_path / "whole", ignore=shutil.ignore_patterns("work"))
    for number, people in enumerate(parts):
        out = tmp_path / str(number)
        assert run(folder, out, "participant", "--participant-label", *people, *ATLAS).code == 0
        if number:
            for path in out.glob("sub-*"):
                (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / "0" / path.name)
    joined = tmp_path / "0"
    assert len(table(joined / "recordings.tsv")) < 9
    for out in (whole, joined):
        assert run(folder, out, "group", *FINGERPRINT).code == 0
    assert (joined / "recordings.tsv").read_text() == (whole / "recordings.tsv").read_text()
    states = table(joined / "recordings.tsv")["state"].tolist()
    assert states.count("excluded") >= 1
    tables = files(whole / "group", "*.tsv")
    assert "identification.tsv" in tables
    assert files(joined / "group", "*.tsv") == tables
    once = (joined / "recordings.tsv").read_bytes()
    (joined / "recordings.tsv").unlink()
    assert run(folder, joined, "participant", "--participant-label", "01", *ATLAS).code == 0
    assert (joined / "recordings.tsv").read_bytes() == once
