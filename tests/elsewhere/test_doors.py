"""Series and connectomes of other programs through the command: what is written, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from scipy.spatial.distance import squareform

from tests.docs.pages import DOCS, code_blocks, read
from tests.elsewhere import sources
from tests.elsewhere.sources import MEAN_FD, NAMES, SCANS, SERIES, TR, P, T, read_connectome
from tests.running import run_group

TREES = {
    "xcpd": sources.xcpd,
    "giga": sources.giga,
    "halfpipe": sources.halfpipe,
    "dpabi": sources.dpabi,
    "conn": sources.conn,
    "cpac": sources.cpac,
    "hcp": sources.hcp,
}
ONE_SESSION = ("cpac", "hcp")
UPPER = np.triu_indices(P, 1)


def group(folder: Path, *options: object) -> Path:
    (folder / "bids").mkdir(exist_ok=True)
    asked = () if "--analyses" in options else ("--analyses", "fingerprinting")
    return run_group(folder / "bids", folder / "out", *asked, "--quiet", *options).output


def written(out: Path) -> dict[str, np.ndarray]:
    arrays = [*out.rglob("*_stat-pearsoncorrelation_relmat.npy"), *out.rglob("*_stat-mean_timeseries.npy")]
    return {path.name: read_connectome(path) for path in sorted(arrays)}


def assert_written(out: Path, truths: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The connectomes of a run are these, in the order of their names."""
    there = written(out)
    np.testing.assert_allclose([*there.values()], truths, rtol=0, atol=1e-12)
    return there


def test_series_of_nilearn_become_the_connectomes_that_they_are(tmp_path, monkeypatch):
    """The script of the documentation makes the list that the command reads."""
    monkeypatch.chdir(tmp_path)
    (script,) = code_blocks(read(DOCS / "from_elsewhere.md"), "python")
    exec(script, {"series": SERIES})
    out = group(tmp_path, "-d", f"list={tmp_path / 'connectomes.tsv'}")
    assert_written(out, expected())


def states(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def expected(one_session: bool = False) -> list[np.ndarray]:
    return [np.corrcoef(values.T) for (_, session), values in SERIES.items() if session == "a" or not one_session]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The tree of every program through the group level: its folder, the outputs, whether the source was left alone."""
    found = {}
    for name, make in (TREES | {"old_xcpd": sources.old_xcpd}).items():
        folder = tmp_path_factory.mktemp(name)
        make(folder / "source")
        before = states(folder / "source")
        analyses = ("--analyses", "spectrum_geometry") if name in ONE_SESSION else ()
        out = group(folder, "-d", f"{name.removeprefix('old_')}={folder / 'source'}", *analyses)
        assert states(folder / "source") == before
        found[name] = out
    return found


@pytest.mark.parametrize("layout", TREES)
def test_a_tree_of_another_program_gives_its_connectomes(layout, runs):
    out = runs[layout]
    there = assert_written(out, expected(layout in ONE_SESSION))
    assert len(there) == len(SCANS) // (2 if layout in ONE_SESSION else 1)
    assert {name.endswith("_timeseries.npy") for name in there} == {layout != "conn"}
    assert str(out.parent) not in "".join(path.read_text() for path in out.rglob("func/*.json"))


@pytest.mark.parametrize("name", ["xcpd", "old_xcpd", "giga", "halfpipe"])
def test_motion_and_minutes_come_from_the_tables_of_the_other_program(name, runs):
    scans = pd.read_csv(runs[name] / "group" / "scans.tsv", sep="\t")
    assert scans["mean_fd"].tolist() == pytest.approx([MEAN_FD[scan] for scan in SCANS])
    if name != "old_xcpd":  # it tells no repetition time
        assert scans["seconds"].tolist() == pytest.approx([T * TR] * len(SCANS))


def test_cifti_series_of_xcpd_equal_its_tables(tmp_path):
    sources.xcpd(tmp_path / "source", cifti=True)
    out = group(tmp_path, "-d", tmp_path / "source")  # the layout is told by GeneratedBy
    assert_written(out, expected())


def test_volumes_that_xcpd_censored_are_left_out_of_its_interpolated_series(tmp_path):
    sources.xcpd(tmp_path / "source")
    out_of = np.zeros(T, dtype=int)
    out_of[[3, 4, 40]] = 1
    for person, session in SCANS:
        path = tmp_path / "source" / f"{sources.stem(person, session)}_outliers.tsv"
        pd.DataFrame({"framewise_displacement": out_of}).to_csv(path, sep="\t", index=False)
    out = group(tmp_path, "-d", f"xcpd={tmp_path / 'source'}")
    assert_written(out, [np.corrcoef(values[out_of == 0].T) for values in SERIES.values()])


def write_list(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "list.tsv"
    pd.DataFrame(rows).to_csv(path, sep="\t", index=False)
    return path


def write_array(folder: Path, form: str, number: int, r: np.ndarray) -> dict[str, object]:
    """One connectome in one of the forms that people have, and its columns of the list."""
    path = folder / f"scan{number}"
    z = np.arctanh(r - np.eye(P))
    forms = {
        "tsv": lambda: (sources.table(path.with_suffix(".tsv"), r, index=NAMES), ".tsv", {}),
        "csv": lambda: (np.savetxt(path.with_suffix(".csv"), r, delimiter=","), ".csv", {}),
        "z": lambda: (np.savetxt(path.with_suffix(".txt"), z), ".txt", {"scale": "z"}),
        "triangle": lambda: (np.savetxt(path.with_suffix(".txt"), np.triu(r)), ".txt", {}),
        "upper": lambda: (np.save(path.with_suffix(".npy"), r[UPPER]), ".npy", {"order": "upper"}),
        "lower": lambda: (np.save(path.with_suffix(".npy"), r[np.tril_indices(P)]), ".npy", {"order": "lower"}),
        "squareform": lambda: (
            savemat(path.with_suffix(".mat"), {"v": squareform(r - np.eye(P), checks=False)}),
            ".mat",
            {},
        ),
        "npz": lambda: (np.savez(path.with_suffix(".npz"), fc=r, other=z), ".npz", {"key": "fc"}),
        "matlab5": lambda: (savemat(path.with_suffix(".mat"), {"r": r, "z": z}), ".mat", {"key": "r"}),
        "pconn": lambda: (
            nibabel.Cifti2Image(r, (sources.parcels(), sources.parcels())).to_filename(f"{path}.pconn.nii"),
            ".pconn.nii",
            {},
        ),
    }
    _, ending, columns = forms[form]()
    return {"path": path.name + ending, **columns}


@pytest.mark.parametrize(
    "forms",
    [("tsv", "pconn"), ("csv", "z", "triangle", "upper", "lower", "squareform", "npz", "matlab5")],
    ids=["with names", "without"],
)
def test_a_list_reads_every_form_of_a_matrix(forms, tmp_path):
    """In one list, which may hold matrices of several forms."""
    rows = [
        {
            "participant_id": f"sub-{person}",
            "session_id": f"ses-{session}",
            **write_array(tmp_path, forms[number % len(forms)], number, np.corrcoef(values.T)),
            "minutes": 2.0,
            "mean_fd": MEAN_FD[person, session],
        }
        for number, ((person, session), values) in enumerate(SERIES.items())
    ]
    out = group(tmp_path, "-d", f"list={write_list(tmp_path, rows)}")
    assert_written(out, expected())
    scans = pd.read_csv(out / "group" / "scans.tsv", sep="\t")
    assert scans["seconds"].tolist() == [120.0] * len(SCANS)


def scrambled(r):
    upper = np.zeros((P, P))
    upper[UPPER] = np.random.default_rng(0).permutation(np.resize([0.9, -0.9], UPPER[0].size))
    return np.eye(P) + upper + upper.T


FAULTS = {
    "r above 1": (lambda r: np.arctanh(r - np.eye(P)) * 3 + np.eye(P), {}, "declare it as z"),
    "small z": (lambda r: np.arctanh(r / 4 - np.eye(P) / 4) + 18.7 * np.eye(P), {}, "has 18.7 on its diagonal"),
    "z with an infinite diagonal": (lambda r: r / 4 + np.diag([np.inf] * P), {}, "has inf on its diagonal"),
    "a covariance": (lambda r: r * np.outer(*[np.linspace(0.3, 0.9, P)] * 2), {}, "a covariance has to be scaled"),
    "shrunk": (lambda r: 0.97 * r, {}, "it has 0.97 on its diagonal, where correlations have 1"),
    "z that is r": (lambda r: r, {"scale": "z"}, "declare it as r"),
    "not square": (lambda r: r[:, :-1], {}, "neither a square matrix"),
    "a wrong length": (lambda r: r[UPPER][:-1], {}, "no triangle"),
    "two different halves": (lambda r: r + np.triu(np.ones((P, P)), 1) / 3, {}, "halves differ"),
    "holes": (lambda r: np.where((np.arange(P)[:, None] + np.arange(P)) == 1, np.nan, r), {}, "are missing"),
    "values in other places": (scrambled, {}, "eigenvalue"),
    "no correlations": (lambda r: np.where(np.eye(P) > 0, 1, -0.9), {}, "which no correlation matrix has"),
}


def test_a_matrix_that_is_not_what_is_declared_is_named_and_stops_no_other(tmp_path):
    rows = []
    for number, ((person, session), values) in enumerate(SERIES.items()):
        np.savetxt(tmp_path / f"{number}.txt", np.corrcoef(values.T))
        rows.append({"participant_id": person, "session_id": session, "path": f"{number}.txt"})
    sources.table(tmp_path / "twins.tsv", np.corrcoef(SERIES[SCANS[0]].T), header=[NAMES[0], *NAMES[:-1]])
    rows.append({"participant_id": "twins", "session_id": "a", "path": "twins.tsv"})
    np.savetxt(tmp_path / "0.txt", np.corrcoef(SERIES[SCANS[0]].T), fmt="%.2f")  # which is no fault
    for number, (spoil, columns, _) in enumerate(FAULTS.values()):
        np.savetxt(tmp_path / f"bad{number}.txt", spoil(np.corrcoef(SERIES[SCANS[0]].T)))
        rows.append({"participant_id": f"bad{number}", "session_id": "a", "path": f"bad{number}.txt", **columns})
    out = group(tmp_path, "-d", f"list={write_list(tmp_path, rows)}")
    assert len(written(out)) == len(SCANS)
    excluded = pd.read_csv(out / "group" / "excluded.tsv", sep="\t").set_index("participant_id")["reason"]
    assert "two parcels of one name" in excluded["sub-twins"]
    for number, (_, _, said) in enumerate(FAULTS.values()):
        assert said in excluded[f"sub-bad{number}"]
        assert f"bad{number}.txt" in excluded[f"sub-bad{number}"]


def test_a_source_is_read_again_where_it_has_changed(tmp_path):
    sources.giga(tmp_path / "source")
    option = ("-d", f"giga={tmp_path / 'source'}")
    out = group(tmp_path, *option)
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("sub-*.npy")}
    changed = next((tmp_path / "source").rglob("sub-02_ses-a*denoiseSimple_timeseries.tsv"))
    values = pd.read_csv(changed, sep="\t")
    values.iloc[::-1].assign(Area0=values["Area1"] + values["Area3"]).to_csv(changed, sep="\t", index=False)
    group(tmp_path, *option)
    again = {path.name for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp}
    assert {name[:12] for name in again} == {"sub-02_ses-a"}


def test_series_are_kept_in_the_numbers_that_they_have(tmp_path):
    """Whole numbers, single and double precision, and a constant parcel, whose numbers cannot stay whole."""
    whole = {scan: np.round(values * 20) for scan, values in SERIES.items()}
    forms = {
        "int16": lambda v: v.astype(np.int16),
        "int32": lambda v: v.astype(np.int32),
        "float32": lambda v: (v / 7).astype(np.float32),
        "float64": lambda v: v / 7,
        "constant": lambda v: np.where(np.arange(P) == 2, 5, v).astype(np.int16),
    }
    kept = {"int16": "int16", "int32": "int16", "float32": "float32", "float64": "float64", "constant": "float32"}
    rows, truths = [], {}
    for name, values in zip(forms, whole.values(), strict=False):
        np.save(tmp_path / f"{name}.npy", forms[name](values))
        rows.append({"participant_id": name, "path": f"{name}.npy", "kind": "series", "repetition_time": TR})
        varied = np.where(np.ptp(forms[name](values), axis=0) > 0, forms[name](values).astype(float), np.nan)
        truths[name] = np.corrcoef(varied.T)
    out = group(tmp_path, "-d", f"list={write_list(tmp_path, rows)}", "--analyses", "spectrum_geometry")
    for name, truth in truths.items():
        (path,) = out.glob(f"sub-{name}/**/*_timeseries.npy")
        assert np.load(path).dtype == kept[name]
        np.testing.assert_allclose(read_connectome(path), truth, rtol=0, atol=1e-12)
    assert pd.read_csv(out / "group" / "scans.tsv", sep="\t")["seconds"].tolist() == pytest.approx([T * TR] * 5)
