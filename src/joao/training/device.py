"""Device, precision and threads of a training; several processes and mixed precision through Lightning Fabric."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from joao.core.errors import ProcessLost, UserError, one_line, quantity, short_repr
from joao.training.distributed.launch import RENDEZVOUS, ProcessLayout

if TYPE_CHECKING:
    from lightning_fabric import Fabric as Fabric

PRECISIONS = ("32-true", "tf32", "bf16-mixed", "16-mixed")


@contextmanager
def matmul_precision(fabric: Fabric) -> Iterator[None]:
    """Set the precision of matrix products to that of ``fabric`` inside the context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if getattr(fabric.strategy.precision, "uses_tf32", False) else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def limit_threads() -> Iterator[None]:
    """Use one torch thread, unless ``OMP_NUM_THREADS`` is set.

    Batches of small graphs gain little from a second thread and, next to another busy process, become ten or more times
    slower by waiting for it. Also, results are bit for bit the same only for the same number of threads.
    """
    before = torch.get_num_threads()
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pick_device(name: str) -> torch.device:
    """Return the torch device for ``auto``, ``cpu``, ``cuda`` or a certain GPU such as ``cuda:1``."""
    if str(name).startswith("mps"):
        raise UserError("device: mps (Apple GPUs) is not supported, because joao needs 64-bit numbers. Use cpu.")
    kind, colon, number = str(name).partition(":")
    if kind not in ("auto", "cpu", "cuda") or (colon and (kind != "cuda" or not number.isdecimal())):
        raise UserError(f"device: must be auto, cpu, cuda or a GPU such as cuda:1, got {short_repr(name)}.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device: {name} is not available, because torch finds no GPU. Use --device cpu.")
    if number and int(number) >= torch.cuda.device_count():
        count = quantity(torch.cuda.device_count(), "GPUs")
        raise UserError(f"device: {name} is not available: torch finds {count}, numbered from 0.")
    if kind == "cuda":
        return torch.device(str(name))
    return torch.device("cuda" if kind == "auto" and torch.cuda.is_available() else "cpu")


def check_precision(device: str, precision: str) -> None:
    """Raise a :class:`UserError` if ``device`` does not support ``precision``."""
    if precision not in PRECISIONS:
        raise UserError(f"precision: must be one of {', '.join(PRECISIONS)}, got '{precision}'.")
    if pick_device(device).type == "cpu" and precision in ("16-mixed", "tf32"):
        raise UserError(f"precision: {precision} needs a GPU. Use bf16-mixed or 32-true on a CPU.")


class SingleDevice:
    """What training uses of Lightning Fabric, for one device and 32-bit numbers: importing Lightning takes a second."""

    world_size, global_rank = 1, 0

    def __init__(self, device: torch.device, precision: str) -> None:
        self.device = device
        self.strategy = SimpleNamespace(
            precision=SimpleNamespace(precision="32-true", uses_tf32=precision == "tf32", scaler=None)
        )

    def setup(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return model.to(self.device), optimiser

    def backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def autocast(self) -> AbstractContextManager[None]:
        """Change no precision."""
        return nullcontext()


def _import_lightning() -> Any:
    """Import Lightning Fabric only when a training starts: it takes about a second, also for a plain ``import``."""
    try:
        import lightning_fabric as package
    except ImportError:  # the same code in the package lightning
        import lightning.fabric as package  # type: ignore[no-redef]
    if multiprocessing.parent_process() is not None:
        package._logger.setLevel("WARNING")  # otherwise every worker process repeats remarks on devices
    return package


def make_fabric(device: str, precision: str, layout: ProcessLayout | None = None) -> Fabric:
    """Make Lightning's handle of one device; with several processes, connect to the others first."""
    check_precision(device, precision)
    picked = pick_device(device)
    kind = picked.type
    is_alone = layout is None or layout.world_size == 1
    if picked.index is not None:
        if layout is not None and not is_alone:
            raise UserError(f"device: {device} is one GPU, but {layout.world_size} processes were requested. Use cuda.")
        torch.cuda.set_device(picked)  # Triton kernels and CUDA graphs run on the current device
    if is_alone and precision in ("32-true", "tf32"):
        return cast(
            "Fabric", SingleDevice(torch.device(kind, picked.index or 0) if kind == "cuda" else picked, precision)
        )
    lightning = _import_lightning()
    with_precision: dict[str, Any] = {"precision": precision}
    if precision == "tf32":
        # 32-bit numbers; the factors of matrix products are rounded to TensorFloat-32, with a 10-bit mantissa.
        with_precision = {"plugins": [type("Tf32", (lightning.plugins.Precision,), {"uses_tf32": True})()]}
    elif precision != "32-true":
        # Lightning would also round the inputs of a network to 16 bits, and with them the numbers of categories.
        options = {"convert_input": lambda self, data: data}
        with_precision = {"plugins": [type("Mixed", (lightning.plugins.MixedPrecision,), options)(precision, kind)]}
    if layout is None or is_alone:
        return cast(
            "Fabric",
            lightning.Fabric(accelerator=kind, devices=[picked.index or 0] if kind == "cuda" else 1, **with_precision),
        )
    if kind == "cuda" and layout.devices > torch.cuda.device_count():
        raise UserError(f"devices: {layout.devices} requested, but torch finds {torch.cuda.device_count()} GPUs.")
    # Without the DDP wrapper: :class:`joao.training.distributed.group.ProcessGroup` averages the gradients. The wrapper
    # expects one forward pass per step and gradients of all weights. A step encodes two views, and of the heads of
    # JOAOv2 it uses those of the drawn pair only (docs/decisions/0011-several-processes.md).
    strategy = lightning.strategies.DDPStrategy()
    strategy.setup_module = lambda module: module
    fabric: Fabric = lightning.Fabric(
        accelerator=kind, devices=layout.devices, num_nodes=layout.num_nodes, strategy=strategy, **with_precision
    )
    level = lightning._logger.level
    lightning._logger.setLevel("WARNING")  # otherwise every process prints a greeting
    try:
        # Otherwise Lightning connects as the variables of torchrun or SLURM, or MASTER_ADDR, specify.
        if RENDEZVOUS in os.environ and not distributed.is_initialized():
            _connect_locally(Path(os.environ[RENDEZVOUS]), "nccl" if kind == "cuda" else "gloo", layout)
        fabric.launch()
    except RuntimeError as error:
        raise ProcessLost(f"the processes could not connect to each other ({one_line(error)}).") from error
    finally:
        lightning._logger.setLevel(level)
    return fabric


def _connect_locally(meeting: Path, backend: str, layout: ProcessLayout) -> None:
    """Connect to the other processes of this machine: no port is open to other machines, and no name is looked up."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ.update(dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), loopback))
    address = f"file://{meeting}"
    distributed.init_process_group(backend, address, rank=layout.rank, world_size=layout.world_size)
    # Otherwise the threads of gloo abort a process that ends while they run, and nccl warns.
    atexit.register(_disconnect)


def _disconnect() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
