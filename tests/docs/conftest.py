"""One small study for all tests of the documentation: every level has run on it, with every kind of output."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from pathlib import Path

import nibabel
import numpy as np
import pytest

from fcpower_bids.cli.run import main
from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.imaging.atlas.builtin import builtin_atlas
from fcpower_bids.transforms import TRANSFORMS

SPACE = "MNI152NLin2009cAsym"
COARSE = "atlas-coarse_scale-30"
DESIGN = DemoDesign(subjects=6, volumes=90, troubles=False)
QUICK = ("--quiet", "--nprocs", "1", "--folds", "3", "--inner-folds", "2", "--repeats", "1")
TINY = ("--architecture", "d=16", "layers=1", "heads=2", "--steps", "2", "--checkpoint-every", "1", "--window", "20")
PRETRAIN = (
    *("--atlas", "builtin", *TINY, "--batch-size", "8", "--warmup", "1", "--accelerator", "cpu", "--quiet"),
    "--accept-unproven",
)
ANALYSE = (
    *(
        "--targets",
        "planted_score",
        "--composite",
        "g=reasoning,memory",
        "--family-column",
        "family_id",
        "--site-column",
        "site",
    ),
    *("--representations", "fc", "fc_power", "embedding", "--permutations", "2", "--analyses", "all"),
    *("--scan-minutes", "1.5"),
)
PLANTED = "zqj-doe"
"""Name of user, home and host while the study was made."""
MODEL = "group/models/target-planted-score-fc-power_model"


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Path:
    """Folder with ``bids``, ``out``, ``one_session`` and an atlas; nobody writes into it.

    The processes of a parallel test run share it.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / "documented"
    with (base / "documented.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "finished").exists():
            with pytest.MonkeyPatch.context() as patch:
                for variable, planted in {"HOME": str(folder / PLANTED), "LOGNAME": PLANTED, "USER": PLANTED}.items():
                    patch.setenv(variable, planted)
                patch.setattr(socket, "gethostname", lambda: PLANTED)
                _make(folder)
            (folder / "finished").touch()
    return folder


def _make(folder: Path) -> None:
    make_dataset(folder / "bids", DESIGN)
    own_atlas = make_coarse_atlas(folder)
    stateless = [name for name in TRANSFORMS if TRANSFORMS[name].stateless]
    transforms = ("--transforms", *stateless, "--eigenvalue-floor", "0.001", "--write-graph", "--resource-monitor")
    encoder = ("--encoder", "random-init", "--allow-missing-parcels")
    run(folder, "participant", "--atlas", "builtin", own_atlas, *transforms, *encoder, "--nprocs", "1", "--quiet")
    run(folder, "pretrain", *PRETRAIN)
    run(folder, "group", "--atlas", "builtin", COARSE, *ANALYSE, "--save-models", "--accept-no-skill", *QUICK)
    copy_outputs(folder / "out", folder / "one_session")
    run(
        folder,
        "group",
        "--session-label",
        "a",
        "--analyses",
        "all",
        "--save-models",
        "--accept-no-skill",
        *QUICK,
        out="one_session",
    )
    assert main(["predict", str(folder / "one_session" / MODEL), str(folder / "one_session"), "--accept-no-skill"]) == 0


def run(folder: Path, *options: str, out: str = "out") -> None:
    arguments = [str(folder / "bids"), str(folder / out), *options]
    assert main(arguments) == 0, arguments


def make_coarse_atlas(folder: Path) -> str:
    """A second parcellation, pairs of the built-in one merged, as FILE:TSV."""
    fine = builtin_atlas(SPACE, folder / "atlas")
    image = nibabel.load(fine.image)
    labels = (np.asarray(image.dataobj, dtype=np.int16) + 1) // 2
    path = folder / f"tpl-{SPACE}_{COARSE}_dseg.nii.gz"
    nibabel.save(nibabel.Nifti1Image(labels, image.affine), path)
    rows = [f"{number}\tparcel{number:02d}\t{fine.networks[2 * number - 1]}" for number in range(1, 31)]
    (folder / "coarse.tsv").write_text("\n".join(["index\tname\tnetwork", *rows]) + "\n")
    return f"{path}:{folder / 'coarse.tsv'}"


def copy_outputs(source: Path, target: Path, *without: str, coarse: bool = False) -> None:
    """Copy what the participant level and pretraining left, of the second atlas only when it is asked for.

    Files are replaced and never changed, so links will do.
    """
    others = ["work", "group*", *without, *([] if coarse else [f"*_{COARSE}_*"])]
    shutil.copytree(source, target, copy_function=os.link, ignore=shutil.ignore_patterns(*others))
