"""The files that images are made of, their scripts and the examples for clusters; building them is a stage of CI."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FINAL = DOCKERFILE.rpartition("\nFROM ")[2]


def ready_program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
    (folder / name).chmod(0o755)


# ------------------------------------------------------------------------------------------------------- Dockerfile


def test_the_final_stage_has_no_root_and_starts_the_program_itself():
    assert FINAL.startswith("python AS final")
    assert re.search(r"^USER 1000:1000$", FINAL, re.M)
    assert re.search(r'^ENTRYPOINT \["/opt/fcpower/bin/fcpower_bids"\]$', FINAL, re.M)
    assert "a-s" in FINAL, "no program keeps its set-user-id bit"


def named(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0].lower().replace("_", "-")


def test_the_lock_of_the_image_has_all_that_is_asked_for_in_the_pinned_versions_with_hashes():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    asked = "".join(
        [setup["options"]["install_requires"], *(extras[name] for name in ("encoder", "cluster", "matlab"))]
    )
    entries = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    locked = {named(entry): entry.split()[0].partition("==")[2] for entry in entries}
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert {named(line) for line in asked.split("\n") if line and 'python_version < "3.11"' not in line} - set(
        locked
    ) == {"torch"}
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    for pin in pins:
        name, version = named(pin), pin.partition("==")[2].partition(";")[0].strip()
        assert locked.get(name, version) == version or 'python_version < "3.11"' in pin, name


# ---------------------------------------------------------------------------------------------------------- scripts


# --------------------------------------------------------------------------------------------------------- examples


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A dataset and programs that write down how they were called."""
    for label in ("01", "02", "03"):
        (tmp_path / "bids" / "derivatives" / "fmriprep" / f"sub-{label}").mkdir(parents=True)
    (tmp_path / "app.sif").touch()
    ready_program(tmp_path / "bin", "sbatch", f'echo "$@" >> {tmp_path}/sbatch.txt; echo 77')
    ready_program(tmp_path / "bin", "apptainer", f'echo "$@" >> {tmp_path}/apptainer.txt')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    names = ("SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE", "TEMPLATEFLOW_HOME")
    for name in (*names, "GROUP", "SBATCH", "GROUP_SBATCH", "AT_A_TIME", "PER_JOB"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def start_array(cluster: Path, program: str = "app.sif", **variables: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "docs" / "examples" / "slurm_array.sh")
    command = ["bash", script, *(f"{cluster}/{name}" for name in ("bids", "out", program)), "--atlas", "builtin"]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


def test_the_array_has_a_job_per_participant_and_the_group_waits_for_it(cluster):
    done = start_array(cluster, GROUP="--targets age", SBATCH="--account=lab")
    assert done.returncode == 0, done.stderr
    first, second = (cluster / "sbatch.txt").read_text().splitlines()
    assert "--account=lab --array 1-3%50" in first
    assert first.endswith(f"{cluster}/bids {cluster}/out {cluster}/app.sif --atlas builtin")
    assert "--dependency afterany:77" in second
    assert "--account=lab --cpus-per-task=8 --mem=16G" in second
    start_array(cluster, GROUP="--targets age", GROUP_SBATCH="--mem=64G --partition=large")
    last = (cluster / "sbatch.txt").read_text().splitlines()[-1]
    assert "--mem=64G --partition=large --dependency" in last
    assert "--mem=16G" not in last


def test_each_job_takes_its_participant_and_sees_two_folders(cluster):
    start_array(cluster)
    assert len((cluster / "sbatch.txt").read_text().splitlines()) == 1, "no group level unless it is asked for"
    start_array(cluster, SLURM_JOB_ID="5", SLURM_ARRAY_TASK_ID="2", SLURM_CPUS_PER_TASK="2")
    (call,) = (cluster / "apptainer.txt").read_text().splitlines()
    assert call == (
        f"run --cleanenv --containall --env FCPOWER_OFFLINE=1 -B {cluster}/bids:/data:ro -B {cluster}/out:/out "
        f"{cluster}/app.sif /data /out participant --participant-label sub-02 --nprocs 2 --atlas builtin"
    )


def test_the_job_after_the_array_runs_the_group_level(cluster):
    given = {"SLURM_CPUS_PER_TASK": "8", "SLURM_MEM_PER_NODE": "16384"}
    start_array(cluster, SLURM_JOB_ID="6", GROUP="--targets age", TEMPLATEFLOW_HOME="/flow", **given)
    (call,) = (cluster / "apptainer.txt").read_text().splitlines()
    image = f"-B /flow:/opt/templateflow:ro {cluster}/app.sif"
    assert call.endswith(f"{image} /data /out group --nprocs 8 --mem-mb 16384 --targets age")


def double(x):
    return 2 * x


def test_the_plugin_of_the_example_runs_every_step_as_a_job(tmp_path, monkeypatch):
    """``sbatch`` that does at once what it is told, and ``squeue`` that knows no job."""
    from nipype import Function, Node, Workflow

    from fcpower_bids.workflows.recording import configure_nipype, make_runner

    ready_program(
        tmp_path / "bin",
        "sbatch",
        f'echo "$@" >> {tmp_path}/sbatch.txt; for script; do :; done; bash "$script" >/dev/null 2>&1 </dev/null; '
        'echo "Submitted batch job 7"',
    )
    ready_program(tmp_path / "bin", "squeue", "echo JOBID")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("LOGNAME", "somebody")  # nipype names the jobs with it
    monkeypatch.setattr("fcpower_bids.workflows.recording.CLUSTER_POLL_SECONDS", 0.01)
    (tmp_path / "out").mkdir()
    example = ROOT / "docs" / "examples" / "slurm_plugin.yml"
    configure_nipype(tmp_path / "out" / "crashes", debug=False)
    runner = make_runner(example)
    assert (type(runner).__name__, runner.plugin_args["max_jobs"]) == ("SLURMPlugin", 100)
    step = Function(function=double, input_names=["x"], output_names=["y"])
    step.inputs.x = 21
    workflow = Workflow("example", base_dir=str(tmp_path))
    workflow.add_nodes([Node(step, name="double")])
    runner._retry_timeout = 0
    graph = workflow.run(plugin=runner)
    assert next(iter(graph.nodes)).result.outputs.y == 42
    assert "--mem=4G" in (tmp_path / "sbatch.txt").read_text()
