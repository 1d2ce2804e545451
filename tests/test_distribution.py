"""What is shipped: wheel and image, scripts of clusters, strange folders and users without a home."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from tests.running import PATIENCE, PLAIN, contents

ROOT = Path(__file__).resolve().parents[1]
OF_TORCH = ("torch", "lightning", "pytorch_lightning", "torchmetrics", "functorch", "torchgen")
LEFT_OUT = (*OF_TORCH, "safetensors", "huggingface_hub", "hf_xet", "fcpower_bids", "__editable__")


def build(source: Path, what: str, folder: Path) -> None:
    """Let the backend of pyproject.toml make an sdist or a wheel."""
    made = f"import sys; from setuptools import build_meta as b; b.build_{what}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", made, str(folder)], cwd=source, capture_output=True, check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel that is made from the sdist, and that from a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("the tests do not run in a git checkout, so the files of the package are not known")
    source = folder / "source"
    for name in filter(None, listed.stdout.split("\0")):
        origin, copy = ROOT / name, source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            copy.symlink_to(origin.readlink())
        elif origin.is_file():
            copy.write_bytes(origin.read_bytes())
    build(source, "sdist", folder)
    (archive,) = folder.glob("*.tar.gz")
    subprocess.run([sys.executable, "-m", "tarfile", "-e", archive, folder], check=True)
    build(folder / archive.name.removesuffix(".tar.gz"), "wheel", folder)
    (built,) = folder.glob("*.whl")
    return built


def run_wheel(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return run([python, "-m", "fcpower_bids"], *arguments, cwd=python.parents[1], env=environment)


def test_the_wheel_holds_every_file_that_is_not_code(wheel):
    with zipfile.ZipFile(wheel) as opened:
        there = set(opened.namelist())
    data = {path for path in (ROOT / "fcpower_bids" / "data").rglob("*") if path.is_file()}
    expected = {path.relative_to(ROOT).as_posix() for path in data} | {"fcpower_bids/py.typed"}
    assert expected <= there
    assert not {name for name in there if name.startswith(("tests", "benchmarks"))}


def test_participant_and_group_level_run_without_torch(wheel, tmp_path):
    """In an environment with the wheel and everything but the packages of extras."""
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    site = environment / "site"
    site.mkdir()
    for path in {Path(p) for p in sys.path if p.endswith("-packages")}:
        for entry in path.iterdir():
            if not entry.name.startswith(LEFT_OUT) and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)
    python = environment / "bin" / "python"
    there = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    (there / "site.pth").write_text(str(site))
    make_dataset(tmp_path / "bids", DemoDesign.tiny(subjects=2, sessions=2))
    torch = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in torch.stderr
    done = run_wheel(python, tmp_path / "bids", tmp_path / "out", "participant", "--atlas", "builtin", "--quiet")
    assert done.returncode == 0, done.stderr
    done = run_wheel(python, tmp_path / "bids", tmp_path / "out", "group", "--analyses", "fingerprinting", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "group.html").is_file()
    asked = run_wheel(python, tmp_path / "bids", tmp_path / "out", "pretrain")
    assert asked.returncode == 2
    (tmp_path / "fc.mat").write_bytes(bytes(512) + b"\x89HDF\r\n\x1a\n")
    (tmp_path / "list.tsv").write_text("participant_id\tpath\tkind\nsub-01\tfc.mat\tmatrix\n")
    source = ("-d", f"list={tmp_path / 'list.tsv'}", "--analyses", "qc_fc")
    matlab = run_wheel(python, tmp_path, tmp_path / "m", "group", *source)
    assert matlab.returncode == 3
    assert "fc.mat is a MATLAB file of version 7.3: save it with" in matlab.stderr
    assert "needs torch, safetensors, huggingface_hub, lightning. Install it: pip install" in asked.stderr


HOSTILE = (
    *("grp", "pwd", "json", "numpy", "pandas", "random", "multiprocessing", "nipype", "joblib", "signal", "socket"),
    *("fcpower_bids", "sitecustomize", "matplotlib", "nibabel", "isal", "logging", "pickle", "struct", "tempfile"),
)
CODE = "from pathlib import Path\n(Path(__file__).parent / 'executed').open('a').write(__name__ + ' ')\n"
SCRIPT = [sys.executable, "-P", "-c", "from fcpower_bids.app import entry_point; entry_point()"]
"""What the console script does: its own folder comes first among the places to import from, not the current one."""
MODULE = [sys.executable, "-m", "fcpower_bids"]
STRANGER = 54321
"""A number of a user without a name."""


def run(command, *arguments, **more):
    more["env"] = {name: value for name, value in more.get("env", os.environ).items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=PATIENCE, **more
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot start a command without the current folder")
@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_modules_in_the_current_folder_are_not_executed(exact_demo, tmp_path, command):
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in HOSTILE:
        # Python itself looks for the package of -m in the current folder, before any code of ours.
        if command is SCRIPT or name not in ("fcpower_bids", "sitecustomize"):
            (trap / f"{name}.py").write_text(CODE)
    proof = run([sys.executable, "-c", "import grp, nipype"], cwd=trap)
    assert (proof.returncode, (trap / "executed").exists()) == (0, True), "the trap works"
    (trap / "executed").unlink()
    options = (exact_demo[0], tmp_path / "out", "participant", "--participant-label", "01")
    options += ("--atlas", "builtin", "--nprocs", 2)
    done = run(command, *options, cwd=trap)
    executed = (trap / "executed").read_text() if (trap / "executed").exists() else ""
    assert (done.returncode, executed) == (0, ""), done.stderr
    assert [path.name for path in (tmp_path / "out").glob("sub-*.html")] == ["sub-01.html"]


def results(output):
    """All but what is compressed: the other interpreter may have another zlib."""
    return {name: what for name, what in contents(output).items() if not name.endswith((".npz", ".gz"))}


AS_STRANGER = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")


def python_for_strangers() -> str | None:
    """An interpreter of this version that any user may start and that finds what this one finds."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    places = [sys.executable, shutil.which(f"python{sys.version_info[0]}.{sys.version_info[1]}", path="/usr/bin")]
    for place in filter(None, places):
        # Started by a shell: what setpriv starts itself still has the rights of root to reach its program.
        words = [*AS_STRANGER, "sh", "-c", f"{place} -c 'import fcpower_bids, numpy'"]
        if run(words, cwd="/", env=BARE).returncode == 0:
            return place
    return None


BARE = {
    name: os.environ[name] for name in os.environ if name == "PATH" or name.startswith(("OMP_", "OPENBLAS_", "NPY_"))
}
BARE |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_user_without_name_and_home_gets_the_same_and_leaves_nothing(exact_demo, exact_run, request):
    python = python_for_strangers()
    if python is None:
        pytest.skip("needs root, setpriv, and an interpreter and a checkout that everybody may read")
    open_folder = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own may not be entered by everybody
    request.addfinalizer(lambda: shutil.rmtree(open_folder))
    open_folder.chmod(0o777)
    bids = shutil.copytree(exact_demo[0], open_folder / "in")
    for path in [*bids.rglob("*"), bids]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = contents(bids)
    options = ("participant", "--participant-label", "01", "--atlas", "builtin")
    options += (*PLAIN, "--transforms", "power", "fisher_z")
    here = open_folder / "here"
    here.mkdir()
    here.chmod(0o777)
    command = [*AS_STRANGER, python, "-m", "fcpower_bids"]
    alone = run(command, bids, open_folder / "out", *options, cwd=here, env=BARE)
    assert alone.returncode == 0, alone.stderr
    assert list(here.iterdir()) == []
    assert contents(bids) == before
    assert results(open_folder / "out" / "sub-01") == results(exact_run.output / "sub-01")


def ready_program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
    (folder / name).chmod(0o755)


def named(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0].lower().replace("_", "-")


def test_the_lock_of_the_image_has_all_that_is_asked_for_in_the_pinned_versions_with_hashes():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    asked = "".join([setup["options"]["install_requires"], *(extras[name] for name in ("encoder", "cluster"))])
    entries = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    locked = {named(entry): entry.split()[0].partition("==")[2] for entry in entries}
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    wanted = {named(line) for line in asked.split("\n") if line and 'python_version < "3.11"' not in line}
    assert wanted - set(locked) == {"torch"}
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    for pin in pins:
        name, version = named(pin), pin.partition("==")[2].partition(";")[0].strip()
        assert locked.get(name, version) == version or 'python_version < "3.11"' in pin, name


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


def test_the_array_has_a_job_per_participant_who_sees_two_folders_and_the_group_waits_for_it(cluster):
    start_array(cluster)
    assert len((cluster / "sbatch.txt").read_text().splitlines()) == 1, "no group level unless it is asked for"
    done = start_array(cluster, GROUP="--targets age", SBATCH="--account=lab")
    assert done.returncode == 0, done.stderr
    _, first, second = (cluster / "sbatch.txt").read_text().splitlines()
    assert "--account=lab --array 1-3%50" in first
    assert first.endswith(f"{cluster}/bids {cluster}/out {cluster}/app.sif --atlas builtin")
    assert "--dependency afterany:77" in second
    assert "--account=lab --cpus-per-task=8 --mem=16G" in second
    start_array(cluster, GROUP="--targets age", GROUP_SBATCH="--mem=64G --partition=large")
    last = (cluster / "sbatch.txt").read_text().splitlines()[-1]
    assert "--mem=64G --partition=large --dependency" in last
    assert "--mem=16G" not in last
    start_array(cluster, SLURM_JOB_ID="5", SLURM_ARRAY_TASK_ID="2", SLURM_CPUS_PER_TASK="2")
    (call,) = (cluster / "apptainer.txt").read_text().splitlines()
    assert call == (
        f"run --cleanenv --containall --env FCPOWER_OFFLINE=1 -B {cluster}/bids:/data:ro -B {cluster}/out:/out "
        f"{cluster}/app.sif /data /out participant --participant-label sub-02 --nprocs 2 --atlas builtin"
    )
