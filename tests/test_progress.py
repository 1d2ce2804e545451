"""The live line speaks only when there is something to wait for."""

from __future__ import annotations

import pytest

from fcpower_bids import progress
from fcpower_bids.progress import track
from tests.analyses.cohorts import choose


@pytest.mark.parametrize(
    ("quiet", "patience", "speaks"), [(False, 0.0, True), (True, 0.0, False), (False, 60.0, False)]
)
def test_a_loop_is_announced_after_a_while_and_not_when_quiet(capsys, monkeypatch, quiet, patience, speaks):
    monkeypatch.setattr(progress, "PATIENCE", patience)
    assert list(track(range(50), "folds", choose(quiet=quiet))) == list(range(50))
    told = capsys.readouterr()
    assert ("folds" in told.err) == speaks
    assert not told.out
