"""Building blocks of encoders: sums over neighbours, diffusion, readouts, and batch normalisation of padded views."""

import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from joao.core.errors import UserError
from joao.core.graphs import GraphBatch, Numbers, select_groups
from joao.core.padded import PaddedViews
from joao.core.randomness import splitmix64
from joao.kernels.layers import batch_norm, graph_max, graph_sum

with warnings.catch_warnings():
    # torch warns once per process that CSR tensors are in beta and are not checked. Trigger the warning here, unseen.
    warnings.filterwarnings("ignore", message="Sparse")
    torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0), (1, 1))


class NeighbourLists(NamedTuple):
    """Adjacency for a CPU: the list of each node and its neighbours, concatenated, and the offset of each list."""

    nodes: Tensor
    first: Tensor

    def between(self, begin: int, end: int) -> "NeighbourLists":
        first = self.first[begin : end + 1]
        return NeighbourLists(self.nodes[int(first[0]) : int(first[-1])], first - first[0])


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
        first_edge, source, target = (each.numpy() for each in (batch.first_edge, batch.source, batch.target))
        return _neighbour_lists(first_edge, source, target, np.arange(batch.num_nodes))
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


def _neighbour_lists(first_edge: Numbers, source: Numbers, target: Numbers, own: Numbers) -> NeighbourLists:
    # List v holds the sources of the edges to v and then its own entry. Edges are sorted by target, so edge e belongs
    # at e + target(e): after all earlier edges and after the own entries of all earlier nodes.
    first = first_edge + np.arange(len(first_edge))
    nodes = np.empty(len(own) + len(source), dtype=np.int32)
    nodes[np.arange(len(source)) + target] = source
    nodes[first[1:] - 1] = own
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


class Environments(NamedTuple):
    """The different environments of the nodes of a batch after some layers; one node of each is computed.

    Attributes:
        of_node: ``(N,)`` number of the environment of each node.
        nodes: ``(U,)`` the computed nodes.
        own: ``(U,)`` their environments one layer before.
        edges: ``(e,)`` the edges to them, by target.
        target: ``(e,)`` the number of the computed node.
        source: ``(e,)`` the environment of the neighbour one layer before.
        first_edge: ``(U + 1,)`` offsets of the computed nodes in ``edges``.
    """

    of_node: Tensor
    nodes: Tensor
    own: Tensor
    edges: Tensor
    target: Tensor
    source: Tensor
    first_edge: Tensor

    def lists(self) -> NeighbourLists:
        """List, for each computed node, the environments of its neighbours and its own one layer before."""
        return _neighbour_lists(*(each.numpy() for each in (self.first_edge, self.source, self.target, self.own)))


def environments(batch: GraphBatch, layers: int) -> Iterator[Environments]:
    r"""Find the nodes that have the same vector before the first layer and after each of ``layers``, on a CPU.

    A vector depends only on what lies within as many steps as there were layers. In a batch of molecules, most
    environments of few steps occur many times, and an encoder needs to compute each only once. Environments are
    distinguished by Weisfeiler-Lehman colours,

    .. math:: c_v \leftarrow \mathrm{mix}\big(3 c_v + \textstyle\sum_{u \sim v} \mathrm{mix}(c_u \oplus e_{uv})\big) ,

    hashes of 64 bits with :func:`joao.core.randomness.splitmix64` as mix: two different environments are confused with
    probability :math:`2^{-64}`. The edges of a node are in the order of these hashes, so sums are bit for bit the same
    for all nodes of an environment and in any batch.
    """
    all_sources, all_first = batch.source.numpy(), batch.first_edge.numpy()
    colour, bond = _hash_rows(batch.x, seed=1), np.zeros(1, np.uint64)
    if batch.edge_attr is not None:
        bond = _hash_rows(batch.edge_attr, seed=2)
    message, before = np.zeros(batch.num_edges, np.uint64), np.zeros(batch.num_nodes, np.int64)
    for layer in range(layers + 1):
        if layer:
            message = splitmix64(colour[all_sources] ^ bond)
            # Running sums over all edges: their differences are the sums over the edges to each node, modulo 2**64.
            sums = np.zeros(batch.num_edges + 1, np.uint64)
            np.cumsum(message, out=sums[1:])
            colour = splitmix64(3 * colour + np.diff(sums[all_first]))
        _, nodes, of_node = np.unique(colour, return_index=True, return_inverse=True)
        edges, degrees, first = select_groups(all_first, nodes)
        target = np.repeat(np.arange(len(nodes)), degrees)
        # The upper bits are those of the target, which is ascending already: this sorts the edges of each node.
        bits = max(len(nodes), 2).bit_length()
        key = (target.astype(np.uint64) << np.uint64(64 - bits)) | (message[edges] >> np.uint64(bits))
        edges = edges[np.argsort(key)]
        fields = (of_node, nodes, before[nodes], edges, target, before[all_sources[edges]], first)
        yield Environments(*map(torch.from_numpy, fields))
        before = of_node


def _hash_rows(values: Tensor, seed: int) -> NDArray[np.uint64]:
    """Hash each row of ``(N, k)`` numbers. The seed differs from 0, which :func:`splitmix64` maps to itself."""
    hashed = np.full(len(values), seed, np.uint64)
    for column in values.numpy().astype(np.float64).T:
        hashed = splitmix64(3 * hashed + column.view(np.uint64))
    return hashed


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


def fold_norm(linear: nn.Linear, norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """Weight and bias of ``linear`` followed by ``norm`` in evaluation mode, as one linear map."""
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    slope = norm.weight * torch.rsqrt(variance + norm.eps)
    bias = -mean if linear.bias is None else linear.bias - mean
    return linear.weight * slope.unsqueeze(1), bias * slope + norm.bias


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
        match = _WRITTEN.fullmatch(text)
        self.names = match[2].split("+") if match else []
        if not self.names or not {*self.names} <= {*STATISTICS, "input"} or len({*self.names}) < len(self.names):
            known = ", ".join((*STATISTICS, "input"))
            raise UserError(f"readout: expected some of {known}, joined by '+', got '{text}'.")
        self.is_log = match is not None and match[1] is not None

    def width(self, num_features: int, layer_widths: Sequence[int]) -> int:
        return sum(num_features if name == "input" else sum(layer_widths) for name in self.names)

    def __call__(self, layers: Sequence[Tensor], batch: GraphBatch) -> Tensor:
        """Embed the graphs of ``batch`` from the node vectors ``(N, d)`` of each layer."""
        parts: list[Tensor] = []
        for name in self.names:
            if name == "input":
                parts.append(sum_nodes(batch.x.to(layers[0].dtype), batch))
            else:
                parts += [_pool(name, x, batch) for x in layers]
        return self.join(parts)

    def pool_padded(self, layers: Sequence[Tensor], views: PaddedViews) -> Tensor:
        """Embed padded views, ``(V, G, width)``, from the node vectors ``(V, N, d)`` of each layer, without ``input``.

        No value may be negative, and nodes that are not kept must be 0.
        """
        pools = {"sum": graph_sum, "mean": _graph_mean, "max": graph_max}
        return self.join([pools[name](x, views) for name in self.names for x in layers])

    def pool_environments(self, layers: Sequence[tuple[Tensor, Tensor]], batch: GraphBatch) -> Tensor:
        """Embed the graphs of ``batch`` on a CPU without gradients and without ``input``. No value may be negative.

        Args:
            layers: the vectors ``(U, d)`` of the different environments after each layer, and the environment of each
                node (:class:`Environments`).
        """
        first, sizes = batch.first_node, batch.nodes_per_graph.clamp(min=1).unsqueeze(1)
        pools: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "sum": lambda y, of_node: sum_lists(y, of_node, first),
            "mean": lambda y, of_node: sum_lists(y, of_node, first) / sizes,
            # Faster than embedding_bag, which has no vector instructions for the maximum.
            "max": lambda y, of_node: y.new_zeros(len(sizes), y.shape[1]).scatter_reduce(
                0, batch.graph_of_node.unsqueeze(1).expand(-1, y.shape[1]), y.index_select(0, of_node), "amax"
            ),
        }
        return self.join([pools[name](*each) for name in self.names for each in layers])

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate the statistics, and take the logarithm if the readout has one."""
        joined = torch.cat([*parts], dim=-1)
        return joined.sign() * joined.abs().log1p() if self.is_log else joined


def _pool(name: str, x: Tensor, batch: GraphBatch) -> Tensor:
    if name == "max":
        index = batch.graph_of_node.unsqueeze(1).expand_as(x)
        # Graphs without nodes would keep -inf; as in a sum, they get 0.
        lowest = x.new_full((batch.num_graphs, x.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, index, x, "amax").nan_to_num(neginf=0.0)
    sums = sum_nodes(x, batch)
    return sums / batch.nodes_per_graph.clamp(min=1).unsqueeze(1) if name == "mean" else sums


def _graph_mean(x: Tensor, views: PaddedViews) -> Tensor:
    return graph_sum(x, views) / graph_sum(views.keep.unsqueeze(-1).to(x.dtype), views).clamp(min=1)
