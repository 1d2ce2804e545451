"""The page of a prediction: one sheet per person, and nothing but itself."""

from __future__ import annotations

import html
import re

import pandas as pd
import pytest

from fcpower_bids.clinic.page import answer_person, fitting, write_prediction_pages

NETWORKS = [f"within SalVentAttn{number}" for number in range(17)]
SCAN = "sub-01_ses-followup_task-rest_run-1_space-MNI152NLin2009cAsym_atlas-Schaefer2018_seg-17n_scale-400_res-2"
ROW = {
    "scan": f"{SCAN}_stat-pearsoncorrelation",
    "participant_id": "sub-01",
    "state": "predicted",
    "quality": "caution",
    "cautions": "The level of the whole brain changes by 7 % at volume 31. 31 % of the volumes were censored.",
    "warning": (
        "Treat with caution: the model was fitted on this very scan, so the prediction tests nothing; the person is 85 "
        "years old, the training people 20 to 60: the interval does not hold; the scan is unlike those of the training "
        "people; it has mean motion of 0.4 mm, the training scans 0.05 to 0.3."
    ),
    "reason": "",
    "prediction": 61.23,
    "low": 49.1,
    "high": 73.36,
    "classes": "",
    "minutes": 9.8,
    "mean_fd": 0.412,
    "differences": "fmriprep 23.2.0, the model's 25.1.0",
    "sha256": "0123456789abcdef" * 4,
}
FACTS = {
    "Target": "age",
    "PositiveClass": None,
    "NegativeClass": None,
    "Meaning": "residual after the covariates",
    "Covariates": ["sex", "mean_fd"],
    "Representation": "fc_power",
    "Alpha": 0.35,
    "Parcels": ["p"] * 400,
    "NumberOfPeople": 862,
    "NumberOfScans": 1000,
    "Sites": {f"s{number}": 40 for number in range(20)},
    "SoftwareVersion": "0.1.0",
    "Digests": {"weights.npz": "f" * 64},
    "Preprocessing": {"strategy": ["36p"], "band": ["0.01-0.08 Hz"], "atlas": ["Schaefer2018 17n 400"]},
    "Skill": {
        "Found": True,
        "P": 0.001,
        "Permutations": 1000,
        "Score": "r",
        "OverPeople": 0.7,
        "Error": 8.1,
        "ErrorOfGuess": 12.0,
    },
    "Interval": {
        "HoldsFor": "a person like these, of the same site",
        "NominalCoverage": 0.9,
        "MeasuredCoverage": 0.884,
        "Scans": 1000,
        "Radius": 12.13,
        "Least": 0.0,
    },
}
MEASURES = ["mean_fc", "participation_ratio", "similarity", *NETWORKS]
COMPARED = pd.DataFrame(
    [
        {"scan": ROW["scan"], "measure": name, "value": 0.3, "mean": 0.2, "sd": 0.04, "z": 2.5, "scans": 214}
        for name in MEASURES
    ]
)  # fmt: skip


def test_the_interval_comes_first_and_then_the_gravest(tmp_path):
    """Everything is said of a scan that can be; the page asks for nothing."""
    (page,), _ = write_prediction_pages(tmp_path, "target-age-fc-power", pd.DataFrame([ROW]), COMPARED, FACTS)
    source = html.unescape(page.read_text())
    assert not re.search(r'(src|href)="(?!data:|#)', source)
    told = [re.sub("<[^>]+>", "", one) for one in re.findall(r"<li>(.*?)</li>", source, re.DOTALL)]
    words = [ROW["warning"], "Unusual, beyond 2 standard deviations against the 214 training scans", "it held in 88."]
    words += [f"calls for caution: {ROW['cautions']}", f"otherwise than the training scans: {ROW['differences']}."]
    places = [next(place for place, one in enumerate(told) if each in one) for each in words]
    assert places == sorted(places)
    headline = "age, without what goes with sex and mean_fd: between 49 and 73; best guess 61."
    assert source.index(headline) < source.index(ROW["warning"])
    assert "Session followup, task rest, run 1" in source
    assert "The number is no age itself: the share of sex and mean_fd was taken off" in source


def test_a_person_with_several_scans_gets_one_answer():
    rows = [ROW | {"scan": f"sub-01_ses-{name}_task-rest", "prediction": value, "warning": ""} for name, value in
            (("a", 40.0), ("b", 50.0))]  # fmt: skip
    answer = answer_person(rows, COMPARED.iloc[:0], FACTS | {"Covariates": []})
    assert answer["headline"] == "age: between 33 and 57; best guess 45."
    assert answer["sentences"][0] == (
        "This is the mean of 2 scans, which give 40, 50; the interval is that of a single scan."
    )
    far = answer_person([rows[0], rows[1] | {"prediction": 70.0}], COMPARED.iloc[:0], FACTS | {"Covariates": []})
    assert "They differ by more than an interval is wide" in far["sentences"][1]
    assert [scan["title"] for scan in answer["scans"]] == ["Session a, task rest", "Session b, task rest"]
    refused = [ROW | {"state": "refused", "reason": "It lacks parcels."}]
    answer = answer_person(refused, COMPARED.iloc[:0], FACTS)
    assert (answer["level"], answer["headline"]) == ("stop", "There is no prediction.")
    assert answer["scans"][0]["result"] == "No prediction. It lacks parcels."


@pytest.mark.parametrize(
    ("value", "width", "words"),
    [(45.61, 47.1, "46"), (3.14159, 4.4, "3.1"), (0.1234, 0.3, "0.12"), (1234.0, 900.0, "1,230"), (-0.4, 20.0, "0")],
)
def test_digits_fit_the_interval(value, width, words):
    assert fitting(value, width) == words
