"""The command line: every mistake at once, the words of others, records of runs, weights, threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unicodedata

import pytest

from fcpower_bids.cli import parser
from fcpower_bids.cli.parser import OURS, build_parser, read_configuration
from fcpower_bids.core import ALPHA_STAR
from fcpower_bids.errors import UsageError
from fcpower_bids.outputs.tables import read_toml
from fcpower_bids.settings import LEVELS
from tests.cases.cohorts import PEOPLE, group, read, run, write_series, write_table
from tests.command import parse_settings
from tests.running import contents


def test_a_record_gives_no_leave_to_replace(tmp_path):
    """It has what was chosen, not what was done with a single run: to replace, to try, to make the pages again."""
    answered = write_series(tmp_path)
    numbers = {"age": range(30), "iq": [number * 7 % 30 for number in range(30)]}
    write_table(answered / "bids" / "participants.tsv", participant_id=PEOPLE, **numbers)
    group(answered, "--analyses", "prediction", "--targets", "age", "--replace")
    record, before = answered / "out" / "logs" / "settings_group.toml", contents(answered / "out" / "group")
    assert not {"replace", "dry_run", "reports_only"} & set(read_toml(record))
    assert "--replace" in group(answered, "-c", record, "--targets", "iq", code=2).err
    assert contents(answered / "out" / "group") == before
    group(answered, "-c", record)
    assert set(read(answered, "prediction_summary")["target"]) == {"age"}


@pytest.mark.parametrize("line", ["filter_order = 3", 'transforms = ["power"]\nnprocs = 1'])
def test_pages_alone_are_refused_where_a_file_chooses_otherwise(exact_demo, outputs, tmp_path, line):
    """Also what was not chosen when the outputs were made, which their record does not have."""
    words = (exact_demo[0], outputs, "participant", "--reports-only", "-c", tmp_path / "c.toml")
    (tmp_path / "c.toml").write_text(line)
    before = contents(outputs)
    found = run(*words, code=2)
    name = line.partition(" ")[0].replace("_", "-")
    assert f"--{name} is not what the outputs were made with" in found.err
    assert len(found.err.splitlines()) == 1
    assert contents(outputs) == before
    other = run(*words[:-2], "--head-radius", "40", code=2)
    assert "--head-radius is not what the outputs were made with" in other.err


THREADS = """
import sys
from fcpower_bids import app

def level(settings):
    import numpy, scipy.linalg
    from threadpoolctl import threadpool_info
    print({pool["num_threads"] for pool in threadpool_info()})
    return 0

app.level_of = lambda settings: level
sys.exit(app.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("level", "number"), [("participant", 1), ("group", 2)])
def test_blas_has_the_threads_that_are_asked_for_whatever_the_environment(level, number, tmp_path):
    named = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    words = [str(tmp_path), str(tmp_path / "out"), level, *(["--omp-nthreads", "2"] if number == 2 else [])]
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str({min(number, os.cpu_count() or 1)}), done.stderr


BASE = ["in", "out", "participant"]


def test_relative_paths_become_absolute_but_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.nii.gz", "a.tsv", "s.yml"):
        (tmp_path / name).touch()
    chosen = parse_settings([*BASE, "--atlas", "Schaefer400", "a.nii.gz:a.tsv", "-w", "w", "--strategy", "s.yml"])
    assert chosen.output_dir == tmp_path / "out"
    assert chosen.run.work_dir == tmp_path / "w"
    assert chosen.method.atlas == ("Schaefer400", f"{tmp_path}/a.nii.gz:{tmp_path}/a.tsv")
    assert chosen.method.strategy == str(tmp_path / "s.yml")


def test_names_with_underscores_are_understood_and_values_are_blind_to_capitals():
    chosen = parse_settings([*BASE, "--fd_thresh", "0.2", "--strategy", "36p", "--atlas", "schaefer-400"])
    assert (chosen.method.fd_thresh, chosen.method.strategy, chosen.method.atlas) == (0.2, "36P", ("Schaefer400",))
    group = parse_settings([*BASE[:-1], "group", "--analyses", "QC-FC", "--preset", "Paper"])
    assert (group.group.analyses, group.group.preset) == (("qc_fc",), "paper")


def test_a_choice_of_the_file_alone_is_no_option():
    with pytest.raises(UsageError, match=r"--filter-order is set in the file of --config-file alone: filter_order"):
        parser.parse_settings([*BASE, "--filter-order", "3"])


def test_a_configuration_that_is_not_there_is_told_once(tmp_path):
    with pytest.raises(UsageError, match="cannot be read") as raised:
        parse_settings(["in", "out", "participant", "--config-file", str(tmp_path / "x.toml")])
    assert len(str(raised.value).splitlines()) == 1


def test_prefixes_are_stripped_and_lists_extended():
    words = ("--participant-label", "sub-01", "02", "--session-label", "ses-a", "--participant_label", "03")
    chosen = parse_settings([*BASE, *words])
    assert chosen.inputs.participant_label == ("01", "02", "03")
    assert chosen.inputs.session_label == ("a",)


def test_accents_are_written_in_one_way_but_in_paths():
    apart = unicodedata.normalize("NFD", "Größe")
    settings = parse_settings(["in", f"out/{apart}", "group", "--targets", apart, "--phenotypes", "setup.cfg"])
    assert settings.group.targets == (unicodedata.normalize("NFC", "Größe"),)
    assert settings.output_dir.name == apart


def test_all_mistakes_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        parse_settings([*BASE, "--high-pass", "0.1", "--alpha", "2", "--min-coverage", "3", "--atals", "x"])
    text = str(caught.value)
    assert len(text.splitlines()) >= 4
    assert all(word in text for word in ("--high-pass", "--alpha 2", "--min-coverage", "Did you mean --atlas"))


CUTS = ("old=age>=1.2.3", "old=age>=", "old=age>=nan", "=age>=4")
LEVEL_GROUP = {"--targets", "--folds", "--equal-minutes", "--penalties", "--nbs-threshold", "--site-column", "--name"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "nested"], "group level only"),
        (["--fd-thresh", "nan"], "finite"),
        (["--band-stop-min", "12"], "belong to a --motion-filter-type"),
        (["--motion-filter-type", "notch", "--band-stop-min", "18", "--band-stop-max", "12"], "above its"),
        (["--motion-filter-type", "lp", "--band-stop-min", "6", "--motion-filter-order", "3"], "multiple of 2"),
        (["--transforms", "magic"], "no such transform"),
        (["--targets", "g=a,b", "g=c,d"], "--targets g=... is given twice"),
        (["--folds", "1"], "nothing to train on"),
        *((["--targets", f"{cut}"], f"--targets '{cut}' must be NAME=COLUMN>=NUMBER.") for cut in CUTS),
        (["--penalties", "-1", "1"], "penalties must be"),
        (["--nbs-threshold", "0"], "nbs_threshold 0.0 is a size of t"),
        (["--folds-file", "setup.cfg", "--site-column", "site", "--sites", "hold-out"], "both say who is tested"),
        (["--site-column", "site", "--sites", "combat", "--save-models"], "writes models of features as they are"),
        (["--name", "models"], "--name models must be"),
        (["--minutes", "0"], "must be above 0"),
        (["--minutes", "3", "--steps", "9"], "both say how long is trained"),
        (["--equal-minutes", "--representations", "fc", "embedding:a"], "embedding:a is known of whole scans only"),
    ],
)
def test_each_mistake_has_its_sentence(arguments, message):
    level = "group" if LEVEL_GROUP & set(arguments) else "pretrain" if "--minutes" in arguments else "participant"
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_settings([*BASE[:-1], level, *arguments])


@pytest.mark.parametrize(
    ("level", "words", "readers"),
    [
        ("group", "--strategy 36P", "level participant"),
        ("group", "--dry-run", "level participant"),
        ("participant", "--max-mean-fd 0.2", "level group"),
        ("participant", "--targets age", "levels group and pretrain" if "pretrain" in LEVELS else "level group"),
    ],
)
def test_an_option_that_a_level_does_not_use_is_refused_there_and_not_in_a_file(tmp_path, level, words, readers):
    name = words.partition(" ")[0].replace("_", "-")
    said = f"{name} is an option of the {readers}; {level} does not use it. Leave it out"
    with pytest.raises(UsageError, match=said):
        parse_settings(["bids", str(tmp_path / "out"), level, *words.split()])
    chosen = parse_settings(["bids", str(tmp_path / "out"), readers.split()[1]])
    path = tmp_path / "c.toml"
    path.write_text(chosen.as_toml())
    assert parse_settings(["bids", str(tmp_path / "out"), level, "-c", str(path)]).level == level


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "logs").touch()
    with pytest.raises(UsageError, match="out/logs is a file, and the run keeps a folder of that name"):
        parse_settings([str(tmp_path), str(tmp_path / "out"), "participant"])


@pytest.mark.parametrize("spelling", ["xcp_d", "xcpd", "XCP-D"])
def test_a_program_is_known_by_each_of_its_spellings(spelling):
    sources = ["-d", f"{spelling}=/data/a=b", "fmriprep=/x"]
    assert parse_settings([*BASE[:-1], "group", *sources]).inputs.derivatives == ("xcpd=/data/a=b", "fmriprep=/x")
    assert parse_settings([*BASE, *sources]).inputs.derivatives == tuple(sources[1:])


@pytest.mark.parametrize(
    ("line", "arguments", "expected"),
    [
        ('alpha = "nested"', [], (ALPHA_STAR, "nested")),
        ('alpha-selection = "nested"', ["--alpha", "0.5"], (0.5, None)),
        ('alpha-selection = "nested"', [], (ALPHA_STAR, "nested")),
        ('alpha = "nested"', ["--alpha", "0.5"], (0.5, None)),
        ("alpha = 0.5", ["--alpha", "grid"], (0.5, "grid")),
    ],
)
def test_a_file_may_choose_the_exponent_and_the_command_line_wins(tmp_path, line, arguments, expected):
    path = tmp_path / "c.toml"
    path.write_text(line)
    chosen = parse_settings([*BASE[:-1], "group", "-c", str(path), *arguments])
    assert (chosen.method.alpha, chosen.group.alpha_selection) == expected


def test_the_preset_of_the_paper_by_name_asks_for_all_its_analyses(tmp_path):
    line = ["bids", "out", "group"]
    assert parse_settings(line).group.analyses == ()
    assert parse_settings([*line, "--preset", "paper"]).group.analyses == ("all",)
    assert parse_settings([*line, "--preset", "paper", "--analyses", "qc_fc"]).group.analyses == ("qc_fc",)
    # The record of a run holds every default, and giving it back repeats that run.
    path = tmp_path / "settings.toml"
    path.write_text(parse_settings(line).as_toml())
    again = parse_settings([*line, "--config-file", str(path)])
    assert (again.group.preset, again.group.analyses) == ("recommended", ())


@pytest.mark.parametrize(
    "content", ["x = 1", "low_pass = 'a'", "not toml", "low_pass = true", "config_file = 'nilearn'"]
)
def test_a_wrong_configuration_file_is_told(tmp_path, content):
    path = tmp_path / "c.toml"
    path.write_text(content)
    _, errors = read_configuration(path)
    assert len(errors) == 1
    assert str(path) in errors[0]


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
