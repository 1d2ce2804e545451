"""Running a workflow so that one broken recording never stops the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from nipype import Workflow, config, logging

from fcpower_bids.errors import UsageError
from fcpower_bids.interfaces import LOG_LEVEL_VARIABLE
from fcpower_bids.settings import Settings
from fcpower_bids.workflows.pool import Pool

POLL_SECONDS, CLUSTER_POLL_SECONDS = 0.001, 2.0
"""How long nipype sleeps between two looks: our pool of processes wakes up by itself, a cluster is asked."""


def configure_nipype(settings: Settings) -> None:
    """Set what nipype keeps in global state: fast polling, hashing by time stamp, no network, quiet logs."""
    config.update_config(
        {
            "execution": {
                "poll_sleep_duration": CLUSTER_POLL_SECONDS if settings.use_plugin else POLL_SECONDS,
                "hash_method": "timestamp",
                "check_version": "false",
                "crashfile_format": "txt",
                "crashdump_dir": str(settings.output_dir / "logs" / "crashes"),
                "create_report": "false",
                "remove_unnecessary_outputs": "false",
                "stop_on_first_crash": str(settings.stop_on_first_crash).lower(),
            },
            "logging": {"workflow_level": _level(settings), "interface_level": _level(settings)},
        }
    )
    logging.update_logging(config)
    os.environ[LOG_LEVEL_VARIABLE] = _level(settings)


def _level(settings: Settings) -> str:
    return "INFO" if settings.debug else "CRITICAL"


def processes(settings: Settings) -> int:
    """Return how many recordings are worked on at a time."""
    if settings.low_mem:
        return 1
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (settings.nprocs or available) // settings.omp_nthreads)


def plugin(settings: Settings, on_event: Callable[..., None] | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the nipype plugin and its arguments: the user's, or processes of this machine."""
    if settings.use_plugin is not None:
        return _plugin_from(settings.use_plugin)
    memory_gb = settings.mem_mb / 1024 if settings.mem_mb else None
    return Pool(processes(settings), memory_gb, status_callback=on_event), {}


def _plugin_from(path: Path) -> tuple[str, dict[str, Any]]:
    import yaml  # only a file of the user needs it

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return str(content["plugin"]), dict(content.get("plugin_args") or {})
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} must be YAML with 'plugin: NAME' and optionally 'plugin_args:' ({error}).") from error


def run_workflow(workflow: Workflow, settings: Settings, on_event: Callable[..., None] | None = None) -> bool:
    """Run a workflow to its end; return False when the pool of processes was broken on the way.

    Failures of steps are in the statuses of their recordings already, so nipype's summary of them is not needed.
    A process killed from outside (for want of memory, as a rule) takes the whole pool with it: the caller runs what
    is left again.
    """
    name, arguments = plugin(settings, on_event)
    try:
        workflow.run(plugin=name, plugin_args=arguments)
    except BrokenProcessPool:
        return False
    except RuntimeError:
        return True
    return True
