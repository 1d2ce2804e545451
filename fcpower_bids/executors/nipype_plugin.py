"""nipype's global state, and its plugins for clusters."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from nipype import Node, Workflow, config, logging
from nipype.interfaces.base import BaseInterfaceInputSpec, SimpleInterface, TraitedSpec, traits
from nipype.pipeline import plugins
from nipype.pipeline.plugins.base import PluginBase

from fcpower_bids.errors import UsageError

CLUSTER_POLL_SECONDS = 2.0
"""How long nipype sleeps between two looks at a cluster."""


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
    known = sorted(one.removesuffix("Plugin") for one in dir(plugins) if one.endswith("Plugin"))
    if name not in known:
        raise UsageError(
            f"{path} names the plugin {name}, which nipype does not have. Choose from: {', '.join(known)}."
        )
    try:  # nothing of ours: the complaint of nipype about the arguments of the file
        return getattr(plugins, f"{name}Plugin")(plugin_args=arguments)
    except Exception as error:
        raise UsageError(f"The plugin {name} cannot be made with the plugin_args of {path} ({error}).") from error


class CallInputSpec(BaseInterfaceInputSpec):
    """A function by name, and its arguments."""

    function = traits.Str(mandatory=True, desc="module:function")
    arguments = traits.Tuple(mandatory=True, desc="by position")


class Call(SimpleInterface):
    """One call as one job of a cluster; it writes its results itself."""

    input_spec = CallInputSpec
    output_spec = TraitedSpec
    _always_run = True

    def _run_interface(self, runtime: Any) -> Any:
        module, _, name = self.inputs.function.partition(":")
        getattr(import_module(module), name)(*self.inputs.arguments)
        return runtime


def run_on_cluster(function: str, calls: Iterable[tuple[str, tuple[Any, ...]]], runner: PluginBase, work: Path) -> None:
    """Make every call a job of a plugin, and wait for all."""
    workflow = Workflow(name="jobs", base_dir=str(work))
    workflow.add_nodes([Node(Call(function=function, arguments=given), name=label) for label, given in calls])
    try:
        workflow.run(plugin=runner)
    except RuntimeError:
        return  # jobs that have died: their statuses say that they did not finish
