"""The files that images are made of, their scripts and the examples for clusters; building them is a stage of CI."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SCRIPTS = sorted(
    [*(ROOT / "scripts").glob("*.sh"), *(ROOT / "docs" / "examples").glob("*.sh"), ROOT / ".ci" / "containers"]
)
FINAL = DOCKERFILE.rpartition("\nFROM ")[2]


def script_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_what_is_copied_is_there_and_not_ignored():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*", "nothing gets into the image that is not named"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = re.search(r"^COPY (?!--from)(?!\.)(.+) \./$", DOCKERFILE, re.M)
    assert copied
    assert set(copied[1].split()) <= allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_links_in_the_package_lead_to_what_is_copied():
    allowed = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.M))
    links = [path for path in (ROOT / "fcpower_bids").rglob("*") if path.is_symlink()]
    assert {link.resolve().relative_to(ROOT).parts[0] for link in links} <= allowed


def test_every_dependency_has_a_pin():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "constraints.txt").read_text(), re.M)
    pinned = {name.lower().replace("_", "-") for name in pins}
    needed = re.findall(r"^([A-Za-z0-9_.-]+)(?![^;\n]*;.*python_version)", setup["options"]["install_requires"], re.M)
    assert {name.lower().replace("_", "-") for name in needed} <= pinned


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


def test_no_address_but_the_index_of_pytorch():
    for path in [ROOT / "Dockerfile", ROOT / "singularity.def", *SCRIPTS]:
        for host in re.findall(r"https?://([^/\s\"']+)", path.read_text(encoding="utf-8")):
            assert host == "download.pytorch.org", f"{path}: {host}"


# ---------------------------------------------------------------------------------------------------------- scripts


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_read_by_bash(path):
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize(("user", "reason"), [("1000", "it needs root"), ("0", "run 'make install' first")])
def test_the_stage_is_skipped_with_a_reason_where_it_cannot_run(tmp_path, user, reason):
    ready_program(tmp_path, "id", f"echo {user}")
    ready_program(tmp_path, "apt-get", "exit 1")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "/no/python", "WORK": str(tmp_path / "work")}
    stage = str(ROOT / ".ci" / "containers")
    done = subprocess.run([stage], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("SKIPPED container stage")
    assert reason in done.stdout
    assert not (tmp_path / "work").exists()


@pytest.fixture
def outputs(tmp_path):
    """Two equal output folders."""
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "logs" / "status").mkdir(parents=True)
        (folder / "sub-01.tsv").write_text("a\tb\n1\t2\n")
        (folder / "logs" / "settings_group_x.toml").write_text(f'output_dir = "/{name}"\n')
        (folder / "logs" / "status" / "x.json").write_text(f'{{"seconds": {len(name)}.5, "peak_mb": {len(name)}}}')
        (folder / "logs" / "status.tsv").write_text(f"recording\tseconds\tpeak_mb\nx\t0.{len(name)}\t{len(name)}\n")
    (tmp_path / "two" / "logs" / "status" / "x.json").write_text('{"seconds": 7.5, "peak_mb": 1e3}')
    return tmp_path / "one", tmp_path / "two"


def test_paths_of_mounts_and_times_are_explained(outputs, capsys):
    assert script_module("compare_outputs").main(*outputs, [("/one", "/two")]) == 0
    told = capsys.readouterr().out
    assert "1 files: only the paths of the mounts differ" in told
    assert "1 files: only computing time and memory differ" in told


@pytest.mark.parametrize("change", ["other number", "missing", "more", "no path given"])
def test_every_other_difference_is_a_failure(outputs, change, capsys):
    one, two = outputs
    if change == "other number":
        (two / "sub-01.tsv").write_text("a\tb\n1\t2.0000001\n")
    elif change == "missing":
        (two / "sub-01.tsv").unlink()
    elif change == "more":
        (two / "sub-02.tsv").touch()
    pairs = [] if change == "no path given" else [("/one", "/two")]
    assert script_module("compare_outputs").main(one, two, pairs) == 1
    assert re.search(r"differs without a reason|missing|not expected", capsys.readouterr().out)


def test_archives_are_compared_by_what_they_hold(tmp_path):
    import zipfile

    def archive(folder, year, number):
        (tmp_path / folder).mkdir()
        with zipfile.ZipFile(tmp_path / folder / "x.npz", "w") as opened:
            opened.writestr(zipfile.ZipInfo("x.npy", (year, 1, 1, 0, 0, 0)), bytes([number]))
        return tmp_path / folder

    one, later, other = archive("one", 2020, 1), archive("later", 2021, 1), archive("other", 2020, 2)
    main = script_module("compare_outputs").main
    assert main(one, later, []) == 0
    assert main(one, other, []) == 1


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


@pytest.mark.parametrize(
    ("largest", "array", "per_job"), [("MaxArraySize            = 3", "1-2%", "2"), ("", "1-3%", "1")]
)
def test_an_array_is_never_larger_than_the_cluster_allows(cluster, largest, array, per_job):
    ready_program(cluster / "bin", "scontrol", f"echo 'MaxJobCount = 9'; echo '{largest}'")
    ready_program(cluster / "bin", "sbatch", f'echo "$PER_JOB $@" >> {cluster}/sbatch.txt; echo 77')
    done = start_array(cluster)
    assert f"3 participants, {per_job} per job" in done.stdout
    (call,) = (cluster / "sbatch.txt").read_text().splitlines()
    assert call.startswith(f"{per_job} ")
    assert f"--array {array}" in call


def test_an_installed_program_takes_the_place_of_the_image(cluster):
    ready_program(cluster / "bin", "fcpower_bids", f'echo "$@" >> {cluster}/direct.txt')
    start_array(cluster, "bin/fcpower_bids")
    start_array(cluster, "bin/fcpower_bids", SLURM_JOB_ID="5", SLURM_ARRAY_TASK_ID="3")
    assert (cluster / "direct.txt").read_text() == (
        f"{cluster}/bids {cluster}/out participant --participant-label sub-03 --nprocs 1 --atlas builtin\n"
    )
    assert not (cluster / "apptainer.txt").exists()


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


def test_a_dataset_without_participants_is_told(cluster):
    shutil.rmtree(cluster / "bids" / "derivatives" / "fmriprep")
    done = start_array(cluster)
    assert done.returncode == 3
    assert "no sub-* folder" in done.stderr
    assert not (cluster / "sbatch.txt").exists()


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
