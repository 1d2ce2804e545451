"""An encoder that was trained on the people that it is judged on is named, and its scores are marked.

From the images to the page, by the commands.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from tests.command import main
from tests.telling import telling

PEOPLE = 6
TRAINED = ("01", "02")
OTHERS = tuple(f"{number:02d}" for number in range(3, PEOPLE + 1))
EMBEDDING = "embedding:fbert"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Six people; an encoder trained on two of them; everybody's embeddings."""
    place = tmp_path_factory.mktemp("seen")
    make_dataset(place / "bids", DemoDesign.tiny(subjects=PEOPLE))
    run = [str(place / "bids"), str(place / "out")]
    here = ["--quiet", "--nprocs", "1"]
    two = ["--participant-label", *TRAINED]
    assert main([*run, "participant", "--atlas", "builtin", *two, *here]) == 0
    tiny = ["--architecture", "d=8", "layers=1", "heads=2", "ff=8", "--window", "40", "--steps", "1", "--held-out", "0"]
    assert main([*run, "pretrain", *two, *tiny, *here]) == 7
    weights = ["--encoder", "fbert", "--encoder-weights", str(place / "out" / "encoder" / "model")]
    assert main([*run, "participant", "--atlas", "builtin", *weights, *here]) == 0
    return place


def test_embeddings_do_not_say_where_the_weights_lie(study):
    assert not telling(study / "out", [str(study)], "logs", "work")
    about = next((study / "out").rglob("*_embedding.json")).read_text()
    assert '"weights": "model"' in about


def group(study, *options: str) -> int:
    representations = ("--representations", "fc", "embedding", "--targets", "planted_score", "--nprocs", "1")
    return main([str(study / "bids"), str(study / "out"), "group", *representations, *options])


def table(study, name: str, folder: str = "group") -> pd.DataFrame:
    return pd.read_csv(study / "out" / folder / f"{name}.tsv", sep="\t", na_values="n/a", keep_default_na=False)


def test_the_corpus_holds_the_named_people_and_no_others(study, capsys):
    packed = pd.read_csv(study / "out" / "corpus" / "recordings.tsv", sep="\t", dtype=str)
    assert set(packed["subject"]) == set(TRAINED)
    run = [str(study / "bids"), str(study / "out"), "pretrain", "--steps", "0", "--quiet", "--nprocs", "1"]
    assert main([*run, "--participant-label", "01"]) == 3
    assert "already holds people that --participant-label does not name (02)" in capsys.readouterr().err
    assert main([*run, "--participant-label", "01", "02", "99"]) == 3
    assert "has no series of sub-99: correct --participant-label. There are 01, 02" in capsys.readouterr().err


def test_the_check_names_them(study, capsys):
    assert group(study, "--analyses", "check", "--name", "all") == 0
    found = table(study, "check", "group/all").set_index("check").loc["people seen in pretraining"]
    assert found["level"] == "alarm"
    assert (found["n"], found["value"]) == (2, pytest.approx(2 / PEOPLE))
    assert f"was trained on 2 of the {PEOPLE} people of this cohort (sub-01, sub-02)" in found["finding"]
    assert f"was trained on 2 of the {PEOPLE} people" in capsys.readouterr().err
    marks = table(study, "embedded_people", "group/all").set_index("participant_id")["seen_in_pretraining"]
    assert marks.to_dict() == {f"sub-{one}": "trained" if one in TRAINED else "no" for one in (*TRAINED, *OTHERS)}


def features(study, label: str, kind: str) -> dict[str, np.ndarray]:
    found = {}
    for session in "ab":
        folder = study / "out" / f"sub-{label}" / f"ses-{session}" / "func"
        (path,) = folder.glob(f"*_{kind}.tsv")
        values = pd.read_csv(path, sep="\t", index_col="Node" if kind.endswith("relmat") else None).to_numpy()
        found[session] = values[np.triu_indices(len(values), 1)] if len(values) > 1 else values[0]
    return found


def share_found(study, labels, kind: str) -> float:
    """Nearest scan of the other session by correlation, mean of both directions; embedding dimensions z-scored."""
    each = [features(study, label, kind) for label in labels]
    stacked = np.array([one[session] for session in "ab" for one in each])
    n = len(labels)
    r = np.corrcoef(stacked)[:n, n:]
    return float(np.mean([*(r.argmax(1) == range(n)), *(r.argmax(0) == range(n))]))


@pytest.fixture(scope="module")
def scored(study):
    """Tables of the prediction and the identification."""
    quick = "--folds 3 --inner-folds 2 --repeats 2 --permutations 20 --quiet"
    assert group(study, "--analyses", "prediction", "fingerprinting", *quick.split()) == 0
    return study


def test_scores_are_marked(scored):
    study = scored
    whole = table(study, "identification").set_index("representation")
    assert whole.loc[EMBEDDING, "n_trained"] == 2
    assert np.isnan(whole.loc["fc", "n_trained"])
    kinds = {"fc": "stat-pearsoncorrelation_relmat", EMBEDDING: "desc-fbert_embedding"}
    for name, kind in kinds.items():
        assert whole.loc[name, "accuracy"] == pytest.approx(share_found(study, (*TRAINED, *OTHERS), kind))
    scans = table(study, "identification_scans").set_index(["representation", "participant_id"])["seen_in_pretraining"]
    assert set(scans[EMBEDDING, "sub-01"]) == {"trained"}
    assert set(scans[EMBEDDING, "sub-03"]) == {"no"}


def test_predictions_are_marked(scored):
    study = scored
    predictions = table(study, "predictions")
    marked = predictions[predictions["seen_in_pretraining"] == "trained"]
    assert set(marked["participant_id"]) == {"sub-01", "sub-02"}
    assert set(marked["representation"]) == {EMBEDDING}
    assert table(study, "prediction_summary").set_index("representation").loc[EMBEDDING, "n_trained"] == 2
