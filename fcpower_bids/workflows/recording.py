"""The workflow of one recording: parcellate -> clean -> connect -> (embed) -> write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nipype import Node, Workflow

from fcpower_bids.interfaces.recording import Clean, Connect, Parcellate, Sink
from fcpower_bids.outputs.status import weights_state
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.settings import Settings

MEMORY_GB = {"parcellate": 0.4, "clean": 0.5, "connect": 0.5, "embed": 1.5, "write": 0.5}
"""What a step needs at most at 450 parcels and 5,000 volumes; measured, rounded up."""


def init_recording_wf(
    recording: Recording,
    atlases: tuple[Atlas, ...],
    settings: Settings,
    datasets: dict[str, Path],
    fingerprint: str,
) -> Workflow:
    """Wire the steps of one recording.

    Parameters
    ----------
    recording : Recording
        What is processed.
    atlases : tuple of Atlas
        All in the space of the recording.
    settings : Settings
        Every choice.
    datasets : dict of str to Path
        Input datasets by the name that BIDS URIs use.
    fingerprint : str
        What the results depend on.
    """
    known = {
        "recording": recording,
        "atlases": atlases,
        "settings": settings.method_only(),
        "fingerprint": fingerprint,
        "output_dir": str(settings.output_dir),
    }
    parcellate, clean, connect = (
        _step(name, step, known) for name, step in (("parcellate", Parcellate), ("clean", Clean), ("connect", Connect))
    )
    write = _step("write", Sink, {**known, "datasets": tuple(datasets.items())})
    workflow = Workflow(name=workflow_name(recording), base_dir=str(settings.work))
    workflow.connect(
        [
            (parcellate, clean, [("bundle", "bundle")]),
            (clean, connect, [("bundle", "bundle")]),
            (clean, write, [("bundle", "bundle")]),
            (connect, write, [("bundle", "connectomes")]),
        ]
    )
    if settings.encoder is not None:
        from fcpower_bids.interfaces.embedding import Embed  # loads torch

        embed = _step("embed", Embed, {**known, "weights_state": weights_state(settings)})
        workflow.connect([(clean, embed, [("bundle", "bundle")]), (embed, write, [("bundle", "embedding")])])
    return workflow


def _step(name: str, interface: type, inputs: dict[str, Any]) -> Node:
    return Node(interface(**inputs), name=name, mem_gb=MEMORY_GB[name], n_procs=1)


def workflow_name(recording: Recording) -> str:
    """Return the recording's name in the characters that nipype allows."""
    return re.sub(r"\W", "_", recording.name.replace("+", "plus"))
