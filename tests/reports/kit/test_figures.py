from __future__ import annotations

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from fcpower_bids.reports import figures
from fcpower_bids.reports.charts import draw_curves


def pictures(svg):
    return [Image.open(io.BytesIO(base64.b64decode(one))) for one in re.findall(r"image/png;base64,([^\"]+)", svg)]


def test_drawings_are_svg_that_says_the_same_each_time():
    curves = {"FC^0.35, participation ratio 15.0": np.arange(8.0).reshape(4, 2), "other": np.ones((3, 2))}
    drawn = [draw_curves([("", "height", "rank", curves)], mark=(1.0, np.nan)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    root = ElementTree.fromstring(drawn[0])
    assert root.tag.endswith("svg")
    words = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "FC0.35\u200b, participation ratio 15.0" in words
    (raised,) = re.findall(r'dy="-\.45em"[^>]*>([^<]*)<', drawn[0])
    assert raised == "0.35"


@pytest.mark.parametrize(("wanted", "runs"), [([0, 1, 1, 0, 1], [(1, 2), (4, 4)]), ([0, 0], []), ([1, 1], [(0, 1)])])
def test_neighbouring_censored_volumes_are_one_bar(wanted, runs):
    censored = np.array(wanted)
    volumes = {"framewise_displacement": np.ones(len(wanted)), "dvars": np.full(len(wanted), np.nan)}
    svg = figures.draw_motion(volumes | {"dummy": 0 * censored, "kept": 1 - censored}, 0.5, 0.0, {})
    bars = re.findall(r'x="([\d.]+)" y="[\d.]+" width="([\d.]+)" [^>]*fill-opacity="0.55"', svg)
    volume = 0.925 * 9.6 * 72 / len(wanted)
    drawn = [(float(x) - 0.07 * 9.6 * 72, float(width)) for x, width in bars]
    np.testing.assert_allclose(drawn, [(a * volume, (b + 1 - a) * volume) for a, b in runs] or drawn, atol=0.02)
    assert len(drawn) == len(runs)


def test_the_traces_and_the_carpet_show_the_values_they_are_given():
    rng = np.random.default_rng(1)
    n = 200
    volumes = {"framewise_displacement": rng.gamma(1, 0.2, n), "dvars": rng.normal(30, 2, n), "dummy": np.zeros(n)}
    volumes["framewise_displacement"][0], volumes["kept"] = np.nan, (volumes["framewise_displacement"] <= 0.5) * 1.0
    carpet = rng.standard_normal((30, n))
    svg = figures.draw_motion(volumes, 0.5, 2.0, {"after": carpet})
    lines = [re.findall(r"[ML]([\d.]+) ([\d.]+)", path) for path in re.findall(r'<path d="([^"]+)" fill="none"', svg)]
    fd, dvars = (np.array(line, dtype=float) for line in lines if len(line) > 100)
    top = np.nanmax(volumes["framewise_displacement"])
    assert len(fd) == n - 1  # the first volume has no displacement
    np.testing.assert_allclose(np.corrcoef(fd[:, 1], -volumes["framewise_displacement"][1:])[0, 1], 1, atol=1e-4)
    np.testing.assert_allclose(np.corrcoef(dvars[:, 1], -volumes["dvars"])[0, 1], 1, atol=1e-4)
    drawn = (6 + 57.6 - fd[:, 1]) / 57.6 * 1.15 * top
    np.testing.assert_allclose(drawn, volumes["framewise_displacement"][1:], atol=2e-3)
    (picture,) = (one for one in pictures(svg) if one.size[0] > 100)
    assert picture.size == (n, 30)
    expected = np.clip(np.floor((carpet + 2) * 15 / 4), 0, 14)
    np.testing.assert_array_equal(np.asarray(picture), expected)
    censored = int((volumes["kept"] == 0).sum())
    marks = re.findall(r'<path d="([^"]+)" fill="#000"', svg)  # above FD and above DVARS
    assert [one.count("M") for one in marks] == [censored, censored]
    assert censored > 0
