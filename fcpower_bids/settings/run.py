"""How a run is carried out, without a bearing on its numbers but for the seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fcpower_bids.options import Choices, option


@dataclass(frozen=True)
class Resources(Choices):
    """Processes, memory, and what happens with intermediate results."""

    nprocs: int = option(0, "resources", "processes at a time, 0 for all cores", "--n-cpus", "--nthreads")
    omp_nthreads: int = option(1, "resources", "threads per process")
    mem_mb: int = option(0, "resources", "memory for all processes in MB, 0 for what there is")
    executor: str = option(
        "",
        "resources",
        "group level: address of a Dask scheduler, or YAML of a cluster [processes here]",
    )
    solver_device: str = option(
        "",
        "resources",
        "group level: device of PyTorch for the matrices of kernel ridge, cuda or cpu [numpy and scipy]",
    )
    low_mem: bool = option(False, "resources", "one process at a time")
    use_plugin: Path | None = option(None, "resources", "nipype plugin as YAML, for clusters")
    clean_workdir: bool = option(False, "resources", "empty the work folder first")
    remove_parcel_means: bool = option(
        False, "resources", "keep no parcel means of finished recordings; another alpha or band then reads voxels again"
    )
    stop_on_first_crash: bool = option(False, "resources", "stop at the first failed recording")
    resource_monitor: bool = option(False, "resources", "record time and memory of each step")


@dataclass(frozen=True)
class Run(Choices):
    """Where options come from, and which part of the work is wanted."""

    config_file: Path | None = option(
        None, "other", "TOML file with any of these options, or 'nilearn' or 'xcp_d'; the command line wins", "-c"
    )
    dry_run: bool = option(False, "other", "print what was found and what would be written, then stop")
    boilerplate_only: bool = option(False, "other", "write the methods text, then stop")
    reports_only: bool = option(False, "other", "make the reports again from what was written")
    write_graph: bool = option(False, "other", "draw the workflow into logs/")


@dataclass(frozen=True)
class Seed(Choices):
    """The seed of everything random."""

    random_seed: int = option(0, "other", "seed of everything random", "--seed")


@dataclass(frozen=True)
class Messages(Choices):
    """Messages on the terminal, and the end of the command."""

    strict: bool = option(False, "other", "exit with 6 when quality control excluded recordings")
    debug: bool = option(False, "other", "tracebacks, and keep the work folder")
    verbose: bool = option(False, "other", "say more", "-v")
    quiet: bool = option(False, "other", "say only errors", "-q")
    notrack: bool = option(False, "other", "accepted and ignored: nothing is ever tracked")
    fs_license_file: Path | None = option(None, "other", "accepted and ignored: FreeSurfer is not used")
