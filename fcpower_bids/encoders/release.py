"""The released F-BERT models and corpus: where they are, under what terms, and what they expect as input."""

from __future__ import annotations

HUB_IDS = {"fbert-1m": "Marraffini-Giovanni/fbert-1m", "fbert-8m": "Marraffini-Giovanni/fbert-8m"}
"""Where the paper's weights were released."""

CORPUS_ID = "Marraffini-Giovanni/fbert-corpus"
"""The public corpus: 106,397 windows of 27,835 recordings of 162 datasets, 26 GB, a licence per dataset."""

LICENCE = "CC BY-NC 4.0"
"""Of the released weights: attribution, no commercial use."""

INPUT = (
    "450 parcels (Schaefer-400 and the 50 subcortical ones of Tian S3), 0.01-0.08 Hz, z-scored per parcel, any length"
)
"""Input of the released models in training: ``(batch, 450, time)``; here ``(B, T, P)``, and parcels by name."""

NOTICE = f"The released F-BERT weights are under {LICENCE}: name their authors, no commercial use. Input: {INPUT}."
