"""``fcpower_bids combine OUT a=DIR b=DIR``: people of two sites stay two people, with what was decided about each."""

from __future__ import annotations

import json
import re
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.demo import DemoDesign, make_dataset
from tests.running import PLAIN, run_app
from tests.slices.sharing.test_combine import packed, part

RUN = ("--atlas", "builtin", *PLAIN, "--nprocs", "1", "--quiet")


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Two sites whose people are called alike; the second has somebody whom the first has not."""
    root = tmp_path_factory.mktemp("sites")
    for seed, site in enumerate(("siteA", "siteB")):
        design = DemoDesign.tiny(subjects=2 + seed, sessions=1, noise=0, nuisance=0, seed=seed)
        make_dataset(root / site / "bids", design)
        described = root / site / "bids" / "dataset_description.json"
        described.write_text(json.dumps({**json.loads(described.read_text()), "Name": site}))
        found = run_app(root / site / "bids", root / site / "out", *RUN)
        assert found.code == 0, found.err
    return root


def words(sites, *names):
    return [f"{name}={sites / name / 'out'}" for name in names]


def combine(out, *sources):
    return main(["combine", str(out), *sources])


def connectomes(folder):
    """By person, the numbers of the connectomes."""
    paths = sorted(folder.glob("sub-*/**/*_stat-pearsoncorrelation_relmat.tsv"))
    return {path.name.partition("_")[0]: pd.read_csv(path, sep="\t", index_col=0).to_numpy() for path in paths}


def table(path):
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False).set_index("participant_id")


def test_equal_labels_of_two_sites_are_two_people(sites, tmp_path, capsys):
    out = tmp_path / "all"
    assert combine(out, *words(sites, "siteA", "siteB")) == 0
    assert "new labels: 4 participants whose label another site has" in capsys.readouterr().out
    there = {site: connectomes(sites / site / "out") for site in ("siteA", "siteB")}
    expected = {f"sub-{site}{label[4:]}": values for site, own in there.items() for label, values in own.items()}
    expected["sub-03"] = expected.pop("sub-siteB03")
    found = connectomes(out)
    assert found.keys() == expected.keys()
    for label, values in found.items():
        np.testing.assert_array_equal(values, expected[label])
    people = table(out / "participants.tsv")
    assert people["site"].to_dict() == {
        **{f"sub-siteA{n}": "siteA" for n in ("01", "02")},
        **dict.fromkeys(("sub-siteB01", "sub-siteB02", "sub-03"), "siteB"),
    }
    ages = {site: table(sites / site / "bids" / "participants.tsv")["age"] for site in ("siteA", "siteB")}
    assert people.loc["sub-siteB02", "age"] == ages["siteB"]["sub-02"]
    assert people.loc["sub-siteA02", "age"] == ages["siteA"]["sub-02"]
    origins = pd.read_csv(out / "logs" / "combined.tsv", sep="\t").set_index("participant_id")
    assert origins.loc["sub-siteB01", ["site", "participant_id_there", "source"]].tolist() == [
        "siteB", "sub-01", str(sites / "siteB" / "out"),
    ]  # fmt: skip
    for path in (path for path in out.rglob("*") if path.is_file() and "siteA01" in path.name):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert "sub-01" not in re.sub('"bids:siteA_fmriprep:[^"]*"', "", text), path


def test_links_lead_to_the_inputs_of_each_site(sites, tmp_path):
    out = tmp_path / "all"
    assert combine(out, *words(sites, "siteA", "siteB")) == 0
    about = json.loads((out / "dataset_description.json").read_text())
    for site in ("siteA", "siteB"):
        assert (out / about["DatasetLinks"][f"{site}_fmriprep"]).resolve().is_relative_to(sites / site / "bids")
    sidecar = json.loads(next(out.glob("sub-siteB01/**/*_stat-mean_timeseries.json")).read_text())
    name, place = sidecar["Sources"][0].removeprefix("bids:").split(":")
    assert (out / about["DatasetLinks"][name] / place).is_file()
    assert len(about["SourceDatasets"]) == 2


@pytest.mark.parametrize("has_table", [False, True])
def test_links_of_a_zip_lead_nowhere_and_its_table_of_people_is_taken(sites, tmp_path, capsys, has_table):
    zipped, out = packed(sites / "siteB" / "out", sites / "siteA" / "sB.zip"), tmp_path / "all"  # by another's bids
    with zipfile.ZipFile(zipped, "a") as archive:
        archive.write(sites / "siteB" / "out" / "dataset_description.json", "fcpower/dataset_description.json")
        if has_table:
            archive.write(sites / "siteB" / "bids" / "participants.tsv", "fcpower/participants.tsv")
    assert combine(out, *words(sites, "siteA"), f"siteB={zipped}") == 0
    assert (
        f"left out: 1 link to input datasets that cannot be followed from here (siteB_fmriprep of {zipped})"
        in capsys.readouterr().out
    )
    links = json.loads((out / "dataset_description.json").read_text())["DatasetLinks"]
    assert all(name.startswith("siteA_") for name in links)
    ages = table(sites / "siteB" / "bids" / "participants.tsv")["age"]
    assert table(out / "participants.tsv").loc["sub-03", "age"] == (ages["sub-03"] if has_table else "n/a")
    zipped.unlink()


def test_a_site_that_comes_later_and_one_that_comes_again(sites, tmp_path):
    out = tmp_path / "all"
    assert combine(out, *words(sites, "siteA")) == 0
    assert set(connectomes(out)) == {"sub-01", "sub-02"}
    for names in (("siteB",), ("siteA", "siteB")):
        assert combine(out, *words(sites, *names)) == 0
        assert set(connectomes(out)) == {"sub-01", "sub-02", "sub-siteB01", "sub-siteB02", "sub-03"}
    assert set(table(out / "participants.tsv")["site"]) == {"siteA", "siteB"}


def test_a_combination_that_is_combined_again_keeps_its_people_and_where_they_came_from(sites, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert combine(first, *words(sites, "siteA", "siteB")) == 0
    assert combine(second, str(first)) == 0
    for name in ("participants.tsv", "logs/combined.tsv"):
        assert (second / name).read_bytes() == (first / name).read_bytes(), name


@pytest.fixture
def decided(sites, tmp_path):
    """Copies of the outputs of both, with a decision about somebody of each."""
    for site, decision in (("siteA", "reject"), ("siteB", "accept")):
        shutil.copytree(sites / site, tmp_path / site, symlinks=True)
        rows = f"participant_id\tdecision\nsub-01\t{decision}\n"
        (tmp_path / site / "out" / "exclude.tsv").write_text(rows)
    return tmp_path


def test_a_decision_about_somebody_who_comes_later_is_named(decided, tmp_path, capsys):
    with (decided / "siteB" / "out" / "exclude.tsv").open("a") as file:
        file.write("sub-44\treject\n")
    assert combine(tmp_path / "all", *words(decided, "siteA", "siteB")) == 0
    told = capsys.readouterr().out
    assert "5 recordings from 2 places" in told
    assert "left out: decisions of exclude.tsv about 1 participant without a recording here (sub-44 of siteB)" in told
    assert "sub-44" not in (tmp_path / "all" / "exclude.tsv").read_text()


def test_decisions_of_every_site_are_about_its_own_people(decided, tmp_path):
    assert combine(tmp_path / "all", *words(decided, "siteA", "siteB")) == 0
    told = table(tmp_path / "all" / "exclude.tsv")["decision"].to_dict()
    assert told == {"sub-siteA01": "reject", "sub-siteB01": "accept"}


@pytest.mark.parametrize("later", [False, True])
def test_a_job_may_decide_about_people_of_another_job_of_its_site(exact_run, tmp_path, later):
    people = sorted(path.name for path in exact_run.output.glob("sub-*") if path.is_dir())[:2]
    one, two = (part(exact_run.output, tmp_path / name, name) for name in people)
    (one / "exclude.tsv").write_text(f"participant_id\tdecision\n{people[1]}\treject\n")
    for words in ([f"siteA={two}"], [f"siteA={one}"]) if later else ([f"siteA={one}", f"siteA={two}"],):
        assert combine(tmp_path / "all", *words) == 0
    assert table(tmp_path / "all" / "exclude.tsv")["decision"].to_dict() == {people[1]: "reject"}


def test_jobs_that_decide_otherwise_are_refused(exact_run, tmp_path, capsys):
    for job, decision in (("one", "reject"), ("two", "accept")):
        shutil.copytree(exact_run.output, tmp_path / job, ignore=shutil.ignore_patterns("work"))
        (tmp_path / job / "exclude.tsv").write_text(f"participant_id\tdecision\nsub-01\t{decision}\n")
    assert combine(tmp_path / "all", str(tmp_path / "one"), str(tmp_path / "two")) == 3
    assert "says reject of sub-01" in capsys.readouterr().err
    assert not (tmp_path / "all").exists()


def test_two_datasets_without_names_are_refused(sites, tmp_path, capsys):
    out = tmp_path / "all"
    only = tmp_path / "only"
    shutil.copytree(sites / "siteB", only / "siteB")
    for path in [
        *(only / "siteB" / "out").glob("sub-0[12]*"),
        *(only / "siteB" / "out").glob("logs/status/sub-0[12]*"),
    ]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert combine(out, str(sites / "siteA" / "out"), str(only / "siteB" / "out")) == 3
    assert "they are of two datasets. Name the sites" in capsys.readouterr().err
    assert combine(out, str(sites / "siteA" / "out"), str(sites / "siteB" / "out")) == 3
    assert "name the sites: SITE=PATH" in capsys.readouterr().err
    assert not out.exists()


def test_other_choices_of_a_site_are_named(sites, tmp_path, capsys):
    other = shutil.copytree(sites / "siteB", tmp_path / "siteB") / "out" / "logs" / "settings.toml"
    other.write_text(other.read_text().replace('strategy = "none"', 'strategy = "36P"'))
    assert combine(tmp_path / "all", *words(sites, "siteA"), f"siteB={tmp_path / 'siteB' / 'out'}") == 3
    assert "--strategy was none for" in capsys.readouterr().err


def test_a_copy_of_a_status_is_no_recording(exact_run, tmp_path, capsys):
    source = shutil.copytree(exact_run.output, tmp_path / "job", ignore=shutil.ignore_patterns("work"))
    status = next((source / "logs" / "status").glob("*.json"))
    shutil.copy(status, status.with_name(f"{status.stem} (1).json"))
    assert main(["status", str(source)]) == 0
    assert "4 done" in capsys.readouterr().out
    assert combine(tmp_path / "all", str(source)) == 0
    said = capsys.readouterr().out
    assert "left out: 1 file of no recording, such as copies" in said
    assert not list((tmp_path / "all").rglob("*(1)*"))


def test_the_group_level_knows_the_people_of_the_sites(sites, tmp_path):
    out = tmp_path / "all"
    assert combine(out, *words(sites, "siteA", "siteB")) == 0
    words_of_group = ["--check", "--site-column", "site", "--targets", "age", "--quiet", "--min-time", "10"]
    assert main([str(sites / "siteA" / "bids"), str(out), "group", *words_of_group]) == 0
    scans = pd.read_csv(out / "group" / "scans.tsv", sep="\t")
    assert sorted(scans["participant_id"]) == ["sub-03", "sub-siteA01", "sub-siteA02", "sub-siteB01", "sub-siteB02"]
    excluded = pd.read_csv(out / "group" / "excluded.tsv", sep="\t")
    assert not excluded["reason"].str.contains("no phenotype table").any()
