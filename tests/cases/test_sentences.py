"""What the pages say is what the tables say: few people, verdicts of every analysis, one verdict of a scan."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.tables import read_table
from tests.cases.cohorts import PEOPLE, QUICK, group, read, write_series, write_table
from tests.cases.people import run
from tests.running import PLAIN

AGES = np.round(np.random.default_rng(1).uniform(20, 60, len(PEOPLE)), 1)


def page_of(folder):
    return html.unescape(re.sub(r"<[^>]+>", " ", (folder / "out" / "group.html").read_text()))


@pytest.mark.parametrize(("n", "predicted"), [(9, False), (10, False), (29, False), (30, True)])
def test_33_few_people_are_described_and_predicted_only_where_targets_are_named(tmp_path, capsys, n, predicted):
    folder = write_series(tmp_path, PEOPLE[:n])
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE[:n], age=AGES[:n])
    assert group(folder, "--permutations", 0) == 0
    assert (folder / "out" / "group" / "prediction_summary.tsv").is_file() == predicted
    if predicted:
        return
    said = capsys.readouterr().err + page_of(folder)
    assert f"{n} people are too few" in said
    assert "--targets" in said
    assert "better than chance" not in said
    assert not re.search(r"use --folds", said)
    assert (folder / "out" / "index.html").is_file()
    assert group(folder, "--targets", "age") == 0
    assert (folder / "out" / "group" / "prediction_summary.tsv").is_file()


def test_33_a_threshold_is_a_score_that_there_can_be(tmp_path):
    folder = write_series(tmp_path, PEOPLE[:10])
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE[:10], age=AGES[:10], iq=AGES[10:20])
    quick = [39 if before == "--permutations" else one for before, one in zip(("", *QUICK), QUICK, strict=False)]
    assert group(folder, "--targets", "age", "iq", quick=quick) == 0
    for r in re.findall(r"an observed r of (-?\d+\.\d+)|a true one of (-?\d+\.\d+)", page_of(folder)):
        assert all(abs(float(each)) <= 1 for each in r if each)


@pytest.mark.parametrize(
    "options",
    [
        ("--analyses", "alpha_selection", "--alpha", "align"),
        ("--analyses", "alpha_selection", "--alpha", "grid"),
        ("--analyses", "parcellation_sweep"),
        ("--analyses", "transform_screen"),
        ("--analyses", "transform_screen", "parcellation_sweep"),
    ],
)
def test_35_an_analysis_answers_for_every_target(tmp_path, options):
    folder = write_series(tmp_path, parcels=5, sessions=("a",))
    table = pd.read_csv(folder / "list.tsv", sep="\t")
    if "parcellation_sweep" in options:
        table = pd.concat([table.assign(atlas="one"), table.assign(atlas="two")])
    table.to_csv(folder / "list.tsv", sep="\t", index=False)
    names = {"age": AGES, "iq": AGES[::-1], "memory": np.roll(AGES, 7)}
    write_table(folder / "bids" / "participants.tsv", participant_id=PEOPLE, **names)
    assert group(folder, *options, "--targets", *names) == 0
    page = page_of(folder)
    assert "FC^nan" not in page
    head = page[: page.index("In the cohort")]
    assert "Nothing was predicted or identified" not in head
    assert ": done; the page has the tables" not in head
    assert all(re.search(rf"\b{name}\b[ (:]", head) for name in names)


@pytest.mark.parametrize("strength", [0.0, 0.6, 0.95])
def test_39_the_share_of_edges_that_go_with_motion_is_said_of_every_representation(tmp_path, strength):
    motion = np.round(np.linspace(0.05, 0.5, 30), 3)
    folder = write_series(tmp_path, signal=lambda number: strength * (number - 15) / 15, mean_fd=motion)
    assert group(folder, "--analyses", "qc_fc") == 0
    edges, page = read(folder, "qcfc"), page_of(folder)
    head = re.sub(r"\s+", " ", page[: page.index("Cohort flow")]).replace(" ^ ", "^").replace("0.35 ", "0.35")
    for name, title in (("fc", "FC"), ("fc_power", "FC^0.35")):
        share = 100 * (edges[edges["representation"] == name]["q"] < 0.05).mean()
        line = re.search(r"Edges that go with motion \(q < 0.05\): ([^:]*? %)\.", head)
        assert line
        said = dict(re.findall(r"(FC(?:\^0\.35)?) ?(\d+\.\d) %", line[1]))
        assert float(said[title]) == pytest.approx(share, abs=0.051)


SHARES = (0.1, 0.25, 0.4, 0.6)
"""Of the volumes of each of four scans, the part that is censored because of motion."""


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    """Two people twice, with more and more motion, through both levels; the last scan is below ``--min-time``."""
    folder = tmp_path_factory.mktemp("moving")
    make_dataset(folder / "in", DemoDesign.tiny(noise=0.1))
    tables = sorted((folder / "in").rglob("*_desc-confounds_timeseries.tsv"))
    for path, share in zip(tables, SHARES, strict=True):
        rows = pd.read_csv(path, sep="\t", na_values=["n/a"])
        moved = np.linspace(10, len(rows) - 1, round(share * len(rows))).astype(int)
        displaced = np.where(np.isin(np.arange(len(rows)), moved), 1.0, 0.1)
        parameters = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
        rows[parameters] = 1e-7 * np.random.default_rng(0).standard_normal((len(rows), 6))
        rows["trans_x"] = np.cumsum(displaced * (-1) ** np.arange(len(rows)))
        rows["framewise_displacement"] = np.r_[np.nan, displaced[1:]]
        rows.to_csv(path, sep="\t", index=False, na_rep="n/a")
    words = (
        folder / "in",
        folder / "out",
        "participant",
        *PLAIN,
        "--fd-thresh",
        0.5,
        "--min-time",
        90,
        "--atlas",
        "builtin",
        "--nprocs",
        1,
    )
    assert run(*words).code == 0
    assert run(folder / "in", folder / "out", "group", "--min-time", 0, "--nprocs", 1).code == 0
    return folder / "out"


def test_36_every_page_has_the_same_verdict_on_a_scan(moving):
    table = read_table(moving / "recordings.tsv").set_index("recording")
    index = (moving / "index.html").read_text()
    index = json.loads(re.search(r'<script type="application/json" id="content">(.*?)</script>', index, re.S)[1])
    cohort = html.unescape((moving / "group.html").read_text())
    words = {"ok": "used", "caution": "used with caution", "stop": "excluded"}
    verdicts = []
    for number, row in enumerate(index["rows"]):
        name = row["recording"]
        (path,) = moving.rglob(f"{name}_desc-confounds_outliers.tsv")
        volumes = read_table(path)
        later = volumes[volumes["dummy"] == 0] if "dummy" in volumes else volumes
        share = 1 - later["kept"].mean()
        assert share == pytest.approx(SHARES[number], abs=0.06)
        verdict = table.loc[name, "quality"]
        verdicts.append(verdict)
        assert row["state"] == words[verdict]
        page = html.unescape((moving / f"{name[:6]}.html").read_text())
        said = f"{100 * share:.0f} % of the volumes were censored because of motion."
        doubted = 0.3 < share < 0.5
        assert [said in each for each in (page, row["said"], str(table.loc[name, "cautions"]))] == [doubted] * 3
        short = name.split("_space-")[0]
        line = next(line for line in cohort.split("<tr") if short in line and "desc-fcpower_qc" in line)
        assert f">{words[verdict]}<" in line
    assert verdicts == ["ok", "ok", "caution", "stop"]
    assert "1 recording used with caution" in cohort
    head = re.sub(r"<[^>]+>", " ", (moving / "sub-02.html").read_text())
    minutes = table["seconds"].iloc[2] / 60
    assert f"{minutes:.1f} of {2 * 80 * 2.5 / 60:.1f}" in head  # both scans count, also the one that is not used
