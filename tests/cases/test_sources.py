"""Where scans come from: one source per output folder, several folders as sites, people by their ids."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

import fcpower_bids
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.outputs.group import digest_cohort
from tests.cases.cohorts import LABELS, P, T, run, series_of, table, write_list, write_people
from tests.elsewhere.sources import described, read_connectome
from tests.elsewhere.sources import table as write_table
from tests.running import contents

CHECK = ("--analyses", "check", "--min-time", "0", "--nprocs", "1")
PREDICT = ("--analyses", "prediction", "--folds", "3", "--repeats", "1", "--permutations", "0", "--min-time", "0")


@pytest.fixture(autouse=True)
def without_people(tmp_path):
    """A dataset that has no table of people, unless a test writes one."""
    (tmp_path / "bids").mkdir()


def people(out) -> list[str]:
    return sorted(set(table(out / "group" / "scans.tsv")["participant_id"]))


def names_of(words, folder):
    return [str(word).format(folder=folder) for word in words]


SECOND = {
    "two lists at once": (("list={folder}/list.tsv", "list={folder}/b/list.tsv"), ()),
    "one after the other in one folder": (("list={folder}/other/list.tsv",), ("list={folder}/list.tsv",)),
}


@pytest.mark.parametrize("kind", SECOND)
def test_a_second_source_of_the_same_labels_replaces_nothing(kind, tmp_path):
    write_list(tmp_path)
    write_list(tmp_path / "b", seed=1)
    write_list(tmp_path / "other", seed=2)
    write_people(tmp_path / "bids", score=np.arange(30.0))
    now, before = SECOND[kind]
    if before:
        assert run(tmp_path / "bids", tmp_path / "out", "group", "-d", *names_of(before, tmp_path), *CHECK).code == 0
    there = contents(tmp_path / "out")
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", *names_of(now, tmp_path), *CHECK, code=2)
    assert "-d one=OUT1 two=OUT2" in found.err
    assert contents(tmp_path / "out") == there
    if before:
        words = ("-d", *names_of(now, tmp_path), *CHECK, "--replace")
        assert run(tmp_path / "bids", tmp_path / "out", "group", *words).code == 0
        fc = read_connectome(next((tmp_path / "out").glob("sub-007/**/*_timeseries.npy")))
        seed = 2 if "other" in now[0] else 1
        np.testing.assert_allclose(fc, np.corrcoef(series_of("007", seed).T), rtol=0, atol=1e-12)


@pytest.fixture
def imported(tmp_path):
    write_list(tmp_path, LABELS[:6])
    words = (tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={tmp_path / 'list.tsv'}", *CHECK)
    assert run(*words).code == 0
    return words, next((tmp_path / "out").glob("sub-003/**/*_timeseries.npy"))


DAMAGE = {
    "without any value": lambda values: np.full_like(values, np.nan),
    "of two volumes": lambda values: values[:2],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_stored_series_that_is_damaged_costs_its_scan_alone_and_comes_back_with_its_source(kind, imported, tmp_path):
    words, stored = imported
    whole = stored.read_bytes()
    np.save(stored, DAMAGE[kind](np.load(stored)))
    shutil.rmtree(tmp_path / "out" / "logs")  # and with it the sizes of the files
    alone = [word for word in words if word != "-d" and "list=" not in str(word)]
    run(*alone, code=0)
    excluded = table(tmp_path / "out" / "group" / "excluded.tsv").set_index("participant_id")["reason"]
    assert stored.name in excluded["sub-003"]
    assert len(people(tmp_path / "out")) == 5
    stored.unlink()
    run(*words, code=0)
    assert stored.read_bytes() == whole
    assert len(people(tmp_path / "out")) == 6


@pytest.mark.parametrize("stopped", ["before its status", "while writing"])
def test_a_stopped_import_goes_on(stopped, imported, tmp_path):
    words, stored = imported
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "logs" / "status" / "sub-003_task-rest.json").unlink()
    if stopped == "while writing":
        next(stored.parent.glob("*_desc-fcpower_qc.json")).unlink()
        stored.with_name(f".{stored.name}.0123456789abcdef.part").write_bytes(b"half")
    run(*words, code=0)
    assert contents(tmp_path / "out").keys() == before.keys()
    assert len(people(tmp_path / "out")) == 6


def test_a_question_is_known_by_what_the_files_hold(imported, tmp_path):
    """Correlations differ in the last bit between processors; a copy of the folder on another one is the same study."""
    _, stored = imported
    cohort = fcpower_bids.load_cohort(tmp_path / "out", min_time=0)._cohort
    digest = digest_cohort(cohort)
    assert digest_cohort(replace(cohort, edges=np.nextafter(cohort.edges, 2))) == digest
    np.save(stored, np.load(stored)[::-1])  # other volumes first: the same connectome to rounding
    assert digest_cohort(fcpower_bids.load_cohort(tmp_path / "out", min_time=0)._cohort) != digest
    few = cohort.keep(np.arange(5))
    assert digest_cohort(replace(few, scans=cohort.scans, contents=cohort.contents)) != digest_cohort(few)


def make_sites(folder, **columns):
    """Two datasets of people with the same labels; those of the second are others."""
    for seed, (name, labels) in enumerate({"one": LABELS[:20], "two": LABELS[:12]}.items()):
        source = write_list(folder / name, labels, seed=seed)
        about = {key: values[: len(labels)] for key, values in columns.items()}
        write_people(folder / name / "bids", labels, score=np.arange(len(labels)) + 100.0 * seed, **about)
        called = {"one": "list", "two": "rome"}[name]  # a name of the list says nothing of its strategy
        words = ("group", "-d", f"{called}={source}", *CHECK, "--quiet")
        assert run(folder / name / "bids", folder / name / "out", *words).code == 0
    return folder


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return make_sites(tmp_path_factory.mktemp("sites"))


def test_scanners_of_one_name_at_two_sites_are_not_one_site(tmp_path):
    """A column `site` of the datasets is of their scanners: the sites of ``-d`` are what is held out."""
    sites = make_sites(tmp_path, site=["1", "2"] * 10)
    words = ("group", "-d", f"one={sites}/one/out", f"two={sites}/two/out", *PREDICT, "--targets", "score")
    found = run(tmp_path / "bids", tmp_path / "out", *words, "--sites", "hold-out", code=0)
    assert "The column 'site' has the name of --derivatives" in found.err
    folds = table(tmp_path / "out" / "group" / "folds.tsv")
    tested = folds[folds["role"] == "test"].groupby(["repeat", "fold"])["participant_id"]
    assert sorted("".join(sorted({person[4:7] for person in people})) for _, people in tested) == ["one", "two"]


@pytest.mark.parametrize(
    "kind", ["a link to the folder", "a corrected dataset", "both were moved", "results among them"]
)
def test_the_people_of_a_site_are_those_of_the_dataset_that_it_was_last_made_with(kind, tmp_path):
    if kind == "a link to the folder":
        (tmp_path / "disk" / "deep" / "real").mkdir(parents=True)
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "out").symlink_to(tmp_path / "disk" / "deep" / "real")
        beside = tmp_path / "disk" / "deep" / "bids"  # another study
        write_people(beside, LABELS[:20], score=-np.arange(20.0))
    sites, wanted = make_sites(tmp_path), np.arange(20.0)
    if kind == "a corrected dataset":
        wanted[2] = np.nan
        write_people(tmp_path / "one" / "corrected", LABELS[:20], score=wanted)
        words = ("group", "-d", f"list={tmp_path / 'one' / 'list.tsv'}", *CHECK, "--quiet", "--replace")
        assert run(tmp_path / "one" / "corrected", tmp_path / "one" / "out", *words).code == 0
    elif kind == "both were moved":
        sites = tmp_path / "moved"
        for name in ("one", "two"):
            shutil.move(tmp_path / name, sites / name)
    words = ("group", "-d", f"one={sites}/one/out", f"two={sites}/two/out", *PREDICT, "--targets", "score")
    if kind == "results among them":
        found = run(tmp_path / "bids", sites / "two" / "out", *words)
        assert (found.code, "is one of --derivatives" in found.err) == (2, True)
    run(tmp_path / "bids", tmp_path / "out", *words, code=0)
    rows = table(tmp_path / "out" / "group" / "predictions.tsv").replace("n/a", np.nan).dropna(subset="observed")
    seen = rows.groupby("participant_id")["observed"].first().astype(float)
    names = [f"sub-one+{label}" for label in LABELS[:20]] + [f"sub-two+{label}" for label in LABELS[:12]]
    np.testing.assert_array_equal(seen.reindex(names), [*wanted, *range(100, 112)])
    assert 'site_column = "site"' in (tmp_path / "out" / "logs" / "settings_group.toml").read_text()


def test_people_without_values_are_of_the_site_of_their_folder(tmp_path):
    """Fingerprinting needs no table of people, and searches within sites all the same."""
    folders = []
    for seed, (name, n) in enumerate({"one": 12, "two": 6}.items()):
        source = write_list(tmp_path / name, LABELS[:n], ("1", "2"), seed=seed)
        (tmp_path / name / "bids").mkdir(exist_ok=True)
        words = ("group", "-d", f"list={source}", *CHECK, "--quiet")
        assert run(tmp_path / name / "bids", tmp_path / name / "out", *words).code == 0
        folders.append(f"{name}={tmp_path / name / 'out'}")
    asked = ("--analyses", "fingerprinting", "qc_fc", "--min-time", 0, "--nprocs", 1)
    run(tmp_path / "bids", tmp_path / "out", "group", "-d", *folders, *asked, code=0)
    row = table(tmp_path / "out" / "group" / "identification.tsv").set_index("representation").loc["fc"]
    assert row["n_sites"] == "2"
    whole = fcpower_bids.load_cohort(tmp_path / "out", tmp_path / "bids", per="scan", min_time=0.0, derivatives=folders)
    assert whole.sites.tolist() == [name[4:7] for name in whole.names]
    edges, names, days = whole.features("fc"), np.array(whole.names), np.array(whole.sessions)
    right = []
    for first, second in (("ses-1", "ses-2"), ("ses-2", "ses-1")):
        for who in np.unique(names):
            others = np.flatnonzero((days == second) & (whole.sites == who[4:7]))
            alike = np.corrcoef(edges[(names == who) & (days == first)], edges[others])[0, 1:]
            right.append(names[others[alike.argmax()]] == who)
    assert float(row["accuracy_within"]) == pytest.approx(np.mean(right))


TABLES = {
    "a column of sites": (lambda site, label: label, True, 0),
    "ids with the site": (lambda site, label: f"{site}+{label}", False, 0),
    "nothing says which": (lambda site, label: label, False, 3),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_all_sites_has_to_say_whose_people_they_are(kind, sites, tmp_path):
    name, column, code = TABLES[kind]
    pairs = [(site, label) for site, labels in (("one", LABELS[:20]), ("two", LABELS[:12])) for label in labels]
    rows = pd.DataFrame({"participant_id": [name(*pair) for pair in pairs], "wit": np.arange(32.0)})
    if column:
        rows["site"] = [site for site, _ in pairs]
    rows = rows if code == 0 else rows.iloc[:20]
    rows.to_csv(tmp_path / "all.tsv", sep="\t", index=False)
    words = ("group", "-d", f"one={sites}/one/out", f"two={sites}/two/out", *PREDICT, "--targets", "wit")
    found = run(tmp_path / "bids", tmp_path / "out", *words, "--phenotypes", tmp_path / "all.tsv", code=code)
    if code:
        assert "Add a column 'site'" in found.err
        return
    rows = table(tmp_path / "out" / "group" / "predictions.tsv")
    seen = rows.dropna(subset="observed").groupby("participant_id")["observed"].first().astype(float)
    assert (seen["sub-one+003"], seen["sub-two+003"]) == (2, 22)


@pytest.mark.parametrize("words", [("{one}",), ("one={one}", "two={one}")])
def test_sites_without_names_or_mixed_with_other_sources_are_refused(words, sites, tmp_path):
    given = [word.format(one=sites / "one" / "out", two=sites / "two" / "out") for word in words]
    assert run(tmp_path / "bids", tmp_path / "out", "group", "-d", *given, *CHECK).code == 2
    assert not (tmp_path / "out").exists()


def test_what_a_list_no_longer_has_takes_no_part(tmp_path):
    """People, and a session of others."""
    source = write_list(tmp_path, LABELS[:20], ("a", "b"))
    words = (tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={source}", *CHECK)
    assert run(*words).code == 0
    left = table(source).query("participant_id <= 'sub-009' or (session_id == 'a' and participant_id <= 'sub-012')")
    left.to_csv(source, sep="\t", index=False)
    found = run(*words, code=0)
    assert f"{40 - len(left)} recordings that {source} no longer has are removed" in found.err
    scans = table(tmp_path / "out" / "group" / "scans.tsv")
    wanted = left["participant_id"] + "_ses-" + left["session_id"]
    assert sorted(scans["participant_id"] + "_" + scans["session"]) == sorted(wanted)
    assert len(table(tmp_path / "out" / "recordings.tsv")) == len(left)


def test_a_combination_of_runs_is_not_another_run(tmp_path):
    """The minutes and the FC of a person are those of the runs, and what is left out is said."""
    root = described(tmp_path / "xcpd", "xcp_d")
    for label in LABELS[:4]:
        runs = {run: series_of(label, seed) for seed, run in enumerate(("_run-1", "_run-2"))}
        for name, values in (runs | {"": np.concatenate(list(runs.values()))}).items():
            base = root / f"sub-{label}/func/sub-{label}_task-rest{name}_space-fsLR_seg-Toy_stat-mean_timeseries"
            write_table(base.with_name(f"{base.name}.tsv"), values, "abcdef")
            base.with_name(f"{base.name}.json").write_text('{"RepetitionTime": 2.0}')
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"xcpd={root}", *CHECK, code=0)
    scans = table(tmp_path / "out" / "group" / "scans.tsv")
    assert set(scans["n_runs"]) == {"2"}
    assert set(scans["seconds"].astype(float)) == {2 * T * 2.0}
    assert "is the combination of run-" in found.err
    assert table(tmp_path / "out" / "recordings.tsv")["state"].value_counts().to_dict() == {"done": 8, "combination": 4}


def write_conn(folder, labels):
    """Numbers in the order of the people, of whom one was never entered."""
    place = folder / "results" / "firstlevel" / "SBC_01"
    place.mkdir(parents=True)
    for number, label in enumerate(labels, start=1):
        z = np.arctanh(np.corrcoef(series_of(label).T) - np.eye(P))
        z[np.diag_indices(P)] = np.nan
        savemat(place / f"resultsROI_Subject{number:03d}_Condition001.mat", {"Z": z, "names": list("abcdef")})
    return folder


def test_the_number_of_a_person_is_no_id(tmp_path):
    write_conn(tmp_path / "conn", LABELS[:24])
    write_people(tmp_path / "bids", LABELS[:24], score=np.arange(24.0))
    words = ("group", "-d", f"conn={tmp_path / 'conn'}", *PREDICT, "--targets", "score")
    assert "a number is no id" in run(tmp_path / "bids", tmp_path / "out", *words, code=2).err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["elsewhere", "below, but not in derivatives", "derivatives"])
def test_a_site_has_the_people_of_its_raw_dataset_wherever_its_derivatives_lie(place, tmp_path):
    raw = tmp_path / "raw"
    make_dataset(raw, DemoDesign.tiny(subjects=2, sessions=1, volumes=80))
    moved = {"elsewhere": tmp_path / "deriv" / "fmriprep", "derivatives": raw / "derivatives" / "fmriprep"}
    derivatives = moved.get(place, raw / "preprocessed" / "fmriprep")
    if place != "derivatives":
        derivatives.parent.mkdir()
        shutil.move(raw / "derivatives" / "fmriprep", derivatives)
    run(raw, tmp_path / "out", "participant", "--atlas", "builtin", "-d", derivatives, "--nprocs", 1, code=0)
    words = ("group", "-d", f"a={tmp_path / 'out'}", "--analyses", "check", "--min-time", 0, "--nprocs", 1)
    found = run(tmp_path / "bids", tmp_path / "all", *words, code=0)
    assert "2 people with scans, 2 in the phenotype tables, 2 in both" in found.err


@pytest.mark.parametrize("kind", ["copied to another study", "the dataset has another name now", "as it was"])
def test_the_tables_of_another_study_are_not_those_of_a_copied_folder(kind, tmp_path):
    """A link ``../fmriprep`` of results that were copied leads to the study that they were copied to."""
    for number, name in enumerate(("a", "b")):
        raw = tmp_path / name
        make_dataset(raw, DemoDesign.tiny(subjects=2, sessions=1, volumes=80))
        for place in (raw, raw / "derivatives" / "fmriprep"):
            about = json.loads((place / "dataset_description.json").read_text()) | {"Name": f"Study {name}"}
            (place / "dataset_description.json").write_text(json.dumps(about))
        people = table(raw / "participants.tsv").assign(planted_score=[str(10 * number + row) for row in range(2)])
        people.to_csv(raw / "participants.tsv", sep="\t", index=False)
        words = ("participant", "--atlas", "builtin", "--nprocs", 1, "--min-time", 0)
        assert run(raw, raw / "derivatives" / "fcpower", *words).code == 0
    site = tmp_path / "b" / "derivatives" / "fcpower"
    if kind == "copied to another study":
        site = shutil.copytree(site, tmp_path / "a" / "derivatives" / "other")
    elif kind == "the dataset has another name now":
        (tmp_path / "b" / "dataset_description.json").write_text('{"Name": "Renamed", "BIDSVersion": "1.9.0"}')
    words = ("-d", f"b={site}", "--analyses", "check", "--min-time", 0, "--nprocs", 1)
    found = run(tmp_path / "bids", tmp_path / "out", "group", *words)
    assert ("is of another dataset than the recordings" in found.err) == (kind == "copied to another study"), found.err
    if kind != "copied to another study":
        values = fcpower_bids.load_cohort(tmp_path / "out", tmp_path / "bids", derivatives=[f"b={site}"], min_time=0.0)
        assert values.phenotypes["planted_score"].tolist() == [10, 11]


@pytest.mark.parametrize("place", ["site", "results", "both"])
def test_decisions_of_the_sites_and_of_the_results_hold(place, sites, tmp_path):
    """Those of a site for its people alone: people of these labels at the other site stay."""
    (tmp_path / "out").mkdir()
    copied = shutil.copytree(sites, tmp_path / "sites")
    everyone = {f"sub-one+{label}" for label in LABELS[:20]} | {f"sub-two+{label}" for label in LABELS[:12]}
    wanted = set(everyone)
    if place != "results":
        rows = "4\tn/a\treject\nsub-005\tsub-005_task-rest\treject\n"
        (copied / "one" / "out" / "exclude.tsv").write_text(f"participant_id\trecording\tdecision\n{rows}")
        wanted -= {"sub-one+004", "sub-one+005"}
    if place != "site":
        (tmp_path / "out" / "exclude.tsv").write_text("participant_id\tdecision\nsub-two+4\treject\n")
        wanted -= {"sub-two+004"}
    words, before = ("group", "-d", f"one={copied}/one/out", f"two={copied}/two/out", *CHECK), contents(copied)
    assert run(tmp_path / "bids", tmp_path / "out", *words).code == 0
    assert contents(copied) == before, "what is read is not touched"
    assert set(people(tmp_path / "out")) == wanted
    rows = table(tmp_path / "out" / "group" / "excluded.tsv")
    left_out = rows[rows["reason"].str.contains("exclude.tsv: ")]["participant_id"]
    assert set(left_out) == everyone - wanted


@pytest.mark.parametrize(("seconds", "code"), [("2000", 3), ("720.0", 3), ("20", 0)])
def test_a_list_gives_seconds(seconds, code, tmp_path):
    listed = write_list(tmp_path)
    rows = table(listed).assign(repetition_time=seconds)
    rows.to_csv(listed, sep="\t", index=False)
    found = run(tmp_path / "bids", tmp_path / "out", "group", "-d", f"list={listed}", *CHECK, code=code)
    assert ("line 2: repetition_time is" in found.err) == (code == 3)
