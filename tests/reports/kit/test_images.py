from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from fcpower_bids.reports.svg import colour_table, colours, encode_png, step_of


@pytest.mark.parametrize("colours_there_are", [3, 16, 17, 256])
@pytest.mark.parametrize("columns", [1, 6, 7])
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


@pytest.mark.parametrize("name", ["RdBu_r", "cividis", "gray", "inferno"])
def test_the_colours_are_those_of_matplotlib(name):
    np.testing.assert_array_equal(colours(name), colormaps[name](np.arange(256), bytes=True)[:, :3])
    np.testing.assert_array_equal(colours(name, 3), colours(name)[[0, 128, 255]])


def test_networks_have_the_colours_of_tab20():
    table = [tuple(bytes.fromhex(one)) for one in colour_table("tab20")]
    assert table == [tuple(round(255 * part) for part in colormaps["tab20"](place)[:3]) for place in range(20)]


def test_values_lie_in_equal_steps_and_what_is_missing_in_one_more():
    values = np.array([-9, -2, -1.01, -0.99, 0, 1.99, 2, np.inf, 9, np.nan])
    assert step_of(values, -2, 2, 4).tolist() == [0, 0, 0, 1, 2, 3, 3, 4, 3, 4]
    assert step_of(np.ones(2), 1, 1).tolist() == [0, 0]
