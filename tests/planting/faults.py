"""Faulty trees and requests, each fault one function: what ``--dry-run`` says of them must be what a run does."""

from __future__ import annotations

import gzip
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


def garbage(tree: Tree, kind: str) -> None:
    content, path = b"this is not what its name says", getattr(tree, kind)
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)


def dead_link(tree: Tree, kind: str) -> None:
    path = getattr(tree, kind)
    path.unlink()
    path.symlink_to("../../.git/annex/objects/XX/yy/MD5E-s1--0/MD5E-s1--0")


def folder(tree: Tree, kind: str) -> None:
    path = getattr(tree, kind)
    path.unlink()
    path.mkdir()


def renamed(tree: Tree, old: str, new: str) -> None:
    for path in list(tree.folder.glob(f"*{old}*")):
        path.rename(path.with_name(path.name.replace(old, new)))


def resaved(tree: Tree, values=lambda v: v, **changes) -> None:
    save(tree.bold, values(np.asanyarray(nibabel.load(tree.bold).dataobj)), **changes)


CONTENTS = {
    "removed": None,
    "empty": b"",
    "pointer": b"/annex/objects/MD5E-s1--0\n",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}
FAULTS: dict[str, Fault] = {
    f"{kind} {name}": _with(replace, kind, content) for kind in KINDS for name, content in CONTENTS.items()
}
FAULTS |= {
    f"{kind} {change.__name__}": _with(change, kind) for kind in KINDS for change in (garbage, dead_link, folder)
}


def everything_unfetched(tree):
    for path in list(tree.root.glob("sub-*/func/*")):
        path.unlink()
        path.symlink_to("../../.git/annex/objects/XX/nothing")


def dead_sidecar_and_no_time_in_the_header(tree):
    resaved(tree, tr=0.0)
    dead_link(tree, "sidecar")


def zipped_and_plain_twin(tree):
    tree.bold.with_suffix("").write_bytes(gzip.decompress(tree.bold.read_bytes()))


def a_singular_affine(tree):
    image = nibabel.load(tree.bold)
    image.header["srow_x"] = 0
    image.header["qform_code"] = 0
    content = image.header.binaryblock + bytes(4) + np.asanyarray(image.dataobj).tobytes(order="F")
    tree.bold.write_bytes(gzip.compress(content))


def colours(tree):
    values = np.zeros((*GRID, 5), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tree.bold)


def _states(text: str) -> Fault:
    return lambda tree: tree.sidecar.write_text(text)


FAULTS |= {
    function.__name__.replace("_", " "): function
    for function in (
        everything_unfetched,
        dead_sidecar_and_no_time_in_the_header,
        zipped_and_plain_twin,
        a_singular_affine,
        colours,
    )
}
FAULTS |= {
    "not gzip": lambda tree: tree.bold.write_bytes(gzip.decompress(tree.bold.read_bytes())),
    "header cut": lambda tree: tree.bold.write_bytes(tree.bold.read_bytes()[:60]),
    "a stray participant folder": lambda tree: (tree.root / "sub-03").mkdir(),
    "a series without a space": _with(renamed, f"_{MNI}", ""),
    "another space only": _with(renamed, MNI, "space-MNIPediatricAsym"),
    "another default space": _with(renamed, MNI, "space-MNI152NLin6Asym"),
    "single echoes only": _with(renamed, "_task-rest", "_task-rest_echo-1"),
    "three dimensions": lambda tree: resaved(tree, lambda v: v[..., 0]),
    "a single volume": lambda tree: resaved(tree, lambda v: v[..., :1]),
    "complex values": lambda tree: resaved(tree, lambda v: v.astype(np.complex64)),
    "nowhere in space": lambda tree: resaved(tree, code=0),
    "another time in the header": lambda tree: resaved(tree, tr=0.8),
    "no time in the header": lambda tree: resaved(tree, tr=0.0),
    "another grid than the mask": lambda tree: resaved(tree, lambda v: v[:3]),
    "another place than the mask": lambda tree: resaved(tree, affine=np.diag([21.0, 20, 20, 1])),
    "mask nowhere in space": lambda tree: save(tree.mask, np.ones(GRID, np.uint8), code=0),
    "milliseconds": _states('{"RepetitionTime": 2000}'),
    "time is text": _states('{"RepetitionTime": "two"}'),
    "time differs": _states('{"RepetitionTime": 1.5}'),
    "time differs by little": _states('{"RepetitionTime": 2.01}'),
    "deeply nested sidecar": _states('{"a":' * 100_000 + "1" + "}" * 100_000),
    "sidecar is a list": _states("[1, 2]"),
}


# ---- tables of confounds


def _rows(change: Callable[[list[list[str]]], object], *options: str) -> Fault:
    return _with(Tree.cells, change, options=options)


def _column(name: str, values: Sequence[str], *options: str) -> Fault:
    return _with(Tree.column, name, values, options=options)


def _bytes(change: Callable[[bytes], bytes]) -> Fault:
    return lambda tree: tree.confounds.write_bytes(change(tree.confounds.read_bytes()))


FD = "framewise_displacement"
QUIET, LOUD = ["0.1"] * T, ["5.0"] * T
ACOMPCOR = ("--strategy", "acompcor")
FAULTS |= {
    "rows missing": _rows(lambda rows: rows[:-7]),
    "header only": _rows(lambda rows: rows[:1]),
    "no header": _rows(lambda rows: rows[1:] + rows[-1:]),
    "tab at the end of the rows": _rows(lambda rows: [rows[0], *([*row, ""] for row in rows[1:])]),
    "one ragged row": _rows(lambda rows: [*rows[:40], rows[40][:-2], *rows[41:]]),
    "a column twice": _rows(lambda rows: [[*row, row[0]] for row in rows]),
    "text in a cell": _rows(lambda rows: [*rows[:9], ["much", *rows[9][1:]], *rows[10:]]),
    "n/a in the middle": _rows(lambda rows: [*rows[:9], ["n/a", *rows[9][1:]], *rows[10:]]),
    "n/a in a column that is not asked for": _column("dvars", ["n/a"] * T),
    "UTF-16": _bytes(lambda content: content.decode().encode("utf-16")),
    "Latin-1": _bytes(lambda content: content.replace(b"dvars", b"m\xfcd")),
    "byte order mark": _bytes(lambda content: b"\xef\xbb\xbf" + content),
    "blank lines at the end": _bytes(lambda content: content + b"\n\n"),
    "no motion": _with(Tree.without, "trans_x"),
    "no expansions": _with(Tree.without, "deriv", "power2"),
    "no tissue signals for 36P": _with(Tree.without, "csf", options=("--strategy", "36P")),
    "no components": _with(Tree.without, "comp_cor", options=ACOMPCOR),
    "few components": _with(Tree.without, "comp_cor_01", options=ACOMPCOR),
    "no AROMA": _rows(lambda rows: rows, "--strategy", "ica-aroma"),
    "no displacement": _with(Tree.without, FD),
    "no displacement, no censoring": _with(Tree.without, FD, options=("--fd-thresh", "0")),
    "displacement below zero": _column(FD, ["n/a", "-1.0"]),
    "displacement unknown in the middle": _column(FD, ["n/a", "0.1", "n/a"]),
    "no motion at all": _column(FD, ["0.0"] * T),
    "nothing but spikes": _column(FD, LOUD),
    "all but two volumes censored": _column(FD, QUIET[:2] + LOUD[2:]),
    "too short after censoring": _column(FD, QUIET[:25] + LOUD[25:]),
    "long enough after censoring": _column(FD, QUIET[:60] + LOUD[60:]),
    "spikes, no limit": _column(FD, QUIET[:9] + LOUD[9:], "--min-time", "0"),
    "no degrees of freedom": _column(FD, QUIET[:35] + LOUD[35:], "--strategy", "36P", "--low-pass", "0.08"),
    "a constant confound": _column("trans_x", ["1.0"] * T),
}


# ---- runs


def _runs(tree: Tree, change: Callable[[Tree], object], *options: str) -> None:
    for number in (1, 2):
        tree.add(f"sub-03_task-rest_run-{number}")
    change(tree)
    tree.options += options


FAULTS |= {
    "two sound runs": _with(_runs, lambda tree: None),
    "all runs excluded": _with(_runs, lambda tree: None, "--min-time", "1000"),
    "one run of two damaged": _with(_runs, lambda tree: next(tree.root.glob("sub-03/func/*run-2*_mask*")).unlink()),
}

# ---- requests

REQUESTS = """
--strategy no-such
--strategy no-such.yml
--strategy none --fd-thresh 0 --dummy-scans 0
--transforms no_such
--transforms tangent
--transforms power log_euclidean --eigenvalue-floor -1
--transforms partial_correlation fisher_z
--atlas no-such-atlas
--atlas nowhere.nii.gz
--atlas builtin
--atlas builtin+
--atlas Tian1 --atlas-dir nowhere
--low-pass 0.3
--low-pass 0.012
--dummy-scans 79
--dummy-scans some
--dummy-scans 3
--min-time 1e6
--fd-thresh nan
--min-coverage 2
--participant-label 01 09
--participant-label 09
--session-label a
--space MNI152NLin6Asym
--space MNI152NLin2009cAsym T1w
--bids-filter-file nowhere.json
--derivatives nowhere
--encoder no-such
--encoder fbert --encoder-weights nowhere
--nprocs -1
--config-file nowhere.toml
"""
FAULTS |= {line: _with(lambda tree: None, options=line.split()) for line in REQUESTS.split("\n") if line}


def _file(name: str, option: str, text: str) -> Fault:
    """A file of the user that an option names."""

    def plant(tree):
        (tree.base / name).write_text(text)
        tree.options += [option, str(tree.base / name)]

    return plant


def _filter(text: str) -> Fault:
    return _file("filter.json", "--bids-filter-file", text)


def _strategy(text: str) -> Fault:
    return _file("mine.yml", "--strategy", text)


FAULTS |= {
    "filter is no JSON": _filter("{"),
    "filter of no entity": _filter('{"bold": {"colour": "red"}}'),
    "filter that leaves nothing": _filter('{"bold": {"task": "motor"}}'),
    "filter for others": _filter('{"t1w": {}}'),
    "strategy is no YAML": _strategy("a: [b"),
    "strategy without columns": _strategy("methods: none\n"),
    "strategy of a column that is not there": _strategy("methods: mine\ncolumns: [pulse]\n"),
    "strategy of a broken pattern": _strategy("methods: mine\ncolumns: ['^a($']\n"),
    "strategy of optional columns": _strategy("methods: mine\ncolumns: [csf]\noptional: [pulse]\n"),
}


# ---- datasets, atlases and outputs


def output_of_another_program(tree):
    tree.out.mkdir()
    (tree.out / "dataset_description.json").write_text('{"GeneratedBy": [{"Name": "XCP-D"}]}')


def output_is_the_input(tree):
    tree.out = tree.root


def output_inside_the_folder_of_a_person(tree):
    tree.out = tree.root / "sub-01" / "out"


def no_description(tree):
    (tree.root / "dataset_description.json").unlink()
    tree.options += ["--derivatives", str(tree.root)]


def makers_are_no_list(tree):
    tree.write("dataset_description.json", {"DatasetType": "derivative", "GeneratedBy": "me"})


def nothing_in_the_input(tree):
    for path in tree.root.glob("sub-*"):
        shutil.rmtree(path)


def the_same_run_in_two_datasets(tree):
    other = shutil.copytree(tree.root, tree.base / "other")
    shutil.rmtree(other / "sub-02")
    tree.options += ["--derivatives", f"a={tree.root}", f"b={other}"]


def atlas_of_another_space(tree):
    tree.atlas = tree.atlas.rename(tree.atlas.with_name("tpl-MNI152NLin6Asym_atlas-Six_dseg.nii.gz"))


def _table(change: Callable[[str], str]) -> Fault:
    return lambda tree: tree.table.write_text(change(tree.table.read_text()))


FAULTS |= {
    function.__name__.replace("_", " "): function
    for function in (
        output_of_another_program,
        output_is_the_input,
        output_inside_the_folder_of_a_person,
        no_description,
        makers_are_no_list,
        nothing_in_the_input,
        the_same_run_in_two_datasets,
        atlas_of_another_space,
    )
}
FAULTS |= {
    "output is a file": lambda tree: tree.out.write_text(""),
    "atlas table of others": _table(lambda _: "index\tname\n90\ta\n91\tb\n"),
    "atlas table with a name twice": _table(lambda text: text.replace("parcel2", "parcel1")),
    "atlas table ragged": _table(lambda text: text.replace("parcel2", "parcel2\textra")),
    "atlas cut": lambda tree: tree.atlas.write_bytes(tree.atlas.read_bytes()[:-20]),
    "atlas of fractions": lambda tree: save(tree.atlas, np.full(GRID, 0.5, np.float32)),
    "atlas without labels": lambda tree: save(tree.atlas, np.zeros(GRID, np.uint8)),
}
