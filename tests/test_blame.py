"""A fault of a user's file is told as that, one of our code as ours; neither ends what has nothing to do with it."""

from __future__ import annotations

import pytest

from fcpower_bids import check
from fcpower_bids.pretrain import corpus as pack
from tests.command import main
from tests.planting.planted import make_cohort
from tests.pretrain.conftest import made_recordings
from tests.pretrain.outputs import plant_outputs, run_pretrain
from tests.running import PLAIN, run_app

QUICK = ["--quiet", "--nprocs", "1", "--folds", "3", "--inner-folds", "2", "--repeats", "1", "--permutations", "0"]
QUICK += ["--analyses", "prediction", "--representations", "fc", "--targets", "age"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return make_cohort(tmp_path_factory.mktemp("blame"), 9, "a")[0]


def group(cohort, *options):
    return main([str(cohort.bids), str(cohort.out), "group", *QUICK, *map(str, options)])


def broken(*_, **__):
    raise IndexError("a slip of ours")


def test_a_slip_in_the_check_stops_no_analysis_and_is_told(cohort, monkeypatch, capsys):
    assert group(cohort) == 0
    assert (cohort.out / "group" / "check.tsv").is_file()
    monkeypatch.setattr(check, "check_cohort", broken)
    assert group(cohort, "--random-seed", "3") == 4
    told = capsys.readouterr().err
    assert "check: Internal error, please report it with logs/crashes/group_check.txt" in told
    assert not (cohort.out / "group" / "check.tsv").exists()
    assert len(cohort.table("prediction"))
    failed = cohort.table("left_out").set_index("analysis")["state"]
    assert failed["check"] == "failed"
    assert main([str(cohort.bids), str(cohort.out), "group", "--analyses", "check", "--targets", "score"]) == 5


def test_a_slip_while_a_pack_is_opened_blames_no_pack(tmp_path, monkeypatch, capsys):
    plant_outputs(tmp_path, made_recordings(people=4))
    monkeypatch.setattr(pack, "Corpus", lambda **_: int("a slip of ours"))
    assert run_pretrain(tmp_path) == 1
    told = capsys.readouterr().err
    assert "internal error" in told
    assert "emove" not in told.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "content", "sentence"),
    [
        ("--use-plugin", "plugin: Nonsense\n", "names the plugin Nonsense, which nipype does not have"),
        ("--use-plugin", "plugin: MultiProc\nplugin_args: {n_procs: many}\n", "cannot be made with the plugin_args"),
        ("--use-plugin", "plugin: MultiProc\nplugin_args: 4\n", "must be YAML with 'plugin: NAME'"),
    ],
)
def test_settings_of_others_that_do_not_work_are_a_matter_of_their_file(
    exact_demo, tmp_path, option, content, sentence
):
    file = tmp_path / "how.yml"
    file.write_text(content)
    found = run_app(exact_demo[0], tmp_path / "out", "--atlas", "builtin", *PLAIN, option, file)
    told = found.err
    assert found.code == 2
    assert sentence in told
    assert str(file) in told
    assert "Traceback" not in told
