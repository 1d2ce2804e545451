"""Pretrain by ``srun`` on two nodes of a SLURM that is started here, and compare with one process.

Usage: ``python benchmarks/slurm.py`` as root, with slurmd, slurmctld, srun and munged on the path (packages of Debian:
slurmd, slurmctld, slurm-client, munge). Where one is missing it says so in one line and ends with 0.

Both nodes are daemons on this machine. Goals: the same loss to 1e-4 without dropout; a job that is stopped by SIGTERM
and started again ends with the weights of one that was not; a number of devices that was not started is refused in one
sentence. The exit status is 1 where one is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

NEEDED = ("slurmd", "slurmctld", "srun", "sinfo", "scancel", "munged")
NO_CLUSTER = 75
"""Exit status where SLURM does not start on this machine: nothing of ours was tried then."""
CONF = """\
ClusterName=here
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=60
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
STUDENT = (
    "--architecture",
    "d=8",
    "layers=1",
    "heads=2",
    "ff=8",
    "dropout=0.0",
    "--accept-unproven",
    "--window",
    "20",
    "--accelerator",
    "cpu",
)
RUN = ("--batch-size", "12", "--held-out", "0.4", "--checkpoint-every", "1000", "--warmup", "1", "--nprocs", "1")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, so that two clusters on one host do not meet."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Two nodes of one core each; yields the environment in which the commands of SLURM find them."""
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, ports=free_ports(3)))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "MASTER_ADDR": "127.0.0.1"}
    munge = ("munged", "-F", "--force", "--key-file", key, "--socket", folder / "munge.socket")
    munge += ("--pid-file", folder / "munge.pid", "--log-file", folder / "munge.log", "--seed-file", folder / "seed")
    started = []
    try:
        for command in (munge, ("slurmctld", "-D", "-c"), ("slurmd", "-D", "-N", "n1"), ("slurmd", "-D", "-N", "n2")):
            with (folder / "daemons.log").open("a") as log:
                words = [str(word) for word in command]
                started.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log))
            time.sleep(1)
        for _ in range(60):
            said = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True).stdout
            if said.split() == ["idle"]:
                break
            time.sleep(1)
        else:
            print(f"The nodes did not come up: {(folder / 'daemons.log').read_text()[-2000:]}", flush=True)
            sys.exit(NO_CLUSTER)
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def plant(folder: Path) -> None:
    """Series tables of 16 people, two sessions each, as the participant level writes them."""
    (folder / "bids").mkdir()
    rng = np.random.default_rng(0)
    for person in range(16):
        mixing = rng.standard_normal((10, 10)) + 2 * np.eye(10)
        for session in range(2):
            stem = f"sub-{person:02d}_ses-{session}_task-rest_space-MNI_atlas-Toy_scale-10_stat-mean_timeseries"
            path = folder / "out" / f"sub-{person:02d}" / f"ses-{session}" / "func" / f"{stem}.tsv"
            path.parent.mkdir(parents=True)
            table = pd.DataFrame(rng.standard_normal((60, 10)) @ mixing, columns=[f"P{i}" for i in range(10)])
            table.to_csv(path, sep="\t", index=False)
            path.with_suffix(".json").write_text('{"RepetitionTime": 2.0}')


def command(folder: Path, out: str, *options: object) -> list[str]:
    words = [sys.executable, "-m", "fcpower_bids", folder / "bids", folder / out, "pretrain", *STUDENT, *RUN, *options]
    return [str(word) for word in (*words, "--corpus", folder / "out" / "corpus")]


def losses(folder: Path, out: str) -> pd.Series:
    log = pd.read_csv(folder / out / "encoder" / "log.tsv", sep="\t", index_col="step", na_values="n/a")
    return log["loss"].dropna()


def weights(folder: Path, out: str) -> dict[str, np.ndarray]:
    return load_file(folder / out / "encoder" / "model" / "model.safetensors")


def stopped_and_resumed(folder: Path, environment: dict[str, str], srun: list[str], options: tuple[str, ...]) -> float:
    """Largest difference of the weights of a stopped and resumed run from those of one that was not."""
    subprocess.run([*srun, *command(folder, "whole", *options)], env=environment, check=True)
    process = subprocess.Popen([*srun, "--job-name", "stopped", *command(folder, "parts", *options)], env=environment)
    log = folder / "parts" / "encoder" / "log.tsv"
    while process.poll() is None and not (log.exists() and len(log.read_text().splitlines()) > 2):
        time.sleep(0.2)
    subprocess.run(["scancel", "--name", "stopped", "--signal", "TERM"], env=environment, check=True)
    print(f"stopped with status {process.wait()}; interim: {(folder / 'parts/encoder/interim/state.json').read_text()}")
    subprocess.run([*srun, *command(folder, "parts", *options)], env=environment, check=True)
    one, other = weights(folder, "whole"), weights(folder, "parts")
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"SKIPPED srun on two nodes: {', '.join(missing) + ' not found' if missing else 'needs root'}.")
        return 0
    with tempfile.TemporaryDirectory() as name, cluster(folder := Path(name)) as environment:
        plant(folder)
        srun = ["srun", "-N2", "-n2", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]
        subprocess.run(command(folder, "out", "--steps", "100"), check=True)
        subprocess.run([*srun, *command(folder, "two", "--steps", "100")], env=environment, check=True)
        one, two = losses(folder, "out"), losses(folder, "two")
        difference = float((one - two).abs().max())
        wrong = [*srun, *command(folder, "wrong", "--devices", "2")]
        refused = subprocess.run(wrong, env=environment, capture_output=True, text=True)
        apart = stopped_and_resumed(folder, environment, srun, ("--steps", "600"))
    told = refused.stderr.count("srun started 2 processes on 2 nodes, and --devices 2 times --num-nodes 2 asks for 4")
    print(f"loss of two nodes against one process over {len(two)} rows of the log: {difference:.1e} (at most 1e-4)")
    print(f"--devices 2 on one task per node: status {refused.returncode}, told {told} time(s)")
    print(f"weights after SIGTERM and a second srun against an undisturbed run: {apart:.1e} (0 expected)")
    return 0 if difference <= 1e-4 and refused.returncode == 2 and told == 1 and apart == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
