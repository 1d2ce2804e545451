"""The page of a prediction in a browser: one sheet per person, and nothing but itself."""

from __future__ import annotations

import base64

import pandas as pd
import pytest

from fcpower_bids.slices.clinic.page import write_prediction_pages

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
    "low_new_site": 40.0,
    "high_new_site": 82.46,
    "classes": "",
    "similarity_percentile": 0.4,
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
    "HeldOutScores": {"site": {"s0": {"r": 0.1}, "s1": {"r": 0.3}, "s2": {"r": None}, "s3": {"r": 0.7}}},
    "Interval": {
        "HoldsFor": "a person of a site like these",
        "HeldOut": "site",
        "NominalCoverage": 0.9,
        "MeasuredCoverage": 0.884,
        "LeastCoverageOfAGroup": 0.28,
        "Groups": 20,
    },
}
MEASURES = ["mean_fc", "participation_ratio", "similarity", *NETWORKS]
COMPARED = pd.DataFrame(
    [
        {"scan": ROW["scan"], "measure": name, "value": 0.3, "mean": 0.2, "sd": 0.04, "z": 2.5, "percentile": 99.0,
         "matched": True, "same_sex": True, "scans": 214}
        for name in MEASURES
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """The page of a scan of which everything is said that can be, opened."""
    folder = tmp_path_factory.mktemp("prediction")
    (page,), _ = write_prediction_pages(folder, "target-age-fc-power", pd.DataFrame([ROW]), COMPARED, FACTS, {})
    browser.open(page)
    return browser


def test_it_prints_on_one_sheet(opened):
    printed = opened.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"]
    content = base64.b64decode(printed)
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") == 1


def test_it_is_silent_and_says_the_gravest_first(opened):
    assert opened.messages == []
    assert len(opened.requests) == 1
    told = opened.evaluate("[...document.querySelectorAll('.problems li')].map((one) => one.innerText)")
    assert told[0] == ROW["warning"]
    assert told[1] == f"The scan itself calls for caution: {ROW['cautions']}"
    assert told[2].endswith("held out of the training it held in 88, in the worst part in 28.")
    assert told[3] == "For a site that is unlike those of the training: 40.00 to 82.46."
    assert told[4].startswith("Unusual, beyond 2 standard deviations against 214 training scans of similar motion and ")
    assert told[5:] == [f"Made otherwise than the training scans: {ROW['differences']}."]
    headline = opened.evaluate("document.querySelector('#scan1 h2').innerText")
    assert headline.removeprefix("! ") == "age, without what goes with sex and mean_fd: 61.23, interval 49.10 to 73.36."
    limits = opened.evaluate("document.body.innerText")
    assert "The number is no age itself: the share of sex and mean_fd was taken off, so that 0 is" in limits
    card = opened.evaluate("document.querySelector('#model').innerText")
    assert "r 0.30 at the median of 3 held-out sites, 0.10 to 0.70" in card
