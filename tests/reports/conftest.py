from __future__ import annotations

import pytest

from fcpower_bids.outputs.status import FAILED, Status, write_status, write_status_table
from tests.reports.browser import BINARIES, Browser, find_chromium
from tests.reports.outputs import write_outputs, write_participant_reports


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A real browser; skips where there is none."""
    binary = find_chromium()
    if binary is None:
        pytest.skip(f"no Chromium on the path (looked for {', '.join(BINARIES)})")
    browser = Browser(binary, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Outputs of one participant: two sessions, an excluded and a failed recording, an uncovered parcel; its page."""
    settings = write_outputs(tmp_path_factory.mktemp("report"), n_runs=3, sessions=("a", "b"), excluded=(1,))
    reason = "bold.nii.gz is cut off: 1,024 bytes are missing. Copy it again."
    write_status(settings.output_dir, Status("sub-01_ses-b_task-nback_run-9", FAILED, "parcellate", reason))
    write_status_table(settings.output_dir)
    (settings.output_dir / "logs" / "settings.toml").write_text(settings.as_toml())
    (page,) = write_participant_reports(settings, ["01"])
    return settings, page
