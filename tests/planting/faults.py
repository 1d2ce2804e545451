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
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    FAULTS[function.__name__.replace("_", " ")] = function
    return function


def asked(*options: str) -> None:
    """A fault of the request alone."""
    FAULTS[" ".join(options)] = lambda tree: tree.options.extend(options)


# ---- files that are not there, or not what they say

KINDS = ("bold", "mask", "confounds", "sidecar")


def _removed(tree: Tree, kind: str) -> None:
    getattr(tree, kind).unlink()


def _empty(tree: Tree, kind: str) -> None:
    getattr(tree, kind).write_bytes(b"")


def _dead_link(tree: Tree, kind: str) -> None:
    path = getattr(tree, kind)
    path.unlink()
    path.symlink_to("../../.git/annex/objects/XX/yy/MD5E-s1--0/MD5E-s1--0")


def _pointer(tree: Tree, kind: str) -> None:
    getattr(tree, kind).write_bytes(b"/annex/objects/MD5E-s1--0\n")


def _lfs(tree: Tree, kind: str) -> None:
    getattr(tree, kind).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def _folder(tree: Tree, kind: str) -> None:
    path = getattr(tree, kind)
    path.unlink()
    path.mkdir()


def _garbage(tree: Tree, kind: str) -> None:
    content = b"this is not what its name says"
    path = getattr(tree, kind)
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)


for _kind in KINDS:
    for _damage in (_removed, _empty, _dead_link, _pointer, _lfs, _folder, _garbage):
        FAULTS[f"{_kind}{_damage.__name__.replace('_', ' ')}"] = lambda tree, d=_damage, k=_kind: d(tree, k)


@fault
def all_of_a_recording_unfetched(tree):
    for kind in KINDS:
        _dead_link(tree, kind)


@fault
def everything_unfetched(tree):
    for path in list(tree.root.glob("sub-*/func/*")):
        path.unlink()
        path.symlink_to("../../.git/annex/objects/XX/nothing")


@fault
def dead_sidecar_and_no_time_in_the_header(tree):
    save(tree.bold, np.asanyarray(nibabel.load(tree.bold).dataobj), tr=0.0)
    _dead_link(tree, "sidecar")


@fault
def not_gzip(tree):
    tree.bold.write_bytes(gzip.decompress(tree.bold.read_bytes()))


@fault
def mask_not_gzip(tree):
    tree.mask.write_bytes(gzip.decompress(tree.mask.read_bytes()))


@fault
def header_cut(tree):
    tree.bold.write_bytes(tree.bold.read_bytes()[:60])


@fault
def mask_header_cut(tree):
    tree.mask.write_bytes(tree.mask.read_bytes()[:30])


@fault
def plain_nifti_cut(tree):
    path = tree.bold.with_suffix("")
    path.write_bytes(gzip.decompress(tree.bold.read_bytes())[:-100])
    tree.bold.unlink()


@fault
def zipped_and_plain_twin(tree):
    tree.bold.with_suffix("").write_bytes(gzip.decompress(tree.bold.read_bytes()))


@fault
def a_stray_participant_folder(tree):
    (tree.root / "sub-03").mkdir()


@fault
def a_series_without_a_space(tree):
    for path in list(tree.folder.glob("*space-*")):
        path.rename(path.with_name(path.name.replace(f"_{MNI}", "")))


@fault
def another_space_only(tree):
    for path in list(tree.folder.glob("*space-*")):
        path.rename(path.with_name(path.name.replace(MNI, "space-MNIPediatricAsym")))


@fault
def another_default_space(tree):
    for path in list(tree.folder.glob("*space-*")):
        path.rename(path.with_name(path.name.replace(MNI, "space-MNI152NLin6Asym")))


@fault
def single_echoes_only(tree):
    for path in list(tree.folder.iterdir()):
        path.rename(path.with_name(path.name.replace("_task-rest", "_task-rest_echo-1")))


# ---- headers


def _resave(**changes):
    def change(tree):
        values = np.asanyarray(nibabel.load(tree.bold).dataobj)
        save(
            tree.bold, changes.get("values", lambda v: v)(values), **{k: v for k, v in changes.items() if k != "values"}
        )

    return change


FAULTS |= {
    "three dimensions": _resave(values=lambda v: v[..., 0]),
    "a single volume": _resave(values=lambda v: v[..., :1]),
    "two volumes": _resave(values=lambda v: v[..., :2]),
    "complex values": _resave(values=lambda v: v.astype(np.complex64)),
    "nowhere in space": _resave(code=0),
    "another time in the header": _resave(tr=0.8),
    "no time in the header": _resave(tr=0.0),
    "another grid than the mask": _resave(values=lambda v: v[:3]),
    "another place than the mask": _resave(affine=np.diag([21.0, 20, 20, 1])),
}


@fault
def a_singular_affine(tree):
    image = nibabel.load(tree.bold)
    image.header["srow_x"] = 0
    image.header["qform_code"] = 0
    content = image.header.binaryblock + bytes(4) + np.asanyarray(image.dataobj).tobytes(order="F")
    tree.bold.write_bytes(gzip.compress(content))


@fault
def mask_nowhere_in_space(tree):
    save(tree.mask, np.ones(GRID, np.uint8), code=0)


@fault
def mask_of_another_grid(tree):
    save(tree.mask, np.ones((5, 5, 5), np.uint8))


@fault
def colours(tree):
    values = np.zeros((*GRID, 5), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tree.bold)


def _states(value: object) -> Fault:
    return lambda tree: tree.sidecar.write_text(json.dumps({"RepetitionTime": value}))


FAULTS |= {
    "milliseconds": _states(2000),
    "time is text": _states("two"),
    "time is a list": _states([2.0]),
    "time is zero": _states(0),
    "time differs": _states(1.5),
    "time differs by little": _states(2.01),
}


@fault
def deeply_nested_sidecar(tree):
    tree.sidecar.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)


@fault
def sidecar_is_a_list(tree):
    tree.sidecar.write_text("[1, 2]")


# ---- tables of confounds


def _rows(change: Callable[[list[list[str]]], object], *options: str) -> Fault:
    def damage(tree):
        tree.cells(change)
        tree.options += options

    return damage


def _column(name: str, values: Sequence[str], *options: str) -> Fault:
    def damage(tree):
        tree.column(name, values)
        tree.options += options

    return damage


def _without(*names: str, options: Sequence[str] = ()) -> Fault:
    def damage(tree):
        tree.without(*names)
        tree.options += options

    return damage


def _bytes(change: Callable[[bytes], bytes]) -> Fault:
    return lambda tree: tree.confounds.write_bytes(change(tree.confounds.read_bytes()))


FD = "framewise_displacement"
QUIET, LOUD = ["0.1"] * T, ["5.0"] * T
FAULTS |= {
    "rows missing": _rows(lambda rows: rows[:-7]),
    "rows too many": _rows(lambda rows: rows + rows[-3:]),
    "header only": _rows(lambda rows: rows[:1]),
    "no header": _rows(lambda rows: rows[1:] + rows[-1:]),
    "tab at the end of the rows": _rows(lambda rows: [rows[0], *([*row, ""] for row in rows[1:])]),
    "one ragged row": _rows(lambda rows: [*rows[:40], rows[40][:-2], *rows[41:]]),
    "a column twice": _rows(lambda rows: [[*row, row[0]] for row in rows]),
    "text in a cell": _rows(lambda rows: [*rows[:9], ["much", *rows[9][1:]], *rows[10:]]),
    "n/a in the middle": _rows(lambda rows: [*rows[:9], ["n/a", *rows[9][1:]], *rows[10:]]),
    "not finite": _rows(lambda rows: [*rows[:9], ["inf", *rows[9][1:]], *rows[10:]]),
    "n/a in a column that is not asked for": _column("dvars", ["n/a"] * T),
    "UTF-16": _bytes(lambda content: content.decode().encode("utf-16")),
    "Latin-1": _bytes(lambda content: content.replace(b"dvars", b"m\xfcd")),
    "byte order mark": _bytes(lambda content: b"\xef\xbb\xbf" + content),
    "line ends of Windows": _bytes(lambda content: content.replace(b"\n", b"\r\n")),
    "blank lines at the end": _bytes(lambda content: content + b"\n\n"),
    "commas": _bytes(lambda content: content.replace(b"\t", b",")),
    "no motion": _without("trans_x"),
    "no expansions": _without("deriv", "power2"),
    "no tissue signals for 36P": _without("csf", options=("--strategy", "36P")),
    "no components": _without("comp_cor", options=("--strategy", "acompcor")),
    "few components": _without("comp_cor_01", options=("--strategy", "acompcor")),
    "no AROMA": _rows(lambda rows: rows, "--strategy", "ica-aroma"),
    "no displacement": _without(FD),
    "no displacement, no censoring": _without(FD, options=("--fd-thresh", "0")),
    "displacement below zero": _column(FD, ["n/a", "-1.0"]),
    "displacement beyond the room": _column(FD, ["n/a", "1e6"]),
    "displacement unknown in the middle": _column(FD, ["n/a", "0.1", "n/a"]),
    "no motion at all": _column(FD, ["0.0"] * T),
    "nothing but spikes": _column(FD, LOUD),
    "all but two volumes censored": _column(FD, QUIET[:2] + LOUD[2:]),
    "too short after censoring": _column(FD, QUIET[:25] + LOUD[25:]),
    "long enough after censoring": _column(FD, QUIET[:60] + LOUD[60:]),
    "spikes, strict": _column(FD, LOUD),
    "spikes, no limit": _column(FD, QUIET[:9] + LOUD[9:], "--min-time", "0"),
    "no degrees of freedom": _column(FD, QUIET[:35] + LOUD[35:], "--strategy", "36P", "--low-pass", "0.08"),
    "a constant confound": _column("trans_x", ["1.0"] * T),
    "many dummies": _rows(
        lambda rows: [
            [*rows[0], "non_steady_state_outlier00"],
            *([*row, str(int(number == 60))] for number, row in enumerate(rows[1:])),
        ]
    ),
}


@fault
def metadata_of_components_broken(tree):
    old = [name.replace("w_comp_cor", "a_comp_cor").replace("c_comp_cor", "a_comp_cor") for name in COLUMNS]
    seen = [f"{name}{number}" if "a_comp" in name else name for number, name in enumerate(old)]
    tree.cells(lambda rows: [seen, *rows[1:]])
    tree.confounds.with_suffix(".json").write_text("{")
    tree.options += ["--strategy", "acompcor"]


# ---- runs


def _runs(tree: Tree, *options: str) -> None:
    for number in (1, 2):
        tree.add(f"sub-03_task-rest_run-{number}")
    tree.options += options


@fault
def two_sound_runs(tree):
    _runs(tree)


@fault
def one_run_of_two_excluded(tree):
    _runs(tree)
    (path,) = tree.root.glob("sub-03/func/*run-1_desc-conf*.tsv")
    path.write_text(path.read_text().replace("\t20.000000", "\t20.000000").replace("0.0", "9.0"))


@fault
def all_runs_excluded(tree):
    _runs(tree, "--min-time", "1000")


@fault
def one_run_of_two_damaged(tree):
    _runs(tree)
    next(tree.root.glob("sub-03/func/*run-2*_mask.nii.gz")).unlink()


# ---- requests

asked("--strategy", "no-such")
asked("--strategy", "no-such.yml")
asked("--strategy", "none")
asked("--strategy", "none", "--fd-thresh", "0", "--dummy-scans", "0")
asked("--transforms", "no_such")
asked("--transforms", "tangent")
asked("--transforms", "power", "log_euclidean")
asked("--transforms", "power", "log_euclidean", "--eigenvalue-floor", "-1")
asked("--transforms", "precision", "--shrink-to-identity", "2")
asked("--transforms", "partial_correlation", "fisher_z")
asked("--atlas", "no-such-atlas")
asked("--atlas", "nowhere.nii.gz")
asked("--atlas", "builtin")
asked("--atlas", "builtin", "builtin")
asked("--atlas", "builtin+")
asked("--atlas", "Tian1", "--atlas-dir", "nowhere")
asked("--low-pass", "0.3")
asked("--high-pass", "0.3", "--low-pass", "0.2")
asked("--low-pass", "0.012")
asked("--dummy-scans", "79")
asked("--dummy-scans", "1000")
asked("--dummy-scans", "some")
asked("--dummy-scans", "3")
asked("--min-time", "1e6")
asked("--fd-thresh", "nan")
asked("--min-coverage", "2")
asked("--alpha", "2")
asked("--participant-label", "01", "09")
asked("--participant-label", "09")
asked("--participant-label", "sub-01")
asked("--session-label", "a")
asked("--task-id", "motor")
asked("--space", "MNI152NLin6Asym")
asked("--space", "MNI152NLin2009cAsym", "T1w")
asked("--bids-filter-file", "nowhere.json")
asked("--derivatives", "nowhere")
asked("--encoder", "no-such")
asked("--encoder", "fbert")
asked("--encoder", "fbert", "--encoder-weights", "nowhere")
asked("--nprocs", "-1")
asked("--config-file", "nowhere.toml")


def _filter(content: object) -> Fault:
    def damage(tree):
        path = tree.base / "filter.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        tree.options += ["--bids-filter-file", str(path)]

    return damage


FAULTS |= {
    "filter is no JSON": _filter("{"),
    "filter of no entity": _filter({"bold": {"colour": "red"}}),
    "filter that leaves nothing": _filter({"bold": {"task": "motor"}}),
    "filter for others": _filter({"t1w": {}}),
}


def _strategy(text: str) -> Fault:
    def damage(tree):
        path = tree.base / "mine.yml"
        path.write_text(text)
        tree.options += ["--strategy", str(path)]

    return damage


FAULTS |= {
    "strategy is no YAML": _strategy("a: [b"),
    "strategy without columns": _strategy("methods: none\n"),
    "strategy of a column that is not there": _strategy("methods: mine\ncolumns: [pulse]\n"),
    "strategy of a broken pattern": _strategy("methods: mine\ncolumns: ['^a($']\n"),
    "strategy of optional columns": _strategy("methods: mine\ncolumns: [csf]\noptional: [pulse]\n"),
}


@fault
def output_is_a_file(tree):
    tree.out.write_text("")


@fault
def output_of_another_program(tree):
    tree.out.mkdir()
    (tree.out / "dataset_description.json").write_text('{"GeneratedBy": [{"Name": "XCP-D"}]}')


@fault
def output_is_the_input(tree):
    tree.out = tree.root


@fault
def no_description(tree):
    (tree.root / "dataset_description.json").unlink()
    tree.options += ["--derivatives", str(tree.root)]


@fault
def no_description_and_no_validation(tree):
    no_description(tree)


@fault
def makers_are_no_list(tree):
    tree.write("dataset_description.json", {"DatasetType": "derivative", "GeneratedBy": "me"})


@fault
def nothing_in_the_input(tree):
    for path in tree.root.glob("sub-*"):
        shutil.rmtree(path)


@fault
def the_input_twice(tree):
    tree.options += ["--derivatives", f"a={tree.root}", f"b={tree.root}"]


@fault
def the_same_run_in_two_datasets(tree):
    other = shutil.copytree(tree.root, tree.base / "other")
    shutil.rmtree(other / "sub-02")
    tree.options += ["--derivatives", f"a={tree.root}", f"b={other}"]


@fault
def atlas_table_of_others(tree):
    tree.table.write_text("index\tname\n90\ta\n91\tb\n")


@fault
def atlas_table_with_a_name_twice(tree):
    tree.table.write_text(tree.table.read_text().replace("parcel2", "parcel1"))


@fault
def atlas_table_ragged(tree):
    tree.table.write_text(tree.table.read_text().replace("parcel2", "parcel2\textra"))


@fault
def atlas_table_empty(tree):
    tree.table.write_text("")


@fault
def atlas_cut(tree):
    tree.atlas.write_bytes(tree.atlas.read_bytes()[:-20])


@fault
def atlas_of_fractions(tree):
    save(tree.atlas, np.full(GRID, 0.5, np.float32))


@fault
def atlas_of_another_space(tree):
    tree.atlas = tree.atlas.rename(tree.atlas.with_name("tpl-MNI152NLin6Asym_atlas-Six_dseg.nii.gz"))


@fault
def atlas_without_labels(tree):
    save(tree.atlas, np.zeros(GRID, np.uint8))


@fault
def output_inside_the_folder_of_a_person(tree):
    tree.out = tree.root / "sub-01" / "out"
