"""Help shows what a level reads, and what others call our options is understood or refused with the remedy."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import grimp
import pytest

import fcpower_bids
from fcpower_bids.cli import commands as named
from fcpower_bids.cli.parser import OURS, build_parser, options
from fcpower_bids.errors import UsageError
from fcpower_bids.settings import LEVELS
from fcpower_bids.settings.options import ALL_LEVELS
from tests.command import main, parse_settings

BASE = ["in", "out", "participant"]
MOST = 74
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


def test_every_option_is_shown_by_some_level_and_no_list_names_what_is_not_there():
    names = set(options())
    assert set().union(*map(shown, LEVELS)) == names
    assert {*ALL_LEVELS, *(name for own in LEVELS.values() for name in (*own.also, *own.without))} <= names


@pytest.mark.parametrize("level", LEVELS)
def test_the_help_of_a_level_has_its_options_and_fits_two_screens(level, capsys):
    for words in ([level, "--help"], ["BIDS", "OUT", level, "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    said = capsys.readouterr().out
    flags = set(re.findall(r"^  (--[a-z0-9-]+)", said, re.M))
    assert flags == {"--version"} | {option.flag for option in options().values() if option.is_taken(level)}
    assert LEVELS[level].summary in said


def test_the_short_help_fits_on_a_screen(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 30
    assert all(level in said for level in LEVELS)


def test_there_are_few_options():
    commands = (named.prefetch_parser(), named.predict_parser())
    number = sum(len([each for each in one._actions if each.option_strings]) - 1 for one in commands)
    assert number + len([option for option in options().values() if not option.in_file]) <= MOST


@pytest.mark.parametrize("name", [one for one in OURS if OURS[one].startswith("-")])
def test_a_name_of_another_program_is_answered_with_ours(name):
    with pytest.raises(UsageError) as caught:
        parse_settings([*BASE, name, "value", "--alpha", "0.5"])
    assert str(caught.value) == f"There is no option {name}: use {OURS[name]}."
    own = {flag for level in LEVELS for action in build_parser(level)._actions for flag in action.option_strings}
    assert set(re.findall(r"--[a-z][a-z-]+", OURS[name])) <= own | {"--mem-gb"}
    assert name not in own


def test_the_order_of_the_places_is_told():
    for words in (["participant", "in", "out"], ["in", "participant", "out"], ["in", "participant"]):
        with pytest.raises(UsageError, match=r"The order is bids_dir output_dir level: .* OUT participant"):
            parse_settings(words)
    with pytest.raises(UsageError, match=r"Did you mean participant\?"):
        parse_settings(["in", "out", "partcipant"])
    with pytest.raises(UsageError, match=rf"comes one of {', '.join(LEVELS)}\.$"):
        parse_settings(["in", "out"])


@pytest.mark.parametrize(
    ("text", "megabytes"), [("8", 8000), ("8G", 8000), ("500M", 500), ("1.5GB", 1500), ("2t", 2_000_000)]
)
def test_memory_as_fmriprep_takes_it(text, megabytes):
    assert parse_settings([*BASE, "--mem", text]).mem_mb == megabytes
    with pytest.raises(UsageError, match="--mem-mb"):
        parse_settings([*BASE, "--mem", "much"])


def test_a_slip_is_answered_in_the_documented_spelling():
    with pytest.raises(UsageError, match=r"no option --dry-runn\. Did you mean --dry-run\?"):
        parse_settings([*BASE, "--dry_runn"])
