"""Building blocks of encoders: sums over neighbours, diffusion, readouts, and batch normalisation of padded views."""

import math
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch
from joao.kernels.layers import batch_norm

with warnings.catch_warnings():
    # torch warns once per process that CSR tensors are in beta and are not checked. Trigger the warning here, unseen.
    warnings.filterwarnings("ignore", message="Sparse")
    torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0), (1, 1))


class NeighbourLists(NamedTuple):
    """Adjacency for a CPU: the list of each node and its neighbours, concatenated, and the offset of each list."""

    nodes: Tensor
    first: Tensor


class Diffusion(NamedTuple):
    """The operator of :func:`diffusion`: adjacency, ``(N, 1)`` node scales, and weights of Chebyshev polynomials."""

    matrix: NeighbourLists | Tensor
    scale: Tensor
    weights: tuple[float, ...]


def add_neighbours(x: Tensor, matrix: NeighbourLists | Tensor | Diffusion) -> Tensor:
    r"""Compute :math:`x_v + \sum_{u \sim v} x_u` for every node, ``(N, d)``.

    ``matrix`` is the :func:`adjacency` of the graphs, or their :func:`diffusion`, which then replaces the sum. Both are
    symmetric, so the gradient is the same product again. Sparse products do not support 16-bit numbers: under mixed
    precision, the sum is computed in float32.
    """
    x = x.float() if x.dtype.itemsize < 4 else x
    return cast(Tensor, _SymmetricProduct.apply(x, matrix))  # type: ignore[no-untyped-call]


def adjacency(batch: GraphBatch, dtype: torch.dtype = torch.float32) -> NeighbourLists | Tensor:
    """The adjacency of the graphs: neighbour lists on a CPU, an ``(N, N)`` sparse CSR matrix of ones on a GPU."""
    if batch.device.type == "cpu":
        return _neighbour_lists(batch)
    return torch.sparse_csr_tensor(
        batch.first_edge,
        batch.source,
        torch.ones(batch.num_edges, dtype=dtype, device=batch.device),
        (batch.num_nodes, batch.num_nodes),
        check_invariants=False,
    )


def diffusion(batch: GraphBatch, alpha: float, dtype: torch.dtype, tolerance: float = 1e-3) -> Diffusion:
    r"""Personalised PageRank diffusion: connects all nodes of a graph, with weights that decrease with distance.

    .. math::
        S = \alpha \big( I - a \hat A \big)^{-1} \quad \text{with} \quad a = 1 - \alpha, \quad
        \hat A_{vu} = (1 + \deg v)^{-1/2} (1 + \deg u)^{-1/2} \text{ for } u = v, \, u \sim v .

    :math:`S` is dense and is never computed. With the Chebyshev polynomials :math:`T_k`,
    :math:`T_{k + 1}(t) = 2 t \, T_k(t) - T_{k - 1}(t)`,

    .. math::
        S = w_0 + w_1 T_1(\hat A) + w_2 T_2(\hat A) + \dots , \quad
        w_k = \frac{2 \alpha}{\sqrt{1 - a^2}} q^k , \quad w_0 = \frac{\alpha}{\sqrt{1 - a^2}} , \quad
        q = \frac{1 - \sqrt{1 - a^2}}{a} ,

    truncated so that the error in the largest eigenvalue, which is 1, is at most ``tolerance``: 10 products with
    :math:`\hat A` for :math:`\alpha = 0.2`, where :math:`q = 1/2`.
    """
    root = math.sqrt(1 - (1 - alpha) ** 2)
    q = (1 - root) / (1 - alpha)
    last = math.ceil(math.log(tolerance * root * (1 - q) / (2 * alpha * q)) / math.log(q))
    scale = (1 + batch.first_edge.diff()).to(dtype).rsqrt().unsqueeze(1)
    weights = tuple((2 if k else 1) * alpha / root * q**k for k in range(max(last, 1) + 1))
    return Diffusion(adjacency(batch, dtype), scale, weights)


def sum_lists(x: Tensor, nodes: Tensor, first: Tensor) -> Tensor:
    """Sum the rows of ``x`` over each list of ``nodes``; the fastest way in torch on a CPU."""
    return torch.embedding_bag(x.contiguous(), nodes, first, mode=0, include_last_offset=True)[0]


def sum_nodes(x: Tensor, batch: GraphBatch) -> Tensor:
    """Sum the rows ``x`` of each graph's nodes: ``(N, d)`` to ``(G, d)``."""
    if x.device.type == "cpu" and x.dtype.itemsize >= 4:
        return cast(Tensor, _SumOfGraphs.apply(x, batch))  # type: ignore[no-untyped-call]
    return x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.graph_of_node, x)


class _SumOfGraphs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, batch: GraphBatch) -> Tensor:
        ctx.graph_of_node = batch.graph_of_node
        return sum_lists(x, torch.arange(batch.num_nodes), batch.first_node)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.index_select(0, ctx.graph_of_node), None


def _neighbour_lists(batch: GraphBatch) -> NeighbourLists:
    # List v holds the sources of the edges to v and then v itself. Edges are sorted by target, so edge e belongs at
    # e + target(e): after all earlier edges and after the own entries of all earlier nodes.
    numbers = np.arange(max(batch.num_edges, batch.num_nodes + 1))
    first = batch.first_edge.numpy() + numbers[: batch.num_nodes + 1]
    nodes = np.empty(batch.num_nodes + batch.num_edges, dtype=np.int32)
    nodes[numbers[: batch.num_edges] + batch.target.numpy()] = batch.source.numpy()
    nodes[first[1:] - 1] = numbers[: batch.num_nodes]
    return NeighbourLists(torch.from_numpy(nodes), torch.from_numpy(first.astype(np.int32)))


class _SymmetricProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: NeighbourLists | Tensor | Diffusion) -> Tensor:
        ctx.matrix = matrix
        return _add_product(x, matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _add_product(gradient, ctx.matrix), None


def _add_product(x: Tensor, matrix: NeighbourLists | Tensor | Diffusion) -> Tensor:
    if isinstance(matrix, Diffusion):
        return _diffuse(x, matrix)
    if isinstance(matrix, NeighbourLists):
        return sum_lists(x, matrix.nodes, matrix.first)
    with torch.autocast(x.device.type, enabled=False):
        return torch.addmm(x, matrix, x)


def _diffuse(x: Tensor, diffusion: Diffusion) -> Tensor:
    first, second, *others = diffusion.weights
    before, now = x, _propagate(x, diffusion)
    total = first * before + second * now
    for weight in others:
        before, now = now, 2 * _propagate(now, diffusion) - before
        total += weight * now
    return total


def _propagate(x: Tensor, diffusion: Diffusion) -> Tensor:
    return diffusion.scale * _add_product(diffusion.scale * x, diffusion.matrix)


Moments = tuple[Tensor, Tensor]


def normalise_views(h: Tensor, keep: Tensor, norm: nn.BatchNorm1d, moments: list[Moments]) -> Tensor:
    """Apply ``norm`` to ``h`` ``(V, N, d)``, separately for each view and over the kept rows; other rows become 0.

    In training mode, uses the statistics of each view and appends them to ``moments``; else the running statistics.
    """
    if norm.training:
        y, means, variances = batch_norm(h, keep, norm.weight, norm.bias, norm.eps)
        moments.append((means, variances))
        return y
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    slope = norm.weight * torch.rsqrt(variance + norm.eps)
    y = (h - mean.unsqueeze(-2)) * slope.unsqueeze(-2) + norm.bias.unsqueeze(-2)
    return y * keep.unsqueeze(-1)


def update_running_statistics(norms: Sequence[nn.BatchNorm1d], keep: Tensor, moments: Sequence[Moments]) -> None:
    """Update the running statistics of ``norms`` view by view, as the modules would themselves.

    Args:
        norms: all with the same momentum. Their statistics are ``(d,)``, or ``(V, d)`` for one set per view.
        keep: ``(V, N)`` the rows that were normalised.
        moments: ``(V, d)`` means and variances of the rows of each norm.
    """
    count = keep.sum(1, keepdim=True, dtype=torch.float64)
    means, variances = zip(*moments, strict=True)
    of_means, of_variances, batches = (list(each) for each in zip(*(norm.buffers() for norm in norms), strict=True))
    # Normalisation uses the biased variance; running statistics store the unbiased one, as in torch.
    correction = (count / (count - 1)).to(of_variances[0].dtype)
    unbiased = [each * correction for each in variances]
    momentum = cast(float, norms[0].momentum)
    # Stacked statistics belong to one view each; shared ones are updated by one view after the other.
    are_stacked = of_means[0].dim() == 2
    views = [slice(None)] if are_stacked else [*range(len(count))]
    for view in views:
        torch._foreach_lerp_(of_means, [each[view] for each in means], momentum)
        torch._foreach_lerp_(of_variances, [each[view] for each in unbiased], momentum)
    torch._foreach_add_(batches, len(views))


STATISTICS = ("sum", "mean", "max")
_WRITTEN = re.compile(r"(log\()?([a-z]+(?:\+[a-z]+)*)(?(1)\))")


class Readout:
    r"""Concatenates statistics over the nodes of each graph.

    ``sum``, ``mean`` and ``max`` are taken of every layer, ``input`` is the sum of the input features. ``log(...)``
    replaces each value :math:`v` by :math:`\mathrm{sign}(v) \log(1 + |v|)`, so that large graphs do not dominate.

    Pre-training uses the encoder's own pooling; a readout changes only the embeddings.

    >>> Readout("log(sum+mean+input)").width(num_features=7, layer_widths=[32, 32])
    135
    >>> Readout("median")
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: readout: expected some of sum, mean, max, input, joined by '+', got 'median'.
    """

    def __init__(self, text: str) -> None:
        found = _WRITTEN.fullmatch(text)
        self.names = found[2].split("+") if found else []
        if not self.names or not {*self.names} <= {*STATISTICS, "input"} or len({*self.names}) < len(self.names):
            known = ", ".join((*STATISTICS, "input"))
            raise UserError(f"readout: expected some of {known}, joined by '+', got '{text}'.")
        self.is_log = found is not None and found[1] is not None

    def width(self, num_features: int, layer_widths: Sequence[int]) -> int:
        """Length of the embeddings."""
        return sum(num_features if name == "input" else sum(layer_widths) for name in self.names)

    def __call__(self, layers: Sequence[Tensor], batch: GraphBatch) -> Tensor:
        """Embed the graphs of ``batch`` from the node vectors ``(N, d)`` of each layer."""
        parts: list[Tensor] = []
        for name in self.names:
            if name == "input":
                parts.append(sum_nodes(batch.x.to(layers[0].dtype), batch))
            else:
                parts += [_pool(name, x, batch) for x in layers]
        joined = torch.cat(parts, dim=1)
        return joined.sign() * joined.abs().log1p() if self.is_log else joined


def _pool(name: str, x: Tensor, batch: GraphBatch) -> Tensor:
    if name == "max":
        index = batch.graph_of_node.unsqueeze(1).expand_as(x)
        # Graphs without nodes would keep -inf; as in a sum, they get 0.
        lowest = x.new_full((batch.num_graphs, x.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, index, x, "amax").nan_to_num(neginf=0.0)
    sums = sum_nodes(x, batch)
    return sums / batch.nodes_per_graph.clamp(min=1).unsqueeze(1) if name == "mean" else sums
