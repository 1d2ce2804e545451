"""Help and the names of options; what others call them; the command on a page gives the choices back."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import grimp
import pytest

import fcpower_bids
from fcpower_bids.cli.parser import OURS, build_parser, options
from fcpower_bids.errors import UsageError
from fcpower_bids.settings import LEVELS, Settings, command_of
from tests.command import parse_settings

BASE = ["in", "out", "participant"]
PACKAGE = Path(fcpower_bids.__file__).parent
ENTRIES = {"pretrain": "pretraining"}
ELSEWHERE = {"high_pass", "low_pass", "work_dir", "config_file", "debug", "verbose", "omp_nthreads"}
"""Read through a property of the settings, by the command line, or by nobody as their texts say."""


def shown(level):
    return {option.name for option in options().values() if level in option.levels}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("fcpower_bids")


@cache
def attributes(module):
    place = PACKAGE.joinpath(*module.split(".")[1:])
    path = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
    return {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_level_shows_is_read_by_code_that_it_runs(level, graph):
    entry = f"fcpower_bids.workflows.{ENTRIES.get(level, level)}"
    modules = {entry, *graph.find_upstream_modules(entry)}
    modules |= graph.find_descendants("fcpower_bids.elsewhere")
    reading = [one for one in modules if not one.startswith("fcpower_bids.settings") and not one.endswith(".options")]
    read_there = set().union(*map(attributes, reading))
    assert shown(level) - read_there - ELSEWHERE == set()


@pytest.mark.parametrize("name", [one for one in OURS if OURS[one].startswith("-")])
def test_a_name_of_another_program_is_answered_with_ours(name):
    with pytest.raises(UsageError) as caught:
        parse_settings([*BASE, name, "value", "--alpha", "0.5"])
    assert str(caught.value) == f"There is no option {name}: use {OURS[name]}."
    own = {flag for level in LEVELS for action in build_parser(level)._actions for flag in action.option_strings}
    assert set(re.findall(r"--[a-z][a-z-]+", OURS[name])) <= own | {"--mem-gb"}
    assert name not in own


def test_the_order_of_the_places_is_told():
    with pytest.raises(UsageError, match=r"The order is bids_dir output_dir level: .* OUT participant"):
        parse_settings(["in", "participant", "out"])
    with pytest.raises(UsageError, match=r"Did you mean participant\?"):
        parse_settings(["in", "out", "partcipant"])


@pytest.mark.parametrize(
    ("text", "megabytes"), [("8", 8000), ("8G", 8000), ("500M", 500), ("1.5GB", 1500), ("2t", 2_000_000)]
)
def test_memory_as_fmriprep_takes_it(text, megabytes):
    assert parse_settings([*BASE, "--mem", text]).run.mem_mb == megabytes
    with pytest.raises(UsageError, match="--mem-mb"):
        parse_settings([*BASE, "--mem", "much"])


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


def test_the_command_gives_the_choices_back_without_their_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scores.tsv").touch()
    told = command_of(PLAIN.changed(**CHOSEN).as_dict())
    assert "home" not in told
    places = {name: Path(name).absolute() for name in ("bids", "out", "scores.tsv")}
    chosen = CHOSEN | {"phenotypes": (places["scores.tsv"],), "derivatives": (f"xcpd={Path('xcp_d').absolute()}",)}
    again = parse_settings(shlex.split(told)[1:])
    assert again == PLAIN.changed(bids_dir=places["bids"], output_dir=places["out"], **chosen)


def test_keys_of_the_file_are_given_by_the_file_that_was_written():
    chosen = PLAIN.changed(inner_folds=3, folds=4, name="x").as_dict()
    assert command_of(chosen) == "fcpower_bids bids out group --name x --folds 4 --config-file settings_group_x.toml"
    assert command_of(chosen, whole=True).endswith("--config-file /home/me/study/out/logs/settings_group_x.toml")
