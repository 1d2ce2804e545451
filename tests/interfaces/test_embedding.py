"""The embedding step: the choices of the user reach the encoder, under a name that tells them apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fcpower_bids.encoders import embedding_label
from fcpower_bids.encoders.published.parcel_orders import parcel_order
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import describe_atlas
from fcpower_bids.interfaces.embedding import Embed, _encoder
from fcpower_bids.interfaces.nodes import load_bundle, save_bundle
from fcpower_bids.records import Atlas
from fcpower_bids.settings import Settings
from tests.encoders.published.test_brainmass import published_shapes

ORDER = parcel_order("Schaefer100")


def atlas_of(folder, names, entity="Mine") -> Atlas:
    (image := folder / "mine.nii.gz").write_bytes(b"an image that nothing reads")
    unknown, labels = ("n/a",) * len(names), tuple(range(1, len(names) + 1))
    return Atlas((("atlas", entity),), image, "MNI152NLin6Asym", labels, tuple(names), unknown, unknown)


@pytest.fixture
def chosen(tmp_path):
    """BrainMass of full size; its small weights are random."""
    generator = torch.Generator().manual_seed(0)
    state = {key: 0.05 * torch.randn(shape, generator=generator) for key, shape in published_shapes().items()}
    torch.save({"online_network_state_dict": state}, tmp_path / "best_model.pth")
    given = {"encoder": "brainmass", "encoder_weights": str(tmp_path / "best_model.pth"), "encoder_protocol": "paper"}
    return Settings(tmp_path, tmp_path, "participant").changed(**given)


def test_the_choices_of_the_user_reach_the_encoder(chosen, tmp_path):
    atlas = atlas_of(tmp_path, ORDER.names)
    with pytest.raises(UsageError, match="read their licence"):
        _encoder(chosen.method, atlas)
    settings = chosen.changed(accept_encoder_licence=True)
    encoder = _encoder(settings.method, atlas)
    assert encoder.embed([np.random.default_rng(0).standard_normal((50, 100))], atlas.names, 2.0).shape == (1, 800)
    facts = encoder.provenance(settings.method.encoder_read)
    assert (facts["name"], facts["protocol"], facts["n_parameters"]) == ("brainmass", "paper", 7_241_576)
    assert (facts["n_parcels"], facts["read"]) == (100, "whole recording (paper protocol)")
    with pytest.raises(UsageError, match="the functional gradients"):
        _encoder(settings.changed(encoder="brain-jepa", encoder_aux=(tmp_path,)).method, atlas)


def embed(folder, settings, atlases):
    """Run the node on one recording: the labels of its embeddings, and its problems by atlas."""
    rng = np.random.default_rng(0)
    series = [
        save_bundle(
            folder / f"{atlas.name}.npz",
            {"series": rng.standard_normal((60, 100))},
            {"atlas": atlas.name, "parcels": atlas.names, "repetition_time": 2.0},
        )
        for atlas in atlases
    ]
    node = Embed(
        series=series,
        atlases=[str(describe_atlas(atlas, folder)) for atlas in atlases],
        encoder=settings.method.encoder,
        encoder_weights=settings.method.encoder_weights,
        encoder_protocol=settings.method.encoder_protocol,
        accept_encoder_licence=True,
    )
    (folder / "node").mkdir(exist_ok=True)
    found = [load_bundle(path) for path in node.run(cwd=str(folder / "node")).outputs.embeddings]
    problems = {facts["atlas"]: facts["problem"] for _, facts in found if "problem" in facts}
    return [facts["label"] for arrays, facts in found if "embedding" in arrays], problems


def test_an_atlas_that_is_not_that_of_the_encoder_is_skipped_beside_one_that_is(chosen, tmp_path):
    settings = chosen.changed(accept_encoder_licence=True)
    named = atlas_of(tmp_path, ORDER.names)
    other = atlas_of(tmp_path, [f"roi{i}" for i in range(100)], "Other")
    found, problems = embed(tmp_path, settings, (named, other))
    assert found == ["brainmasspaper"]
    assert problems["atlas-Other"][0] == "skipped"
    found, problems = embed(tmp_path, settings, (other,))
    assert found == []
    assert problems["atlas-Other"][0] == "failed"
    assert "use --atlas Schaefer100" in problems["atlas-Other"][1]


@pytest.mark.parametrize(
    ("choices", "label"),
    [
        ({"encoder": "fbert-1m"}, "fbert1m"),
        ({"encoder": "fbert-1m", "encoder_read": "windows"}, "fbert1mwindows"),
        ({"encoder": "fbert-1m", "encoder_protocol": "paper"}, "fbert1m"),
        ({"encoder": "brain-jepa"}, "brainjepa"),
        ({"encoder": "brain-jepa", "encoder_protocol": "paper"}, "brainjepapaper"),
        ({"encoder": "brain-jepa", "encoder_read": "windows"}, "brainjepa"),
    ],
)
def test_only_what_changes_the_numbers_and_is_not_the_default_is_in_the_label(tmp_path, choices, label):
    assert embedding_label(Settings(tmp_path, tmp_path, "participant").changed(**choices).method) == label
