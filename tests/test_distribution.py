"""Sdist and wheel as people install them: all files, and both levels without extras."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset

ROOT = Path(__file__).resolve().parents[1]
OF_TORCH = ("torch", "lightning", "pytorch_lightning", "torchmetrics", "functorch", "torchgen")
LEFT_OUT = (*OF_TORCH, "safetensors", "huggingface_hub", "hf_xet", "h5py", "fcpower_bids", "__editable__")


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


@pytest.fixture(scope="module")
def without_torch(wheel, tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheel and everything but the packages of extras."""
    folder = tmp_path_factory.mktemp("without_torch")
    venv.create(folder, symlinks=True)
    site = folder / "site"
    site.mkdir()
    for path in {Path(p) for p in sys.path if p.endswith("-packages")}:
        for entry in path.iterdir():
            if not entry.name.startswith(LEFT_OUT) and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)
    python = folder / "bin" / "python"
    there = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (there / "site.pth").write_text(str(site))
    return python


def run(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), "-m", "fcpower_bids", *map(str, arguments)]
    return subprocess.run(command, cwd=python.parents[1], env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_every_file_that_is_not_code(wheel):
    with zipfile.ZipFile(wheel) as opened:
        there = set(opened.namelist())
    data = {path for path in (ROOT / "fcpower_bids" / "data").rglob("*") if path.is_file()}
    data |= {path for path in (ROOT / "fcpower_bids" / "data" / "boilerplate").iterdir() if path.is_file()}
    expected = {path.relative_to(ROOT).as_posix() for path in data} | {"fcpower_bids/py.typed"}
    assert expected <= there
    assert not {name for name in there if name.startswith(("tests", "benchmarks"))}


def test_participant_and_group_level_run_without_torch(without_torch, tmp_path):
    make_dataset(tmp_path / "bids", DemoDesign.tiny(subjects=2, sessions=2))
    torch = subprocess.run([without_torch, "-c", "import torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in torch.stderr
    done = run(without_torch, tmp_path / "bids", tmp_path / "out", "participant", "--atlas", "builtin", "--quiet")
    assert done.returncode == 0, done.stderr
    done = run(without_torch, tmp_path / "bids", tmp_path / "out", "group", "--analyses", "fingerprinting", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "group.html").is_file()
    asked = run(without_torch, tmp_path / "bids", tmp_path / "out", "pretrain")
    assert asked.returncode == 2
    with h5py.File(tmp_path / "fc.mat", "w", userblock_size=512) as file:
        file["fc"] = np.eye(3)
    (tmp_path / "list.tsv").write_text("participant_id\tpath\tkind\nsub-01\tfc.mat\tmatrix\n")
    source = ("-d", f"list={tmp_path / 'list.tsv'}", "--analyses", "qc_fc")
    matlab = run(without_torch, tmp_path, tmp_path / "m", "group", *source)
    assert matlab.returncode == 3
    assert "fc.mat is HDF5 and needs h5py: pip install" in matlab.stderr
    assert "needs torch, safetensors, huggingface_hub, lightning. Install it: pip install" in asked.stderr
