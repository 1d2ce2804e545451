from __future__ import annotations

import shutil

import pytest

from tests.reports.browser import BINARIES, Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A real browser; skips where there is none."""
    binary = next((path for name in BINARIES if (path := shutil.which(name))), None)
    if binary is None:
        pytest.skip(f"no Chromium on the path (looked for {', '.join(BINARIES)})")
    browser = Browser(binary, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()
