"""Brains that can be turned, in a real browser."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from nilearn.datasets import load_mni152_brain_mask
from scipy import ndimage

from fcpower_bids.reports.cohort.brains import brain_surface, connections_panel
from fcpower_bids.reports.cohort.page import write_brains
from fcpower_bids.reports.cohort.tables import Section
from fcpower_bids.settings import Settings
from fcpower_bids.slices.edges.tables import EDGES
from tests.reports.turned import read_brains

EVIL = "</script><script>window.pwned = 1</script>"
PLACES = {"left <b>": (-50.0, 20.0, 10.0), "right": (50.0, 20.0, 10.0), EVIL: (0.0, -80.0, 30.0)}
EDGES_SHOWN = [("left <b>", "right", -8.0), ("right", EVIL, 5.5), ("left <b>", EVIL, 4.0)]
CENTRE, HALF = (0, -18, 5), 112
"""Of the drawing, in mm."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with three connections between three parcels."""
    settings = Settings(Path("bids"), tmp_path_factory.mktemp("brains"), "group")
    part = pd.DataFrame(EDGES_SHOWN, columns=["parcel_a", "parcel_b", "t"])
    panel = connections_panel(part, PLACES, EDGES.shown("parcel_a", "parcel_b", "t"), "Three", "Of three.", ())
    return write_brains(settings, [Section("edges", "Edges", panels=(panel,))], "fcpower_bids bids out group")


@pytest.fixture
def opened(browser, page):
    browser.open(page)
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return browser


def told(browser):
    return browser.evaluate("document.querySelector('output').textContent")


def test_the_page_shows_the_connections_and_asks_for_nothing(opened, page):
    (brain,) = read_brains(page).values()
    ends = [tuple(brain["parcels"][end] for end in pair) for pair in brain["ends"]]
    assert [(a, b, t) for (a, b), t in zip(ends, brain["values"], strict=True)] == EDGES_SHOWN
    assert [tuple(place) for place in brain["places"]] == [PLACES[name] for name in brain["parcels"]]
    assert opened.messages == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [page.absolute().as_uri()]
    assert opened.evaluate("window.pwned === undefined")
    assert opened.evaluate("document.querySelector('footer').innerText").find("with fcpower_bids bids out group") > 0


def test_keys_read_the_connections_out_from_the_largest_and_turn_the_brain(opened):
    opened.evaluate("document.querySelector('canvas').focus()")
    for key, said in (("n", "1 of 3: left <b> to right, t -8.00"), ("n", "2 of 3: right to "), ("p", "1 of 3: left")):
        opened.press(key)
        assert told(opened).startswith(said)
    assert opened.evaluate("document.querySelector('tr.chosen').textContent").startswith("left <b>right-8.00")
    picture = "document.querySelector('canvas').toDataURL()"
    before = opened.evaluate(picture)
    opened.press("ArrowLeft")
    turned = opened.evaluate(picture)
    opened.press("ArrowRight")
    assert turned != before == opened.evaluate(picture)


def test_from_above_a_connection_is_where_its_parcels_are(opened):
    opened.evaluate("document.querySelector('[data-view=above]').click()")
    box = "document.querySelector('canvas').getBoundingClientRect()"
    left, top, side = (opened.evaluate(f"{box}.{one}") for one in ("x", "y", "width"))
    for a, b, t in EDGES_SHOWN:
        middle = (np.array(PLACES[a]) + PLACES[b]) / 2 - CENTRE
        opened.point(left + side / 2 + middle[0] * side / 2 / HALF, top + side / 2 - middle[1] * side / 2 / HALF)
        assert told(opened).endswith(f"{a} to {b}, t {t:.2f}")


def test_without_brains_a_page_of_before_goes(tmp_path):
    settings = Settings(Path("bids"), tmp_path, "group")
    settings.brains_page.write_text("of before")
    assert write_brains(settings, [Section("edges", "Edges")], "") is None
    assert not settings.brains_page.exists()


def test_the_surface_is_closed_and_that_of_the_brain():
    corners, faces = brain_surface()
    mask = load_mni152_brain_mask(resolution=2)
    inside = np.asarray(mask.dataobj, dtype=bool)
    index = tuple(np.rint((corners - mask.affine[:3, 3]) / 2).astype(int).T)
    depth = 2 * (ndimage.distance_transform_edt(inside) - ndimage.distance_transform_edt(~inside))[index]
    assert 3000 < len(corners) < 9000
    assert np.percentile(np.abs(depth), 95) < 4
    sides = np.concatenate([faces[:, [one, (one + 1) % 4]] for one in range(4)])
    there, back = ({*map(tuple, one)} for one in (sides, sides[:, ::-1]))
    assert there == back, "each side of a face is that of another one, which goes round the other way"
    a, b, c, d = (corners[faces[:, one]] for one in range(4))
    volume = (np.cross(b - a, c - a) * a).sum() / 6 + (np.cross(c - a, d - a) * a).sum() / 6
    assert volume == pytest.approx(8 * inside.sum(), rel=0.05)  # positive: seen from outside corners go to the left


def test_the_surface_is_drawn_translucent_within_its_outline(opened):
    pixel = """(([x, y]) => { const canvas = document.querySelector("canvas"), side = canvas.width;
    return [...canvas.getContext("2d").getImageData(x * side, y * side, 1, 1).data].slice(0, 3); })(%s)"""
    inside, outside = (opened.evaluate(pixel % list(place)) for place in ((0.5, 0.25), (0.05, 0.1)))
    assert outside == [255, 255, 255]
    assert all(100 < one < 250 for one in inside)


def test_all_of_many_connections_are_drawn_and_the_slider_says_so(browser, tmp_path):
    """A slider holds at most 100 until it is told otherwise."""
    settings = Settings(Path("bids"), tmp_path, "group")
    places = {f"p{i:02d}": (4.0 * i - 30, 3.0 * i - 40, 20.0) for i in range(16)}
    pairs = [(a, b, 9.0 - 0.01 * i) for i, (a, b) in enumerate(combinations(places, 2))]
    part = pd.DataFrame(pairs, columns=["parcel_a", "parcel_b", "t"])
    panel = connections_panel(part, places, EDGES.shown("parcel_a", "parcel_b", "t"), "Many", "Of many.", ())
    browser.open(write_brains(settings, [Section("edges", "Edges", panels=(panel,))], ""))
    value, said = browser.evaluate(
        "(() => { const slider = document.querySelector('input[type=range]');"
        "return [slider.value, slider.nextElementSibling.textContent]; })()"
    )
    assert (value, said) == ("120", "120 of 120")
