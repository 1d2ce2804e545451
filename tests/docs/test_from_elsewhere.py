"""The script of the page about other programs makes the list that its command reads."""

from __future__ import annotations

import numpy as np

from tests.docs.pages import DOCS, code_blocks, read
from tests.slices.elsewhere.sources import SERIES
from tests.slices.elsewhere.test_doors import expected, run_group, written


def test_series_of_nilearn_become_the_connectomes_that_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (script,) = code_blocks(read(DOCS / "from_elsewhere.md"), "python")
    exec(script, {"series": SERIES})
    code, out = run_group(tmp_path, "-d", f"list={tmp_path / 'connectomes.tsv'}")
    assert code == 0
    for values, truth in zip(written(out).values(), expected(), strict=True):
        np.testing.assert_allclose(values, truth, rtol=0, atol=1e-12)
