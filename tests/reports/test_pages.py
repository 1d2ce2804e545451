"""Pages of a person and of all recordings, and what is drawn on them: numbers are those of the files."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import io
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fcpower_bids.reports import person as index
from fcpower_bids.reports.figures import (
    encode_png,
    make_preview,
    standardise_trend,
    step_of,
)
from fcpower_bids.reports.methods import all_references, cited_keys, methods_text, to_html, write_methods
from fcpower_bids.reports.person import write_pages
from fcpower_bids.reports.svg import MOST_POINTS, Drawing, Scale
from fcpower_bids.settings import METHOD_SECTIONS, Method, Settings
from tests.cases.cohorts import index_rows, table
from tests.command import main, parse_settings

FD = "framewise_displacement"


def test_a_broken_file_costs_its_panel_only_and_is_named(troubled_demo, troubled):
    settings = parse_settings([str(troubled_demo[0]), str(troubled), "participant", "--atlas", "builtin"])
    for path in (settings.output_dir / "sub-02").rglob("*ses-a*_relmat.tsv"):
        path.write_text("Node\tx\ny\tz\n")
        path.with_suffix(".npy").unlink(missing_ok=True)
    next(settings.output_dir.rglob("sub-02_ses-b*coverage_bold.json")).write_text("{")
    assert write_pages(settings, ["02"])[1] == []
    text = (settings.output_dir / "sub-02.html").read_text(encoding="utf-8")
    for words in ("This panel could not be drawn", "is not a numeric table", "is not valid JSON", "Power spectrum"):
        assert words in text
    assert str(settings.output_dir) not in text


@pytest.mark.parametrize(
    ("ending", "content", "words"),
    [
        ("desc-fcpower_qc.json", "{", "states no RepetitionTime"),
        ("stat-coverage_bold.json", "{}", "has no entry"),
        ("desc-confounds_outliers.tsv", None, "Power spectrum"),
    ],
)
def test_what_a_sidecar_lacks_and_what_a_table_has_besides_cost_no_page(
    ending, content, words, troubled_demo, troubled
):
    settings = parse_settings([str(troubled_demo[0]), str(troubled), "participant", "--atlas", "builtin"])
    path = next(settings.output_dir.rglob(f"sub-02_ses-a*_{ending}"))
    header, *rows = path.read_text().splitlines()
    remarks = [f"{header}\tremark", *(f"{row}\tmoved" for row in rows)]
    path.write_text("\n".join([*remarks, ""]) if content is None else content)
    assert write_pages(settings, ["02"])[1] == []
    assert words in (settings.output_dir / "sub-02.html").read_text(encoding="utf-8")


NETWORKS = ("a", "b") * 3


@pytest.fixture
def series():
    return np.random.default_rng(0).standard_normal((120, 6))


def test_what_censored_volumes_hold_does_not_reach_the_spectrum(series):
    kept = np.ones(120, dtype=bool)
    kept[[0, 1, 40, 41, 119]] = False
    clean = make_preview(series, kept, 2.0, NETWORKS)
    spoilt = np.where(kept[:, None], series, 1e6)
    np.testing.assert_array_equal(make_preview(spoilt, kept, 2.0, NETWORKS).power, clean.power)


def test_carpet_rows_are_sorted_by_network(series):
    carpet = make_preview(series, np.ones(120, dtype=bool), 2.0, NETWORKS).carpet
    np.testing.assert_array_equal(carpet, series[:, [0, 2, 4, 1, 3, 5]].T)


def test_line_and_scale_are_those_of_the_kept_volumes(series):
    kept = np.ones(120, dtype=bool)
    kept[:5] = False
    line = 3e4 + 70 * np.arange(120)[:, None]
    raw = line + 250 * series
    raw[:5] = 1e9
    raw[:, 5] = np.nan
    standard = standardise_trend(raw, kept)
    assert np.isnan(standard[:, 5]).all()
    np.testing.assert_allclose(standard[kept][:, :5].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(standard[kept][:, :5].std(axis=0, ddof=1), 1)
    slope = np.polynomial.polynomial.polyfit(np.flatnonzero(kept), standard[kept][:, :5], 1)[1]
    np.testing.assert_allclose(slope, 0, atol=1e-9)


def rows_of(path):
    return table(path).to_dict("records")


def test_every_recording_is_there_with_the_figures_of_its_quality_table(troubled_run):
    output, rows = troubled_run.output, {row["recording"]: row for row in index_rows(troubled_run.output)}
    states = {row["recording"]: row["state"] for row in rows_of(output / "logs" / "status.tsv")}
    assert {
        name: row["state"].removesuffix(" with caution").replace("used", "done") for name, row in rows.items()
    } == states
    assert set(states.values()) == {"done", "excluded"}
    headings = list(index.FIGURES)
    for name, row in rows.items():
        (table,) = output.rglob(f"{name}_desc-fcpower_qc.tsv")
        (quality,) = rows_of(table)
        number = {key: float(text) for key, text in quality.items() if key not in ("atlas", "state") and text != "n/a"}
        later = number["volumes"] - number["dummy_volumes"]
        exact = {
            "Minutes kept": number["seconds_kept"] / 60,
            "Censored (%)": 100 * number["censored_volumes"] / later,
            "Mean FD (mm)": number["mean_fd"],
            "Max FD (mm)": number["max_fd"],
            "Degrees of freedom": number["degrees_of_freedom"],
            "Coverage (%)": 100 * number["mean_coverage"],
            "Parcels without a value": number["uncovered_parcels"] + number["stray_parcels"],
            "Out of band (%)": 100 * number["band_leakage"] if "band_leakage" in number else None,
        }
        for (heading, digits), value in zip(index.FIGURES.items(), row["values"], strict=True):
            assert value == ("n/a" if exact[heading] is None else f"{exact[heading]:.{digits}f}"), heading
        page, _, anchor = row["page"].partition("#")
        assert f'id="{anchor}"' in (output / page).read_text(encoding="utf-8")
        told = (output / page).read_text(encoding="utf-8").replace("&#39;", "'")
        assert all(sentence in told for sentence in row["said"]), "the cautions are those of the recording's page"
    shown = re.findall(r'<th scope="col">(?:<button[^>]*><bdi>)?([^<]*)', (output / "index.html").read_text())
    assert shown == ["Recording", "Carpet", "State", "Decision", "Reason", *headings, "Cautions"]
    assert any(row["values"][headings.index("Parcels without a value")] != "0" for row in rows.values())


def press(browser, *keys):
    for key in keys:
        browser.press(key) if len(key) == 1 or key in ("Enter", "Escape", "ArrowDown") else browser.write(key)


def decided_in(browser):
    """Recording, pressed word and reason of every row that has one."""
    return browser.evaluate(
        "[...document.querySelectorAll('.decide tbody tr')].map((row) => [row.dataset.recording,"
        " (row.querySelector('[aria-pressed=true]') || {value: null}).value, row.querySelector('input').value])"
        ".filter((one) => one[1])"
    )


def scans_of(output):
    """Runs of every person that the group level sees."""
    rows = rows_of(output / "group" / "scans.tsv")
    return sum((Counter({row["participant_id"]: int(row["n_runs"])}) for row in rows), Counter())


def test_what_is_rejected_by_key_is_saved_obeyed_by_group_and_shown_again(browser, troubled, troubled_demo, capfd):
    browser.open(troubled / "index.html")
    names = [row["recording"] for row in index_rows(troubled)]
    done = [row["recording"] for row in index_rows(troubled) if row["state"].startswith("used")]
    browser.evaluate(f"document.querySelector('tr[data-recording=\"{names[0]}\"]').focus()")
    press(browser, "a", "r", 'a ghost, and "more"\there', "Enter", "d", "looks odd", "Escape")
    expected = [
        [names[0], "accept", ""],
        [names[1], "reject", 'a ghost, and "more" here'],
        [names[2], "doubt", "looks odd"],
    ]
    assert names[1] in done
    assert decided_in(browser)[0] == expected[0]
    assert [one[1] for one in decided_in(browser)] == ["accept", "reject", "doubt"]
    assert "1 accepted, 1 in doubt, 1 rejected" in browser.evaluate("document.getElementById('counts').textContent")
    browser.open(troubled / "index.html")
    assert len(decided_in(browser)) == 3, "the browser keeps them"
    browser.download("document.getElementById('save').click()", troubled)
    rows = rows_of(troubled / "exclude.tsv")
    assert [(row["recording"], row["decision"]) for row in rows] == [(one[0], one[1]) for one in expected]
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith(("data:", "blob:", "file:"))] == []
    capfd.readouterr()
    assert main([str(troubled_demo[0]), str(troubled), "group", "--analyses", "check", "--nprocs", "1"]) == 0
    assert f"{names[1]}: exclude.tsv: " in capfd.readouterr().err
    left_out = [row["reason"] for row in rows_of(troubled / "group" / "excluded.tsv") if names[1] in row["reason"]]
    assert left_out == [f"{names[1]}: exclude.tsv: a ghost, and 'more' here"]
    assert scans_of(troubled) == Counter(name.partition("_")[0] for name in done if name != names[1])
    browser.evaluate("localStorage.clear()")
    browser.open(troubled / "index.html")
    assert [(one[0], one[1]) for one in decided_in(browser)] == [(one[0], one[1]) for one in expected]
    assert browser.evaluate("document.getElementById('unsaved').hidden")


@pytest.mark.parametrize(
    ("scale", "most", "expected"),
    [
        (Scale(0, 0.2), 5, [0, 0.05, 0.1, 0.15, 0.2]),
        (Scale(-0.05, 7.45), 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (Scale(-3, 3), 3, [-2, 0, 2]),
    ],
)
def test_ticks_are_round_and_few(scale, most, expected):
    assert scale.ticks(most) == pytest.approx(expected)
    assert scale.share([scale.low, (3 * scale.high + scale.low) / 4]).tolist() == pytest.approx([0, 0.75])


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


@pytest.mark.parametrize(("colours_there_are", "columns"), [(3, 7), (16, 1), (17, 7), (256, 7)])
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
    cited = "(Power et al., 2012; Lindquist et al., 2019)"
    assert f"FC<sup>0.35</sup> by &lt;b&gt;us&lt;/b&gt; {cited}, 5 % of a_b." in html
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
WORDS = {
    "atlas": ("Schaefer100",),
    "strategy": "36P",
    "padding": "constant",
    "head_radius": "35",
    "motion_filter_type": "lp",
    "dummy_scans": "4",
    "transforms": ("power", "fisher_z"),
    "encoder": "other",
    "encoder_weights": "elsewhere",
    "encoder_revision": "def",
    "encoder_read": "windows",
}
"""Other values of the options that are no numbers; a number is raised by an eighth, or by four if it is whole."""
OF_PUBLISHED = {"encoder_protocol": "paper"}
WITHOUT_SENTENCE = {"atlas_dir"}
"""Where an atlas is looked for: its name and source tell which one was found."""


def sentences(settings: Settings, **known: object) -> str:
    text = methods_text(settings, **known)
    assert not re.search(r"[^\n]\n#|[^\n] ###", text), "a heading begins a paragraph"
    return text.replace(settings.method.configuration_hash(), "HASH")


def test_every_option_changes_its_sentence_and_little_else():
    published = RICH.changed(encoder="brain-jepa")
    assert "licence of its weights: none stated by the authors." in sentences(published)
    options = {field.name for field in dataclasses.fields(Method) if field.metadata["section"] in METHOD_SECTIONS}
    for name in options - WITHOUT_SENTENCE:
        settings = published if name in OF_PUBLISHED else RICH
        if (other := (WORDS | OF_PUBLISHED).get(name)) is None:
            value = getattr(settings.method, name) or 0.1
            other = value + (4 if isinstance(value, int) else value / 8)
        before, after = sentences(settings).splitlines(), sentences(settings.changed(**{name: other})).splitlines()
        assert 1 <= len([line for line in after if line not in before]) <= 3, name


def test_three_files_with_the_cc0_note_and_the_entries_that_are_cited(tmp_path):
    settings = PLAIN.changed(output_dir=tmp_path)
    files = {path.suffix: path.read_text(encoding="utf-8") for path in write_methods(settings)}
    assert set(files) == {".md", ".html", ".bib"}
    assert all("CC0" in files[ending] for ending in (".md", ".html"))
    cited = [all_references()[key] for key in cited_keys(files[".md"], all_references())]
    entries = [line for line in files[".bib"].splitlines() if line.startswith("@")]
    assert entries == [one["text"].splitlines()[0] for one in cited]
    again = {path.suffix: path.read_text(encoding="utf-8") for path in write_methods(settings)}
    assert again == files


def test_a_page_allows_nothing_but_its_own_style_script_and_images(exact_run):
    pages = sorted(exact_run.output.glob("*.html"))
    assert {page.name for page in pages} >= {"index.html", "sub-01.html"}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
        digests = [
            base64.b64encode(hashlib.sha256(html.unescape(part).encode()).digest()).decode()
            for kind in ("style", "script")
            for part in re.findall(rf"<{kind}>(.*?)</{kind}>", text, flags=re.DOTALL)
        ]
        assert len(digests) == 2
        assert html.unescape(policy).split("; ") == [
            *("default-src 'none'", "img-src data:", f"style-src 'sha256-{digests[0]}'"),
            *(f"script-src 'sha256-{digests[1]}'", "base-uri 'none'", "form-action 'none'"),
        ]
