"""Sums over neighbours: a product with the sparse adjacency matrix."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from joao.graphs import GraphBatch

with warnings.catch_warnings():
    # torch says once per process that CSR tensors are in beta and go unchecked; here, nobody needs to hear it.
    warnings.filterwarnings("ignore", message="Sparse")
    torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0), (1, 1))


@dataclass(frozen=True, eq=False)
class NeighbourLists:
    """For a CPU: each node with its neighbours, one list after the other, and where each node's begins."""

    nodes: Tensor
    first: Tensor


def add_neighbours(x: Tensor, matrix: NeighbourLists | Tensor) -> Tensor:
    r""":math:`x_v + \sum_{u \sim v} x_u` for every node, ``(N, d)``: the sum in :class:`Gin`.

    ``matrix`` is the graphs' :func:`adjacency`.

    The adjacency matrix of undirected graphs is its own transpose, so the gradient is the same product again.
    Sparse products know no 16-bit numbers: under mixed precision the sum is in float32.
    """
    x = x.float() if x.dtype.itemsize < 4 else x
    summed: Tensor = _SymmetricProduct.apply(x, matrix)  # type: ignore[no-untyped-call]
    return summed


def adjacency(batch: GraphBatch, dtype: torch.dtype = torch.float32) -> NeighbourLists | Tensor:
    """Who is next to whom; on a GPU the ``(N, N)`` sparse matrix of ones, read off the edges without a copy of them."""
    if batch.device.type == "cpu":
        return _lists(batch)
    return torch.sparse_csr_tensor(
        batch.first_edge,
        batch.source,
        torch.ones(batch.num_edges, dtype=dtype, device=batch.device),
        (batch.num_nodes, batch.num_nodes),
        check_invariants=False,
    )


def sum_lists(x: Tensor, nodes: Tensor, first: Tensor) -> Tensor:
    """The sum over each list of ``nodes`` of their rows of ``x``: the quickest way that torch has on a CPU."""
    return torch.embedding_bag(x.contiguous(), nodes, first, mode=0, include_last_offset=True)[0]


def _lists(batch: GraphBatch) -> NeighbourLists:
    numbers = np.arange(max(batch.num_edges, batch.num_nodes + 1))
    first = batch.first_edge.numpy() + numbers[: batch.num_nodes + 1]
    nodes = np.empty(batch.num_nodes + batch.num_edges, dtype=np.int32)
    nodes[numbers[: batch.num_edges] + batch.target.numpy()] = batch.source.numpy()
    nodes[first[1:] - 1] = numbers[: batch.num_nodes]
    return NeighbourLists(torch.from_numpy(nodes), torch.from_numpy(first.astype(np.int32)))


class _SymmetricProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: NeighbourLists | Tensor) -> Tensor:
        ctx.matrix = matrix
        return _add_product(x, matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _add_product(gradient, ctx.matrix), None


def _add_product(x: Tensor, matrix: NeighbourLists | Tensor) -> Tensor:
    if isinstance(matrix, NeighbourLists):
        return sum_lists(x, matrix.nodes, matrix.first)
    with torch.autocast(x.device.type, enabled=False):
        return torch.addmm(x, matrix, x)
