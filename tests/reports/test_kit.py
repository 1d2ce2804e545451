"""Drawings, images and references: shapes, colours and words are those of the numbers that they are given."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from fcpower_bids.reports import figures
from fcpower_bids.reports.methods import all_references, to_html
from fcpower_bids.reports.svg import MOST_POINTS, Drawing, Scale, encode_png, step_of


@pytest.mark.parametrize(
    ("scale", "most", "expected"),
    [
        (Scale(0, 0.2), 5, [0, 0.05, 0.1, 0.15, 0.2]),
        (Scale(-0.05, 7.45), 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (Scale(-3, 3), 3, [-2, 0, 2]),
        (Scale(4, 4), 4, [4]),
    ],
)
def test_ticks_are_round_and_few(scale, most, expected):
    assert scale.ticks(most) == pytest.approx(expected)
    assert "-0" not in [f"{tick:g}" for tick in scale.ticks(most)]


def test_a_long_line_keeps_its_peaks_and_gaps():
    drawing, values = Drawing(1, 1), np.random.default_rng(0).standard_normal(20_000)
    values[[777, 19_000]] = 40, -40
    values[5000] = np.nan
    drawing.line(np.arange(20_000.0), values)
    drawn = [tuple(map(float, one)) for one in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", drawing.svg())]
    assert len(drawn) <= MOST_POINTS + 2
    assert {(777.0, 40.0), (19_000.0, -40.0)} <= set(drawn)
    assert [across for across, _ in drawn] == sorted(across for across, _ in drawn)
    assert drawing.svg().count("M") == 2


@pytest.mark.parametrize(("colours_there_are", "columns"), [(3, 7), (16, 1), (17, 6), (256, 7)])
def test_a_png_holds_the_colours_it_was_given(colours_there_are, columns):
    rng = np.random.default_rng(columns)
    palette = rng.integers(0, 256, (colours_there_are, 3), dtype=np.uint8)
    places = rng.integers(0, colours_there_are, (5, columns), dtype=np.uint8)
    read = Image.open(io.BytesIO(encode_png(places, palette)))
    read.verify()
    read = Image.open(io.BytesIO(encode_png(places, palette)))
    np.testing.assert_array_equal(np.asarray(read.convert("RGB")), palette[places])
    direct = Image.open(io.BytesIO(encode_png(palette[places])))
    np.testing.assert_array_equal(np.asarray(direct), palette[places])


def test_values_lie_in_equal_steps_and_what_is_missing_in_one_more():
    values = np.array([-9, -2, -1.01, -0.99, 0, 1.99, 2, np.inf, 9, np.nan])
    assert step_of(values, -2, 2, 4).tolist() == [0, 0, 0, 1, 2, 3, 3, 4, 3, 4]
    assert step_of(np.ones(2), 1, 1).tolist() == [0, 0]


def pictures(svg):
    return [Image.open(io.BytesIO(base64.b64decode(one))) for one in re.findall(r"image/png;base64,([^\"]+)", svg)]


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


TEXT = "## Head & tail\n\nFC^0.35^ by <b>us</b> [@power2012; @lindquist2019], 5 % of a_b.\n\n### More\n\n[@unknown]\n"


def test_html_is_escaped_and_lists_what_is_cited():
    html = to_html(TEXT, all_references(), level=1)
    assert "<h3>Head &amp; tail</h3>" in html
    assert (
        "FC<sup>0.35</sup> by &lt;b&gt;us&lt;/b&gt; (Power et al., 2012; Lindquist et al., 2019), 5 % of a_b." in html
    )
    assert html.count("<li>") == 2
    assert not [entry for entry in all_references().values() if "{" in entry["author"] or "title" not in entry]
    assert "(unknown)" in html
