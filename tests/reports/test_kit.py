"""Drawings, images and the methods text: shapes, colours and words are those of what they are given."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fcpower_bids.reports.methods import all_references, cited_keys, methods_text, to_html, write_methods
from fcpower_bids.reports.svg import MOST_POINTS, Drawing, encode_png, step_of
from fcpower_bids.settings import METHOD_SECTIONS, Method, Settings


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


PLAIN = Settings(Path("bids"), Path("out"), "participant")
RICH = PLAIN.changed(
    transforms=("power", "log_euclidean"),
    motion_filter_type="notch",
    band_stop_min=12.0,
    band_stop_max=18.0,
    encoder="fbert-1m",
    encoder_weights="weights",
    encoder_revision="abc",
)
OTHER = {
    "atlas": ("Schaefer100",),
    "strategy": "36P",
    "high_pass": 0.02,
    "low_pass": 0.1,
    "filter_order": 5,
    "padding": "constant",
    "convention": "xcp_d",
    "head_radius": "35",
    "motion_filter_type": "lp",
    "band_stop_min": 10.0,
    "band_stop_max": 20.0,
    "motion_filter_order": 8,
    "dummy_scans": "4",
    "fd_thresh": 0.3,
    "min_time": 300.0,
    "min_coverage": 0.7,
    "alpha": 0.5,
    "transforms": ("power", "fisher_z"),
    "eigenvalue_floor": 0.01,
    "shrink_to_identity": 0.1,
    "encoder": "other",
    "encoder_weights": "elsewhere",
    "encoder_revision": "def",
    "encoder_read": "windows",
    "allow_missing_parcels": True,
}
OF_PUBLISHED = {"encoder_protocol": "paper", "encoder_aux": (Path("aux/statistics.tsv"),)}
WITHOUT_SENTENCE = {"atlas_dir", "accept_encoder_licence"}
"""Where an atlas is looked for (its name and source tell which one was found), a permission, and how results are stored
(the text is that of no transforms, which have an entry)."""


def sentences(settings: Settings, **known: object) -> str:
    text = methods_text(settings, **known)
    return text.replace(settings.method.configuration_hash(), "HASH")


def test_every_option_of_the_method_is_tried_here():
    options = {field.name for field in dataclasses.fields(Method) if field.metadata["section"] in METHOD_SECTIONS}
    assert options - WITHOUT_SENTENCE <= OTHER.keys() | OF_PUBLISHED.keys()


def test_every_option_changes_its_sentence_and_little_else():
    published = RICH.changed(encoder="brain-jepa")
    tried = [(RICH, name, OTHER[name]) for name in OTHER] + [(published, *each) for each in OF_PUBLISHED.items()]
    for settings, name, other in tried:
        before, after = sentences(settings).splitlines(), sentences(settings.changed(**{name: other})).splitlines()
        assert 1 <= len([line for line in after if line not in before]) <= 3, name


def test_three_files_with_the_cc0_note_and_the_entries_that_are_cited(tmp_path):
    settings = PLAIN.changed(output_dir=tmp_path)
    files = {path.suffix: path.read_text(encoding="utf-8") for path in write_methods(settings)}
    assert set(files) == {".md", ".html", ".bib"}
    assert all("CC0" in files[ending] for ending in (".md", ".html"))
    cited = cited_keys(files[".md"], all_references())
    assert [line for line in files[".bib"].splitlines() if line.startswith("@")] == [
        all_references()[key]["text"].splitlines()[0] for key in cited
    ]
    again = {path.suffix: path.read_text(encoding="utf-8") for path in write_methods(settings)}
    assert again == files
