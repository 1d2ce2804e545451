"""Outputs of real commands as golden tables: made once, compared by column and by row names to 1e-9.

    python -m tests.golden.freeze [CASE ...]    makes tests/golden/CASE.zip again; the commit says what changed

Of a large table every k-th row is kept, some thousand numbers at most, and the means of all its columns.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from fcpower_bids.demo import DemoDesign, make_dataset
from fcpower_bids.demo.__main__ import main as make_demo
from tests.planting.pipelines import hcp_volumes, make_volumes
from tests.planting.surfaces import labels_of, make_surface_dataset, save_dlabel
from tests.running import run_app, run_group

HERE = Path(__file__).parent
STAGES = HERE.parents[1] / "examples" / "stages"
MOST = 500
"""Cells that are kept of a table."""
TOLERANCE = 1e-9
UNNAMED = {"Seconds", "seconds", "peak_mb", "PeakMemory", "BIDSVersion"}
"""Numbers of sidecars that are of the machine or of a standard."""


def demo(folder: Path) -> Path:
    """Two runs, an incomplete field of view, spikes, a scan that is nearly all spikes; every transform of one scan."""
    make_dataset(folder / "in", DemoDesign(subjects=4, volumes=90))
    transforms = ("power", "fisher_z", "log_euclidean", "partial_correlation", "degree", "log_cholesky", "precision")
    chosen = ("--transforms", *transforms, "--eigenvalue-floor", ".001", "--motion-filter-type", "lp")
    chosen += ("--band-stop-min", 6, "--nprocs", 1)
    return run_app(folder / "in", folder / "out", "--atlas", "builtin", *chosen, code=0).output


def stages(folder: Path) -> Path:
    """Two real people, painted, through the options that the demo of the README has."""
    if not (folder / "out").exists():  # tests hand in the people that they share
        assert make_demo([str(folder / "in"), "--series", str(STAGES), "--subjects", "2"]) == 0
        (atlas,) = (folder / "in").glob("atlas/*_dseg.nii.gz")
        run_app(folder / "in", folder / "out", "--atlas", atlas, "--quiet", "--nprocs", 2, code=0)
    return folder / "out"


def surface(folder: Path) -> Path:
    """Grayordinates alone."""
    make_surface_dataset(folder / "in")
    atlas = save_dlabel(folder / "tpl-fsLR_atlas-Mine_dseg.dlabel.nii", labels_of(5), list("abcde"))
    chosen = ("--fd-thresh", ".12", "--min-time", 60, "--nprocs", 1)
    return run_app(folder / "in", folder / "out", "--atlas", atlas, *chosen, code=0).output


def hcp(folder: Path) -> Path:
    """A tree of the Human Connectome Project: motion in degrees, no confounds table."""
    hcp_volumes(folder / "in", *make_volumes(folder / "fmriprep"))
    chosen = ("--atlas", "builtin", "--min-time", 60, "--fd-thresh", ".12", "--low-pass", ".15", "--nprocs", 1)
    return run_app(folder / "in", folder / "out", *chosen, code=0).output


STUDY = DemoDesign(volumes=140, troubles=False)
"""24 people with two sessions."""
QUICK = ("--folds", 5, "--inner-folds", 3, "--repeats", 2, "--nprocs", 1, "--quiet", "--replace")
ANALYSES = (
    *("prediction", "fingerprinting", "alpha_selection", "qc_fc", "edges", "transform_screen", "spectral_controls"),
    *("spectrum_geometry", "learning_curves"),
)


def group(folder: Path) -> Path:
    """Every analysis of a cohort of 24 people with two sessions, then other protocols."""
    if not (folder / "in").exists():  # tests hand in the study that they share
        make_dataset(folder / "in", STUDY)
        run_app(folder / "in", folder / "out", "--atlas", "builtin", "--quiet", "--nprocs", 1, code=0)
    score = ("--targets", "planted_score", "null_score", "--family-column", "family_id", "--permutations", 50)
    sites = ("--site-column", "site", "--sites", "hold-out")
    for words in (
        (*score, *QUICK, "--analyses", *ANALYSES, "--alpha", "grid"),
        ("--targets", "planted_score", "sex", *sites, *QUICK, "--name", "sites"),
        ("--targets", "planted_score", "--covariates", "age", "sex", "--alpha", "nested", *QUICK, "--name", "nested"),
        (*score, "--preset", "cbig", *QUICK, "--site-column", "site", "--name", "cbig"),
        (*score, "--preset", "paper", "--analyses", "prediction", *QUICK, "--name", "paper"),
        ("--targets", "g=planted_score,age", *QUICK, "--kernel", "linear", "--name", "composite"),
    ):
        run_group(folder / "in", folder / "out", *words)
    return folder / "out" / "group"


def people(folder: Path) -> Path:
    """Series of real people who were scanned twice, as a list."""
    rows = (STAGES / "list.tsv").read_text(encoding="utf-8").splitlines()[:33]
    (folder / "list.tsv").write_text("\n".join(rows).replace("series.npz", str(STAGES / "series.npz")))
    words = ("-d", f"list={folder / 'list.tsv'}", "--targets", "sofas_change_6mo", "--permutations", 20, *QUICK)
    run_group(STAGES, folder / "out", *words)
    return folder / "out" / "group"


CASES: dict[str, Callable[[Path], Path]] = {each.__name__: each for each in (demo, stages, surface, hcp, group, people)}


def tables(root: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Tables of an output folder as text, and the numbers of its sidecars, by path."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if name.parts[0] in ("logs", "work", "sourcedata") or path.name == "dataset_description.json":
            continue
        if path.suffix == ".tsv":
            yield name.as_posix(), _shorten(pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False))
        elif path.suffix == ".json":
            found = dict(_numbers(json.loads(path.read_text(encoding="utf-8"))))
            if found:
                yield (
                    name.as_posix(),
                    pd.DataFrame({"key": list(found), "value": [repr(float(each)) for each in found.values()]}),
                )


def _numbers(value, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in UNNAMED:
                yield from _numbers(item, f"{key}/{name}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _numbers(item, f"{key}/{place}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield key, value


def _shorten(table: pd.DataFrame) -> pd.DataFrame:
    step = -(-table.size // MOST)
    if step <= 1:
        return table
    kept = table.iloc[::step]
    means = table.apply(lambda column: pd.to_numeric(column.replace("n/a", "nan"), errors="coerce").mean())
    return pd.concat([kept, means.map(lambda mean: repr(float(mean))).to_frame("mean of all rows").T])


def make(case: str) -> dict[str, pd.DataFrame]:
    with tempfile.TemporaryDirectory() as folder:
        return dict(tables(CASES[case](Path(folder))))


def read(case: str) -> dict[str, pd.DataFrame]:
    with zipfile.ZipFile(HERE / f"{case}.zip") as archive:
        return {
            name: pd.read_csv(archive.open(name), sep="\t", dtype=str, keep_default_na=False)
            for name in archive.namelist()
        }


def write(case: str, found: dict[str, pd.DataFrame]) -> None:
    """Write an archive, the numbers with thirteen digits; same tables, same bytes."""
    with zipfile.ZipFile(HERE / f"{case}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, table in found.items():
            text = io.StringIO()
            table.map(_rounded).to_csv(text, sep="\t", index=False, lineterminator="\n")
            archive.writestr(zipfile.ZipInfo(name), text.getvalue(), zipfile.ZIP_DEFLATED)


def _rounded(cell: str) -> str:
    try:
        return f"{float(cell):.13g}" if "." in cell or "e" in cell else cell
    except ValueError:
        return cell


def differences(expected: dict[str, pd.DataFrame], actual: dict[str, pd.DataFrame]) -> Iterator[str]:
    """Yield what differs: files, and of every table what pandas says; numbers by more than the tolerance."""
    for name in sorted(expected.keys() | actual.keys()):
        try:
            pd.testing.assert_frame_equal(
                *(_typed(found.get(name)) for found in (expected, actual)),
                **dict.fromkeys(("rtol", "atol"), TOLERANCE),
                check_like=True,
                check_dtype=False,
            )
        except AssertionError as error:
            yield f"{name}: {error}"


def _typed(table: pd.DataFrame | None) -> pd.DataFrame:
    """A table of text with numbers as numbers; empty where there is none."""
    text = io.StringIO("" if table is None else table.to_csv(index=False))
    return pd.DataFrame() if table is None else pd.read_csv(text, na_values=["n/a", "nan"], keep_default_na=False)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        made = make(chosen)
        archive = HERE / f"{chosen}.zip"
        if archive.exists():
            print(*differences(read(chosen), made), sep="\n")
        write(chosen, made)
        print(chosen, len(made), "tables,", archive.stat().st_size // 1000, "kB")
