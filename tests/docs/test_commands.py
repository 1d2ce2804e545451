"""Every command of the documentation is executed, as far as this machine can; one of an unknown kind fails.

What differs from the documentation is in the tables below: placeholders, choices that make a run small, and commands
that are only parsed because they need downloads.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fcpower_bids import __version__
from fcpower_bids.cli import selftest
from fcpower_bids.cli.help import short_help
from fcpower_bids.cli.parser import parse_settings
from fcpower_bids.cli.prefetch import build_parser as prefetch_parser
from fcpower_bids.cli.run import main
from fcpower_bids.demo.__main__ import build_parser as demo_parser
from fcpower_bids.demo.__main__ import main as make_demo
from fcpower_bids.outputs.tables import read_matrix
from fcpower_bids.settings import LEVELS
from fcpower_bids.slices.published_encoders import cohort
from fcpower_bids.store import write_text
from scripts.reference import boutiques, group_tables, nipoppy
from tests.docs.conftest import COARSE, MODEL, PLANTED, PRETRAIN, QUICK, SPACE, copy_outputs
from tests.docs.pages import PAGES, ROOT, Command, code_blocks, commands, read
from tests.planting.pipelines import hcp_surface, make_surface
from tests.planting.surfaces import labels_of, save_dlabel
from tests.slices.elsewhere import sources
from tests.telling import telling

PLACEHOLDERS = {
    "BIDS_DIR": "BIDS",
    "OUTPUT_DIR": "OUT",
    "/data/study": "BIDS",
    "/scratch/fcpower": "OUT",
    "demo/bids": "BIDS",
    "demo/out": "OUT",
    "predict MODEL": f"predict OUT/{MODEL}",
    "GROUP --": "fcpower_bids BIDS OUT group --targets planted_score --",
    "--composite ...": "--composite g=reasoning,memory",
    "MEASURE,MEASURE,...": "reasoning,memory",
    "FAMILY": "family_id",
    "SITE": "site",
    "NAME": "prediction",
    "A B C": "Schaefer100 Schaefer400",
    "NEW": "01",
    "WEIGHTS": "OUT/encoder/model",
    "fbert-1m --encoder-weights W": "random-init",
}
"""What a reader replaces, and what the demo has there."""

SMALLER = {
    "--targets age": "--targets planted_score",
    "--sample-sizes 50 100 250 --scan-minutes 2.4 4.8": "--scan-minutes 1.5",
    "--permutations 1000": "--permutations 2",
    "--analyses all": "--analyses qc_fc spectrum_geometry",  # the study itself is made with all
    "--min-time 180": "--min-time 60",
    "--covariates age mean_fd --analyses edges": "--covariates age --analyses edges",
    "--preset paper --composite": "--preset paper --analyses prediction --composite",  # all has its own
    "group --analyses learning_curves": "group --analyses learning_curves --scan-minutes 1.5",
}
"""Choices for hundreds of people, and those for the few of the study."""

ATLASES = {"participant": {"Schaefer100": "OWN_ATLAS", "Schaefer400": "builtin"}, "group": {"Schaefer100": COARSE}}
"""Parcellations that have to be downloaded, and those of the study."""

OVERRIDDEN = re.compile(r" --(?:batch-size|window|steps|warmup) \S+")
"""Sizes of pretraining, which all tests set alike; commands that differ in them alone run once, and all are read."""

PARSED = ("--encoder brain-jepa", "--encoder brainlm-111m", "--atlas A424.nii.gz", "--encoder-weights best_model.pth")
"""Commands on files of others, which nobody may ship: the real parser reads them, with empty files of these names."""

IMAGES = (f"fcpower_bids:{__version__}", f"localhost/fcpower_bids:{__version__}")
FAKES = ("docker", "podman", "apptainer", "sbatch", "pip-audit")
PROGRAMS = ("fcpower_bids", "GROUP", "python", "pip", "make", "bash", "eval", "export", *FAKES[:3])
MENTIONS = re.compile(
    r"(fcpower_bids (predict|identify|model|selftest FOLDER|prefetch|status OUTPUT_DIR)"
    r"|docker (stop|--cpus))"
)
"""Parts of commands that the text speaks of."""
COMMANDS = [command for page in PAGES for command in commands(page, PROGRAMS) if not MENTIONS.fullmatch(command.text)]


def ours(command: Command) -> str:
    """The command as it runs here; the same for commands that differ in nothing that matters."""
    text = re.sub(r" +#.*", "", command.text)
    for old, new in (*PLACEHOLDERS.items(), *SMALLER.items()):
        text = re.sub(rf"(?<![\w/]){re.escape(old)}" + (r"(?!\w)" if old[-1].isalnum() else ""), new, text)
    if "OUT pretrain" in text:
        text = OVERRIDDEN.sub("", text)
    level = next((level for level in ("participant", "group") if f"OUT {level}" in text), "")
    for old, new in ATLASES.get(level, {}).items():
        text = re.sub(rf"\b{old}\b", new, text)
    text = text.replace("Schaefer400", "builtin") if level == "group" else text
    return f"{text} --targets planted_score" if text == "fcpower_bids BIDS OUT group" else text


UNIQUE = {ours(command): command for command in reversed(COMMANDS)}
KINDS: dict[str, Callable[..., None]] = {}


def kind(pattern: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register what executes the commands that begin like this; the first that fits is taken."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        KINDS[pattern] = function
        return function

    return register


@pytest.fixture
def place(study, tmp_path, monkeypatch) -> Path:
    """An empty folder with what commands name: a copy of the outputs, small tables, programs that are not here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exclude.tsv").write_text("participant_id\treason\nsub-01\tfell asleep\n")
    (tmp_path / "programs").mkdir()
    for name in FAKES:
        program = tmp_path / "programs" / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" "" >> {tmp_path}/calls\necho 1\n')
        program.chmod(0o755)
    here = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{here}:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("text", UNIQUE, ids=lambda text: text[:90])
def test_it_runs(text, study, place):
    command = UNIQUE[text]
    fitting = [function for pattern, function in KINDS.items() if re.match(pattern, text)]
    assert fitting, f"{command.page}: nothing executes '{command.text}'"
    fitting[0](text, study, place)


def arguments_of(text: str, study: Path, place: Path) -> list[str]:
    """The words after the program, with real paths."""
    own_atlas = f"{study}/tpl-{SPACE}_{COARSE}_dseg.nii.gz:{study}/coarse.tsv"
    text = re.sub(r"\bBIDS\b", str(study / "bids"), text)
    text = re.sub(r"(?<![\w/])OUT\b", str(place / "out"), text).replace("OWN_ATLAS", own_atlas)
    return shlex.split(text)[1:]


@kind(r"fcpower_bids (\w+ )?--help(-all)?$")
def show_help(text: str, study: Path, place: Path) -> None:
    assert all(level in short_help() for level in LEVELS)
    assert text.split()[1] in (*LEVELS, "--help")


@kind(r"fcpower_bids prefetch ")
def parse_prefetch(text: str, study: Path, place: Path) -> None:
    options = prefetch_parser().parse_args(shlex.split(text)[2:])
    assert options.atlas
    assert options.folder


@kind(rf"fcpower_bids .*({'|'.join(map(re.escape, PARSED))})")
def parse_only(text: str, study: Path, place: Path) -> None:
    words = arguments_of(text, study, place)
    for word in words:
        if re.fullmatch(r"\w[\w.-]*\.(gz|csv|tar|pth|dat)", word):
            (place / word).touch()
    settings = parse_settings(words)
    assert settings.atlas
    assert settings.level in ("participant", "group")


@kind(r"fcpower_bids \S*/HCP_1200 OUT participant")
def run_hcp(text: str, study: Path, place: Path) -> None:
    """One surface as the minimal preprocessing and FIX left it, and an atlas as prefetch does."""
    hcp_surface(place / "hcp", *make_surface(place / "fmriprep"))
    names = [f"7Networks_LH_Vis_{number}" for number in range(4)]
    save_dlabel(place / "atlases" / "Schaefer2018_400Parcels_7Networks_order.dlabel.nii", labels_of(4), names)
    text = text.replace("/data/HCP_1200", str(place / "hcp")).replace("builtin", "Schaefer400")
    assert main([*arguments_of(text, study, place), "--min-time", "60", "--nprocs", "1", "--quiet"]) == 0
    (written,) = (place / "out").rglob("*_proc-fix_space-fsLR_*_stat-pearsoncorrelation_relmat.tsv")
    assert tuple(read_matrix(written)[1]) == tuple(names)


@kind(r"fcpower_bids BIDS OUT participant")
def run_participant(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "out")
    words = arguments_of(text, study, place)
    words += [] if "--atlas" in words else ["--atlas", "builtin"]
    assert main([*words, "--participant-label", "01", "--session-label", "b", "--nprocs", "1", "--quiet"]) == 0


@kind(r"fcpower_bids BIDS OUT pack")
def run_pack(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "out", "corpus", "encoder")
    assert main([*arguments_of(text, study, place), "--atlas", "builtin", "--quiet"]) == 0
    assert (place / "out" / "corpus" / "pack.json").is_file()


@kind(r"fcpower_bids BIDS OUT pretrain")
def run_pretrain(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "out", "encoder")
    assert main([*arguments_of(text, study, place), *PRETRAIN]) == 0
    assert (place / "out" / "encoder" / "model" / "model.safetensors").is_file()


SIZED = sorted({one.text for one in COMMANDS if " pretrain" in one.text and OVERRIDDEN.search(one.text)})


@pytest.mark.parametrize("text", SIZED)
def test_sizes_of_pretraining_are_read_as_they_are_written(text):
    settings = parse_settings(shlex.split(text, comments=True)[1:])
    for option, value in re.findall(r" --(batch-size|window|steps|warmup) (\d+)", text):
        assert getattr(settings, option.replace("-", "_")) == int(value)


@kind(r"fcpower_bids BIDS OUT group -d (list|xcpd)=")
def import_sources(text: str, study: Path, place: Path) -> None:
    """The series of the study, under names of XCP-D and in a list, into an empty output folder."""
    rows = ["participant_id\tsession_id\tpath\tkind\trepetition_time"]
    for path in sorted((study / "out").rglob("*ses-*_run-1_*_stat-mean_timeseries.tsv")):
        labels = dict(pair.split("-", 1) for pair in path.name.split("_")[:-1])
        if labels["atlas"] == "coarse":
            continue
        stem = f"sub-{labels['sub']}_ses-{labels['ses']}_task-rest_seg-{labels['atlas']}"
        copy = place / "source" / f"sub-{labels['sub']}" / "func" / f"{stem}_stat-mean_timeseries.tsv"
        copy.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, copy)
        rows.append(f"sub-{labels['sub']}\tses-{labels['ses']}\t{copy}\tseries\t2")
    assert len(rows) > 6
    (place / "connectomes.tsv").write_text("\n".join(rows) + "\n")
    text = text.replace("/data/derivatives/xcp_d", str(place / "source"))
    text = text.replace("/data/connectomes.tsv", str(place / "connectomes.tsv"))
    assert main([*arguments_of(text, study, place), *QUICK, "--min-time", "60", "--analyses", "prediction"]) == 0
    assert (place / "out" / "group" / "prediction.tsv").is_file()


@kind(r"fcpower_bids BIDS OUT group -d hcp=")
def import_hcp(text: str, study: Path, place: Path) -> None:
    """Node series as the HCP names them, and a table of its people."""
    sources.hcp(place / "hcp")
    people = [path.stem for path in sorted((place / "hcp").rglob("*.txt"))]
    lines = [f"sub-{person}\t{number}" for number, person in enumerate(people)]
    (place / "bids").mkdir()
    (place / "bids" / "participants.tsv").write_text("\n".join(["participant_id\tplanted_score", *lines]) + "\n")
    text = text.replace("/data/HCP_PTN1200", str(place / "hcp")).replace("BIDS", str(place / "bids"), 1)
    words = arguments_of(text.replace("fcpower_bids", "program", 1), study, place)
    assert main([*words, *QUICK, "--folds", "2", "--analyses", "prediction"]) == 0
    assert (place / "out" / "group" / "prediction.tsv").is_file()


@kind(r"fcpower_bids BIDS OUT group")
def run_group(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "out", coarse=COARSE in text)
    words = arguments_of(text, study, place)
    if "--config-file" in words:
        given = [*words[:3], "--atlas", "builtin", "--targets", "planted_score", *QUICK]
        write_text(place / "out" / "logs" / "settings_group.toml", parse_settings(given).as_toml())
    words += [] if "--atlas" in words or "--config-file" in words else ["--atlas", "builtin"]
    words += ["--accept-no-skill"] if "--save-models" in words else []  # six people predict nothing
    assert main([*words, *QUICK]) == 0
    named = words[words.index("--name") + 1] if "--name" in words else ""
    tables = {path.stem for path in (place / "out" / "group" / named).glob("*.tsv")}
    assert "--dry-run" in words or tables > {"scans", "excluded"}


@kind(r"fcpower_bids predict ")
def run_predict(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "out")
    (place / "out" / MODEL).parent.mkdir(parents=True)
    shutil.copytree(study / "one_session" / MODEL, place / "out" / MODEL)
    assert main([*arguments_of(text, study, place), "--accept-no-skill"]) == 0
    assert list((place / "out" / "group" / "predicted").glob("*.tsv"))


@kind(r"fcpower_bids export ")
def run_export(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "out", "corpus", "encoder", coarse=True)
    (place / "out" / "group").mkdir()
    assert main([*arguments_of(text, study, place)[:-1], str(place / "share")]) == 0
    assert (place / "share" / "README.md").is_file()


@kind(r"fcpower_bids combine ")
def run_combine(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "merged" / "out", "corpus", "encoder", coarse=True)
    assert main(["combine", str(place / "out"), str(place / "merged")]) == 0
    assert (place / "out" / "logs" / "status.tsv").is_file()


@kind(r"fcpower_bids selftest")
def parse_selftest(text: str, study: Path, place: Path) -> None:
    """It runs in tests/test_selftest.py."""
    assert selftest.build_parser().parse_args(shlex.split(text)[2:])


@kind(r"fcpower_bids status ")
def run_status(text: str, study: Path, place: Path) -> None:
    copy_outputs(study / "out", place / "out", coarse=True)
    (place / "out" / "logs" / "status.tsv").unlink(missing_ok=True)
    assert main(arguments_of(text, study, place)) == 0
    assert (place / "out" / "logs" / "status.tsv").is_file()


@kind(r"(docker|podman|apptainer) (run|exec) ")
def start_fake_engine(text: str, study: Path, place: Path) -> None:
    """The engine gets known options, the image that `make image` makes, and what the application can read."""
    subprocess.run(["bash", "-c", text], check=True, capture_output=True)
    given = (place / "calls").read_text().split("\n\n")[0].splitlines()
    images = [word for word in given if word in IMAGES or word.endswith(".sif")]
    assert len(images) == 1
    inside = given[given.index(images[0]) + 1 :]
    if "--entrypoint" in given:
        assert inside == ["/opt/fcpower/requirements.lock"]
        assert "requirements.lock" in read(ROOT / "Dockerfile")
    elif inside == ["selftest"]:
        assert selftest.build_parser().parse_args(inside[1:])
    elif inside[0] == "python":
        assert demo_parser().parse_args(inside[3:]).output_dir == Path("/out/bids")
    else:
        assert parse_settings(inside).bids_dir == Path("/data")
        assert any("/data:ro" in word for word in given)


@kind(r"(\w+=\S+ |GROUP=\"[^\"]+\" )+bash slurm_array.sh ")
def submit_to_fake_cluster(text: str, study: Path, place: Path) -> None:
    text = re.sub(r"\bBIDS\b", str(study / "bids"), text).replace("OUT", str(place / "out"))
    text = text.replace("slurm_array.sh", str(ROOT / "docs" / "examples" / "slurm_array.sh"))
    (place / "fcpower_bids.sif").touch()
    done = subprocess.run(["bash", "-c", text], check=True, capture_output=True, text=True)
    assert "6 participants" in done.stdout
    assert (place / "calls").read_text().count("--account=lab") == 2


@kind(r"(\w+=\S+ )?make ")
def plan_make(text: str, study: Path, place: Path) -> None:
    """Make plans it without doing it; what it would start of ours can be read by our parser."""
    words = [word if word != "make" else "make -n" for word in shlex.split(text)]
    quoted = " ".join(word if word == "make -n" else shlex.quote(word) for word in words)
    done = subprocess.run(["bash", "-c", quoted], cwd=ROOT, check=True, capture_output=True, text=True)
    started = re.findall(r"bin/fcpower_bids (.+)", done.stdout.replace("\\\n", " "))
    assert len(started) == {"make demo": 2, "make demo-planted": 4}.get(text, 0)
    for line in started:
        assert parse_settings(shlex.split(line)).level in LEVELS


@kind(r"pip install |python -m venv ")
def compare_installation(text: str, study: Path, place: Path) -> None:
    """`make install` does this on a clean clone in CI; here only the versions are compared."""
    pinned = re.findall(r"\S+==\S+", text)
    assert set(pinned) <= set(read(ROOT / "constraints.txt").split())
    if not pinned:
        recipe = read(ROOT / "Makefile").replace("$(BIN)/python -m ", "").replace("--quiet ", "")
        recipe = recipe.replace("-e '.[encoder]'", "'.[encoder]'")  # a user needs no editable one
        extras = re.findall(r"^(\w+) =$", read(ROOT / "setup.cfg").partition("extras_require]")[2], re.M)
        names = text in ("pip install fcpower_bids", *(f"pip install 'fcpower_bids[{extra}]'" for extra in extras))
        assert names or text.removesuffix(" .") in recipe or text == "python -m venv .venv && . .venv/bin/activate"


@kind(r"python -m fcpower_bids\.demo ")
def make_small_demo(text: str, study: Path, place: Path) -> None:
    options = ["--subjects", "1", "--sessions", "1", "--volumes", "40"]
    assert make_demo([str(place / "bids"), *shlex.split(text)[4:], *options]) == 0


@kind(r"python -m scripts\.reference\.boutiques$")
def print_descriptor(text: str, study: Path, place: Path) -> None:
    assert boutiques.descriptor_text() == read(ROOT / "boutiques.json")


@kind(r"python -m scripts\.reference\.nipoppy FOLDER")
def run_nipoppy(text: str, study: Path, place: Path) -> None:
    assert nipoppy.main([str(place / "pipeline"), *shlex.split(text)[4:]]) == 0
    assert (place / "pipeline" / "descriptor.json").is_file()


@kind(r"python -m scripts\.reference\.group_tables FOLDER$")
def write_table_pages(text: str, study: Path, place: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", text.split()[2:])
        runpy.run_module("scripts.reference.group_tables", run_name="__main__")
    assert {path.name for path in (place / "FOLDER").iterdir()} == set(group_tables.table_pages())


@kind(r"python -m fcpower_bids\.slices\.published_encoders\.cohort ")
def compute_cohort_statistics(text: str, study: Path, place: Path) -> None:
    words = shlex.split(text)[3:]
    pattern = next(word for word in words if "*" in word)
    series = [place_of(pattern, place, person) for person in ("01", "02")]
    names = "\t".join(f"parcel{number:03d}" for number in range(1, 425))
    for seed, path in enumerate(series):
        rows = np.random.default_rng(seed).standard_normal((20, 424))
        path.parent.mkdir(parents=True)
        path.write_text("\n".join([names, *("\t".join(map(str, row)) for row in rows)]) + "\n")
    at = words.index(pattern)
    assert cohort.main([*words[:at], *map(str, series), *words[at + 1 :]]) == 0
    assert (place / "aux" / cohort.FILE).is_file()


def place_of(pattern: str, place: Path, person: str) -> Path:
    """A file that the shell would find for a pattern."""
    return place / pattern.replace("*", person)


@kind(r"python (-m )?benchmarks[/.]")
def compare_with_benchmark(text: str, study: Path, place: Path) -> None:
    """Benchmarks take minutes to hours: they exist and have these options."""
    words = shlex.split(text.replace("-m benchmarks.", "benchmarks/"))
    path = (ROOT / words[1]).with_suffix(".py")
    assert {word for word in words if word.startswith("--")} <= set(options_of(path))


def options_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value


@kind(r"eval |export ")
def run_in_shell(text: str, study: Path, place: Path) -> None:
    after = "complete -p fcpower_bids" if text.startswith("eval") else 'test -n "$TEMPLATEFLOW_HOME"'
    subprocess.run(["bash", "-ec", f"{text}\n{after}"], check=True, capture_output=True)


def test_no_command_hides_in_a_block_of_text():
    hidden = [
        line
        for page in PAGES
        for block in code_blocks(read(page), "")
        for line in block.splitlines()
        if line.split(" ")[0] in PROGRAMS and "{" not in line
    ]
    assert hidden == []


def test_there_are_commands_of_every_kind():
    assert len(UNIQUE) > 50
    unused = [pattern for pattern in KINDS if not any(re.match(pattern, text) for text in UNIQUE)]
    assert unused == []
