"""Columns that an analysis names are checked before anything is computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcpower_bids.cohort.people import Phenotypes
from fcpower_bids.cohort.phenotype_columns import resolve_columns
from fcpower_bids.errors import DatasetError
from fcpower_bids.settings import Settings

FRAME = pd.DataFrame(
    {
        "age": [20.0, 30.0, 40.0, 50.0],
        "score": [1.0, np.nan, 3.0, 4.0],
        "sex": ["M", "F", "M", np.nan],
        "hand": ["left", "right", "both", "left"],
        "site": ["x", "x", "y", "y"],
        "family_id": ["1", "1", "2", "3"],
        "years": ["9", "12", "?", "16"],
        "constant": [7.0] * 4,
        "empty": [np.nan] * 4,
        "huge": [1.0, 2.0, 1e160, 3.0],
        "tiny": [1e-310, 2e-310, 3e-310, 4e-310],
        "rounded": [1e9, 1e9 + 1.2e-7, 1e9, 1e9 + 2.4e-7],
        "rare": [0.0, 1.0, 0.0, 0.0],
    },
    index=pd.Index(["sub-1", "sub-2", "sub-3", "sub-4"], name="participant_id"),
)


def resolve(conflicts=None, **choices):
    settings = replace(Settings(Path("bids"), Path("out"), "group"), **choices)
    return resolve_columns(Phenotypes(FRAME, tuple(FRAME.columns), conflicts or {}), FRAME, settings)


def test_targets_default_to_the_numeric_columns_that_vary_and_have_no_other_role():
    found = resolve(covariates=("age",), family_column="family_id")
    assert found.targets == ("score",)
    assert "constant, empty, huge, tiny, rounded, rare" in " ".join(found.notes)
    assert resolve(conflicts={"score": "differs"}).targets == ("age",)


def test_named_targets_keep_their_order_and_composites_alone_need_none():
    assert resolve(targets=("score", "age", "score")).targets == ("score", "age")
    assert resolve(targets=("g=age,score",)).targets == ()
    assert Settings(Path(), Path(), "group", targets=("g=age, score",)).composites == {"g": ("age", "score")}


def test_two_levels_are_coded_alphabetically_and_it_is_said():
    assert "sex is coded F = 0, M = 1." in resolve(targets=("sex",)).notes


def test_who_misses_a_value_in_use_is_reported():
    rows = resolve(targets=("score",), covariates=("sex",)).rows
    assert [(row.participant_id, row.what, row.reason) for row in rows] == [
        ("sub-2", "value", "missing: score"),
        ("sub-4", "value", "missing: sex"),
    ]


def test_motion_is_a_covariate_without_a_table_and_text_covariates_may_have_many_levels():
    assert resolve(targets=("age",), covariates=("mean_fd", "hand")).targets == ("age",)


def test_numbers_in_an_identifier_column_can_be_predicted():
    found = resolve(targets=("family_id",))
    assert found.frame["family_id"].tolist() == [1.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"targets": ("agee",)}, r"No phenotype table has a column 'agee'. Did you mean 'age'\?"),
        ({"covariates": ("zzz",)}, r"column 'zzz'. There are: age, score"),
        ({"family_column": "family"}, r"column 'family'. Did you mean 'family_id'"),
        ({"site_column": "Site"}, r"column 'Site'. Did you mean 'site'"),
        ({"targets": ("g=age,scor",)}, r"column 'scor'. Did you mean 'score'"),
        ({"targets": ("g=age,age",)}, r"composite 'g' needs two"),
        ({"targets": ("age=score,family_id",)}, r"composite 'age' has the name of a column"),
        ({"targets": ("g=age,sex",)}, r"target 'sex' is not numeric: sub-1 has 'M'. Only numbers can"),
        ({"targets": ("constant",)}, r"target 'constant' is constant \(7.0\)"),
        ({"targets": ("empty",)}, r"column 'empty' is missing for all 4 people"),
        ({"covariates": ("empty",)}, r"column 'empty' is missing for all 4 people"),
        ({"targets": ("hand",)}, r"target 'hand' is not numeric: sub-1 has 'left'. Only numbers or text of two"),
        ({"targets": ("years",)}, r"target 'years' is not numeric: sub-3 has '\?'. .* missing_values 'years=\?'"),
        (
            {"targets": ("age",), "covariates": ("years",)},
            r"'years' has words .*sub-3 has '\?'.* 'years=\?' in --config-file",
        ),
        ({"targets": ("huge",)}, r"'huge' has 1e\+160 for sub-3, .* missing_values huge=1e\+160"),
        ({"targets": ("age",), "covariates": ("huge",)}, r"'huge' has 1e\+160 for sub-3"),
        ({"targets": ("g=age,tiny",)}, r"'tiny' has no value above 4e-310"),
        ({"targets": ("rounded",)}, r"'rounded' varies by 2.38419e-07 around 1e\+09"),
        ({"targets": ("rare",)}, r"'rare' has two values, and sub-2 alone has one of them \(1.0\)"),
        ({"targets": ("age",), "covariates": ("age",)}, r"'age' is both target and covariate"),
        ({"targets": ("g=age,score",), "site_column": "age"}, r"'age' is both target and site or family"),
        ({"targets": ("family_id",), "family_column": "family_id"}, r"'family_id' is both target and site or family"),
    ],
)
def test_a_column_that_cannot_be_used_is_one_sentence(choices, words):
    with pytest.raises(DatasetError, match=words) as caught:
        resolve(**choices)
    assert caught.value.exit_code == 3
    assert len(str(caught.value).splitlines()) == 1


def test_a_table_of_strangers_is_blamed_for_their_names_and_not_for_the_column():
    frame = pd.concat([FRAME[["age"]], pd.DataFrame({"iq": [100.0, 120.0]}, index=["sub-X1", "sub-X2"])])
    with pytest.raises(DatasetError, match=r"'iq' is known for 2 people without scans \(such as sub-X1\), .*sub-1\)"):
        resolve_columns(Phenotypes(frame), frame.loc[FRAME.index], Settings(Path(), Path(), "group", targets=("iq",)))


def test_all_problems_are_told_at_once():
    with pytest.raises(DatasetError) as caught:
        resolve(targets=("constant", "hand"), covariates=("zzz",))
    assert len(str(caught.value).splitlines()) == 3


def test_a_contradiction_matters_where_the_column_is_used():
    assert resolve(conflicts={"hand": "The column 'hand' differs."}, targets=("age",)).targets == ("age",)
    with pytest.raises(DatasetError, match="'hand' differs"):
        resolve(conflicts={"hand": "The column 'hand' differs."}, targets=("age",), covariates=("hand",))
