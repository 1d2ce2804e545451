from __future__ import annotations

import json
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.outputs.status import FAILED, Status, write_status
from fcpower_bids.reports import figures
from fcpower_bids.reports.accounts import read_accounts, read_parcellation
from fcpower_bids.reports.panels import connectome_title, make_panels
from tests.reports.outputs import EXCLUDED, write_outputs, write_participant_reports


def panels(settings, number=0):
    accounts, _ = read_accounts(settings.output_dir, "01")
    return {panel.title: panel for panel in make_panels(accounts[number], accounts[number].views[0], settings)}


def test_every_panel_of_a_recording_that_was_used(written):
    found = panels(written[0])
    assert list(found) == [
        "Coverage",  # first, because parcels have no value
        "Motion and signal over time",
        "Connectomes",
        "Power spectrum",
        "Eigenvalues",
    ]
    assert all(panel.sources for panel in found.values())
    series = found["Motion and signal over time"]
    assert all(word in series.svg for word in ("before", "after", "FD (mm)", "DVARS"))
    assert "3 censored volumes" in series.text
    assert "2 dummy volumes" in series.text
    for panel in found.values():
        if panel.svg:
            assert ElementTree.fromstring(panel.svg).tag.endswith("svg")
            assert panel.alt


def test_where_a_recording_stands_among_all_follows_from_the_confounds(cohort_of_24):
    inputs, outputs = cohort_of_24 / "in", cohort_of_24 / "out"
    motion = {}
    for path in inputs.rglob("*_desc-confounds_timeseries.tsv"):
        table = pd.read_csv(path, sep="\t", na_values="n/a")
        motion[path.name.split("_desc-")[0]] = table["framewise_displacement"][2:].mean()  # without the dummy volumes
    (image,) = re.findall(r'svg\+xml,([^"]*)" alt="Mean FD', (outputs / "sub-03.html").read_text(encoding="utf-8"))
    drawing = ElementTree.fromstring(unquote(image))
    clouds = [
        [float(dot.get("cx")) for dot in group if dot.tag.endswith("circle")]
        for group in drawing.iter()
        if group.tag.endswith("}g")
    ]
    first, mark, second, other = [cloud for cloud in clouds if cloud][:4]
    assert (len(first), len(mark), len(second), len(other)) == (48, 1, 48, 1)
    values = np.sort(list(motion.values()))
    slope, start = np.polyfit(values, np.sort(first), 1)
    np.testing.assert_allclose(np.sort(first), start + slope * values, atol=0.15)
    own = [value for name, value in motion.items() if name.startswith("sub-03")]
    np.testing.assert_allclose(sorted([*mark, *other]), sorted(start + slope * np.array(own)), atol=0.15)


def test_an_excluded_recording_shows_why_and_what_there_is(written):
    found = panels(written[0], 3)
    assert "Motion and signal over time" in found
    assert "Coverage" in found
    assert "Connectomes" not in found
    assert EXCLUDED in written[1].read_text(encoding="utf-8")


def test_a_preview_that_was_not_kept_is_said_to_be_missing(tmp_path):
    settings = write_outputs(tmp_path, n_runs=1)
    next(settings.output_dir.rglob("*desc-before*.npz")).unlink()
    found = panels(settings)
    assert "was not kept" in found["Motion and signal over time"].text
    assert "before cleaning" not in found["Power spectrum"].svg


def test_an_embedding_has_a_panel_with_its_provenance(tmp_path):
    settings = write_outputs(tmp_path, n_runs=1, embedding={"name": "toy", "sha256": "abc", "window": 80})
    panel = panels(settings)["Embedding by toy"]
    assert panel.text.endswith("; name toy; sha256 abc.")
    assert panel.text.startswith(f"8 dimensions, norm {np.linalg.norm(np.arange(8)):.3f}")


def test_a_run_at_450_parcels_takes_little_of_a_page(tmp_path):
    settings = write_outputs(tmp_path, n_runs=2, n_parcels=450, n_volumes=150)
    (page,) = write_participant_reports(settings, ["01"])
    text = page.read_text(encoding="utf-8")
    assert text.count(">Connectomes<") == 3
    assert page.stat().st_size < 2.5e6


def test_many_sessions_get_pages_of_their_own(tmp_path):
    settings = write_outputs(tmp_path, n_runs=5, sessions=tuple("abcde"))
    pages = write_participant_reports(settings, ["01"])
    assert [page.name for page in pages] == ["sub-01.html", *(f"sub-01_ses-{name}.html" for name in "abcde")]
    assert 'href="sub-01_ses-c.html"' in pages[0].read_text(encoding="utf-8")
    assert pages[0].stat().st_size < 0.5 * pages[1].stat().st_size


def test_a_broken_file_costs_its_panel_only_and_is_named(tmp_path):
    settings = write_outputs(tmp_path, n_runs=2)
    for pattern, text in (("*run-1*_relmat.tsv", "Node\tx\ny\tz\n"), ("*run-2*_qc.tsv", "atlas\nx\n")):
        for path in settings.output_dir.rglob(pattern):
            path.write_text(text)
    next(settings.output_dir.rglob("*run-2*coverage_bold.json")).write_text("{")
    next(settings.output_dir.rglob("*run-1*_eigenvalues.tsv")).unlink()
    (page,) = write_participant_reports(settings, ["01"])
    text = page.read_text(encoding="utf-8")
    assert "This panel could not be drawn" in text
    assert "is not a numeric table" in text
    assert "lacks the columns" in text
    assert "is not valid JSON" in text
    assert "_eigenvalues.tsv is missing" in text
    assert "Power spectrum" in text


def test_a_participant_of_whom_everything_failed_has_a_page(tmp_path):
    settings = write_outputs(tmp_path, n_runs=0)
    write_status(settings.output_dir, Status("sub-01", FAILED, "inputs", "There is no BOLD file."))
    write_status(settings.output_dir, Status("sub-010_task-rest", FAILED, "inputs", "Another person."))
    (page,) = write_participant_reports(settings, ["01"])
    text = page.read_text(encoding="utf-8")
    assert "The recording cannot be used." in text
    assert "There is no BOLD file." in text
    assert "Another person" not in text


def test_every_participant_has_a_page_and_all_one_methods_text(tmp_path):
    settings = write_outputs(tmp_path, n_runs=1)
    write_outputs(tmp_path, n_runs=1, subject="02")
    pages = write_participant_reports(settings, ["01", "02"])
    assert [page.name for page in pages] == ["sub-01.html", "sub-02.html"]
    assert "24 parcels of atlas-toy_scale-24" in (settings.output_dir / "logs" / "CITATION.md").read_text()


def test_the_content_policy_names_the_script_and_no_address(written):
    text = written[1].read_text(encoding="utf-8")
    assert "script-src &#39;sha256-" in text
    assert "unsafe" not in text.split("<style>")[0]
    assert not [part for part in text.split('src="')[1:] if not part.startswith("data:")]


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("sub-1_stat-pearsoncorrelation_relmat.tsv", {}, "FC"),
        ("sub-1_stat-pearsoncorrelation_desc-power0p5_relmat.tsv", {"Alpha": 0.5}, "FC^0.5"),
        ("sub-1_stat-pearsoncorrelation_desc-fisherz_relmat.tsv", {}, "Fisher z of FC"),
        ("sub-1_stat-pearsoncorrelation_desc-new_relmat.tsv", {}, "new"),
        ("sub-1_stat-partialcorrelation_relmat.tsv", {}, "Partial correlation"),
    ],
)
def test_titles_of_connectomes(tmp_path, name, facts, expected):
    (tmp_path / name).with_suffix(".json").write_text(json.dumps(facts))
    assert connectome_title(tmp_path / name) == expected


def test_coverage_is_drawn_by_network_where_there_is_no_volume(written):
    found = panels(written[0])["Coverage"]
    assert "least to most covered parcel" in found.svg
    about = read_accounts(written[0].output_dir, "01")[0][0].views[0].about
    parcels = read_parcellation(written[0].output_dir, about["Name"], about["Space"])
    assert all(name in found.svg for name in set(parcels.networks))


def test_spectra_and_eigenvalues_say_their_numbers(written):
    found, (account, *_) = panels(written[0]), read_accounts(written[0].output_dir, "01")[0]
    (row,) = account.quality
    assert f"{100 * row['band_leakage']:.1f} % of the cleaned power is outside the band" in found["Power spectrum"].svg
    said = found["Eigenvalues"].svg
    assert f"FC, participation ratio {row['participation_ratio']:.1f}" in said
    assert f", participation ratio {row['participation_ratio_power']:.1f}" in said


def test_unknown_motion_and_repetition_time_are_drawn_too():
    volumes = {
        "framewise_displacement": np.full(9, np.nan),
        "dvars": np.full(9, np.nan),
        "dummy": np.zeros(9),
        "kept": np.ones(9),
    }
    svg = figures.draw_motion(volumes, 0.0, 0.0, {"after": np.zeros((3, 9))})
    assert "volumes" in svg
    assert "FD (mm)" not in svg
