"""Nothing that lies about is executed, and neither a home nor a name is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.running import PATIENCE, PLAIN, contents

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


@pytest.fixture
def open_folder():
    """A folder that everybody may enter and write to; pytest's own is closed."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


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


def test_a_user_without_name_and_home_gets_the_same_and_leaves_nothing(exact_demo, exact_run, open_folder):
    python = python_for_strangers()
    if python is None:
        pytest.skip("needs root, setpriv, and an interpreter and a checkout that everybody may read")
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
