"""The group level: what its cohort is, what is done again, and what is left out."""

from __future__ import annotations

import gzip
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.analyses import ALL
from fcpower_bids.analyses.catalogue import ANALYSES
from fcpower_bids.errors import DatasetError, UsageError
from fcpower_bids.outputs.tables import read_table, write_table
from fcpower_bids.store import beside, lock
from fcpower_bids.workflows import group
from fcpower_bids.workflows.group import open_cohorts, run_group
from tests.command import parse_settings
from tests.planting.participant_outputs import add_embedding, add_output, make_outputs, other_atlas, series_of
from tests.running import PATIENCE

CHOICES = {"folds": 3, "inner_folds": 2, "repeats": 1, "targets": ("age",), "nprocs": 1, "permutations": 5}


@pytest.fixture
def settings(tmp_path):
    """Eight people with two sessions who differ in motion."""
    return make_outputs(tmp_path, people=8, fd_step=0.02).changed(**CHOICES)


@pytest.fixture
def pageless(monkeypatch):
    """Write no page: tables are looked at."""
    monkeypatch.setattr("fcpower_bids.reports.cohort.page.write_group_report", lambda settings: (None, []))


@pytest.fixture
def lines(settings, capsys):
    """Run the group level and return what it says, line by line."""

    def run(**choices) -> list[str]:
        capsys.readouterr()
        run_group(settings.changed(**choices))
        return [line for line in capsys.readouterr().err.splitlines() if line]

    return run


def tables(settings) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (settings.output_dir / "group").glob("*.*")}


def done(lines) -> set[str]:
    return {line.partition(":")[0] for line in lines if line.endswith(" s") and " tables in " in line}


def kept(lines) -> set[str]:
    return {line.partition(":")[0] for line in lines if line.endswith("unchanged, tables kept")}


WAITED = "Another run is at work on the same tables"
THREE = {"prediction", "fingerprinting", "qc_fc"}


def test_what_is_done_is_kept_and_what_was_changed_removed_or_killed_is_made_again(
    lines, settings, pageless, monkeypatch
):
    folder = settings.output_dir / "group"
    assert done(lines()) == THREE
    before = tables(settings)
    beside(folder / "scans.tsv").write_text("half")  # of a run that was killed
    again = lines(nprocs=2)
    assert kept(again) == THREE
    assert done(again) == set()
    assert tables(settings) == before
    (folder / "qcfc_summary.tsv").write_text("edited\n")
    (folder / "folds.json").unlink()
    assert done(lines()) == {"prediction", "qc_fc"}
    assert tables(settings) == before
    (folder / "analyses.json").unlink()
    assert done(lines()) == THREE
    for path in folder.iterdir():
        path.unlink()

    def killed(cohort, settings):
        raise KeyboardInterrupt

    interrupted = {name: ANALYSES[name] for name in THREE} | {"fingerprinting": killed}
    with monkeypatch.context() as patch:
        patch.setattr("fcpower_bids.workflows.group.ANALYSES", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lines()
    assert not (folder / "identification.tsv").exists()
    again = lines()
    assert kept(again) == {"prediction"}
    assert done(again) == THREE - {"prediction"}
    assert tables(settings) == before


def test_long_tables_are_compressed_and_averaged_and_the_page_reads_them(lines, settings, monkeypatch):
    choices = {"repeats": 2, "analyses": ("prediction",)}
    lines(**choices)
    folder, plain = settings.output_dir / "group", tables(settings)
    each = pd.read_csv(folder / "predictions.tsv", sep="\t", na_values="n/a")
    monkeypatch.setattr("fcpower_bids.analyses.prediction.MOST_ROWS", 30)
    monkeypatch.setattr("fcpower_bids.outputs.group.MOST_PLAIN", 15)
    lines(**choices, random_seed=1)
    lines(**choices)
    long = tables(settings)
    assert not {"predictions.tsv", "predictions.json", "folds.tsv", "prediction_means.tsv"} & set(long)
    assert gzip.decompress(long["folds.tsv.gz"]) == plain["folds.tsv"]
    assert {name: long.get(name) for name in ("comparisons.tsv", "prediction_summary.tsv")}.items() <= plain.items()

    keys = ["target", "representation", "participant_id"]
    means = pd.read_csv(folder / "prediction_means.tsv.gz", sep="\t", na_values="n/a").set_index(keys)
    rows = each.groupby(keys)
    assert len(means) == 8 * 2
    assert (means["n_repeats"] == 2).all()
    for column, expected in (
        ("observed", rows["observed"].mean()),
        ("predicted", rows["predicted"].mean()),
        ("predicted_sd", rows["predicted"].std()),
    ):
        np.testing.assert_allclose(means[column].sort_index(), expected.sort_index(), rtol=1e-12, atol=1e-14)

    assert kept(lines(**choices)) == {"prediction"}
    cut = folder / "prediction_means.tsv.gz"
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"prediction_means\.tsv\.gz cannot be read"):
        lines(**choices, reports_only=True)


def change_phenotype(settings):
    path = settings.bids_dir / "participants.tsv"
    table = read_table(path)
    table.loc[3, "age"] += 1
    write_table(path, table)


def add_embeddings(settings):
    for person in range(8):
        for session in "ab":
            add_embedding(settings.output_dir, f"sub-{person + 1:02d}_ses-{session}", series_of(person)[:3, 0])


def test_another_choice_and_other_data_are_computed(lines, settings, pageless):
    assert done(lines()) == THREE

    def change_connectome(settings):
        add_output(settings.output_dir, "sub-03_ses-a", series_of(7), mean_fd=0.14)

    for change in ({"alpha": 0.5}, {"max_mean_fd": 0.2}, change_phenotype, change_connectome, add_embeddings):
        before, chosen = tables(settings)["prediction.tsv"], change if isinstance(change, dict) else {}
        if not chosen:
            change(settings)
        assert done(lines(**chosen, replace=True)) == THREE, change
        assert change is add_embeddings or tables(settings)["prediction.tsv"] != before, change
    assert kept(lines()) == THREE


def test_tables_of_other_people_are_removed_as_the_run_begins(lines, settings, pageless):
    lines()
    lines(analyses=("qc_fc",))
    assert {"identification.tsv", "prediction.tsv"} <= set(tables(settings))
    with pytest.raises(UsageError, match="holds results of another question"):
        lines(analyses=("check",), targets=("sex",))
    with pytest.raises(UsageError, match="holds fingerprinting, prediction of other people, data or choices"):
        lines(analyses=("qc_fc",), random_seed=1)
    assert {"identification.tsv", "prediction.tsv"} <= set(tables(settings))
    said = lines(analyses=("qc_fc",), random_seed=1, replace=True)
    assert "Tables of other people, data or choices are removed: fingerprinting, prediction, qc_fc." in said
    assert done(said) == {"qc_fc"}
    assert not {"identification.tsv", "prediction.tsv", "prediction.json"} & set(tables(settings))


def test_a_second_run_waits_for_the_first_and_keeps_its_tables(lines, settings, pageless, monkeypatch):
    waits, said = threading.Event(), group.say
    monkeypatch.setattr(group, "say", lambda text, *more: (said(text, *more), waits.set() if WAITED in text else 0))
    with ThreadPoolExecutor(1) as pool:
        with lock(settings.output_dir / "logs" / "locks" / "group_"):
            second = pool.submit(lines, analyses=("qc_fc",))
            assert waits.wait(PATIENCE)
            assert not second.done()
        assert done(second.result()) == {"qc_fc"}
    assert not (settings.output_dir / "logs" / "locks").exists()


@pytest.fixture
def two_atlases(tmp_path):
    """Eight people with two sessions under two atlases, and an embedding."""
    made = make_outputs(tmp_path, people=8)
    for person in range(8):
        for session in "ab":
            name, seed = f"sub-{person + 1:02d}_ses-{session}", 100 * person + ord(session)
            add_output(made.output_dir, name, series_of(seed + 7), atlas=other_atlas())
            facts = {"n_parameters": 42, "n_parcels": 6, "parcellation": "Toy"}
            add_embedding(made.output_dir, name, series_of(seed)[:3, 0], **facts)
    return made.changed(**CHOICES, quiet=True)


def test_one_cohort_per_atlas_where_an_analysis_compares_them(two_atlases):
    cohort, each = open_cohorts(two_atlases.changed(analyses=("parcellation_sweep", "prediction")))
    assert list(each) == ["atlas-Other_scale-6", "atlas-Toy_scale-6"]
    np.testing.assert_array_equal(cohort.edges, each["atlas-Other_scale-6"].edges)
    assert not np.array_equal(each["atlas-Toy_scale-6"].edges, cohort.edges)
    both = two_atlases.changed(analyses=("parcellation_sweep",), atlas=("Toy_scale-6", "Other_scale-6"))
    cohort, each = open_cohorts(both)
    assert list(each) == ["Toy_scale-6", "Other_scale-6"]
    np.testing.assert_array_equal(cohort.edges, each["Toy_scale-6"].edges)
    with pytest.raises(DatasetError, match="several atlases"):
        open_cohorts(two_atlases.changed(analyses=("prediction",)))


def test_all_leaves_out_what_the_cohort_does_not_allow_with_its_reason(two_atlases, monkeypatch):
    described = dict.fromkeys(("transform_screen", "spectral_controls", "edges"), lambda *_: {})
    monkeypatch.setattr(group, "ANALYSES", {name: ANALYSES[name] for name in ANALYSES} | described)  # which take long
    chosen = parse_settings([str(two_atlases.bids_dir), str(two_atlases.output_dir), "group", "--analyses", ALL])
    assert chosen.group.analyses == (ALL,)
    assert run_group(two_atlases.changed(analyses=(ALL,), atlas=("Toy_scale-6",), session_label=("a",))) == 0
    folder = two_atlases.output_dir / "group"
    left_out = read_table(folder / "left_out.tsv").set_index("analysis")["reason"]
    assert "two parcellations" in left_out["parcellation_sweep"]
    assert "two sessions" in left_out["fingerprinting"]
    assert not {"prediction", "learning_curves", "encoder_comparison"} & set(left_out.index)
    assert (folder / "learning_curves.tsv").is_file()
    assert (folder / "encoders.tsv").is_file()
    with pytest.raises(DatasetError, match="fingerprinting: "):
        run_group(two_atlases.changed(analyses=("fingerprinting", ALL), atlas=("Toy_scale-6",), session_label=("a",)))
