"""Sums over neighbours as a product with the sparse adjacency matrix."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from joao.graphs import GraphBatch

with warnings.catch_warnings():
    # torch says once per process that CSR tensors are in beta and go unchecked; here, nobody needs to hear it.
    warnings.filterwarnings("ignore", message="Sparse")
    torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0), (1, 1))


def add_neighbours(x: Tensor, matrix: Tensor) -> Tensor:
    r""":math:`x_v + \sum_{u \sim v} x_u` for every node, ``(N, d)``: the sum in :class:`Gin`.

    ``matrix`` is the graphs' :func:`adjacency`.

    The adjacency matrix of undirected graphs is its own transpose, so the gradient is the same product again.
    Sparse products know no 16-bit numbers: under mixed precision the sum is in float32.
    """
    x = x.float() if x.dtype.itemsize < 4 else x
    summed: Tensor = _SymmetricProduct.apply(x, matrix)  # type: ignore[no-untyped-call]
    return summed


def adjacency(batch: GraphBatch, dtype: torch.dtype = torch.float32) -> Tensor:
    """``(N, N)`` sparse matrix of ones, read off the sorted edges without a copy of them."""
    return torch.sparse_csr_tensor(
        batch.first_edge,
        batch.source,
        torch.ones(batch.num_edges, dtype=dtype, device=batch.device),
        (batch.num_nodes, batch.num_nodes),
        check_invariants=False,
    )


class _SymmetricProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.matrix = matrix
        return _add_product(x, matrix)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _add_product(gradient, ctx.matrix), None


def _add_product(x: Tensor, matrix: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return torch.addmm(x, matrix, x)
