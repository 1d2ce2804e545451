from __future__ import annotations

import shutil

import pytest

from fcpower_bids.outputs.status import FAILED, Status, write_status, write_status_table
from fcpower_bids.reports.person import write_pages
from tests.command import parse_settings
from tests.reports.browser import BINARIES, Browser, find_chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A real browser; skips where there is none."""
    binary = find_chromium()
    if binary is None:
        pytest.skip(f"no Chromium on the path (looked for {', '.join(BINARIES)})")
    browser = Browser(binary, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


def copy_scan(output, scan, other):
    """Give a person one more scan: all files of another one under its name."""
    names = [name.split("_") for name in (scan, other)]
    for path in [path for path in output.rglob(f"*{scan}_*") if path.is_file()]:
        place, text = path.relative_to(output).as_posix(), path.read_bytes()
        for old, new in zip(*names, strict=True):
            place, text = place.replace(old, new), text.replace(old.encode(), new.encode())
        (output / place).parent.mkdir(parents=True, exist_ok=True)
        (output / place).write_bytes(path.read_bytes() if path.suffix == ".npz" else text)


@pytest.fixture(scope="session")
def written(troubled_demo, troubled_run, tmp_path_factory):
    """A participant with parcels that were not seen, to whom an excluded and a failed recording are given; the page."""
    folder = tmp_path_factory.mktemp("report")
    output = shutil.copytree(troubled_run.output, folder / "out", ignore=shutil.ignore_patterns("work"))
    settings = parse_settings([str(troubled_demo[0]), str(output), "participant", "--atlas", "builtin"])
    copy_scan(output, "sub-04_ses-b", "sub-02_ses-c")
    reason = "bold.nii.gz is cut off: 1,024 bytes are missing. Copy it again."
    write_status(output, Status("sub-02_ses-b_task-nback_run-9", FAILED, "parcellate", reason))
    write_status_table(output)
    (page,) = write_pages(settings, ["02"]).pages
    return settings, page
