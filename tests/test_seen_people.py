"""Who was in the training of an encoder is left out of what judges it, and named.

From the images to the page, by the commands.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.demo import DemoDesign, make_dataset
from tests.cases.cohorts import read
from tests.referee import identified
from tests.running import run
from tests.telling import telling

PEOPLE = 6
TRAINED = ("01", "02")
OTHERS = tuple(f"{number:02d}" for number in range(3, PEOPLE + 1))
EMBEDDING = "embedding:fbert"


def command(study, *words, code=0) -> str:
    """What is said on the terminal, in one line."""
    said = run(study / "bids", study / "out", *words, "--nprocs", "1", code=code).err
    return " ".join(said.split())


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Six people; an encoder trained on two of them; everybody's embeddings."""
    place = tmp_path_factory.mktemp("seen")
    make_dataset(place / "bids", DemoDesign.tiny(subjects=PEOPLE))
    two = ("--participant-label", *TRAINED)
    command(place, "participant", "--atlas", "builtin", *two)
    tiny = ("--architecture", "d=8", "layers=1", "heads=2", "ff=8", "--window", "40", "--steps", "1", "--held-out", "0")
    command(place, "pretrain", *two, *tiny, code=7)
    weights = ("--encoder", "fbert", "--encoder-weights", place / "out" / "encoder" / "model")
    command(place, "participant", "--atlas", "builtin", *weights)
    later = next((place / "out").rglob("sub-02_ses-b_*_embedding.json"))  # as where the dataset got another name
    later.write_text(later.read_text().replace('"trained"', '"no"'))
    return place


def test_embeddings_do_not_say_where_the_weights_lie(study):
    assert not telling(study / "out", [str(study)], "logs", "work")
    about = next((study / "out").rglob("*_embedding.json")).read_text()
    assert '"weights": "model"' in about


ASKED = ("group", "--representations", "fc", "embedding", "--targets", "planted_score")


def test_the_corpus_holds_the_named_people_and_no_others(study):
    packed = pd.read_csv(study / "out" / "corpus" / "recordings.tsv", sep="\t", dtype=str)
    assert set(packed["subject"]) == set(TRAINED)
    words = ("pretrain", "--steps", "0", "--participant-label", "01")
    told = command(study, *words, code=3)
    assert "already holds people that --participant-label does not name (02)" in told
    told = command(study, *words, "02", "99", code=3)
    assert "has no series of sub-99: correct --participant-label. There are 01, 02" in told


def methods(study, name: str = "") -> str:
    """The methods text of the page."""
    page = (study / "out" / f"group{f'_{name}' * bool(name)}.html").read_text()
    return " ".join(page.split())


QUICK = ["--folds", "2", "--inner-folds", "2", "--repeats", "2", "--permutations", "20"]


def test_people_of_the_training_are_left_out_and_named(study):
    said = command(study, *ASKED, "--analyses", "prediction", "fingerprinting", *QUICK)
    assert f"'fbert' was trained on 2 of the {PEOPLE} people who have one (sub-01, sub-02)" in said
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
    scores = read(study, "identification").set_index("representation")["accuracy"]
    assert scores[EMBEDDING] == pytest.approx(identified(np.vstack(one), np.vstack(other)))
    others = {f"sub-{label}" for label in OTHERS}
    for name in ("predictions", "identification_scans"):
        there = read(study, name).groupby("representation")["participant_id"].agg(set)
        assert there.to_dict() == dict.fromkeys(("fc", EMBEDDING), others)


def test_where_it_was_trained_on_everybody_nothing_is_scored(study):
    chosen = ("--participant-label", *TRAINED, "--analyses", "fingerprinting", "--name", "two")
    assert "trained on everyone here who has one" in command(study, *ASKED, *chosen, code=3)
    command(study, "group", *chosen)  # FC and FC^alpha need no encoder
    assert "Left out for" not in methods(study, "two"), "nobody who could take part is missing"
    assert "whose embeddings" not in methods(study, "two")
