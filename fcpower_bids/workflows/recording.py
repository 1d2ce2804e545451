"""One recording: its nodes (parcellate -> bandpass -> connectivity -> power and other transforms -> sink), its status.

The one module that runs nipype: in a process of its own for each recording, or as jobs of a plugin for clusters.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from nipype import Function, IdentityInterface, Merge, Node, Workflow, config, logging
from nipype.pipeline import plugins
from nipype.pipeline.engine.utils import topological_sort
from nipype.pipeline.plugins.base import PluginBase

from fcpower_bids.cohort.recordings import making_in
from fcpower_bids.errors import UsageError
from fcpower_bids.imaging.atlas import describe_atlas
from fcpower_bids.inputs.roots import dataset_names
from fcpower_bids.interfaces.nodes import Bandpass, Connectivity, Parcellate, Power, Sink, Transform, choices_of
from fcpower_bids.outputs.dataset import QUALITY, path_of
from fcpower_bids.outputs.status import (
    DONE,
    EXCLUDED,
    FAILED,
    RUNNING,
    Status,
    embedding_names,
    explain,
    fingerprint,
    forget_crashes,
    input_mark,
    is_finished,
    status_path,
    write_status,
)
from fcpower_bids.records import Atlas, Recording
from fcpower_bids.resources import peak_megabytes
from fcpower_bids.settings import CLEANING, Method, Settings
from fcpower_bids.store import LOCKS, lock
from fcpower_bids.transforms.connectomes import transform_parameters
from fcpower_bids.workflows.plan import ELSEWHERE, FINISHED, OTHERWISE

INPUTS = ("bold", "mask", "confounds", "confounds_metadata", "repetition_time", "entities", "atlases")
OUTPUTS = ("parcels", "cleaning", "series", "connectivity", "connectomes", "embeddings", "files")
SUMMARIES = ("excluded", "problems")
CLUSTER_POLL_SECONDS = 2.0
"""How long nipype sleeps between two looks at a cluster."""
LAZY = ("fcpower_bids.transforms.stateless", "scipy.signal")
"""Modules that nodes import when they need them. None of them starts threads."""


def init_recording_wf(
    choices: Method, output_dir: Path, datasets: Mapping[str, Path], name: str = "recording", dataset: str = ""
) -> Workflow:
    """Wire the nodes of one recording; its files and atlases go into ``inputnode``."""

    def node(name: str, interface: type, **inputs: Any) -> Node:
        return Node(interface(**{key: value for key, value in inputs.items() if value is not None}), name=name)

    def same(*names: str) -> list[tuple[str, str]]:
        return [(name, name) for name in names]

    inputs = Node(IdentityInterface(fields=INPUTS), name="inputnode")
    outputs = Node(IdentityInterface(fields=[*OUTPUTS, *SUMMARIES]), name="outputnode")
    parcellate = node("parcellate", Parcellate)
    bandpass = node("bandpass", Bandpass, **{name: getattr(choices, name) for name in CLEANING})
    connectivity = node("connectivity", Connectivity)
    method = choices_of(choices)
    folders = {name: str(path) for name, path in datasets.items()}
    sink = node("sink", Sink, method=method, output_dir=str(output_dir), datasets=folders)
    connectomes = Node(Merge(1 + len(choices.transforms)), name="connectomes")
    edges = [
        (inputs, parcellate, same("bold", "mask", "atlases")),
        (inputs, bandpass, [*same("confounds", "confounds_metadata", "repetition_time"), ("bold", "source")]),
        (inputs, sink, same("bold", "mask", "confounds", "entities", "atlases")),
        (parcellate, bandpass, same("parcels")),
        (bandpass, connectivity, same("series")),
        (connectivity, connectomes, [("connectivity", "in1")]),
    ]
    if choices.head_radius == "auto":
        edges.append((inputs, bandpass, same("mask")))
    for target in (sink, outputs):
        edges += [
            (parcellate, target, same("parcels")),
            (bandpass, target, same("cleaning", "series")),
            (connectivity, target, same("connectivity")),
        ]
    for number, transform in enumerate(choices.transforms, 2):
        parameters = transform_parameters(transform, choices)
        if transform == "power":
            made = node(transform, Power, **parameters)
        else:
            made = node(transform, Transform, transform=transform, parameters=parameters)
            edges.append((bandpass, made, same("series")))
        edges += [(connectivity, made, same("connectivity")), (made, connectomes, [("transformed", f"in{number}")])]
    edges += [(connectomes, target, [("out", "connectomes")]) for target in (sink, outputs)]
    if choices.encoder is not None:
        from fcpower_bids.interfaces.embedding import CHOICES, Embed  # most recordings are not embedded

        given = {name: getattr(choices, name) for name in CHOICES}
        embed = node("embed", Embed, **given, dataset=dataset)
        edges += [(bandpass, embed, same("series")), (inputs, embed, same("atlases", "entities"))]
        edges += [(embed, target, same("embeddings")) for target in (sink, outputs)]
    workflow = Workflow(name=name)
    workflow.connect([*edges, (sink, outputs, same("files", *SUMMARIES))])
    return workflow


def workflow_name(recording: Recording) -> str:
    """Return the recording's name in the characters that nipype allows."""
    return re.sub(r"\W", "_", recording.name.replace("+", "plus"))


class Serial(PluginBase):
    """Runs the nodes of a graph in this process; the first error ends it, and is raised as it was."""

    def __init__(self, before: Callable[[str], None]) -> None:
        super().__init__()
        self.before = before
        self.results: dict[str, Any] = {}

    def run(self, graph: Any, config: Any, updatehash: bool = False) -> None:
        """Run every node."""
        for node in topological_sort(graph)[0]:
            self.before(node.name)
            try:
                self.results[node.name] = node.run(updatehash=updatehash)
            except Exception as error:
                raise getattr(node.interface, "error", None) or error from None


def process_recording(
    recording: Recording,
    atlases: Sequence[Atlas],
    settings: Settings,
    datasets: Mapping[str, Path],
    work: Path,
    wait: bool = True,
) -> tuple[str, str]:
    """Run the workflow of one recording and write its status; never raises what concerns the recording alone.

    Returns its name and how it ended. Where another run is at work on it, that is waited for, or told without `wait`.
    """
    name, output, folder = recording.name, settings.output_dir, work / workflow_name(recording)
    with lock(output / LOCKS / name, wait) as is_free:
        if not is_free:
            return name, ELSEWHERE
        dataset = dataset_names(settings.bids_dir)
        if is_finished(output, recording, atlases, settings.method, dataset):
            return name, FINISHED
        making = making_in(path_of(output, recording.entities, (), QUALITY).with_suffix(".json"))
        made = {**making.cleaning, **making.connectomes}
        if made not in ({}, {**settings.method.cleaning(), **settings.method.connectomes(a.name for a in atlases)}):
            return name, OTHERWISE  # by a run that has begun after this one
        configure_nipype(output / "logs" / "crashes", settings.run.debug)
        started, stage = time.perf_counter(), ""

        def note(state: str, reason: str = "", **more: Any) -> None:
            seconds, process = round(time.perf_counter() - started, 3), os.getpid() if state == RUNNING else 0
            write_status(output, Status(name, state, stage, reason, seconds, peak_megabytes(), process=process, **more))

        def before(node: str) -> None:
            nonlocal stage
            stage = node
            note(RUNNING)

        plugin = Serial(before)
        try:
            if folder.exists():  # of a run that was killed: nipype would take over what is damaged
                shutil.rmtree(folder)
            mark = fingerprint(recording, settings.method, atlases, dataset)
            workflow = init_recording_wf(settings.method, output, datasets, folder.name, dataset)
            workflow.base_dir = str(work)
            inputs = workflow.get_node("inputnode").inputs
            for field in ("bold", "mask", "confounds", "confounds_metadata"):
                if (path := getattr(recording, field)) is not None:
                    setattr(inputs, field, str(path))
            inputs.repetition_time, inputs.entities = recording.repetition_time, list(recording.entities)
            inputs.atlases = [str(describe_atlas(atlas, folder)) for atlas in atlases]
            workflow.run(plugin=plugin)
        except Exception as error:
            reason = explain(error, output, f"{name}_{stage}")
            with suppress(OSError):  # the disk may be full
                note(FAILED, reason)
            return name, f"failed at {stage}"
        written = plugin.results["sink"].outputs
        stage = "bandpass" if written.excluded else "sink"
        state, made_from = EXCLUDED if written.excluded else DONE, input_mark(recording)
        note(state, written.excluded, fingerprint=mark, outputs=tuple(written.files), inputs=made_from)
        _note_embeddings(output, embedding_names(name, atlases, settings.method), written.problems)
        forget_crashes(output, name)
        if not settings.run.debug:
            shutil.rmtree(folder, ignore_errors=True)
    return name, FINISHED


def _note_embeddings(output: Path, names: Mapping[str, str], problems: Mapping[str, tuple[str, str]]) -> None:
    """Write the statuses of embeddings that there are not, by atlas: the recording is done all the same."""
    for atlas, name in names.items():
        if atlas in problems:
            state, reason = problems[atlas]
            write_status(output, Status(name, state, "embed", reason))
        else:
            status_path(output, name).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def configure_nipype(crashes: Path, debug: bool) -> None:
    """Set the global state of nipype: hashing by time stamp, no network, quiet logs."""
    level = "INFO" if debug else "CRITICAL"
    config.update_config(
        {
            "execution": {
                "poll_sleep_duration": CLUSTER_POLL_SECONDS,
                "hash_method": "timestamp",
                "check_version": "false",
                "crashfile_format": "txt",
                "crashdump_dir": str(crashes),
                "create_report": "false",
                "remove_unnecessary_outputs": "false",
                "stop_on_first_crash": "false",
            },
            "logging": {"workflow_level": level, "interface_level": level},
        }
    )
    logging.update_logging(config)


def make_runner(path: Path) -> PluginBase:
    """Return the nipype plugin of a file of the user, with its arguments. Raises UsageError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        name, arguments = str(content["plugin"]), dict(content.get("plugin_args") or {})
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} must be YAML with 'plugin: NAME' and optionally 'plugin_args:' ({error}).") from error
    known = sorted(plugin.removesuffix("Plugin") for plugin in dir(plugins) if plugin.endswith("Plugin"))
    if name not in known:
        raise UsageError(
            f"{path} names the plugin {name}, which nipype does not have. Choose from: {', '.join(known)}."
        )
    try:  # nothing of ours: the complaint of nipype about the arguments of the file
        return getattr(plugins, f"{name}Plugin")(plugin_args=arguments)
    except Exception as error:
        raise UsageError(f"The plugin {name} cannot be made with the plugin_args of {path} ({error}).") from error


def _run_job(arguments: Any) -> None:
    from fcpower_bids.workflows.recording import process_recording  # nipype runs the text of this function alone

    process_recording(*arguments)


def run_on_cluster(calls: Iterable[tuple[Any, ...]], runner: PluginBase, work: Path, debug: bool) -> list[str]:
    """Make every recording a job of a plugin, and wait for all; none is left."""
    workflow = Workflow(name=f"jobs_{uuid4().hex[:8]}", base_dir=str(work))  # another run may be at work beside this
    for given in calls:
        job = Function(["arguments"], [], _run_job, ["from typing import Any"])
        job.inputs.arguments = given
        workflow.add_nodes([Node(job, name=workflow_name(given[0]), overwrite=True)])
    try:
        with suppress(RuntimeError):  # jobs that have died: their statuses say that they did not finish
            workflow.run(plugin=runner)
    finally:
        if not debug:
            shutil.rmtree(work / workflow.name, ignore_errors=True)
    return []
