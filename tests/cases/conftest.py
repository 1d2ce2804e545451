"""What several files of cases begin with."""

from __future__ import annotations

import shutil

import pytest

from tests.cases.cohorts import write_series
from tests.cases.test_crossings import cohort, save_model
from tests.cases.test_reruns import ATLAS, two_runs
from tests.running import PLAIN, run_app


@pytest.fixture(scope="session")
def model_of_forty(tmp_path_factory):
    """A model of the score of forty people."""
    return save_model(cohort(tmp_path_factory.mktemp("train")))


@pytest.fixture(scope="session")
def two_runs_done(tmp_path_factory):
    """Two people with two runs, not to be written into: ``in`` is the dataset, ``out`` what was made of it."""
    folder = tmp_path_factory.mktemp("two_runs")
    run_app(two_runs(folder / "in"), folder / "out", *ATLAS, *PLAIN, code=0)
    return folder


@pytest.fixture(scope="module")
def one_session(tmp_path_factory):
    return write_series(tmp_path_factory.mktemp("one"))


@pytest.fixture
def people(one_session, tmp_path):
    """Thirty people with one scan each, without sessions."""
    return shutil.copytree(one_session, tmp_path / "people")
