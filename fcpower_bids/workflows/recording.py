"""The workflow of one recording: parcellate -> bandpass -> connectivity -> power and other transforms -> sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nipype import IdentityInterface, Merge, Node, Workflow

from fcpower_bids.interfaces.bundles import choices_of
from fcpower_bids.interfaces.embedding import CHOICES as ENCODER
from fcpower_bids.interfaces.embedding import Embed
from fcpower_bids.interfaces.nodes import Bandpass, Connectivity, Parcellate, Power, Transform
from fcpower_bids.interfaces.outputs import Measure, Sink
from fcpower_bids.outputs.status import file_state, weights_state
from fcpower_bids.records import Recording
from fcpower_bids.settings import CLEANING, Participant
from fcpower_bids.transforms.connectomes import transform_parameters

INPUTS = ("bold", "mask", "confounds", "confounds_metadata", "repetition_time", "entities", "atlases")
OUTPUTS = ("parcels", "cleaning", "series", "connectivity", "connectomes", "tables", "embeddings", "files")
SUMMARIES = ("excluded", "problems")


def init_recording_wf(
    choices: Participant,
    output_dir: Path,
    datasets: Mapping[str, Path],
    name: str = "recording",
    keep: Path | None = None,
    dataset: str = "",
) -> Workflow:
    """Wire the nodes of one recording; its files and atlases go into ``inputnode``."""
    inputs = Node(IdentityInterface(fields=INPUTS), name="inputnode")
    outputs = Node(IdentityInterface(fields=[*OUTPUTS, *SUMMARIES]), name="outputnode")
    parcellate = _node("parcellate", Parcellate, keep=None if keep is None else str(keep))
    bandpass = _node("bandpass", Bandpass, **{name: getattr(choices, name) for name in CLEANING})
    connectivity = _node("connectivity", Connectivity)
    method = choices_of(choices)
    measure = _node("measure", Measure, method=method)
    sink = _node(
        "sink",
        Sink,
        method=method,
        output_dir=str(output_dir),
        datasets={name: str(path) for name, path in datasets.items()},
    )
    workflow = Workflow(name=name)
    workflow.connect(
        [
            (inputs, parcellate, _same("bold", "mask", "atlases")),
            (inputs, bandpass, [*_same("confounds", "confounds_metadata", "repetition_time"), ("bold", "source")]),
            (inputs, measure, _same("atlases")),
            (inputs, sink, _same("bold", "mask", "confounds", "entities", "atlases")),
            (parcellate, bandpass, _same("parcels")),
            (bandpass, connectivity, _same("series")),
        ]
    )
    if choices.head_radius == "auto":
        workflow.connect([(inputs, bandpass, _same("mask"))])
    for node in (measure, sink, outputs):
        workflow.connect(
            [
                (parcellate, node, _same("parcels")),
                (bandpass, node, _same("cleaning", "series")),
                (connectivity, node, _same("connectivity")),
            ]
        )
    connectomes = _transforms(workflow, choices, bandpass, connectivity)
    workflow.connect([(connectomes, sink, [("out", "connectomes")]), (connectomes, outputs, [("out", "connectomes")])])
    workflow.connect([(measure, sink, _same("tables")), (measure, outputs, _same("tables"))])
    if choices.encoder is not None:
        embed = _embed(choices, dataset)
        workflow.connect([(bandpass, embed, _same("series")), (inputs, embed, _same("atlases", "entities"))])
        workflow.connect([(embed, sink, _same("embeddings")), (embed, outputs, _same("embeddings"))])
    workflow.connect(sink, "files", outputs, "files")
    workflow.connect([(sink, outputs, _same(*SUMMARIES))])
    return workflow


def _transforms(workflow: Workflow, choices: Participant, bandpass: Node, connectivity: Node) -> Node:
    """Add a node for each transform, and one that gathers FC and what they give."""
    gather = Node(Merge(1 + len(choices.transforms)), name="connectomes")
    workflow.connect(connectivity, "connectivity", gather, "in1")
    for number, name in enumerate(choices.transforms, 2):
        parameters = transform_parameters(name, choices)
        if name == "power":
            node = _node(name, Power, **parameters)
        else:
            node = _node(name, Transform, transform=name, parameters=parameters)
            workflow.connect(bandpass, "series", node, "series")
        workflow.connect(
            [(connectivity, node, _same("connectivity")), (node, gather, [("transformed", f"in{number}")])]
        )
    return gather


def _embed(choices: Participant, dataset: str) -> Node:
    given: dict[str, Any] = {name: getattr(choices, name) for name in ENCODER}
    given["encoder_aux"] = [str(path) for path in choices.encoder_aux]
    return _node("embed", Embed, **given, dataset=dataset, weights_state=weights_state(choices))


def _node(name: str, interface: type, **inputs: Any) -> Node:
    return Node(interface(**{key: value for key, value in inputs.items() if value is not None}), name=name)


def _same(*names: str) -> list[tuple[str, str]]:
    """Connections from outputs to inputs of the same name."""
    return [(name, name) for name in names]


def set_recording(workflow: Workflow, recording: Recording, atlases: Sequence[Path]) -> None:
    """Give a recording and its atlases to a workflow of :func:`init_recording_wf`."""
    inputs = workflow.get_node("inputnode").inputs
    for name in ("bold", "mask", "confounds", "confounds_metadata"):
        if (path := getattr(recording, name)) is not None:
            setattr(inputs, name, str(path))
    files = [path for path in (recording.bold, recording.mask) if path is not None]
    workflow.get_node("parcellate").inputs.states = [file_state(path) for path in files]
    inputs.repetition_time = recording.repetition_time
    inputs.entities = list(recording.entities)
    inputs.atlases = [str(path) for path in atlases]
