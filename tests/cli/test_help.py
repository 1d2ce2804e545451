"""Help shows what a level reads, and what others call our options is understood or refused with the remedy."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp
import pytest

import fcpower_bids
from fcpower_bids.cli.help import level_help, short_help
from fcpower_bids.cli.options import option_fields
from fcpower_bids.cli.parser import DATA, IGNORED, MEMORY, REFUSED, build_parser, parse_settings
from fcpower_bids.cli.run import main
from fcpower_bids.errors import UsageError
from fcpower_bids.plugins import SLICES, slices
from fcpower_bids.settings import LEVELS
from fcpower_bids.settings.levels import ALL_LEVELS, describe_unread, is_read
from tests.docs.pages import DOCS, code_blocks, read

BASE = ["in", "out", "participant"]
PACKAGE = Path(fcpower_bids.__file__).parent
REGISTRIES = {f"fcpower_bids.{name}" for name in ("analyses", "transforms", "executors")}
"""Packages whose modules are imported by name."""
ELSEWHERE = {"high_pass", "low_pass", "work_dir", "config_file", "notrack", "fs_license_file", "debug"}
"""Read through a property of the settings, by the command line, or by nobody as their texts say."""


def shown(level):
    return {one.name for one in option_fields() if is_read(level, one.name, one.metadata["section"])}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("fcpower_bids")


def attributes(module):
    place = PACKAGE.joinpath(*module.split(".")[1:])
    path = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
    return {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_level_shows_is_read_by_code_that_it_runs(level, graph):
    entry = LEVELS[level].run.partition(":")[0]
    modules = {entry, *graph.find_upstream_modules(entry)}
    for registry in REGISTRIES & modules:
        modules |= graph.find_descendants(registry)
    modules |= graph.find_descendants("fcpower_bids.slices")
    reading = [one for one in modules if not one.startswith("fcpower_bids.settings") and not one.endswith(".options")]
    read_there = set().union(*map(attributes, reading))
    assert shown(level) - read_there - ELSEWHERE == set()


def test_every_option_is_shown_by_some_level_and_no_list_names_what_is_not_there():
    names = {one.name for one in option_fields()}
    assert set().union(*map(shown, LEVELS)) == names
    assert {*ALL_LEVELS, *(name for own in LEVELS.values() for name in (*own.also, *own.without))} <= names


@pytest.mark.parametrize("level", LEVELS)
def test_the_help_of_a_level_has_its_options_and_no_others(level, capsys):
    for words in ([level, "--help-all"], ["BIDS", "OUT", level, "--help-all"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    said = capsys.readouterr().out
    flags = set(re.findall(r"^  (--[a-z0-9-]+)", said, re.M))
    assert flags == {"--version"} | {"--" + name.replace("_", "-") for name in shown(level)}
    assert LEVELS[level].summary in said
    assert said == 2 * level_help(level, build_parser(), everything=True)


@pytest.mark.parametrize("level", LEVELS)
def test_the_first_help_of_a_level_has_twenty_options_in_the_order_of_a_first_run(level, capsys):
    for words in ([level, "--help"], ["BIDS", "OUT", level, "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    said = capsys.readouterr().out
    flags = re.findall(r"^  (--[a-z0-9-]+)", said, re.M)
    first = [name for name in LEVELS[level].first if name in shown(level)]
    assert flags == 2 * ["--" + name.replace("_", "-") for name in first]
    assert len(LEVELS[level].first) <= 20
    assert len(first) == len(LEVELS[level].first) or len(slices()) < len(SLICES)
    assert f"All {len(shown(level))} options: fcpower_bids {level} --help-all" in said


def test_the_short_help_fits_on_a_screen(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert said == short_help()
    assert len(said.splitlines()) <= 30
    assert all(level in said for level in LEVELS)


def test_the_order_of_the_places_is_told():
    for words in (["participant", "in", "out"], ["in", "participant", "out"], ["in", "participant"]):
        with pytest.raises(UsageError, match=r"The order is bids_dir output_dir level: .* OUT participant"):
            parse_settings(words)
    with pytest.raises(UsageError, match=r"Did you mean participant\?"):
        parse_settings(["in", "out", "partcipant"])
    with pytest.raises(UsageError, match=rf"comes one of {', '.join(LEVELS)}\.$"):
        parse_settings(["in", "out"])


def test_a_line_of_xcp_d_means_the_same_here(capsys):
    line = "-p 27P --lower-bpf 0.02 --upper-bpf=0.1 -f 0.3 -r 40 --atlases 4S156Parcels --mem_gb 8 --nthreads 3"
    ours = "--strategy 27P --high-pass 0.02 --low-pass 0.1 --fd-thresh 0.3 --head-radius 40 --atlas 4S156Parcels"
    ours += " --mem-mb 8000 --nprocs 3"
    assert parse_settings([*BASE, *line.split()]) == parse_settings([*BASE, *ours.split()])
    assert parse_settings([*BASE, "--smoothing", "6", "--md-only-boilerplate"]) == parse_settings(BASE)
    said = capsys.readouterr().err
    assert "--smoothing is ignored: nothing is smoothed" in said
    assert "--md-only-boilerplate is ignored" in said


@pytest.mark.parametrize(
    ("text", "megabytes"), [("8", 8000), ("8G", 8000), ("500M", 500), ("1.5GB", 1500), ("2t", 2_000_000)]
)
def test_memory_as_fmriprep_takes_it(text, megabytes):
    assert parse_settings([*BASE, "--mem", text]).mem_mb == megabytes
    with pytest.raises(UsageError, match="--mem-mb"):
        parse_settings([*BASE, "--mem", "much"])


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_numbers_is_refused_with_the_remedy(name):
    with pytest.raises(UsageError) as caught:
        parse_settings([*BASE, name, "value", "--alpha", "0.5"])
    assert str(caught.value) == f"There is no option {name}. {REFUSED[name]}"
    own = {flag for action in build_parser()._actions for flag in action.option_strings}
    assert set(re.findall(r"--[a-z][a-z-]+", REFUSED[name])) <= own


def test_an_option_that_is_gone_is_refused_with_the_remedy_in_a_file_too(tmp_path):
    file = tmp_path / "old.toml"
    file.write_text("landmarks = 1000\n")
    with pytest.raises(UsageError) as caught:
        parse_settings([*BASE, "--config-file", str(file)])
    assert str(caught.value) == f"{file} has 'landmarks', which is not an option. {REFUSED['--landmarks']}"


def test_nothing_of_ours_is_taken_for_an_option_of_others():
    own = {flag for action in build_parser()._actions for flag in action.option_strings}
    assert not own & {*IGNORED, *REFUSED, *MEMORY}


def test_a_slip_is_answered_in_the_documented_spelling():
    with pytest.raises(UsageError, match=r"no option --dry_runn\. Did you mean --dry-run\?"):
        parse_settings([*BASE, "--dry_runn"])


def test_the_page_about_xcp_d_shows_the_file_and_knows_what_is_understood():
    page = read(DOCS / "from_elsewhere.md").partition("## The cleaning of XCP-D")[2]
    (shown_there,) = code_blocks(page, "toml")
    file = (DATA / "configurations" / "xcp_d.toml").read_text()
    assert shown_there.splitlines() == [row for row in file.splitlines() if not row.startswith("#")]
    own = {flag for action in build_parser()._actions for flag in action.option_strings}
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", page, re.M)
    assert len(rows) > 10
    for theirs, ours in rows:
        flags = re.findall(r"`(-[-a-z0-9]+)", theirs)
        assert set(flags) <= own | {*IGNORED, *REFUSED, *MEMORY}, theirs
        assert set(re.findall(r"`(--[-a-z]+)", ours)) <= own


def test_folds_and_repeats_are_said_not_to_be_used_where_a_file_has_the_folds(tmp_path):
    (tmp_path / "mine.tsv").touch()
    given = ["in", "out", "group", "--folds-file", str(tmp_path / "mine.tsv"), "--repeats", "3", "--folds", "4"]
    lines = list(describe_unread(parse_settings(given), ("prediction",)))
    assert lines == ["--folds is not used: mine.tsv has the folds.", "--repeats is not used: mine.tsv has the folds."]
    assert not list(describe_unread(parse_settings(given[:3] + given[5:]), ("prediction",)))
