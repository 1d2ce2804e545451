"""Faulty trees and requests, each fault one function: what ``--dry-run`` says of them must be what a run does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nibabel
import numpy as np

MNI = "space-MNI152NLin2009cAsym"
T, TR = 80, 2.0
GRID = (4, 4, 4)
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
EXPANSIONS = ("", "_derivative1", "_power2", "_derivative1_power2")
COLUMNS = (
    *(f"{name}{more}" for name in (*MOTION, "csf", "white_matter", "global_signal") for more in EXPANSIONS),
    *("framewise_displacement", "dvars", "w_comp_cor_00", "w_comp_cor_01", "c_comp_cor_00", "c_comp_cor_01"),
)
BAND = ("--high-pass", "0.01", "--low-pass", "0.2")


@dataclass
class Tree:
    """A dataset of two participants with one recording each; faults concern the first."""

    base: Path
    options: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root, self.out = self.base / "in", self.base / "out"
        self.root.mkdir(parents=True)
        self.write("dataset_description.json", {"Name": "x", "BIDSVersion": "1.6.0", "DatasetType": "derivative"})
        self.atlas = self.base / "tpl-MNI152NLin2009cAsym_atlas-Six_dseg.nii.gz"
        labels = np.zeros(GRID, np.uint8)
        labels[:, :, :3] = np.arange(1, 7).repeat(8).reshape(4, 4, 3)
        save(self.atlas, labels)
        self.table = self.base / "tpl-MNI152NLin2009cAsym_atlas-Six_dseg.tsv"
        self.table.write_text("index\tname\n" + "".join(f"{n}\tparcel{n}\n" for n in range(1, 7)))
        for label in ("01", "02"):
            self.add(f"sub-{label}_task-rest")

    def write(self, name: str, content: dict | str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def add(self, run: str, grid: str = MNI, volumes: int = T, seed: int = 0) -> None:
        folder = Path(run.split("_")[0], "func")
        rng = np.random.default_rng([seed, *run.encode()])
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        stem = self.root / folder / f"{run}_{grid}"
        save(Path(f"{stem}_desc-preproc_bold.nii.gz"), rng.normal(1000, 10, (*GRID, volumes)).astype(np.float32))
        save(Path(f"{stem}_desc-brain_mask.nii.gz"), np.ones(GRID, np.uint8))
        self.write(f"{folder}/{run}_{grid}_desc-preproc_bold.json", {"RepetitionTime": TR})
        values = rng.normal(0, 0.01, (volumes, len(COLUMNS)))
        values[:, COLUMNS.index("framewise_displacement")] = np.abs(values[:, 0])
        values[:, COLUMNS.index("dvars")] = 20
        rows = ["\t".join(f"{value:.6f}" for value in row) for row in values]
        rows[0] = "\t".join("n/a" if "deriv" in name or "frame" in name else "0.0" for name in COLUMNS)
        self.write(f"{folder}/{run}_desc-confounds_timeseries.tsv", "\n".join(["\t".join(COLUMNS), *rows]) + "\n")

    @property
    def folder(self) -> Path:
        return self.root / "sub-01" / "func"

    def file(self, ending: str) -> Path:
        (found,) = self.folder.glob(f"sub-01_task-rest*{ending}")
        return found

    @property
    def bold(self) -> Path:
        return self.file("_bold.nii.gz")

    @property
    def mask(self) -> Path:
        return self.file("_mask.nii.gz")

    @property
    def confounds(self) -> Path:
        return self.file("_timeseries.tsv")

    @property
    def sidecar(self) -> Path:
        return self.file("_bold.json")

    def cells(self, change: Callable[[list[list[str]]], object]) -> None:
        """Change the table of confounds as rows of cells, the header first."""
        rows = [line.split("\t") for line in self.confounds.read_text().splitlines()]
        changed = change(rows)
        self.confounds.write_text("\n".join("\t".join(row) for row in (rows if changed is None else changed)) + "\n")

    def column(self, name: str, values: Sequence[str]) -> None:
        def change(rows):
            at = rows[0].index(name)
            for row, value in zip(rows[1:], values, strict=False):
                row[at] = value

        self.cells(change)

    def without(self, *names: str) -> None:
        """Take columns out of the table of confounds."""

        def change(rows):
            keep = [number for number, name in enumerate(rows[0]) if not any(part in name for part in names)]
            return [[row[number] for number in keep] for row in rows]

        self.cells(change)

    @property
    def arguments(self) -> list[str]:
        given = [str(self.root), str(self.out), "participant", *BAND, "--min-time", "60", *self.options]
        return given if "--atlas" in given else [*given, "--atlas", f"{self.atlas}:{self.table}"]


def save(path: Path, values: np.ndarray, affine: np.ndarray | None = None, tr: float = TR, code: int = 1) -> None:
    image = nibabel.Nifti1Image(values, np.diag([20.0, 20, 20, 1]) if affine is None else affine)
    image.header.set_xyzt_units("mm", "sec")
    if values.ndim == 4:
        image.header.set_zooms((*image.header.get_zooms()[:3], tr))
    image.set_sform(image.affine, code=code)
    image.set_qform(image.affine if np.linalg.det(image.affine) else np.eye(4), code=code)
    nibabel.save(image, path)


Fault = Callable[[Tree], object]


def _with(change: Callable[..., object], *given: object, options: Sequence[str] = ()) -> Fault:
    """A fault of the files, together with what is asked for."""

    def plant(tree):
        change(tree, *given)
        tree.options += options

    return plant


# ---- files that are not there, or not what they say

KINDS = ("bold", "mask", "confounds", "sidecar")


def replace(tree: Tree, kind: str, content: bytes | None) -> None:
    """Put other bytes in the place of a file, or nothing."""
    path = getattr(tree, kind)
    path.unlink()
    if content is not None:
        path.write_bytes(content)


def dead_link(tree: Tree, kind: str) -> None:
    path = getattr(tree, kind)
    path.unlink()
    path.symlink_to("../../.git/annex/objects/XX/yy/MD5E-s1--0/MD5E-s1--0")


def renamed(tree: Tree, old: str, new: str) -> None:
    for path in list(tree.folder.glob(f"*{old}*")):
        path.rename(path.with_name(path.name.replace(old, new)))


def resaved(tree: Tree, values=lambda v: v, **changes) -> None:
    save(tree.bold, values(np.asanyarray(nibabel.load(tree.bold).dataobj)), **changes)


def _states(text: str) -> Fault:
    return lambda tree: tree.sidecar.write_text(text)


FAULTS: dict[str, Fault] = {f"{kind} removed": _with(replace, kind, None) for kind in KINDS}
FAULTS |= {f"{kind} empty": _with(replace, kind, b"") for kind in KINDS}
FAULTS |= {f"{kind} is a dead link": _with(dead_link, kind) for kind in KINDS}
FAULTS |= {
    "header cut": lambda tree: tree.bold.write_bytes(tree.bold.read_bytes()[:60]),
    "a stray participant folder": lambda tree: (tree.root / "sub-03").mkdir(),
    "another space only": _with(renamed, MNI, "space-MNIPediatricAsym"),
    "single echoes only": _with(renamed, "_task-rest", "_task-rest_echo-1"),
    "nowhere in space": lambda tree: resaved(tree, code=0),
    "no time in the header": lambda tree: resaved(tree, tr=0.0),
    "another grid than the mask": lambda tree: resaved(tree, lambda v: v[:3]),
    "time differs": _states('{"RepetitionTime": 1.5}'),
}


# ---- tables of confounds


def _rows(change: Callable[[list[list[str]]], object], *options: str) -> Fault:
    return _with(Tree.cells, change, options=options)


def _column(name: str, values: Sequence[str], *options: str) -> Fault:
    return _with(Tree.column, name, values, options=options)


FD = "framewise_displacement"
QUIET, LOUD = ["0.1"] * T, ["5.0"] * T
FAULTS |= {
    "rows missing": _rows(lambda rows: rows[:-7]),
    "no header": _rows(lambda rows: rows[1:] + rows[-1:]),
    "one ragged row": _rows(lambda rows: [*rows[:40], rows[40][:-2], *rows[41:]]),
    "n/a in the middle": _rows(lambda rows: [*rows[:9], ["n/a", *rows[9][1:]], *rows[10:]]),
    "no motion": _with(Tree.without, "trans_x"),
    "no expansions": _with(Tree.without, "deriv", "power2"),
    "no components": _with(Tree.without, "comp_cor", options=("--strategy", "acompcor")),
    "no displacement, no censoring": _with(Tree.without, FD, options=("--fd-thresh", "0")),
    "displacement below zero": _column(FD, ["n/a", "-1.0"]),
    "too short after censoring": _column(FD, QUIET[:25] + LOUD[25:]),
    "no degrees of freedom": _column(FD, QUIET[:35] + LOUD[35:], "--strategy", "36P", "--low-pass", "0.08"),
}


# ---- runs and requests


def _runs(tree: Tree, change: Callable[[Tree], object], *options: str) -> None:
    for number in (1, 2):
        tree.add(f"sub-03_task-rest_run-{number}")
    change(tree)
    tree.options += options


FAULTS |= {
    "all runs excluded": _with(_runs, lambda tree: None, "--min-time", "1000"),
    "one run of two damaged": _with(_runs, lambda tree: next(tree.root.glob("sub-03/func/*run-2*_mask*")).unlink()),
}
REQUESTS = """
--strategy no-such
--atlas nowhere.nii.gz
--atlas builtin
--low-pass 0.012
--dummy-scans 79
--dummy-scans 3
--min-time 1e6
--participant-label 01 09
--space MNI152NLin2009cAsym T1w
--derivatives nowhere
--encoder fbert --encoder-weights nowhere
"""
FAULTS |= {line: _with(lambda tree: None, options=line.split()) for line in REQUESTS.split("\n") if line}


# ---- datasets, atlases and outputs


def output_of_another_program(tree):
    tree.out.mkdir()
    (tree.out / "dataset_description.json").write_text('{"GeneratedBy": [{"Name": "XCP-D"}]}')


def output_inside_the_folder_of_a_person(tree):
    tree.out = tree.root / "sub-01" / "out"


def the_same_run_in_two_datasets(tree):
    other = shutil.copytree(tree.root, tree.base / "other")
    shutil.rmtree(other / "sub-02")
    tree.options += ["--derivatives", f"a={tree.root}", f"b={other}"]


def atlas_of_another_space(tree):
    tree.atlas = tree.atlas.rename(tree.atlas.with_name("tpl-MNI152NLin6Asym_atlas-Six_dseg.nii.gz"))


OTHERS = (output_of_another_program, output_inside_the_folder_of_a_person)
OTHERS += (the_same_run_in_two_datasets, atlas_of_another_space)
FAULTS |= {function.__name__.replace("_", " "): function for function in OTHERS}
FAULTS |= {
    "atlas table of others": lambda tree: tree.table.write_text("index\tname\n90\ta\n91\tb\n"),
    "atlas of fractions": lambda tree: save(tree.atlas, np.full(GRID, 0.5, np.float32)),
}
