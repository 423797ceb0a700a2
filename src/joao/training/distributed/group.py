"""What the processes of one training do together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from joao.core.errors import ProcessLost


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a training, seen from one of them. Alone, it does nothing.

    Losses are computed by every process from the projections of all, so that each has the gradient of the sum of all
    processes' equal losses; :meth:`average_gradients` makes of that the gradient of one.

    Attributes:
        rank: number of this process.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    def part(self, count: int) -> slice:
        """The places in a batch of ``count`` graphs that are this process's: in order, and as even as can be."""
        return self._part_of(self.rank, count)

    def _part_of(self, rank: int, count: int) -> slice:
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    def gather(self, own: Tensor, count: int) -> Tensor:
        """The rows of all processes, ``(count, d)``, of which ``own`` ``(n, d)`` are this one's :meth:`part`.

        Gradients go back to the processes that the rows came from, added up over all that used them.
        """
        if self.size == 1:
            return own
        all_gather_tensors: Tensor = _Gather.apply(own, self, count)  # type: ignore[no-untyped-call]
        return all_gather_tensors

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every gradient becomes its mean over the processes; a parameter that none of them used has none."""
        if self.size == 1:
            return
        moving = [each for each in parameters if each.requires_grad]
        # Beside the gradients, in the same message, how many have them: of a head that was used in part of a batch.
        pieces = [torch.zeros_like(each) if each.grad is None else each.grad for each in moving]
        is_used = torch.tensor([each.grad is not None for each in moving]).to(pieces[0])
        total = torch.cat([*(piece.flatten() for piece in pieces), is_used])
        all_reduce_(total)
        mean, used = torch.split(total / self.size, [total.numel() - len(moving), len(moving)])
        means = torch.split(mean, [each.numel() for each in moving])
        for parameter, each, count in zip(moving, means, used.tolist(), strict=True):
            parameter.grad = each.view_as(parameter) if count else None

    def total(self, values: Tensor) -> Tensor:
        """The sum over the processes, the same bit for bit for all of them."""
        if self.size == 1:
            return values
        total = values.clone()
        all_reduce_(total)
        return total

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the processes, likewise."""
        return values if self.size == 1 else self.total(values) / self.size

    def broadcast_model(self, model: nn.Module) -> None:
        """All weights and statistics become those of process 0."""
        if self.size > 1:
            for value in model.state_dict().values():
                with _together():
                    distributed.broadcast(value, 0)

    def broadcast(self, value: Any) -> Any:
        """What process 0 has for ``value``."""
        if self.size == 1:
            return value
        values = [value]
        with _together():
            distributed.broadcast_object_list(values, 0)
        return values[0]

    def all_gather(self, value: Any) -> list[Any]:
        """What each process has for ``value``."""
        values = [value] * self.size
        if self.size > 1:
            with _together():
                distributed.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            all_reduce_(torch.zeros(1, device=_device()))


ALONE = ProcessGroup()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: ProcessGroup, count: int) -> Tensor:
        ctx.part = ranks.part(count)
        sizes = [part.stop - part.start for part in (ranks._part_of(rank, count) for rank in range(ranks.size))]
        padded = own.new_zeros(max(sizes), *own.shape[1:])  # all processes send the same number of rows
        padded[: len(own)] = own
        found = all_gather_tensors(padded, ranks.size)
        return torch.cat([each[:size] for each, size in zip(found, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        all_reduce_(total)
        return total[ctx.part], None, None


def all_gather_tensors(own: Tensor, size: int) -> list[Tensor]:
    """The same tensor of each of ``size`` processes, without gradients."""
    found = [torch.empty_like(own) for _ in range(size)]
    with _together():
        distributed.all_gather(found, own)
    return found


def all_reduce_(values: Tensor) -> None:
    """In place, the sum over the processes."""
    with _together():
        distributed.all_reduce(values)


def _device() -> torch.device:
    on_gpu = distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


@contextmanager
def _together() -> Iterator[None]:
    """Whatever goes wrong in here went wrong in another process first."""
    try:
        yield
    except RuntimeError as error:
        line = re.sub(r"^\[\S*\] ", "", " ".join(str(error).split()))  # without a line of somebody's source
        raise ProcessLost(f"another process of this training is gone ({line[:160].removesuffix('.')}).") from error
