"""Tables of people become one row per person; which recordings take part, and why others do not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fcpower_bids.cohort.feature_choice import check_alike, choose_connectomes
from fcpower_bids.cohort.inclusion import (
    Connectome,
    Run,
    choose_parcels,
    fault_of,
    leave_out,
    list_connectomes,
    read_quality,
)
from fcpower_bids.cohort.people import Phenotypes, load_phenotypes
from fcpower_bids.cohort.phenotype_columns import resolve_columns
from fcpower_bids.cohort.recordings import Selected, decide, selected, selected_of, tabulate_recordings
from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs.dataset import QUALITY
from fcpower_bids.outputs.status import DONE, EXCLUDED, FAILED, RUNNING, Status, status_path, write_status
from fcpower_bids.settings import Group, Settings
from tests.planting.participant_outputs import ATLAS, add_embedding, add_output, other_atlas, recording, series_of
from tests.planting.trees import put


def load(root: Path, people=("sub-01", "sub-02"), sessions=("n/a",), **choices):
    return load_phenotypes(Settings(root, root / "out", "group").changed(**choices), dict.fromkeys(people, sessions))


def test_all_tables_are_merged_by_person(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\tsex\tfamily_id\nsub-01\t20\tM\t007\nsub-02\t30\tF\t008\n")
    put(tmp_path / "phenotype" / "iq.tsv", "participant_id\tiq\n02\t110\n03\tn/a\n")
    extra = put(tmp_path / "extra.csv", "\ufeffparticipant_id,mood\nsub-01, 5\nsub-03,\n")
    found = load(tmp_path, phenotypes=(extra,))
    assert list(found.frame.index) == ["sub-01", "sub-02", "sub-03"]
    assert set(found.frame.columns) == {"age", "sex", "family_id", "iq", "mood"}
    assert found.frame.loc["sub-01", "mood"] == 5.0
    assert found.frame.loc["sub-01", "family_id"] == "007"
    assert found.frame["iq"].isna().tolist() == [True, False, True]
    assert found.defaults == ("mood",)
    assert load(tmp_path).defaults == ("age", "sex", "family_id", "iq")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SUB_ID\tage\n01\t3\n", r"Rename 'SUB_ID' to participant_id"),
        ("participant_id\tage\tage\n01\t3\t4\n", r"column 'age' twice"),
        ("participant_id\tage\n01\t3\nsub-01\t4\n", r"more than one row for sub-01"),
    ],
)
def test_unusable_tables_are_named_with_the_remedy(tmp_path, text, words):
    path = put(tmp_path / "x.tsv", text)
    with pytest.raises(DatasetError, match=words) as caught:
        load(tmp_path, phenotypes=(path,))
    assert "x.tsv" in str(caught.value)


def test_a_column_called_session_is_a_value_where_nobody_has_two_rows(tmp_path):
    path = put(tmp_path / "x.tsv", "participant_id\tsession\n01\t12\n02\t3\n")
    assert load(tmp_path, phenotypes=(path,)).frame["session"].tolist() == [12.0, 3.0]
    put(path, "participant_id\tsession\tx\n01\tb\t12\n01\ta\t3\n")
    assert load(tmp_path, sessions=("ses-a",), phenotypes=(path,)).frame["x"].tolist() == [3.0]


def test_equal_columns_merge_and_unequal_ones_are_kept_for_the_one_who_uses_them(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\tsex\nsub-01\t20\tM\nsub-02\tn/a\tF\n")
    put(tmp_path / "phenotype" / "x.tsv", "participant_id\tage\tsex\nsub-01\t20.0\tM\nsub-02\t31\tM\n")
    found = load(tmp_path)
    assert found.frame["age"].tolist() == [20.0, 31.0]
    assert set(found.conflicts) == {"sex"}
    assert re.search(r"participants\.tsv and .*x\.tsv: sub-02 has F in one and M in the other", found.conflicts["sex"])


def test_a_code_of_a_column_that_no_table_has_is_refused(tmp_path):
    put(tmp_path / "participants.tsv", "participant_id\tage\nsub-01\t0\nsub-02\t30\n")
    assert load(tmp_path, missing_values=("age=0", "-5")).frame["age"].isna().tolist() == [True, False]
    with pytest.raises(DatasetError, match=r"missing_values Age=0: no .* column 'Age'. Did you mean 'age'\?"):
        load(tmp_path, missing_values=("Age=0",))


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ([20.0, 45.0, -9999.0, 30.0], [2]),
        ([20.0, 45.0, 999.0, -99.0], [2, 3]),
        ([0.0, 1.0, 1.0, 99.0, -9.0], [3, 4]),
        ([88.0, 99.0, 77.0, 100.0], []),
        ([300.0, 999.0, 1200.0], []),
        ([-9.0, -8.0, 3.0, 10.0], []),
        ([-120.0, -99.0, -80.0], []),
    ],
)
def test_codes_are_told_from_values(values, missing):
    """A named column with one is refused; one that is not named is no target, with the same reason."""
    if values[0] == -9.0:
        values = [*values, -3.0]
    frame = pd.DataFrame({"x": values, "y": np.arange(len(values)) ** 2.0}, [f"sub-{i}" for i in range(len(values))])
    named = Group(targets=("x",))
    table = Phenotypes(frame, ("x", "y"), {})
    if not missing:
        assert resolve_columns(table, frame.index, named).defaults == ("x",)
        return
    said = rf"has {values[missing[0]]:g} \(sub-{missing[0]}\), .*code.* set missing_values x="
    with pytest.raises(DatasetError, match=said):
        resolve_columns(table, frame.index, named)
    found = resolve_columns(table, frame.index, Group())
    assert found.defaults == ("y",)
    assert "x is not predicted: The column 'x' has" in found.rows[0].reason


FRAME = pd.DataFrame(
    {
        "age": [20.0, 30.0, 40.0, 50.0],
        "score": [1.0, np.nan, 3.0, 4.0],
        "sex": ["M", "F", "M", np.nan],
        "level": ["F", "f", "M", "m"],
        "hand": ["left", "right", "both", "left"],
        "site": ["x", "x", "y", "y"],
        "family_id": ["1", "1", "2", "3"],
        "years": ["9", "12", "?", "16"],
        "constant": [7.0] * 4,
        "empty": [np.nan] * 4,
        "huge": [1.0, 2.0, 1e160, 3.0],
        "tiny": [1e-310, 2e-310, 3e-310, 4e-310],
        "rounded": [1e9, 1e9 + 1.2e-7, 1e9, 1e9 + 2.4e-7],
        "rare": [0.0, 1.0, 0.0, 0.0],
    },
    index=pd.Index(["sub-1", "sub-2", "sub-3", "sub-4"], name="participant_id"),
)


def resolve(conflicts=None, **choices):
    settings = Settings(Path("bids"), Path("out"), "group").changed(**choices)
    return resolve_columns(Phenotypes(FRAME, tuple(FRAME.columns), conflicts or {}), FRAME.index, settings.group)


def test_targets_default_to_the_numeric_columns_that_vary_and_have_no_other_role():
    found = resolve(covariates=("age",), family_column="family_id")
    assert found.defaults == ("score",)
    assert "constant, empty" in " ".join(found.notes)
    reasons = [row.reason for row in found.rows if row.what == "target"]
    assert [reason.partition(" ")[0] for reason in reasons] == ["years", "huge", "tiny", "rounded", "rare"]
    assert resolve(conflicts={"score": "differs"}).defaults == ("age",)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"targets": ("agee",)}, r"No phenotype table has a column 'agee'. Did you mean 'age'\?"),
        ({"covariates": ("zzz",)}, r"column 'zzz'. There are: age, score"),
        ({"site_column": "Site"}, r"column 'Site'. Did you mean 'site'"),
        ({"targets": ("g=age,age",)}, r"composite 'g' needs two"),
        ({"targets": ("constant",)}, r"target 'constant' is constant \(7.0\)"),
        ({"targets": ("hand",)}, r"target 'hand' is not numeric: sub-1 has 'left'. Only numbers or text of two"),
        ({"targets": ("years",)}, r"target 'years' is not numeric: sub-3 has '\?'. .* missing_values 'years=\?'"),
        ({"targets": ("huge",)}, r"'huge' .*sub-3 has 1e\+160\): .* missing_values huge=1e\+160"),
        ({"targets": ("g=age,tiny",)}, r"'tiny' cannot be computed with .* 4e-310"),
        ({"targets": ("rounded",)}, r"'rounded' cannot be computed with .* 1e\+09"),
        ({"targets": ("rare",)}, r"'rare' has two values, and sub-2 alone has one of them \(1.0\)"),
        ({"covariates": ("level",)}, r"'level' writes one level in several ways \(F, M, f, m\)"),
        ({"targets": ("age",), "covariates": ("age",)}, r"'age' is both target and covariate"),
    ],
)
def test_a_column_that_cannot_be_used_is_one_sentence(choices, words):
    with pytest.raises(DatasetError, match=words) as caught:
        resolve(**choices)
    assert caught.value.exit_code == 3
    assert len(str(caught.value).splitlines()) == 1


def test_a_table_of_strangers_is_blamed_for_their_names_and_not_for_the_column():
    frame = pd.concat([FRAME[["age"]], pd.DataFrame({"iq": [100.0, 120.0]}, index=["sub-X1", "sub-X2"])])
    with pytest.raises(DatasetError, match=r"'iq' is missing for all \d+ people with scans; .*as sub-X1, or"):
        resolve_columns(Phenotypes(frame), FRAME.index, Group(targets=("iq",)))


SETTINGS = Settings(Path("bids"), Path("out"), "group").changed(min_time=60.0)


def add(out: Path, *names: str, **choices) -> tuple[Connectome, ...]:
    for number, name in enumerate(names):
        add_output(out, name, series_of(number), **choices)
    return tuple(list_connectomes(out))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_text(path.read_text()[:-40]), "is cut short"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "cannot be read"),
        (lambda path: path.write_text(path.read_text().replace("0.125", "low")), "has 'low' for mean_fd"),
        (lambda path: path.write_text(path.read_text().replace("\t0\t0\t", "\tmany\t0\t")), "has 'many' for censored_"),
        (lambda path: path.write_text(path.read_text().replace("\tvolumes", "\tv")), "has no column volumes"),
    ],
)
def test_damaged_quality_leaves_the_recording_out_by_name(tmp_path, damage, words):
    add_output(tmp_path, "sub-01", series_of(0), mean_fd=0.125)
    found = list_connectomes(tmp_path)
    path = found[0].beside(QUALITY)
    damage(path)
    reason = fault_of(Run(found[0], read_quality(found[0])), SETTINGS)
    assert path.name in reason
    assert str(tmp_path) not in reason
    assert words in reason


def test_quality_limits(tmp_path):
    add_output(tmp_path, "sub-01", series_of(0), mean_fd=0.1)
    add_output(tmp_path, "sub-02", series_of(1), mean_fd=0.4)
    add_output(tmp_path, "sub-03", series_of(2, volumes=29), mean_fd=0.1)
    add_output(tmp_path, "sub-04", series_of(3))
    found = list_connectomes(tmp_path)
    found[3].beside(QUALITY).unlink()
    quality = [read_quality(one) for one in found]
    first = quality[0]
    assert (first.seconds, first.volumes, first.mean_fd, first.degrees_of_freedom) == (80, 40, 0.1, 20)
    assert quality[3].seconds == 80, "from the sidecar"
    runs = list(map(Run, found, quality))
    assert [not fault_of(run, SETTINGS) for run in runs] == [True, True, False, True]
    rows = []
    faults = [fault_of(run, SETTINGS.changed(max_mean_fd=0.3)) for run in runs]
    assert leave_out(runs, faults, rows) == runs[:1]
    assert "0.400 mm, more than" in rows[0].reason


def parcels_of(missing):
    missing = np.asarray(missing, dtype=bool)
    scans = [(f"sub-{i}", "n/a") for i in range(len(missing))]
    names = [f"p{i}" for i in range(missing.shape[1])]
    return choose_parcels(missing, scans, names)


def test_parcels_that_many_lack_go_before_scans_that_lack_many():
    missing = np.zeros((10, 12), dtype=bool)
    missing[:3, 0] = True  # 30 % of the scans
    missing[4, 1:6] = True  # nearly half of one scan
    missing[5, 7] = True
    scans, parcels, rows = parcels_of(missing)
    assert np.flatnonzero(~scans).tolist() == [4]
    assert np.flatnonzero(~parcels).tolist() == [0, 7]
    assert [(row.what, row.participant_id) for row in rows] == [("parcel", "n/a")] * 2 + [("recording", "sub-4")]
    assert "p0: 30.0 % of the scans lack it, more than 10 %" in rows[0].reason
    assert "p7: 10.0 %" in rows[1].reason
    assert "45.5 %" in rows[2].reason


@settings(deadline=None, derandomize=True, max_examples=60)
@given(arrays(bool, (21, 22), elements=st.sampled_from([False] * 19 + [True])))
def test_nothing_is_missing_among_what_is_kept_and_every_loss_has_a_row(missing):
    try:
        scans, parcels, rows = parcels_of(missing)
    except DatasetError as error:
        assert "Missing parcels leave" in str(error)  # noqa: PT017
        return
    assert not missing[np.ix_(scans, parcels)].any()
    assert len(rows) == (~scans).sum() + (~parcels).sum()


def test_a_named_recording_is_meant_alone_and_only_what_is_rejected_is_left_out(tmp_path):
    found = add(tmp_path / "out", "sub-01_acq-a", "sub-01_acq-b", "sub-02", "sub-03")
    names = [one.recording for one in found]
    path = tmp_path / "exclude.tsv"
    rows = [("01", names[0], "reject", "ghosts"), ("02", names[2], "doubt", "n/a"), ("03", names[3], "accept", "n/a")]
    lines = ["\t".join(row) for row in (("participant_id", "recording", "decision", "reason"), *rows)]
    path.write_text("\n".join([*lines, "01\tsub-01_acq-c\treject\tx"]) + "\n")
    decided = decide(Selected(found, ()), path)
    assert [(one.path, one.reason) for one in decided.left_out] == [(found[0].path, "exclude.tsv: ghosts")]
    assert decided.connectomes == found[1:]
    assert [row.reason for row in decided.absent] == ["sub-01_acq-c: exclude.tsv names it, but it is not here"]
    path.write_text("participant_id\tdecision\n01\treject\n02\tmaybe\n")
    with pytest.raises(DatasetError, match=r"'maybe' in row 2\. Write accept, doubt or reject"):
        decide(Selected((), ()), path)


def test_older_files_damaged_states_and_lost_files_do_not_take_part_and_are_named(tmp_path):
    found = add(tmp_path, *(f"sub-{number:02d}" for number in (1, 2, 3, 6, 7)))
    for one in found[2:]:
        write_status(tmp_path, Status(one.recording, DONE, outputs=(str(one.path.relative_to(tmp_path)),)))
    write_status(tmp_path, Status(recording("sub-01").name, EXCLUDED, "clean", "Too short."))
    write_status(tmp_path, Status(recording("sub-02").name, RUNNING))
    write_status(tmp_path, Status(recording("sub-03").name + "_toy_embedding", FAILED, "embed", "No weights."))
    write_status(tmp_path, Status(recording("sub-04_ses-b").name, FAILED, "parcellate", "No mask."))
    write_status(tmp_path, Status("sub-05", FAILED, "inputs", "No series."))
    status_path(tmp_path, found[3].recording).write_text('{"state": ')
    for path in found[4].path.parent.glob("*"):
        path.unlink()
    assert [one.recording.partition("_task")[0] for one in selected(tmp_path).connectomes] == ["sub-03"]
    rows = [one.row() for one in selected(tmp_path).left_out]
    reasons = {(row.participant_id, row.session, row.what): row.reason for row in rows}
    expected = {
        ("sub-01", "n/a", "recording"): "excluded at participant level: Too short.",
        ("sub-02", "n/a", "recording"): "run it again",
        ("sub-04", "ses-b", "recording"): "No mask.",
        ("sub-05", "n/a", "person"): "No series.",
        ("sub-06", "n/a", "recording"): f"logs/status/{found[3].recording}.json cannot be read; run",
        ("sub-07", "n/a", "recording"): f"{found[4].path.name} is gone: run",
    }
    assert reasons.keys() == expected.keys()
    assert len(rows) == len(expected)
    for key, words in expected.items():
        assert words in reasons[key]


def test_a_file_that_is_gone_under_one_atlas_says_nothing_of_another(tmp_path):
    for atlas in (other_atlas(), None):
        add_output(tmp_path, "sub-01", series_of(0), **({"atlas": atlas} if atlas else {}))
    one, other = list_connectomes(tmp_path)
    outputs = tuple(str(each.path.relative_to(tmp_path)) for each in (one, other))
    write_status(tmp_path, Status(one.recording, DONE, outputs=outputs))
    for path in one.path.parent.glob(f"{one.path.stem}.*"):
        path.unlink()
    assert [each.atlas_name for each in selected(tmp_path).connectomes] == [other.atlas_name]
    assert [each.atlas_name for each in selected(tmp_path).left_out] == [one.atlas_name]
    table = tabulate_recordings(tmp_path).set_index("atlas")["state"].to_dict()
    assert table == {one.atlas_name: "failed", other.atlas_name: "done"}


def test_an_embedding_is_that_of_its_own_atlas_or_else_of_another(tmp_path):
    """Encoders have atlases of their own; what only one of them has belongs to the recording all the same."""
    other = other_atlas()
    for atlas in (ATLAS, other):
        add_output(tmp_path, "sub-01", series_of(0), atlas=atlas)
        add_embedding(tmp_path, "sub-01", np.ones(3), label="everywhere", under=atlas)
    add_embedding(tmp_path, "sub-01", np.ones(3), label="elsewhere", under=other_atlas("Zebra"))
    add_embedding(tmp_path, "sub-01", np.ones(3), label="elsewhere", under=other)
    add_embedding(tmp_path, "sub-02", np.ones(3), label="ofanother")
    for one in list_connectomes(tmp_path):
        assert one.encoders == ("elsewhere", "everywhere")
        assert f"_{one.atlas_name}_desc-everywhere_" in one.embedding("everywhere").name
        assert f"_{other.name}_desc-elsewhere_" in one.embedding("elsewhere").name
        assert one.embedding("elsewhere").is_file()


def choose(out: Path, **choices):
    settings = Settings(out / "bids", out, "group").changed(**choices)
    chosen, notes = choose_connectomes(list_connectomes(out), settings)
    return [one.recording.replace("_space-MNI152NLin2009cAsym", "") for one in chosen], notes


def test_one_atlas_needs_no_choice_and_several_do(tmp_path):
    add(tmp_path, "sub-01", "sub-02")
    assert len(choose(tmp_path)[0]) == 2
    add(tmp_path, "sub-01", atlas=other_atlas())
    with pytest.raises(DatasetError, match=r"several atlases: atlas-Other_scale-6 \(1 rec.*--atlas"):
        choose(tmp_path)
    for spec in ("atlas-Toy_scale-6", "Toy_scale-6", "some/atlas-Toy_scale-6_dseg.nii.gz", "some/folder:Toy", "Toy"):
        chosen, notes = choose(tmp_path, atlas=(spec,))
        assert chosen == ["sub-01_task-rest", "sub-02_task-rest"]
        assert "atlas-Toy_scale-6" in notes[0]
    said = r"no FC of --atlas Schaefer400, only of atlas-Other_scale-6 in .* Name these"
    with pytest.raises(DatasetError, match=said):
        choose(tmp_path, atlas=("Toy", "Schaefer400"))


def test_several_tasks_or_spaces_need_a_choice_and_two_versions_of_an_acquisition_are_not_runs(tmp_path):
    with pytest.raises(DatasetError, match=r"has no FC files .* Run the participant level"):
        selected_of(Settings(tmp_path, tmp_path, "group"))
    add(tmp_path, "sub-01", "sub-01_task-nback", "sub-02_space-MNI152NLin6Asym")
    with pytest.raises(DatasetError, match=r"several spaces: .*--space"):
        choose(tmp_path)
    here = {"space": ("MNI152NLin2009cAsym",)}
    with pytest.raises(DatasetError, match=r"several tasks: nback \(1 recordings\), rest .*--task-id"):
        choose(tmp_path, **here)
    assert choose(tmp_path, **here, task_id=("nback",))[0] == ["sub-01_task-nback"]
    add(tmp_path / "versions", "sub-01_res-1", "sub-01_res-2")
    with pytest.raises(DatasetError, match=r"same acquisition and differ in res only"):
        choose(tmp_path / "versions")
    for res in ("1", "2"):
        chosen, _ = choose(tmp_path / "versions", space=(f"MNI152NLin2009cAsym:res-{res}",))
        assert chosen == [f"sub-01_task-rest_res-{res}"]


@pytest.mark.parametrize(
    ("facts", "words", "refused"),
    [
        (
            [{"power": f"power0p{alpha}"} for alpha in (35, 5)],
            r"exponents .* differ .*power0p35 \(1 rec.*power0p5",
            True,
        ),
        ([{}, {"NuisanceStrategy": "36P"}], r"confound strategy differs .*24P .*36P", True),
        ([{"SoftwareVersion": number} for number in "12"], r"versions: 1 \(1 recordings\), 2 \(1 recordings\)", False),
        (
            [{"ConfigurationHash": number} for number in "12"],
            r"settings: 1 \(1 recordings\), 2 \(1 recordings\)",
            False,
        ),
        (
            [{"Atlas": {"Sha256": letter * 64}} for letter in "ab"],
            r"made with 2 files of the atlas: aaaaaaaaaaaa \(1 recordings\), bbbbbbbbbbbb \(1 recordings\)",
            False,
        ),
    ],
)
def test_other_exponents_or_another_cleaning_are_an_error_and_other_versions_and_files_are_noted(
    tmp_path, facts, words, refused
):
    for name, choices in zip(("sub-01", "sub-02"), facts, strict=True):
        add(tmp_path, name, **choices)
    if refused:
        with pytest.raises(DatasetError, match=words):
            check_alike(list_connectomes(tmp_path))
    else:
        (note,) = check_alike(list_connectomes(tmp_path))
        assert re.search(words, note)
    add(tmp_path, "sub-02", **facts[0])
    assert check_alike(list_connectomes(tmp_path)) == [], "an exponent that all have is enough"
