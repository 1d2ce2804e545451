"""Series of real people in `examples/stages`: as they are, painted into voxels, and through both levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fcpower_bids.core.connectome.spd import spectral_power
from fcpower_bids.demo.__main__ import main as demo
from fcpower_bids.demo.dataset import CENTRES
from fcpower_bids.outputs.tables import read_matrix, read_table
from tests.doors.ways_on import run, table
from tests.elsewhere.sources import read_connectome

STAGES = Path(__file__).parents[2] / "examples" / "stages"
UPPER = np.triu_indices(400, 1)
ALPHA = 0.35


@pytest.fixture(scope="module")
def series():
    with np.load(STAGES / "series.npz", allow_pickle=False) as archive:
        return {key: archive[key].astype(float) for key in archive.files if key != "parcels"}


def identification(features):
    """Mean of both directions; ``features`` by scan."""
    people = sorted({key.split("_")[0] for key in features})
    first, second = (np.array([features[f"{one}_{day}"] for one in people]) for day in ("ses-1", "ses-2"))
    across = np.corrcoef(first, second)[: len(people), len(people) :]
    return np.mean([across.argmax(axis=axis) == np.arange(len(people)) for axis in (0, 1)])


def test_the_series_are_those_of_the_source(shared, series):
    with np.load(shared / "data" / "stages" / "timeseries.npz", allow_pickle=False) as source:
        assert len(series) == 74
        for key, values in series.items():
            own = source[key][:, :400].astype(float)
            standard = (own - own.mean(axis=0)) / own.std(axis=0)
            np.testing.assert_allclose(values / 1000, standard, atol=0.00051)
        twice = {key.split("_")[0] for key in source.files if key.endswith("ses-2")}
    assert {key.split("_")[0] for key in series} == twice


def test_the_people_are_those_of_the_source(shared):
    own, source = table(STAGES / "participants.tsv"), table(shared / "data" / "stages" / "participants.tsv")
    there = source.drop_duplicates("participant_id").set_index("participant_id").loc[own["participant_id"]]
    assert there[own.columns[1:]].reset_index(drop=True).equals(own[own.columns[1:]])


def test_identification_of_37_people_is_the_published_one(series, tmp_path):
    ended = run(
        STAGES, tmp_path / "out", "group", "-d", f"list={STAGES / 'list.tsv'}", "--targets", "sofas_change_6mo",
        "--analyses", "fingerprinting", "prediction", "--repeats", "1", "--permutations", "0", "--nprocs", "2",
    )  # fmt: skip
    assert ended.code == 0, ended.said
    found = read_table(tmp_path / "out" / "group" / "identification.tsv").set_index("representation")
    written = found["accuracy"]
    cells = [
        f"{100 * row['accuracy']:.0f} % ({100 * row['ci_low']:.0f} to {100 * row['ci_high']:.0f})"
        for _, row in found.iterrows()
    ]
    readme = (STAGES.parents[1] / "README.md").read_text(encoding="utf-8").replace("**", "")
    assert " | ".join(cells) in readme, "the interval that the README states"
    connectomes = {key: np.corrcoef(values, rowvar=False) for key, values in series.items()}
    key = min(connectomes)
    (path,) = (tmp_path / "out").rglob(f"{key.replace('_', '*')}*_stat-pearsoncorrelation_relmat.npy")
    np.testing.assert_allclose(read_connectome(path), connectomes[key], rtol=0, atol=1e-12)
    assert written["fc"] == pytest.approx(identification({k: m[UPPER] for k, m in connectomes.items()}))
    assert written["fc"] == pytest.approx(0.838, abs=5e-4)
    raised = {key: spectral_power(matrix, ALPHA)[UPPER] for key, matrix in connectomes.items()}
    assert written["fc_power"] == identification(raised) == 1
    # everyone was scanned equally long: nothing is known of them without a scan
    assert not (tmp_path / "out" / "group" / "prediction_baselines.tsv").exists()
    networks = read_table(tmp_path / "out" / "group" / "importance_networks.tsv")
    assert {"Vis", "Default"} <= set(networks["network_a"])


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    """Two people through the participant level."""
    root = tmp_path_factory.mktemp("recorded")
    assert demo([str(root / "bids"), "--series", str(STAGES), "--subjects", "2"]) == 0
    atlas = next((root / "bids" / "atlas").glob("*.nii.gz"))
    ended = run(root / "bids", root / "out", "participant", "--atlas", atlas, "--nprocs", "2", "--quiet")
    assert ended.code == 0, ended.said
    return root / "out"


def test_painted_people_have_their_own_connectomes(painted, series):
    """Cleaning takes the invented artefacts out, and its filter the ends of the band."""
    found = {}
    for path in painted.glob("sub-*/ses-*/func/*_stat-pearsoncorrelation_relmat.tsv"):
        key = "_".join(path.name.split("_")[:2])
        found[key] = read_matrix(path)[0]
        true = np.corrcoef(series[key], rowvar=False)
        assert np.corrcoef(found[key][UPPER], true[UPPER])[0, 1] > 0.8
    assert len(found) == 4
    assert identification({key: spectral_power(matrix, ALPHA)[UPPER] for key, matrix in found.items()}) == 1


def test_parcels_lie_around_the_centres_of_their_atlas(painted):
    rows = table(next(painted.glob("sourcedata/**/*.tsv"), None) or next(painted.rglob("atlas-*_dseg.tsv")))
    centres = table(Path(str(CENTRES)))
    distance = np.linalg.norm(rows[["x", "y", "z"]].to_numpy() - centres[["x", "y", "z"]].to_numpy(), axis=1)
    assert rows["name"].tolist() == centres["name7"].tolist()
    assert np.quantile(distance, 0.95) < 8


@pytest.mark.parametrize("what", ["nothing there", "a folder with files"])
def test_a_wrong_folder_is_one_sentence(tmp_path, capsys, what):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    place, source = (tmp_path / "new", tmp_path / "none") if what == "nothing there" else (tmp_path / "full", STAGES)
    assert demo([str(place), "--series", str(source)]) == 2
    said = capsys.readouterr().err
    assert ("examples/stages" if what == "nothing there" else "not an empty folder") in said
