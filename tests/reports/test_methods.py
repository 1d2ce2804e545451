"""Every choice has its sentence, and every sentence follows its choice."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fcpower_bids.imaging.strategies import load_strategy, strategy_names
from fcpower_bids.reports.methods import all_references, cited_keys, methods_text, write_methods
from fcpower_bids.settings import METHOD_SECTIONS, Method, Settings

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


@pytest.mark.parametrize(
    ("choice", "expected", "absent"),
    [
        ({"fd_thresh": 0.0}, "No volumes were censored", "framewise"),
        ({"high_pass": 0.0, "low_pass": 0.0}, "No temporal filter", "Butterworth"),
        ({"strategy": "none"}, "No nuisance regressors were used", "least squares"),
        ({"dummy_scans": "0"}, "No volumes were dropped", "non-steady"),
        ({"min_time": 0.0}, "No recording was excluded for its length", "excluded."),
        ({"min_coverage": 0.0}, "No parcel was left without a value for low coverage", "less than 50 %"),
    ],
)
def test_what_was_not_done_is_not_told(choice, expected, absent):
    text = sentences(PLAIN.changed(**choice))
    assert expected in text
    assert absent not in text


@pytest.mark.parametrize("name", strategy_names())
def test_strategies_tell_their_own_sentence_and_all_their_references_are_known(name):
    text = sentences(PLAIN.changed(strategy=name))
    strategy = load_strategy(name)
    assert strategy.methods.removesuffix(".") in text
    assert ". [@" not in text  # citations stand before the full stop
    assert " et al." not in strategy.methods  # and are not repeated in words
    assert "doi:" not in text
    dois = {all_references()[key].get("doi") for key in cited_keys(text, all_references())}
    assert set(strategy.references) <= dois


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
