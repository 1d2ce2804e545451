"""The page of the tables that a module has as its fixture ``outputs``."""

from __future__ import annotations

import pytest

from fcpower_bids.reports.cohort.page import write_group_report
from tests.reports.group_outputs import write_group_outputs


@pytest.fixture(scope="session")
def invented(tmp_path_factory):
    """Settings of the outputs of an invented cohort in which ``planted`` is there to be found."""
    return write_group_outputs(tmp_path_factory.mktemp("group"))


@pytest.fixture(scope="module")
def page(outputs):
    return write_group_report(outputs[0])[0]


@pytest.fixture
def opened(browser, page):
    browser.open(page)
    browser.unfold()
    return browser
