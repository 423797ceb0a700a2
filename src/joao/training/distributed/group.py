"""What the processes of one training do together: collectives, shards of a batch, and batch normalisation."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, final

import torch
import torch.distributed as distributed
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F

from joao.core.errors import ProcessLost, UserError
from joao.core.graphs import GraphBatch, Store, concatenate
from joao.training import steps
from joao.training.steps import BatchViews, PairSteps, View, project_pool


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a training, seen from one of them.

    With global negatives every process computes the loss from the projections of all processes. So each has the
    gradient of the sum of ``size`` equal losses, which :class:`GradientExchange` turns into the gradient of one loss.
    With local negatives every process has the loss of its shard, and the training descends their mean.
    """

    rank: int
    size: int

    def shard(self, count: int, rank: int | None = None) -> slice:
        """Return the contiguous part of a batch of ``count`` graphs that belongs to a process, by default this one."""
        rank = self.rank if rank is None else rank
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    def gather_rows(self, own: Tensor, count: int) -> Tensor:
        """Concatenate the rows of all processes to ``(count, d)``; ``own`` ``(n, d)`` belongs to :meth:`shard`.

        Gradients flow back to the process that a row came from, summed over all processes that used it.
        """
        return cast(Tensor, _GatherRows.apply(own, self, count))  # type: ignore[no-untyped-call]

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over the processes, bit for bit the same in all of them."""
        return sum_over_processes(values) / self.size

    def broadcast_model(self, model: nn.Module) -> None:
        """Copy all weights and statistics from process 0."""
        with _detect_lost_process():
            for value in model.state_dict().values():
                distributed.broadcast(value, 0)

    def broadcast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the named tensors of process 0, on the CPU."""
        return self.all_gather(tensors if self.rank == 0 else {})[0]

    def all_gather(self, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return the named tensors of each process, on the CPU.

        They travel in the safetensors format: torch would pickle other objects, and unpickle what it receives.
        """
        device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        content = torch.frombuffer(bytearray(save(dict(tensors))), dtype=torch.uint8).to(device)
        sizes = [int(each) for each in all_gather_tensors(torch.tensor(content.numel(), device=device), self.size)]
        contents = all_gather_tensors(F.pad(content, (0, max(sizes) - content.numel())), self.size)
        return [load(each[:size].cpu().numpy().tobytes()) for each, size in zip(contents, sizes, strict=True)]

    def barrier(self) -> None:
        self.all_gather({})


class GradientExchange:
    """Replace gradients, and running statistics, by their means over the processes, in one message.

    The message stays at the same place in memory. So a GPU can replay :meth:`pack` and :meth:`unpack` as parts of CUDA
    graphs, with :meth:`send` between them.
    """

    def __init__(self, group: ProcessGroup, parameters: Iterable[nn.Parameter], buffers: Iterable[Tensor] = ()) -> None:
        self.group = group
        self.parameters = [each for each in parameters if each.requires_grad]
        self.buffers = [each for each in buffers if each.is_floating_point()]

    @cached_property
    def message(self) -> Tensor:
        """All gradients and statistics and, per parameter, whether it has a gradient: a head may have none."""
        size = sum(each.numel() for each in [*self.parameters, *self.buffers])
        return self.parameters[0].new_zeros(size + len(self.parameters), requires_grad=False)

    @cached_property
    def _slots(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """The parts of the message: gradients, statistics, and which parameters have a gradient."""
        tensors = [*self.parameters, *self.buffers]
        *slots, used = torch.split(self.message, [*(each.numel() for each in tensors), len(self.parameters)])
        slots = [slot.view_as(each) for slot, each in zip(slots, tensors, strict=True)]
        return slots[: len(self.parameters)], slots[len(self.parameters) :], used

    def average(self) -> None:
        """Average all gradients; a parameter that no process used keeps None."""
        is_used = self.pack()
        counts = self._slots[2]
        counts.copy_(torch.tensor(is_used))
        self.send()
        self.unpack(counts.tolist())

    def pack(self) -> list[bool]:
        """Write gradients and statistics into the message, and return which parameters have a gradient."""
        gradients, statistics, _ = self._slots
        self.message.zero_()
        known = [(slot, each.grad) for slot, each in zip(gradients, self.parameters, strict=True)]
        used = [(slot, grad) for slot, grad in known if grad is not None]
        # One kernel instead of one per tensor.
        torch._foreach_copy_([slot for slot, _ in used] + statistics, [gradient for _, gradient in used] + self.buffers)
        return [grad is not None for _, grad in known]

    def send(self) -> None:
        """Replace the message by its mean over the processes, bit for bit the same in all of them."""
        with _detect_lost_process():
            distributed.all_reduce(self.message)
        self.message /= self.group.size

    @torch.no_grad()
    def unpack(self, is_used: Sequence[float]) -> None:
        """Take gradients, of the parameters that were used, and statistics from the message."""
        gradients, statistics, _ = self._slots
        for parameter, slot, used in zip(self.parameters, gradients, is_used, strict=True):
            parameter.grad = slot if used else None
        for buffer, slot in zip(self.buffers, statistics, strict=True):
            buffer.copy_(slot)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, group: ProcessGroup, count: int) -> Tensor:
        ctx.shard = group.shard(count)
        shards = (group.shard(count, rank) for rank in range(group.size))
        sizes = [shard.stop - shard.start for shard in shards]
        padded = own.new_zeros(max(sizes), *own.shape[1:])  # all processes must send the same number of rows
        padded[: len(own)] = own
        gathered = all_gather_tensors(padded, group.size)
        return torch.cat([each[:size] for each, size in zip(gathered, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return sum_over_processes(gradient)[ctx.shard], None, None


def all_gather_tensors(own: Tensor, size: int) -> list[Tensor]:
    """Return the tensor ``own`` of each of ``size`` processes, without gradients."""
    gathered = [torch.empty_like(own) for _ in range(size)]
    with _detect_lost_process():
        distributed.all_gather(gathered, own)
    return gathered


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of ``values`` over the processes, bit for bit the same in all of them."""
    total = values.clone(memory_format=torch.contiguous_format)
    with _detect_lost_process():
        distributed.all_reduce(total)
    return total


@contextmanager
def _detect_lost_process() -> Iterator[None]:
    """Raise :class:`ProcessLost` if communication fails: then another process failed first."""
    try:
        yield
    except RuntimeError as error:
        line = re.sub(r"^\[\S*\] ", "", " ".join(str(error).split()))  # without torch's file and line
        raise ProcessLost(f"another process of this training is gone ({line[:160].removesuffix('.')}).") from error


class BatchShard(BatchViews):
    """The graphs of a batch that one of several processes augments and encodes.

    A process draws only the sections that overlap its shard, so its work does not grow with the number of processes,
    and then keeps the graphs of its shard.
    """

    def __init__(self, store: Store, graphs: Tensor, group: ProcessGroup) -> None:
        super().__init__(store, graphs)
        self.group, self.shard = group, group.shard(graphs.numel())
        if not self.has_one_section:
            # An empty shard still draws one section, of which it keeps no graph.
            first, last = self.shard.start, max(self.shard.start, self.shard.stop - 1)
            self.starts = [start for start in self.starts if start <= last and first < start + steps.SECTION]

    def project(self, model: nn.Module, view: View) -> Tensor:
        own: Tensor = model(view.augmentation, *view.batch.fields)
        z = self.group.gather_rows(own, self.graphs.numel())
        return z if view.row is None else z[view.row]

    def is_unchanged(self, view: View) -> bool:
        return False  # all processes must encode the same number of views, whatever their shards contain

    def _join(self, sections: list[GraphBatch]) -> GraphBatch:
        parts = []
        for start, section in zip(self.starts, sections, strict=True):
            # The shard in positions relative to the section, clipped to it.
            low, high = max(self.shard.start - start, 0), min(self.shard.stop - start, section.num_graphs)
            parts.append(section.between(low, high))
        return parts[0] if len(parts) == 1 else concatenate(parts)


@final
class DistributedSteps(PairSteps):
    """Steps with global negatives: every process has a shard of each batch, and rows of the table of pair losses."""

    @property
    def group(self) -> ProcessGroup:
        assert self.exchange is not None
        return self.exchange.group

    def views(self, graphs: Tensor) -> BatchShard:
        return BatchShard(self.store, graphs, self.group)

    @torch.no_grad()
    def pair_losses(self, graphs: Tensor) -> Tensor:
        generator = self.generators["evaluation views"]
        first, second = project_pool(self.model, self.views(graphs), self.pool, generator)
        table = second.new_zeros(len(first), len(first))
        for k in range(self.group.rank, len(first), self.group.size):
            table[k] = self.objective(first[k], second)
        return sum_over_processes(table)


@final
class SyncedBatchNorm1d(nn.BatchNorm1d):
    r"""Batch normalisation with the mean and variance over the rows of all processes.

    Process r has :math:`n_r` rows, possibly none, with mean :math:`m_r` and variance :math:`v_r`. With
    :math:`n = \sum_r n_r`,

    .. math::
        m = \frac{1}{n} \sum_r n_r m_r, \qquad v = \frac{1}{n} \sum_r n_r \big( v_r + (m_r - m)^2 \big), \qquad
        y = w \, \hat x + b \quad \text{with} \quad \hat x = (x - m) / \sqrt{v + \epsilon} ,

    and with the mean :math:`\langle \cdot \rangle` over all n rows the gradient is
    :math:`dx = w (v + \epsilon)^{-1/2} \big( dy - \langle dy \rangle - \hat x \langle dy \, \hat x \rangle \big)`.

    (``torch.nn.SyncBatchNorm`` supports GPUs only.) Weights and statistics have the same names as in ``BatchNorm1d``,
    and in evaluation mode it behaves like ``BatchNorm1d``.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        y, mean, variance, count = _Normalise.apply(input, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        self._update_running_statistics(mean, variance * (count / (count - 1).clamp(min=1)))
        return cast(Tensor, y)

    @torch.no_grad()
    def _update_running_statistics(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), weight)
        self.running_var.lerp_(variance.to(self.running_var), weight)


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
        mean, variance, count = _global_moments(x)
        # Under autocast x has fewer bits than the weights; the statistics are kept as precise as the weights.
        precise = torch.promote_types(x.dtype, torch.float32)
        m, v = mean.to(precise), variance.to(precise)
        y = F.batch_norm(x, m, v, weight, bias, training=False, eps=eps)
        ctx.save_for_backward(x, weight, m, torch.rsqrt(v + eps), count)
        ctx.mark_non_differentiable(mean, variance, count)
        return y, mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        x, weight, mean, scale, count = ctx.saved_tensors
        standard = (x - mean) * scale
        # Sums over this process's rows: also the gradients of bias and weight, which are averaged later.
        own = torch.stack([gradient.sum(0, dtype=scale.dtype), (gradient * standard).sum(0)])
        means = sum_over_processes(own) / count.to(own)
        slope = scale if weight is None else scale * weight
        x_gradient = (gradient - means[0] - standard * means[1]) * slope
        return x_gradient.to(x.dtype), None if weight is None else own[1], None if weight is None else own[0], None


def _global_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and variance ``(d,)`` over the rows of all processes, and the number of rows ``()``, in float64."""
    own = torch.zeros(3, x.shape[1], dtype=torch.float64, device=x.device)
    own[0] = len(x)
    if len(x):
        own[2], own[1] = torch.var_mean(x.float() if x.dtype.itemsize < 4 else x, dim=0, correction=0)
    moments = torch.stack(all_gather_tensors(own, distributed.get_world_size()))
    counts, means, variances = moments.unbind(1)
    count = counts.sum(0)
    mean = (counts * means).sum(0) / count
    variance = (counts * (variances + (means - mean).square())).sum(0) / count
    return mean, variance, count[0]


@contextmanager
def synced_batch_norms(model: nn.Module) -> Iterator[None]:
    """Turn every ``BatchNorm1d`` of ``model`` into a :class:`SyncedBatchNorm1d` inside the context, in place."""
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        if type(norm) is not nn.BatchNorm1d:
            raise UserError(
                f"training: {type(norm).__name__} does not work in several processes. Use BatchNorm1d or one process."
            )
    for norm in norms:
        norm.__class__ = SyncedBatchNorm1d
    try:
        yield
    finally:
        for norm in norms:
            norm.__class__ = nn.BatchNorm1d
