"""Every output name is in the order of the specification and keeps every source entity."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcpower_bids.errors import DatasetError
from fcpower_bids.outputs import names as paths
from fcpower_bids.records import Atlas, Output, Recording

ATLAS = Atlas(
    (("atlas", "Schaefer2018"), ("seg", "7n"), ("scale", "400")), Path("a.nii.gz"), "X", (1,), ("p",), ("n",), ("L",)
)
SOURCE_KEYS = [k for k in paths.ENTITY_ORDER if k not in ("sub", "atlas", "seg", "scale", "stat", "desc", "tpl")]


def recording(**entities):
    return Recording(Path("b.nii.gz"), paths.order_entities(tuple({"sub": "01", **entities}.items())), 2.0)


def test_order_follows_the_schema_that_the_validator_uses():
    schema = pytest.importorskip("bidsschematools.schema", reason="bidsschematools comes with pybids").load_schema()
    order = [schema.objects.entities[name].name for name in schema.rules.entities]
    ours = [key for key in paths.ENTITY_ORDER if key != "stat"]
    assert ours == order


def test_the_name_of_the_specification():
    path = paths.output_path(
        Path("out"), recording(ses="a", task="rest", space="MNI", res="2"), paths.CONNECTIVITY, ATLAS
    )
    assert path.as_posix() == (
        "out/sub-01/ses-a/func/sub-01_ses-a_task-rest_space-MNI_atlas-Schaefer2018_seg-7n_scale-400_res-2"
        "_stat-pearsoncorrelation_relmat.tsv"
    )


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.dictionaries(st.sampled_from(SOURCE_KEYS), st.text("abXY019", min_size=1, max_size=8), max_size=8))
def test_no_source_entity_is_lost(entities):
    name = paths.output_path(Path("o"), recording(**entities), Output("relmat", (("desc", "power0p35"),)), ATLAS).name
    parsed, suffix, extension = paths.parse_name(name)
    assert (suffix, extension) == ("relmat", ".tsv")
    assert {**entities, "sub": "01", "desc": "power0p35"}.items() <= dict(parsed).items()
    ranks = [paths.ENTITY_ORDER.index(key) for key, _ in parsed]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("label", ["a_b", "a-b", "../x", "", "a b"])
def test_a_label_that_bids_forbids_is_refused(label):
    with pytest.raises(DatasetError, match="alphanumeric"):
        paths.order_entities((("sub", "01"), ("task", label)))


@pytest.mark.parametrize("name", ["bold.tsv", "sub-01", "sub01_bold.tsv"])
def test_what_is_no_bids_name(name):
    with pytest.raises(ValueError, match="not a BIDS"):
        paths.parse_name(name)
