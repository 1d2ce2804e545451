"""The command on a page gives the choices back, and tells no folder of the machine."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from fcpower_bids.settings import Settings, command_of
from tests.command import parse_settings

PLAIN = Settings(Path("/home/me/study/bids"), Path("/home/me/study/out"), "group")
CHOSEN = {
    "targets": ("fluid IQ", "age"),
    "phenotypes": (Path("/home/me/secret/scores.tsv"),),
    "derivatives": ("xcpd=/home/me/xcp_d",),
    "equal_minutes": True,
    "alpha": 0.5,
    "permutations": 0,
    "random_seed": 7,
}


def test_defaults_resources_and_messages_are_left_out():
    assert command_of(PLAIN.as_dict()) == "fcpower_bids bids out group"
    assert command_of(replace(PLAIN, nprocs=7, quiet=True, work_dir=Path("/w"), config_file=Path("c")).as_dict()) == (
        "fcpower_bids bids out group"
    )
    assert command_of({"alpha": 0.5}) == ""


def test_the_command_gives_the_choices_back_without_their_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scores.tsv").touch()
    told = command_of(replace(PLAIN, **CHOSEN).as_dict())
    assert "home" not in told
    places = {name: Path(name).absolute() for name in ("bids", "out", "scores.tsv")}
    chosen = CHOSEN | {"phenotypes": (places["scores.tsv"],), "derivatives": (f"xcpd={Path('xcp_d').absolute()}",)}
    again = parse_settings(shlex.split(told)[1:])
    assert again == replace(PLAIN, bids_dir=places["bids"], output_dir=places["out"], **chosen)


def test_what_is_not_to_be_told_is_not():
    chosen = replace(PLAIN, participant_label=("01",), task_id=("rest",)).as_dict()
    assert command_of(chosen, without=("participant_label",)) == "fcpower_bids bids out group --task-id rest"


def test_keys_of_the_file_are_given_by_the_file_that_was_written():
    chosen = replace(PLAIN, inner_folds=3, folds=4, name="x").as_dict()
    assert command_of(chosen) == "fcpower_bids bids out group --name x --folds 4 --config-file settings_group_x.toml"
    assert command_of(chosen, whole=True).endswith("--config-file /home/me/study/out/logs/settings_group_x.toml")
