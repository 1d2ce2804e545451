"""The page of the tables that a module has as its fixture ``outputs``."""

from __future__ import annotations

import pytest

from fcpower_bids.reports.cohort.page import write_group_report


@pytest.fixture(scope="module")
def page(outputs):
    return write_group_report(outputs[0])[0]


@pytest.fixture
def opened(browser, page):
    browser.open(page)
    browser.unfold()
    return browser
