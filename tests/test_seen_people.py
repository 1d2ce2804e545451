"""Who was in the training of an encoder is left out of what judges it, and named.

From the images to the page, by the commands.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from tests.cases.cohorts import read
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
    later = next((place / "out").rglob("sub-02_ses-b_*_embedding.json"))  # as where the dataset got another name
    later.write_text(later.read_text().replace('"trained"', '"no"'))
    return place


def test_embeddings_do_not_say_where_the_weights_lie(study):
    assert not telling(study / "out", [str(study)], "logs", "work")
    about = next((study / "out").rglob("*_embedding.json")).read_text()
    assert '"weights": "model"' in about


def group(study, *options: str) -> int:
    representations = ("--representations", "fc", "embedding", "--targets", "planted_score", "--nprocs", "1")
    return main([str(study / "bids"), str(study / "out"), "group", *representations, *options])


def test_the_corpus_holds_the_named_people_and_no_others(study, capsys):
    packed = pd.read_csv(study / "out" / "corpus" / "recordings.tsv", sep="\t", dtype=str)
    assert set(packed["subject"]) == set(TRAINED)
    run = [str(study / "bids"), str(study / "out"), "pretrain", "--steps", "0", "--quiet", "--nprocs", "1"]
    assert main([*run, "--participant-label", "01"]) == 3
    assert "already holds people that --participant-label does not name (02)" in capsys.readouterr().err
    assert main([*run, "--participant-label", "01", "02", "99"]) == 3
    assert "has no series of sub-99: correct --participant-label. There are 01, 02" in capsys.readouterr().err


def methods(study, name: str = "") -> str:
    """The methods text of the page."""
    page = (study / "out" / f"group{f'_{name}' * bool(name)}.html").read_text()
    return " ".join(page.split())


QUICK = ["--folds", "2", "--inner-folds", "2", "--repeats", "2", "--permutations", "20"]


def test_people_of_the_training_are_left_out_and_named(study, capsys):
    assert group(study, "--analyses", "prediction", "fingerprinting", *QUICK) == 0
    said = capsys.readouterr().err
    assert f"'fbert' was trained on 2 of the {PEOPLE} people who have one (sub-01, sub-02)" in " ".join(said.split())
    excluded = read(study, "excluded")
    trained = excluded[excluded["reason"] == "the encoder of the embedding 'fbert' was trained on this person"]
    assert trained["participant_id"].tolist() == ["sub-01", "sub-01", "sub-02", "sub-02"]
    assert f"had been trained on {len(TRAINED)} people of the cohort, whose embeddings" in methods(study)
    one, other = (
        [
            pd.read_csv(next((study / "out").rglob(f"sub-{label}_ses-{day}_*_embedding.tsv")), sep="\t")
            for label in OTHERS
        ]
        for day in "ab"
    )
    similar = np.corrcoef(np.vstack(one), np.vstack(other))[: len(OTHERS), len(OTHERS) :]
    right = [(similar.argmax(axis) == np.arange(len(OTHERS))).mean() for axis in (0, 1)]
    scores = read(study, "identification").set_index("representation")["accuracy"]
    assert scores[EMBEDDING] == pytest.approx(np.mean(right))
    others = {f"sub-{label}" for label in OTHERS}
    for name in ("predictions", "identification_scans"):
        assert read(study, name).groupby("representation")["participant_id"].agg(set).to_dict() == {
            "fc": others,
            EMBEDDING: others,
        }


def test_where_it_was_trained_on_everybody_nothing_is_scored(study, capsys):
    chosen = ("--participant-label", *TRAINED, "--analyses", "fingerprinting", "--name", "two")
    assert group(study, *chosen) == 3
    assert "trained on everyone here who has one" in " ".join(capsys.readouterr().err.split())
    run = [str(study / "bids"), str(study / "out"), "group", *chosen, "--quiet", "--nprocs", "1"]
    assert main(run) == 0, "FC and FC^alpha need no encoder"
    assert "Left out for" not in methods(study, "two"), "nobody who could take part is missing"
    assert "whose embeddings" not in methods(study, "two")
