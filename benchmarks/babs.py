"""BABS end to end on a SLURM that is started here: a demo of two people, a job each, then ``combine``.

Usage: ``python -m benchmarks.babs`` as root, with SLURM, munge, BABS, DataLad, git-annex and 7z. Where one is missing
it says so in one line and ends with 0. The configuration is docs/examples/babs.yaml with the places of this machine.

In the place of Apptainer a script starts the program that is installed here, with the arguments that BABS gives to the
image; with ``--session`` jobs are sessions, with ``--zipped`` the inputs are a zip per participant. What comes out is
compared with a run without BABS; the exit status is 1 unless series, FC, quality and statuses are the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.slurm import NEEDED, cluster
from fcpower_bids.demo import DemoDesign, make_dataset

TOOLS = (*NEEDED, "sbatch", "babs", "datalad", "git-annex", "7z")
CONFIGURATION = Path(__file__).parents[1] / "docs" / "examples" / "babs.yaml"
RUNNER = """\
#!/bin/bash
# singularity run [options] IMAGE arguments
while [[ $1 != */image ]]; do shift; done
exec {python} -m fcpower_bids "${{@:2}}"
"""


def say(words: list[object], environment: dict[str, str], folder: Path) -> str:
    """Run a command and return what it says; end where it fails."""
    done = subprocess.run(
        list(map(str, words)), env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def datalad_dataset(folder: Path, source: Path, environment: dict[str, str]) -> None:
    say(["datalad", "create", "-c", "text2git", folder], environment, folder.parent)
    shutil.copytree(source, folder, dirs_exist_ok=True)
    say(["datalad", "save", "-m", "files"], environment, folder)


def configure(folder: Path, choices: argparse.Namespace) -> Path:
    """The example with the places of this machine."""
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    (inputs,) = configuration["input_datasets"].values()
    inputs["origin_url"] = str(folder / "fmriprep")
    if choices.zipped:
        inputs |= {"is_zipped": True, "unzipped_path_containing_subject_dirs": "fmriprep"}
        inputs.pop("required_files")
    configuration["bids_app_args"]["--atlas"] = "builtin"
    tools = Path(shutil.which("datalad") or "").parent
    configuration["script_preamble"] = f"export PATH={folder / 'bin'}:{tools}:$PATH HOME={folder / 'home'}\n"
    configuration["job_compute_space"] = str(folder / "space")
    configuration["cluster_resources"]["hard_memory_limit"] = "1M"
    path = folder / "babs.yaml"
    path.write_text(yaml.safe_dump(configuration))
    return path


def prepare(folder: Path, environment: dict[str, str], zipped: bool) -> None:
    """Demo, its fMRIPrep outputs as a dataset, the image that is none, and what starts the program."""
    make_dataset(folder / "bids", DemoDesign.tiny(subjects=2, troubles=False))
    (folder / "home").mkdir()
    for key, value in (("user.name", "nobody"), ("user.email", "nobody@localhost")):
        say(["git", "config", "--global", key, value], environment, folder)
    source = folder / "bids" / "derivatives" / "fmriprep"
    if zipped:
        packed = folder / "packed"
        packed.mkdir()
        for person in sorted(source.glob("sub-*")):
            (folder / "one" / "fmriprep").mkdir(parents=True)
            shutil.copytree(person, folder / "one" / "fmriprep" / person.name)
            shutil.copy(source / "dataset_description.json", folder / "one" / "fmriprep")
            say(["7z", "a", packed / f"{person.name}_fmriprep-25-1-4.zip", "fmriprep"], environment, folder / "one")
            shutil.rmtree(folder / "one")
        source = packed
    datalad_dataset(folder / "fmriprep", source, environment)
    (folder / "image.sif").write_text("none")
    say(["datalad", "create", folder / "images"], environment, folder)
    words = ["datalad", "containers-add", "fcpower-0-1-0", "--url", folder / "image.sif"]
    say(words, environment, folder / "images")
    (folder / "bin").mkdir()
    (folder / "space").mkdir()
    runner = folder / "bin" / "singularity"
    runner.write_text(RUNNER.format(python=sys.executable))
    runner.chmod(0o755)


def by_babs(folder: Path, environment: dict[str, str], level: str, configuration: Path) -> Path:
    """Set up, submit, wait, merge; return a clone that has the zips."""
    words = [
        "babs",
        "init",
        "--container_ds",
        folder / "images",
        "--container_name",
        "fcpower-0-1-0",
        "--queue",
        "slurm",
    ]
    words += ["--container_config", configuration, "--processing_level", level, folder / "project"]
    say(words, environment, folder)
    say(["babs", "check-setup", folder / "project"], environment, folder)
    say(["babs", "submit", folder / "project"], environment, folder)
    while subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True).stdout.strip():
        time.sleep(1)
    told = say(["babs", "status", folder / "project"], environment, folder)
    print(told[told.find("Job status") :].strip())
    if "failed" in told:
        logs = sorted((folder / "project" / "analysis" / "logs").glob("*"))
        sys.exit("\n".join(f"{log.name}\n{log.read_text()[-3000:]}" for log in logs if log.is_file()))
    say(["babs", "merge", folder / "project"], environment, folder)
    say(["datalad", "clone", f"ria+file://{folder}/project/output_ria#~data", folder / "merged"], environment, folder)
    say(["datalad", "get", "."], environment, folder / "merged")
    return folder / "merged"


def compare(ours: Path, theirs: Path) -> tuple[int, int]:
    """Tables of participants, and the states of all recordings: how many are the same, and of how many."""
    tables = sorted(path.relative_to(theirs) for path in theirs.glob("sub-*/**/*.tsv"))
    same = [(ours / path).is_file() and (ours / path).read_bytes() == (theirs / path).read_bytes() for path in tables]
    for path in (path for path, equal in zip(tables, same, strict=True) if not equal):
        print(f"different: {path}" if (ours / path).is_file() else f"missing: {path}")
    states = [
        [line.split("\t")[:3] for line in (folder / "logs" / "status.tsv").read_text().splitlines()]
        for folder in (ours, theirs)
    ]
    return sum(same) + (states[0] == states[1]), len(tables) + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--session", action="store_true")
    parser.add_argument("--zipped", action="store_true")
    choices = parser.parse_args()
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"SKIPPED BABS: {', '.join(missing) + ' not found' if missing else 'needs root'}.")
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name, cluster(folder := Path(name)) as environment:
        environment["HOME"] = str(folder / "home")
        prepare(folder, environment, choices.zipped)
        configuration = configure(folder, choices)
        merged = by_babs(folder, environment, "session" if choices.session else "subject", configuration)
        program = [sys.executable, "-m", "fcpower_bids"]
        print(say([*program, "combine", folder / "combined", merged], environment, folder).strip())
        bare = {key: value for key, value in environment.items() if not key.startswith("OPENBLAS")}  # as jobs have it
        say([*program, folder / "bids", folder / "alone", "participant", "--atlas", "builtin"], bare, folder)
        same, of = compare(folder / "combined", folder / "alone")
        say(["chmod", "-R", "u+w", folder], environment, folder)  # git-annex takes the right to write away
    print(f"{same} of {of} tables of participants, and the states, are those of a run without BABS")
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if same == of else 1


if __name__ == "__main__":
    sys.exit(main())
