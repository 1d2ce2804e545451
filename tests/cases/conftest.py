"""A small cohort that several files of cases begin with."""

from __future__ import annotations

import shutil

import pytest

from tests.cases.cohorts import write_series


@pytest.fixture(scope="module")
def one_session(tmp_path_factory):
    return write_series(tmp_path_factory.mktemp("one"))


@pytest.fixture
def people(one_session, tmp_path):
    """Thirty people with one scan each, without sessions."""
    return shutil.copytree(one_session, tmp_path / "people")
