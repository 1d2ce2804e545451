from __future__ import annotations

import pytest

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
