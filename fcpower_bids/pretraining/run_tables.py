"""The tables of a pretraining run, declared: its log, and what its model is compared with."""

from __future__ import annotations

from fcpower_bids.schema import Column, TableSpec, join_columns

LOG = TableSpec(
    "log",
    "One row per checkpoint or log step.",
    join_columns(
        Column.number("step", "Optimiser steps so far", "Step", 0),
        Column.number("loss", "Loss of the step", "Loss"),
        Column.number("learning_rate", "Learning rate", "Learning rate", 6),
        Column.number("gradient_norm", "Norm of the gradient before clipping", "Gradient"),
        Column.number("steps_per_s", "Steps per second", "Steps per s", 2, unit="1/s"),
        Column.number(
            "mfu",
            "Model FLOPs over the measured rate of a large matrix product on the same device, not over that of a data "
            "sheet",
            "Share of the product rate",
            2,
        ),
        Column.number(
            "peak_mb", "Largest memory so far, of the accelerator or else of the process", "MB", 0, unit="MB"
        ),
        Column.number("seconds_left", "Time that the remaining steps take at this speed", "Seconds left", 0, unit="s"),
        Column.number("cka", "Alignment of held-out embeddings with the teacher, biased", "CKA"),
        Column.number("cka_debiased", "The same without the bias", "CKA, debiased"),
        Column.number("select", "Debiased alignment, or probe, of the half that chooses the checkpoint", "Chooses"),
        Column.number("confirm", "The same of the half that confirms it", "Confirms"),
    ),
    ("step",),
)
ALIGNMENT = TableSpec(
    "alignment",
    "The chosen model and what needs no training, on the same windows of the same held-out people.",
    join_columns(
        Column.text(
            "map",
            "What makes vectors of windows: model, random-init (mean over seeds), fc, fc_power, pca (whitened "
            "components of FC of training windows, as many as the model has dimensions), chance (the model's vectors "
            "shuffled)",
            "What",
        ),
        Column.number("dimensions", "Length of the vectors", "Dimensions", 0),
        Column.number("cka", "Alignment with the teacher over all held-out recordings, biased", "CKA"),
        Column.number("cka_debiased", "The same without the bias", "CKA, debiased"),
        Column.number(
            "cka_within",
            "The same without the bias and only over pairs of one dataset, centred within it; n/a where there is one "
            "dataset",
            "Within datasets",
        ),
        Column.number("cka_judged", "Debiased, over the recordings that the verdict rests on", "Judged"),
        Column.number(
            "identification",
            "Share of held-out people whom one window finds by another one of theirs",
            "Identification",
        ),
    ),
    ("map",),
)
