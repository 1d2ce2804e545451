"""The page of a pretraining, from planted tables: a change of the shared template is seen here in a second."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import unquote

import pandas as pd
import pytest

from fcpower_bids.pretrain.page import write_training_page
from fcpower_bids.pretrain.train import ALIGNMENT, LOG
from tests.command import parse_settings

VERDICT = "The model is <b>not</b> proven (by 5 families)."
MAPS = ("model", "random-init", "fc", "fc_power")
ALIGNED = (0.355, 0.41, 0.631, 0.981)
IDENTIFIED = (0.1, 0.167, 0.5, 1.0)
LOSSES = (0.233, 0.288)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page in words, its source, and its folder."""
    root = tmp_path_factory.mktemp("pretrained")
    folder = root / "out" / "encoder"
    folder.mkdir(parents=True)
    log = pd.DataFrame({name: [None, None] for name in LOG.columns})
    log = log.assign(step=[10, 20], loss=LOSSES, steps_per_s=[70.0, 80.0], peak_mb=469.0, seconds_left=[9, 0])
    compared = pd.DataFrame({name: [None] * len(MAPS) for name in ALIGNMENT.columns})
    compared = compared.assign(map=MAPS, cka=0.9, cka_debiased=ALIGNED, identification=IDENTIFIED)
    for name, table in (("log", log), ("alignment", compared)):
        table.to_csv(folder / f"{name}.tsv", sep="\t", index=False, na_rep="n/a")
    facts = {"Step": 20, "DiagonalShare": 0.85, "Views": 8, "Proven": False, "Verdict": VERDICT}
    (folder / "alignment.json").write_text(json.dumps(facts | {"Families": 5, "Recordings": 10}))
    settings = parse_settings([str(root / "bids"), str(root / "out"), "pretrain", "--steps", "20"])
    source = write_training_page(settings).read_text()
    running = re.sub(r"(?s)<(svg|style|script).*?</\1>", " ", re.sub(r"</?(sup|i)>", "", source))
    words = html.unescape(re.sub(r"<[^>]+>", " ", running))
    return re.sub(r"\s+", " ", words), source, root


def test_the_page_tells_the_numbers_of_its_tables_and_its_command(page):
    words, source, root = page
    assert words.count(VERDICT) == 1
    (headline,) = re.findall(r'<section id="verdict".*?<h2>.*?</span> <bdi>(.*?)</bdi>', source, re.DOTALL)
    assert html.unescape(headline) == "The model is <b>not</b> proven."
    assert "<b>not</b>" not in source
    assert '<section id="verdict" class="verdict stop"' in source
    assert "20; the model is of step 20" in words
    assert "5 families, 10 recordings" in words
    assert "0.233 (step 10) to 0.288" in words
    titles = ("this model", "random weights", "FC of the window", "FC^α of the window")
    for name, value in zip(titles, ALIGNED[:4], strict=True):
        assert f"{name} {value:.3f}" in words
    assert "FC of the window 50 %, FC^α of the window 100 %; this model 10 %." in words
    assert str(root) not in source


def test_curves_without_a_point_are_not_named_and_names_hide_none(page):
    _, source, _ = page
    drawn = unquote(re.findall(r'data:image/svg\+xml,([^"]+)', source)[0])
    named = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert "random weights" in named
    assert "this model" not in named, "no held-out alignment was measured on the way"
    assert "Held-out alignment, biased" not in named
