"""The index of all recordings: its figures are those of the files, and what is decided on it is done."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter

import pytest

from fcpower_bids.reports import person as index
from tests.command import main


def content_of(output):
    text = (output / "index.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="content">(.*?)</script>', text, re.DOTALL)[1])


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture
def output(troubled_run, tmp_path):
    """A copy of the outputs of the troubled demo."""
    return shutil.copytree(troubled_run.output, tmp_path / "out", ignore=shutil.ignore_patterns("work"))


def test_every_recording_is_there_with_the_figures_of_its_quality_table(troubled_run):
    output, content = troubled_run.output, content_of(troubled_run.output)
    rows = {row["recording"]: row for row in content["rows"]}
    states = {row["recording"]: row["state"] for row in rows_of(output / "logs" / "status.tsv")}
    assert {
        name: row["state"].removesuffix(" with caution").replace("used", "done") for name, row in rows.items()
    } == states
    assert set(states.values()) == {"done", "excluded"}
    headings = content["figures"]
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
    assert any(row["values"][headings.index("Parcels without a value")] != "0" for row in rows.values())


def test_decisions_that_cannot_be_read_are_named_and_the_index_stays(output, troubled_demo, capsys):
    before = (output / "index.html").read_bytes()
    (output / "exclude.tsv").write_text("participant_id\tdecision\nsub-01\tperhaps\n")
    assert main([str(troubled_demo[0]), str(output), "participant", "--atlas", "builtin", "--reports-only"]) == 4
    assert "exclude.tsv has the decision 'perhaps' in row 1. Write accept, doubt or reject." in capsys.readouterr().err
    assert (output / "index.html").read_bytes() == before


def press(browser, *keys):
    for key in keys:
        browser.press(key) if len(key) == 1 or key in ("Enter", "Escape", "ArrowDown") else browser.write(key)


def saved_by(browser, folder):
    browser.download("document.getElementById('save').click()", folder)
    return folder / "exclude.tsv"


def decided_in(browser):
    """Recording, pressed word and reason of every row that has one."""
    return browser.evaluate(
        "[...document.querySelectorAll('.decide tbody tr')].map((row) => [row.dataset.recording,"
        " (row.querySelector('[aria-pressed=true]') || {dataset: {}}).dataset.word, row.querySelector('input').value])"
        ".filter((one) => one[1])"
    )


def scans_of(output):
    """Runs of every person that the group level sees."""
    rows = rows_of(output / "group" / "scans.tsv")
    return sum((Counter({row["participant_id"]: int(row["n_runs"])}) for row in rows), Counter())


def test_what_is_rejected_by_key_is_saved_obeyed_by_group_and_shown_again(browser, output, troubled_demo, capfd):
    browser.open(output / "index.html")
    names = [row["recording"] for row in content_of(output)["rows"]]
    done = [row["recording"] for row in content_of(output)["rows"] if row["state"].startswith("used")]
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
    browser.open(output / "index.html")
    assert len(decided_in(browser)) == 3, "the browser keeps them"
    file = saved_by(browser, output)
    rows = rows_of(file)
    assert [(row["recording"], row["decision"]) for row in rows] == [(one[0], one[1]) for one in expected]
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith(("data:", "blob:", "file:"))] == []
    capfd.readouterr()
    assert main([str(troubled_demo[0]), str(output), "group", "--analyses", "check", "--nprocs", "1"]) == 0
    assert f"{names[1]}: exclude.tsv: " in capfd.readouterr().err
    left_out = [row["reason"] for row in rows_of(output / "group" / "excluded.tsv") if names[1] in row["reason"]]
    assert left_out == [f"{names[1]}: exclude.tsv: a ghost, and 'more' here"]
    assert scans_of(output) == Counter(name.partition("_")[0] for name in done if name != names[1])
    browser.evaluate("localStorage.clear()")
    browser.open(output / "index.html")
    assert [(one[0], one[1]) for one in decided_in(browser)] == [(one[0], one[1]) for one in expected]
    assert browser.evaluate("document.getElementById('unsaved').hidden")
