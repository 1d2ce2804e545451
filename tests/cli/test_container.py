"""The wrapper: a command line becomes mounts, and the engine gets it as it was printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fcpower_bids.cli.container import KERNEL, anchor, arguments_of, build_parser, command_of, main, plan
from fcpower_bids.cli.parser import parse_settings
from fcpower_bids.errors import UsageError
from fcpower_bids.settings import Settings


@pytest.fixture
def study(tmp_path: Path, monkeypatch) -> Path:
    """A folder with everything that a command line can name; relative paths start here."""
    for folder in ("bids/derivatives/fmriprep", "other", "atlases", "weights", "tables"):
        (tmp_path / folder).mkdir(parents=True)
    for file in (
        "tables/age.tsv",
        "tables/age.json",
        "tables/else.tsv",
        "mine.nii.gz",
        "mine.tsv",
        "names.tsv",
        "s.yml",
    ):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    for name in ("TEMPLATEFLOW_HOME", *KERNEL):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def mounts_of(text: str, **more) -> dict[str, bool]:
    here = Path.cwd()
    return {path.relative_to(here).as_posix(): written for path, written in plan(text.split(), **more).mounts.items()}


def test_input_is_read_only_and_output_is_not(study):
    job = plan(["bids", "out", "participant"])
    assert job.arguments == (f"{study}/bids", f"{study}/out", "participant")
    assert job.mounts == {study / "bids": False, study / "out": True}


@pytest.mark.parametrize(
    ("options", "mounted", "argument"),
    [
        ("-w scratch", {"scratch": True}, "--work-dir {}/scratch"),
        ("--bids-database-dir index", {"index": True}, "--bids-database-dir {}/index"),
        ("--atlas-dir atlases other", {"atlases": False, "other": False}, "--atlas-dir {0}/atlases {0}/other"),
        ("--phenotypes tables/age.tsv", {"tables/age.tsv": False, "tables/age.json": False}, "{}/tables/age.tsv"),
        ("--derivatives prep=other", {"other": False}, "--derivatives prep={}/other"),
        ("--derivatives other", {"other": False}, "--derivatives {}/other"),
        ("--strategy s.yml", {"s.yml": False}, "--strategy {}/s.yml"),
        ("--strategy 36P", {}, "--strategy 36P"),
        ("--encoder fbert --encoder-weights weights", {"weights": False}, "--encoder-weights {}/weights"),
        ("--encoder fbert --encoder-weights a/b", {}, "--encoder fbert --encoder-weights a/b"),
        ("--atlas builtin Schaefer100", {}, "--atlas builtin Schaefer100"),
        ("--atlas mine.nii.gz", {"mine.nii.gz": False, "mine.tsv": False}, "--atlas {}/mine.nii.gz"),
        (
            "--atlas mine.nii.gz:names.tsv+Schaefer100",
            {"mine.nii.gz": False, "mine.tsv": False, "names.tsv": False},
            "--atlas {0}/mine.nii.gz:{0}/names.tsv+Schaefer100",
        ),
        ("--atlas atlases:Tian_scale-3", {"atlases": False}, "--atlas {}/atlases:Tian_scale-3"),
        ("--atlas templateflow:MASSP20", {}, "--atlas templateflow:MASSP20"),
    ],
)  # fmt: skip
def test_every_path_is_mounted_and_every_name_left_alone(study, options, mounted, argument):
    level = "group" if "phenotypes" in options else "participant"
    job = plan(["bids", "out", level, *options.split()])
    found = {path.relative_to(study).as_posix(): written for path, written in job.mounts.items()}
    assert found == {"bids": False, "out": True, **mounted}
    assert " ".join(job.arguments).endswith(argument.format(study))


def test_names_of_atlases_are_no_folders_even_if_there_are_such_folders(study):
    for name in ("builtin", "templateflow"):
        (study / name).mkdir()
    assert mounts_of("bids out participant --atlas builtin templateflow:MASSP20") == {"bids": False, "out": True}


def test_output_inside_the_input_is_mounted_over_it(study):
    assert list(mounts_of("bids bids/derivatives/fcpower participant").items()) == [
        ("bids", False),
        ("bids/derivatives/fcpower", True),
    ]
    assert mounts_of("bids out participant -w out/scratch") == {"bids": False, "out": True}


def test_links_that_leave_the_dataset_are_followed(study):
    (study / "bids/derivatives/linked").symlink_to(study / "other")
    (study / "bids/derivatives/inside").symlink_to(study / "bids/derivatives/fmriprep")
    assert mounts_of("bids out participant") == {"bids": False, "out": True, "other": False}


def test_choices_of_a_configuration_file_are_handed_on(study):
    (study / "choices.toml").write_text('atlas_dir = ["atlases"]\nlow_pass = 0.1\nlow_mem = true\n')
    job = plan(["bids", "out", "participant", "-c", "choices.toml"])
    assert study / "atlases" in job.mounts
    assert job.arguments[3:] == ("--atlas-dir", f"{study}/atlases", "--low-pass", "0.1", "--low-mem")


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--participant-label 01 02 --low-mem --alpha 0.5 --floor 1e-3 --dummy-scans 4 --seed 3",
        "--atlas builtin Schaefer100 --transforms power fisher_z --strict --fd-thresh 0",
    ],
)
def test_the_command_line_gives_the_settings_that_it_was_made_of(study, options):
    settings, _ = anchor(parse_settings(["bids", "out", "participant", *options.split()]))
    assert parse_settings(arguments_of(settings)) == settings


def test_mistakes_are_told_before_a_container_starts(study, capsys):
    assert (
        main(["--engine", "docker", "bids", "out", "participant", "--alpha", "3", "--atals", "x"])
        == UsageError.exit_code
    )
    told = capsys.readouterr().err
    assert "--alpha 3" in told
    assert "--atlas" in told


@pytest.mark.parametrize("engine", ["docker", "apptainer"])
@pytest.mark.parametrize("name", ["a:b", "a,b"])
def test_names_that_cannot_be_mounted_are_refused(study, capsys, engine, name):
    (study / name).mkdir()
    for arguments in ([name, "out", "participant"], ["bids", f"{name}/out", "participant"]):
        assert main(["--engine", engine, "--print", *arguments]) == 2
        assert f"{study}/{name}" in capsys.readouterr().err
    (study / "link").symlink_to(study / name)
    assert main(["--engine", engine, "--print", "link", "out", "participant"]) == 0


@pytest.mark.parametrize("folder", ["/", "/usr", "/tmp", "/opt"])
def test_the_files_of_the_image_are_never_hidden(study, folder):
    with pytest.raises(UsageError, match="would hide"):
        plan(["bids", "out", "participant"], {Path(folder): False})


@pytest.mark.parametrize("engine", ["docker", "apptainer"])
def test_the_blas_kernel_of_this_machine_is_used_inside(study, monkeypatch, engine):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    command = command_of(engine, "image", plan(["bids", "out", "participant"]))
    assert command[command.index("OPENBLAS_CORETYPE=Haswell") - 1] == "--env"
    assert not any("OPENBLAS_L2_SIZE" in word for word in command), "what is not set here is left to the image"


def test_network_only_when_asked_for(study):
    offline, online = (plan(["bids", "out", "participant"], online=online) for online in (False, True))
    assert "none" in command_of("docker", "image", offline)
    assert offline.environment == {"FCPOWER_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    assert "--network" not in command_of("docker", "image", online)
    assert online.environment == {}


def test_templateflow_of_this_machine_is_used(study, monkeypatch):
    monkeypatch.setenv("TEMPLATEFLOW_HOME", str(study / "atlases"))
    job = plan(["bids", "out", "participant"])
    assert job.environment["TEMPLATEFLOW_HOME"] == str(study / "atlases")
    assert job.mounts[study / "atlases"] is False


def test_prefetch_writes_to_its_folder_over_the_network(study):
    job = plan(["prefetch", "--atlas", "Schaefer100", "--folder", "fetched"])
    assert job.arguments == (
        "prefetch",
        "--atlas",
        "Schaefer100",
        "--folder",
        "fetched",
        "--folder",
        f"{study}/fetched",
    )
    assert job.mounts == {study / "fetched": True}
    assert job.online


@pytest.mark.parametrize(
    ("engine", "wanted", "gpu"),
    [
        ("docker", ["--read-only", "--cap-drop", "ALL"], "--gpus all"),
        ("podman", ["--read-only", "--cap-drop", "ALL"], "--device nvidia.com/gpu=all"),
        ("apptainer", ["--cleanenv", "--containall"], "--nv"),
    ],
)
def test_each_engine_in_its_own_words(study, engine, wanted, gpu):
    command = command_of(engine, "image", plan(["bids", "out", "participant"], gpu=True))
    assert command[:2] == [engine, "run"]
    assert gpu in " ".join(command)
    assert [word for word in command if word in wanted] == wanted
    assert f"{study}/bids:{study}/bids:ro" in command
    assert command[command.index("image") :] == ["image", f"{study}/bids", f"{study}/out", "participant"]


def test_podman_without_root_keeps_the_number_of_the_user(study, monkeypatch):
    job = plan(["bids", "out", "participant"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "keep-id" in command_of("podman", "image", job)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "keep-id" not in command_of("podman", "image", job)


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_the_engine_gets_what_was_printed_and_its_exit_code_comes_back(study, engine):
    """A program in the place of the engine writes down what it was given."""
    fake = study / "bin" / engine
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" > {study}/given\nexit 4\n')
    fake.chmod(0o755)
    options = ["--engine", engine, "--image", "my image", "bids", "out", "participant", "--atlas", "builtin"]
    done = subprocess.run(
        [sys.executable, "-c", "from fcpower_bids.cli.container import entry_point; entry_point()", *options],
        env={**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    given = (study / "given").read_text().splitlines()
    assert done.returncode == 4, done.stderr
    assert shlex.split(done.stderr) == [engine, *given[1:]]
    assert "my image" in given
    assert (study / "out").is_dir(), "made here, so that it belongs to the user"


def test_print_starts_nothing(study, monkeypatch, capsys):
    monkeypatch.setattr(os, "execvp", lambda *_: pytest.fail("a container was started"))
    assert main(["--print", "--engine", "podman", "bids", "out", "participant"]) == 0
    assert capsys.readouterr().out.startswith("podman run --rm --read-only")
    assert not (study / "out").exists()


def test_the_container_is_told_the_id_of_its_image(study, monkeypatch, capsys):
    monkeypatch.delenv("FCPOWER_CONTAINER", raising=False)
    podman = study / "podman"
    podman.write_text("#!/bin/sh\necho sha256:0123abc\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{study}:{os.environ['PATH']}")
    command = ["--print", "--engine", "podman", "--image", "mine:1", "bids", "out", "participant"]
    assert main(command) == 0
    assert "--env FCPOWER_CONTAINER=mine:1@sha256:0123abc " in capsys.readouterr().out
    podman.write_text("#!/bin/sh\necho sha256:0123abc other/mine@sha256:7 docker.io/library/mine@sha256:8\n")
    assert main(command) == 0
    assert "--env FCPOWER_CONTAINER=mine:1@sha256:8 " in capsys.readouterr().out, "the digest of the registry"
    by_digest = ["reg:5000/mine@sha256:77" if one == "mine:1" else one for one in command]
    assert main(by_digest) == 0
    assert "--env FCPOWER_CONTAINER=reg:5000/mine@sha256:77 " in capsys.readouterr().out
    at_home = ["localhost/mine:1" if one == "mine:1" else one for one in command]
    podman.write_text("#!/bin/sh\necho sha256:0123abc localhost/mine@sha256:8\n")
    assert main(at_home) == 0
    assert "--env FCPOWER_CONTAINER=localhost/mine:1@sha256:0123abc " in capsys.readouterr().out
    podman.write_text("#!/bin/sh\nexit 125\n")
    assert main(command) == 0
    assert "--env FCPOWER_CONTAINER=mine:1 " in capsys.readouterr().out
    monkeypatch.setenv("FCPOWER_CONTAINER", "registry/mine@sha256:9")
    assert main(command) == 0
    assert "--env FCPOWER_CONTAINER=registry/mine@sha256:9 " in capsys.readouterr().out


def test_no_engine_is_told(study, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(study))
    assert main(["bids", "out", "participant"]) == UsageError.exit_code
    assert "Install one of docker" in capsys.readouterr().err


def test_own_options_do_not_take_those_of_the_application():
    own = set(build_parser()._option_string_actions) - {"-h", "--help"}
    theirs = {"--" + name.replace("_", "-") for name in vars(Settings(Path(), Path(), "group"))}
    assert not own & theirs
