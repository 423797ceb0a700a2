"""The device and precision to train with, in Lightning's hands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from joao.core.errors import ProcessLost, UserError, one_line
from joao.training.distributed.place import ProcessLayout

try:
    from lightning_fabric import Fabric as Fabric
    from lightning_fabric import _logger as lightning
    from lightning_fabric.plugins.precision import Precision
    from lightning_fabric.strategies.ddp import DDPStrategy
except ImportError:  # the same code inside the larger package
    from lightning.fabric import Fabric as Fabric  # type: ignore[no-redef]
    from lightning.fabric import _logger as lightning  # type: ignore[no-redef]
    from lightning.fabric.plugins.precision import Precision  # type: ignore[no-redef]
    from lightning.fabric.strategies.ddp import DDPStrategy  # type: ignore[no-redef]

PRECISIONS = ("32-true", "tf32", "bf16-mixed", "16-mixed")


class Tf32(Precision):
    """Numbers of 32 bits; what is multiplied in matrix products is rounded to TensorFloat-32, with 10 bits behind the
    leading one."""


class UnwrappedDDP(DDPStrategy):
    """Processes in which the model stays as it is: :class:`joao.training.distributed.group.ProcessGroup` puts gradients together.

    What Lightning would wrap it into expects one call of the model for a step and gradients of all its weights; a step
    has two views, and of JOAOv2's heads those of the pair alone (docs/decisions/0011-several-processes.md).
    """

    def setup_module(self, module: nn.Module) -> Any:
        return module


@contextmanager
def matmul_precision(fabric: Fabric) -> Iterator[None]:
    """Matrix products inside are as precise as ``fabric`` says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if isinstance(fabric.strategy.precision, Tf32) else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def limit_threads() -> Iterator[None]:
    """One torch thread, unless ``OMP_NUM_THREADS`` says how many.

    Batches of small graphs gain little from a second thread and, beside another busy process, lose a factor of ten
    or more to its waiting; and results are the same bit for bit only for the same number of threads.
    """
    before = torch.get_num_threads()
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pick_device(name: str) -> torch.device:
    """``auto``, ``cpu`` or ``cuda`` as a torch device."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"device: must be auto, cpu or cuda, got '{name}'.")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda was asked for, but torch sees no GPU. Use --device cpu.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def check_precision(device: str, precision: str) -> None:
    """An error where ``device`` cannot compute in ``precision``."""
    if precision not in PRECISIONS:
        raise UserError(f"precision: must be one of {', '.join(PRECISIONS)}, got '{precision}'.")
    kind = pick_device(device).type
    if kind == "cpu" and precision in ("16-mixed", "tf32"):
        raise UserError(f"precision: {precision} needs a GPU. Use bf16-mixed or 32-true on a CPU.")


def make_fabric(device: str, precision: str, place: ProcessLayout | None = None) -> Fabric:
    """Lightning's handle on one device, or on that of this process, which then joins the others."""
    check_precision(device, precision)
    kind, place = pick_device(device).type, place or ProcessLayout()
    if kind == "cuda" and place.devices > torch.cuda.device_count():
        raise UserError(f"devices: {place.devices} asked for, but torch sees {torch.cuda.device_count()} GPUs.")
    with_precision: dict[str, Any] = {"plugins": [Tf32()]} if precision == "tf32" else {"precision": precision}
    if place.size == 1:
        return Fabric(accelerator=kind, devices=1, **with_precision)
    fabric = Fabric(
        accelerator=kind, devices=place.devices, num_nodes=place.num_nodes, strategy=UnwrappedDDP(), **with_precision
    )
    level = lightning.level
    lightning.setLevel("WARNING")  # it greets every process
    try:
        fabric.launch()
    except RuntimeError as error:
        raise ProcessLost(f"the processes did not find each other ({one_line(error)}).") from error
    finally:
        lightning.setLevel(level)
    return fabric
