"""Find out which process of a training this is, and start the processes of this machine. Does not import torch."""

import os
import pickle
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any

from joao.core.errors import ProcessLost, UserError, short_repr
from joao.core.processes import PATIENCE, Ended, Processes, pickle_call

RENDEZVOUS = "JOAO_RENDEZVOUS"  # environment variable: the file in which the processes of one machine meet
LEAST_LIMIT = 16  # processes that one machine may start, if it has fewer cores
INTERACTIVE_JOBS = ("bash", "interactive")  # SLURM jobs in which, as for Lightning, the user starts the processes

Send = Callable[[object], None]


@dataclass(frozen=True)
class ProcessLayout:
    """The processes of a training, and which of them this is.

    Attributes:
        devices: processes per machine, one for each device.
        num_nodes: number of machines.
        rank: index of this process among all; process 0 writes files and reports progress.
        local_rank: index among the processes of this machine.
        is_worker: False for a process that only starts the workers of its machine.
    """

    devices: int = 1
    num_nodes: int = 1
    rank: int = 0
    local_rank: int = 0
    is_worker: bool = True

    @property
    def world_size(self) -> int:
        """Number of processes on all machines."""
        return self.devices * self.num_nodes


def find_process_layout(
    devices: int | None = None,
    num_nodes: int | None = None,
    default: tuple[int, int] = (1, 1),
    environment: Mapping[str, str] = os.environ,
) -> ProcessLayout:
    """Find the layout of a training with ``devices`` processes on each of ``num_nodes`` machines.

    Under torchrun the environment determines everything. Otherwise None means ``default``. SLURM's variables are used
    only if several processes are requested, because inside a job every program sees them. Without torchrun and SLURM,
    this process is a worker if ``LOCAL_RANK`` is set, and else starts the workers.
    """
    for name, value in (("devices", devices), ("num_nodes", num_nodes)):
        if value is not None and value < 1:
            raise UserError(f"{name}: must be at least 1, got {value}.")
    if "TORCHELASTIC_RUN_ID" in environment:
        size, local = (_integer(environment, name, 1) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        ranks = _integer(environment, "RANK"), _integer(environment, "LOCAL_RANK")
        return _check_layout(ProcessLayout(local, size // local, *ranks), devices, num_nodes, "torchrun", environment)
    requested = ProcessLayout(devices or default[0], num_nodes or default[1])
    if requested.world_size == 1:
        return requested
    most = max(LEAST_LIMIT, os.cpu_count() or 1)
    if not 0 < requested.devices <= most:  # also for the number in the run.json of a stranger
        raise UserError(f"devices: must be from 1 to {most} on this machine, got {requested.devices}.")
    if environment.get("SLURM_NTASKS", "1") != "1" and environment.get("SLURM_JOB_NAME") not in INTERACTIVE_JOBS:
        if "SLURM_NTASKS_PER_NODE" not in environment:
            raise UserError(
                "SLURM: the number of processes per machine is unknown. Use --ntasks-per-node, not --ntasks."
            )
        local, nodes = (_integer(environment, name, 1) for name in ("SLURM_NTASKS_PER_NODE", "SLURM_NNODES"))
        ranks = _integer(environment, "SLURM_PROCID"), _integer(environment, "SLURM_LOCALID")
        return _check_layout(ProcessLayout(local, nodes, *ranks), devices, num_nodes, "SLURM", environment)
    if requested.num_nodes > 1:
        for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
            if name not in environment:
                raise UserError(
                    f"num_nodes: {name} is not set, which {requested.num_nodes} machines need to connect. Set "
                    "MASTER_ADDR and MASTER_PORT to those of the first machine and NODE_RANK to 0, 1, ..."
                )
    node = _integer(environment, "NODE_RANK") if requested.num_nodes > 1 else 0
    if node >= requested.num_nodes:
        raise UserError(f"NODE_RANK: must be below the number of machines, {requested.num_nodes}, got {node}.")
    is_worker = "LOCAL_RANK" in environment
    local_rank = _integer(environment, "LOCAL_RANK") if is_worker else 0
    rank = node * requested.devices + local_rank
    layout = replace(requested, rank=rank, local_rank=local_rank, is_worker=is_worker)
    return _check_layout(layout, devices, num_nodes, "the environment", environment)


def _check_layout(
    layout: ProcessLayout, devices: int | None, num_nodes: int | None, launcher: str, environment: Mapping[str, str]
) -> ProcessLayout:
    if layout.world_size > 1 and "MASTER_PORT" in environment:
        _integer(environment, "MASTER_PORT", 1)
    if layout.local_rank >= layout.devices or layout.rank >= layout.world_size:
        where = f"process {layout.rank} of {layout.world_size}, {layout.local_rank} of {layout.devices} on its machine"
        raise UserError(f"{launcher}: says that this is {where}; they are counted from 0. Correct its variables.")
    counts = {"devices": (devices, layout.devices), "num_nodes": (num_nodes, layout.num_nodes)}
    for name, (requested, started) in counts.items():
        if requested is not None and requested != started:
            raise UserError(
                f"{name}: {requested} requested, but {launcher} started {started}. Leave it out or make them agree."
            )
    return layout


def _integer(environment: Mapping[str, str], name: str, least: int = 0) -> int:
    text = environment.get(name, "")
    if re.fullmatch("[0-9]{1,9}", text) is None or int(text) < least:
        raise UserError(f"{name}: must be an integer from {least}, got {short_repr(text)}.")
    return int(text)


def run_in_processes(function: Callable[..., None], arguments: Sequence[Any], layout: ProcessLayout) -> Iterator[Any]:
    """Call ``function(send, *arguments)`` in a new process for each device of this machine; yield what they send.

    Environment variables tell Lightning the index of each process and where to connect. This process does not train. It
    raises the exception of a worker and, if a worker dies, :class:`joao.core.errors.ProcessLost`. No worker outlives
    it. Other processes must be able to import ``function``, and ``arguments`` must be picklable.
    """
    try:
        call = pickle_call(_work, function, arguments)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise UserError(f"devices: a custom part cannot be sent to another process ({error}).") from error
    with TemporaryDirectory(prefix="joao-") as private, Processes() as processes:
        # Processes of one machine meet in a file that only this user can read, and connect through the loopback
        # interface; for several machines the user has set MASTER_ADDR, MASTER_PORT and NODE_RANK.
        environment = {RENDEZVOUS: f"{private}/rendezvous", "NODE_RANK": "0"} if layout.num_nodes == 1 else {}
        for number in range(layout.devices):
            processes.start(number, call, environment | {"LOCAL_RANK": str(number)})
        for number, message, _ in processes.messages():
            if isinstance(message, Exception):
                raise message
            if not isinstance(message, Ended):
                yield message
            elif message.code:
                raise ProcessLost(f"process {number} (of 0 to {layout.devices - 1}) {message}.")


def _work(parent: Connection, function: Callable[..., None], arguments: Sequence[Any]) -> None:
    try:
        function(parent.send, *arguments)
    except ProcessLost:
        # If the lost process was on this machine, the parent knows which one it was and ends this worker meanwhile.
        time.sleep(PATIENCE)
        raise
