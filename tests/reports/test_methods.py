"""Every choice has its sentence, and every sentence follows its choice."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fcpower_bids.imaging.strategies import load_strategy, strategy_names
from fcpower_bids.reports.methods import AtlasFacts, all_references, cited_keys, methods_text, to_html, write_methods
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


@pytest.mark.parametrize("name", sorted(OTHER))
def test_every_option_changes_its_sentence_and_little_else(name):
    before, after = sentences(RICH).splitlines(), sentences(RICH.changed(**{name: OTHER[name]})).splitlines()
    changed = [line for line in after if line not in before]
    assert 1 <= len(changed) <= 3, changed


@pytest.mark.parametrize("name", sorted(OF_PUBLISHED))
def test_every_option_of_a_published_encoder_changes_its_sentence(name):
    published = RICH.changed(encoder="brain-jepa")
    before, after = sentences(published), sentences(published.changed(**{name: OF_PUBLISHED[name]}))
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert len(changed) == 1, changed


@pytest.mark.parametrize(
    ("choice", "expected", "absent"),
    [
        ({"fd_thresh": 0.0}, "No volumes were censored", "framewise"),
        ({"high_pass": 0.0}, "below 0.08 Hz", "second order between"),
        ({"low_pass": 0.0}, "above 0.01 Hz", "second order between"),
        ({"high_pass": 0.0, "low_pass": 0.0}, "No temporal filter", "Butterworth"),
        ({"strategy": "none"}, "No nuisance regressors were used", "least squares"),
        ({"dummy_scans": "0"}, "No volumes were dropped", "non-steady"),
        ({"dummy_scans": "3"}, "The first 3 volumes", "non-steady"),
        ({"filter_order": 5, "padding": "odd"}, "of order 5, with odd padding,", "second order"),
        ({"convention": "nilearn"}, "cubic spline through the other volumes, and", "straight line"),
        ({"head_radius": "auto"}, "volume of the brain mask", "radius of"),
        ({"min_time": 0.0}, "No recording was excluded for its length", "excluded."),
        ({"min_coverage": 0.0}, "No parcel was left without a value for low coverage", "less than 50 %"),
        ({"transforms": ()}, "participation ratio", "was obtained by raising"),
        ({"atlas": ("A", "B")}, "parcellations A and B", "parcellation A"),
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


def test_a_reference_that_nobody_knows_is_given_by_its_doi(tmp_path):
    own = tmp_path / "own.yml"
    own.write_text("methods: The only regressor was time [@nobody].\ncolumns: [trans_x]\nreferences: [10.1/x]\n")
    settings = PLAIN.changed(strategy=str(own))
    assert "(doi: 10.1/x)" in methods_text(settings)
    assert "(nobody)" in to_html(methods_text(settings), all_references())


def test_the_atlases_in_use_are_described():
    text = methods_text(PLAIN, [AtlasFacts("atlas-x", "fsLR", 360, "a file", "Glasser 2016")])
    assert "grayordinates" in text
    assert "brain mask" not in text
    assert "the 360 parcels of atlas-x in fsLR (a file; Glasser 2016)" in text
    assert "voxels of each parcel" in methods_text(PLAIN, [AtlasFacts("atlas-x", "MNI152NLin6Asym", 100)])
    both = methods_text(PLAIN, [AtlasFacts("a", "fsLR", 1), AtlasFacts("b", "MNI152NLin6Asym", 1)])
    assert "grayordinates" not in both
    assert "voxels of each" not in both


def test_what_made_the_input_is_named_and_cited(tmp_path):
    settings = PLAIN.changed(output_dir=tmp_path)
    assert "esteban2019" not in methods_text(settings)
    made_by = [{"Name": "fcpower_bids"}, {"Name": "fMRIPrep", "Version": "25.1.0"}]
    (tmp_path / "dataset_description.json").write_text(json.dumps({"GeneratedBy": made_by}))
    assert "by fMRIPrep 25.1.0 [@esteban2019]" in methods_text(settings)


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
