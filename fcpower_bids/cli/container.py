"""``fcpower-docker``: the command line of ``fcpower_bids``, run in its container with the mounts that it needs.

Every folder is mounted at the path that it has outside, so that no path has to be translated: configuration files,
links to datasets and ``logs/settings.toml`` read the same inside and outside. Inputs are mounted read-only.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from fcpower_bids import __version__
from fcpower_bids.cli.anchoring import WRITTEN, anchor
from fcpower_bids.cli.completion import answer_the_shell
from fcpower_bids.cli.options import is_list, option_fields, scalar_type
from fcpower_bids.cli.parser import Parser, parse_settings
from fcpower_bids.cli.prefetch import build_parser as prefetch_parser
from fcpower_bids.cli.run import parser_of as parser_inside
from fcpower_bids.errors import FcPowerError, UsageError
from fcpower_bids.settings import Settings

ENGINES = ("docker", "podman", "apptainer", "singularity")
IMAGES = {"docker": f"fcpower_bids:{__version__}", "podman": f"localhost/fcpower_bids:{__version__}"}
OFFLINE = {"FCPOWER_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
KERNEL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""What chooses the BLAS kernel: handed in, so that the last bits are the same inside and outside."""
CONTAINER = "FCPOWER_CONTAINER"
"""What the foot of the pages calls the container."""
PATIENCE = 10
"""Seconds in which an engine must tell the id of an image."""
SYSTEM = tuple(map(Path, ("/opt/fcpower", "/usr/bin", "/etc/passwd", "/proc/self", "/sys/fs", "/dev/null", "/tmp/x")))
"""A mount that holds one of these would hide the image's own files."""
EPILOG = """\
All else is handed to fcpower_bids in the container, see fcpower_bids --help. Examples:
  fcpower-docker /data/study /data/out participant --participant-label 01
  fcpower-docker --engine apptainer --image fcpower_bids.sif /data/study /data/out participant
  fcpower-docker prefetch --atlas Schaefer400 --folder atlases"""


@dataclasses.dataclass(frozen=True)
class Job:
    """What shall run in the container.

    Attributes
    ----------
    arguments : tuple of str
        Command line of ``fcpower_bids``; paths are absolute.
    mounts : mapping of Path to bool
        Folders and files that it needs, and whether it writes to them.
    environment : mapping of str to str
        Variables that the image does not set itself.
    online, gpu : bool
        Whether it may use the network, and the GPUs.
    """

    arguments: tuple[str, ...]
    mounts: dict[Path, bool]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    online: bool = False
    gpu: bool = False


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the wrapper's own options."""
    parser = Parser(
        prog="fcpower-docker",
        usage="fcpower-docker [options] bids_dir output_dir {participant,group,pack,pretrain} [fcpower_bids options]",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--engine", choices=ENGINES, help="container program [the first that is installed]")
    parser.add_argument("--image", help="image, for Apptainer a .sif file [$FCPOWER_IMAGE, else the one of `make`]")
    parser.add_argument("--mount", nargs="+", type=Path, default=[], help="more folders that the inputs link to")
    parser.add_argument("--online", action="store_true", help="allow the network, to fetch atlases or weights")
    parser.add_argument("--gpu", action="store_true", help="give the container the GPUs")
    parser.add_argument("--print", action="store_true", help="print the command and stop")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the real command, then become it; returns only when nothing was started."""
    try:
        chosen, rest = build_parser().parse_known_args(argv)
        engine = chosen.engine or find_engine()
        image = chosen.image or os.environ.get("FCPOWER_IMAGE") or IMAGES.get(engine, "fcpower_bids.sif")
        more = {path.absolute(): False for path in chosen.mount}
        job = (
            _prefetch_job(rest) if rest[:1] == ["prefetch"] else plan(rest, more, online=chosen.online, gpu=chosen.gpu)
        )
        named = {CONTAINER: os.environ.get(CONTAINER) or name_image(engine, image)}
        command = command_of(engine, image, dataclasses.replace(job, environment=job.environment | named))
    except FcPowerError as error:
        print("\n".join(f"fcpower-docker: {line}" for line in str(error).splitlines()), file=sys.stderr)  # noqa: T201
        return error.exit_code
    print(shlex.join(command), file=sys.stdout if chosen.print else sys.stderr, flush=True)
    if chosen.print:
        return 0
    for path, written in job.mounts.items():
        if written:
            path.mkdir(parents=True, exist_ok=True)  # else the engine makes it, and it belongs to root
    os.execvp(command[0], command)


def name_image(engine: str, image: str) -> str:
    """Return the image with its digest, for the foot of the pages: an image cannot know its own.

    The digest is that of the registry where the image was pulled from one, else the id that the engine has for it. Of a
    file of Apptainer, and of an image that the engine does not have yet, the name alone.
    """
    if engine in ("apptainer", "singularity"):
        return Path(image).name
    if "@" in image:
        return image
    asked = [engine, "image", "inspect", "--format", "{{.Id}}{{range .RepoDigests}} {{.}}{{end}}", image]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return image
    if told.returncode or not told.stdout.strip():
        return image
    number, *pulled = told.stdout.split()
    own = [one.partition("@")[2] for one in pulled if _repository(one) == _repository(image)]
    local = image.startswith("localhost/")  # built here: the id is what the engine lists
    return f"{image}@{own[0]}" if own and not local else f"{image}@sha256:{number.removeprefix('sha256:')}"


def _repository(image: str) -> str:
    """Name of an image without tag and digest, and without what Docker leaves out."""
    folder, slash, last = image.partition("@")[0].rpartition("/")
    name = folder + slash + last.partition(":")[0]
    return name.removeprefix("docker.io/").removeprefix("library/")


def find_engine() -> str:
    """Return the first container program that is installed.

    Raises
    ------
    UsageError
        There is none.
    """
    found = next((engine for engine in ENGINES if shutil.which(engine)), None)
    if found is None:
        raise UsageError(f"No container program is installed. Install one of {', '.join(ENGINES)}.")
    return found


def plan(argv: Sequence[str], more: dict[Path, bool] | None = None, *, online: bool = False, gpu: bool = False) -> Job:
    """Turn a command line of ``fcpower_bids`` into arguments and mounts.

    Parameters
    ----------
    argv : sequence of str
        As for ``fcpower_bids``; a configuration file is read here and its choices handed on one by one.
    more : mapping of Path to bool, optional
        Further mounts, and whether they are written to.
    online, gpu : bool
        As in `Job`.

    Raises
    ------
    UsageError
        With every mistake in the command line, before a container is started.
    """
    environment = {name: os.environ[name] for name in KERNEL if name in os.environ} | ({} if online else OFFLINE)
    if argv[:1] == ["prefetch"]:
        return _prefetch_job(argv)
    if list(argv) == ["--version"]:
        return Job(("--version",), {}, environment)
    settings, read = anchor(parse_settings(argv))
    mounts = dict.fromkeys([*read, *_linked_derivatives(settings.bids_dir)], False) | (more or {})
    home = os.environ.get("TEMPLATEFLOW_HOME")
    if home and Path(home).is_dir():
        environment["TEMPLATEFLOW_HOME"] = str(Path(home).absolute())
        mounts[Path(home).absolute()] = online
    mounts |= {getattr(settings, name): True for name in WRITTEN if getattr(settings, name) is not None}
    return Job(tuple(arguments_of(settings)), _needed(mounts), environment, online, gpu)


def _prefetch_job(argv: Sequence[str]) -> Job:
    folder = prefetch_parser().parse_args(argv[1:]).folder.absolute()
    return Job((*argv, "--folder", str(folder)), {folder: True}, online=True)


def _linked_derivatives(bids_dir: Path) -> list[Path]:
    """Return the folders outside the input folder that links in its ``derivatives`` lead to."""
    entries = [bids_dir / "derivatives", *(bids_dir / "derivatives").glob("*")]
    targets = [entry.resolve() for entry in entries if entry.is_symlink() and entry.exists()]
    return [target for target in targets if not target.is_relative_to(bids_dir.resolve())]


def _needed(mounts: dict[Path, bool]) -> dict[Path, bool]:
    """Drop what a folder around it brings along already, and put outer folders first."""
    for path in mounts:
        if found := [sign for sign in ":,\n" if sign in str(path)]:
            raise UsageError(
                f"{path} cannot be mounted: container programs take {found[0]!r} in a path for the end of it. "
                "Rename the folder, or give a link to it that has another name."
            )
        if any(own.is_relative_to(path) for own in SYSTEM):
            raise UsageError(f"{path} cannot be mounted: it would hide files of the image. Give a folder inside it.")
    kept: dict[Path, bool] = {}
    for path in sorted(mounts):
        around = next((kept[parent] for parent in path.parents if parent in kept), None)
        if around is None or around != mounts[path]:
            kept[path] = mounts[path]
    return kept


def arguments_of(settings: Settings) -> list[str]:
    """Return the command line that gives these settings: what is at its default is left out."""
    arguments = [str(settings.bids_dir), str(settings.output_dir), settings.level]
    for field in option_fields():
        value = getattr(settings, field.name)
        if value != field.default:
            arguments.append("--" + field.name.replace("_", "-"))
            if scalar_type(field.name) is not bool:
                arguments += map(str, value) if is_list(field.name) else [str(value)]
    return arguments


def command_of(engine: str, image: str, job: Job) -> list[str]:
    """Return the command that runs a job with an engine: no privileges, read-only root, the user's own number."""
    if engine in ("apptainer", "singularity"):
        return [engine, "run", *_apptainer_options(job), image, *job.arguments]
    return [engine, "run", *_docker_options(engine, job), image, *job.arguments]


def _docker_options(engine: str, job: Job) -> Iterable[str]:
    yield from ("--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    yield from ("--tmpfs", "/tmp:rw,mode=1777", "--user", f"{os.getuid()}:{os.getgid()}")
    if engine == "podman":
        yield from ("--security-opt", "label=disable")  # SELinux would hide the mounts
        if os.geteuid() != 0:
            yield from ("--userns", "keep-id")
    if not job.online:
        yield from ("--network", "none")
    if job.gpu:
        yield from ("--gpus", "all") if engine == "docker" else ("--device", "nvidia.com/gpu=all")
    for name, value in job.environment.items():
        yield from ("--env", f"{name}={value}")
    for path, written in job.mounts.items():
        yield from ("--volume", f"{path}:{path}" if written else f"{path}:{path}:ro")


def _apptainer_options(job: Job) -> Iterable[str]:
    yield from ("--cleanenv", "--containall")
    if job.gpu:
        yield "--nv"
    for name, value in job.environment.items():
        yield from ("--env", f"{name}={value}")
    for path, written in job.mounts.items():
        yield from ("--bind", f"{path}:{path}" if written else f"{path}:{path}:ro")


def parser_of(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the wrapper's options and of those that it hands on, for the shell to complete them."""
    parser = parser_inside(words)
    for action in build_parser()._actions:
        if action.dest != "help":
            parser._add_action(action)
    return parser


def entry_point() -> None:
    """Console script."""
    answer_the_shell(parser_of)
    sys.exit(main())
