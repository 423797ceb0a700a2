"""Which process of a distributed training this is, from torchrun, SLURM or the options; needs no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from joao.core.errors import UserError

SHELLS = ("bash", "interactive")  # names of jobs in which Lightning, too, lets a person start processes


@dataclass(frozen=True)
class ProcessLayout:
    """The place of this process.

    Attributes:
        devices: processes on each machine, one for each device.
        num_nodes: machines.
        rank: number of this process among all; 0 is the one that writes and speaks.
        local_rank: among those on this machine.
        started: whether this is one of the processes, rather than one that is to start those of its machine.
    """

    devices: int = 1
    num_nodes: int = 1
    rank: int = 0
    local_rank: int = 0
    started: bool = True

    @property
    def size(self) -> int:
        """Processes in all."""
        return self.devices * self.num_nodes


def find_process_layout(
    devices: int | None = None,
    num_nodes: int | None = None,
    otherwise: tuple[int, int] = (1, 1),
    environment: Mapping[str, str] = os.environ,
) -> ProcessLayout:
    """The place of this process in a training with ``devices`` on each of ``num_nodes`` machines.

    What is None is as ``otherwise`` says, unless torchrun tells, which tells everything. SLURM's variables count where
    several processes are asked for: within a job they are there for every program. Otherwise, with ``LOCAL_RANK`` this
    is one of the processes, and without it starts them.
    """
    for name, value in (("devices", devices), ("num_nodes", num_nodes)):
        if value is not None and value < 1:
            raise UserError(f"{name}: must be at least 1, got {value}.")
    if "TORCHELASTIC_RUN_ID" in environment:
        size, local = (_number(environment, name) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        place = ProcessLayout(local, size // local, _number(environment, "RANK"), _number(environment, "LOCAL_RANK"))
        return _checked(place, devices, num_nodes, "torchrun")
    asked = ProcessLayout(devices or otherwise[0], num_nodes or otherwise[1])
    if asked.size == 1:
        return asked
    if int(environment.get("SLURM_NTASKS", "1")) > 1 and environment.get("SLURM_JOB_NAME") not in SHELLS:
        if "SLURM_NTASKS_PER_NODE" not in environment:
            raise UserError("SLURM: say how many processes a machine has: --ntasks-per-node, not --ntasks.")
        local, nodes = (_number(environment, name) for name in ("SLURM_NTASKS_PER_NODE", "SLURM_NNODES"))
        place = ProcessLayout(local, nodes, _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_LOCALID"))
        return _checked(place, devices, num_nodes, "SLURM")
    if asked.num_nodes > 1:
        for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
            if name not in environment:
                raise UserError(
                    f"num_nodes: {asked.num_nodes} machines need to know of each other: {name} is not set. Set "
                    "MASTER_ADDR and MASTER_PORT to those of the first machine and NODE_RANK to 0, 1, ..."
                )
    node = _number(environment, "NODE_RANK") if asked.num_nodes > 1 else 0
    if node >= asked.num_nodes:
        raise UserError(f"NODE_RANK: must be below the number of machines, {asked.num_nodes}, got {node}.")
    local_rank = _number(environment, "LOCAL_RANK") if "LOCAL_RANK" in environment else 0
    rank = node * asked.devices + local_rank
    return ProcessLayout(asked.devices, asked.num_nodes, rank, local_rank, started="LOCAL_RANK" in environment)


def _checked(place: ProcessLayout, devices: int | None, num_nodes: int | None, who: str) -> ProcessLayout:
    found = {"devices": (devices, place.devices), "num_nodes": (num_nodes, place.num_nodes)}
    for name, (asked, started) in found.items():
        if asked is not None and asked != started:
            raise UserError(f"{name}: {asked} asked for, but {who} started {started}. Leave it out or make it agree.")
    return place


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise UserError(f"{name}: must be a number, got '{text}'.")
    return int(text)
