"""Exact counts of the graphlets of three and four nodes, by formulas instead of enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from joao.baselines.base import Baseline
from joao.data.dataset import Dataset
from joao.data.refinement import adjacency

Counts = NDArray[np.float64]

_PATHS_AT_ONCE = 1 << 24  # of two edges: what a block of graphs takes in memory
_ENTRIES_AT_ONCE = 1 << 22


def graphlet_counts(graphs: Dataset) -> Counts:
    r"""``(G, 8)`` how often each connected graphlet is an induced subgraph of each graph.

    The columns: path and triangle; star, path, paw (a triangle with a tail), cycle, diamond (a complete graph less one
    edge) and complete graph of four nodes.

    With the degrees :math:`d_i`, the common neighbours :math:`s_{ij} = (A^2)_{ij}`, which of an edge are the triangles
    on it, and the triangles :math:`t_i` at a node, subgraphs that need not be induced are counted by sums, as

    .. math::
        \text{stars} = \sum_i \tbinom{d_i}{3}, \quad
        \text{paths} = \sum_{ij \in E} (d_i - 1)(d_j - 1) - \sum_i t_i, \quad
        \text{paws} = \sum_i t_i (d_i - 2), \quad
        \text{cycles} = \tfrac{1}{2} \sum_{i < j} \tbinom{s_{ij}}{2}, \quad
        \text{diamonds} = \sum_{ij \in E} \tbinom{s_{ij}}{2}

    and of these the ones inside larger graphlets are taken away. Only complete ones must be looked for.
    """
    return np.concatenate([_counts_in(block) for block in _blocks(graphs)])


def _blocks(graphs: Dataset) -> Iterator[Dataset]:
    """The graphs in order, so many at a time as have a certain number of paths of two edges, or one."""
    paths = np.add.reduceat(graphs.degrees**2, graphs.first_node[:-1]).cumsum()
    first = 0
    while first < len(graphs):
        before = paths[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(paths, before + _PATHS_AT_ONCE, side="right")))
        yield graphs[first:last]
        first = last


def _counts_in(graphs: Dataset) -> Counts:
    edges = adjacency(graphs, np.float64)
    degrees = graphs.degrees.astype(np.float64)
    common = edges @ edges
    triangles = edges * common  # (N, N), on each edge
    at_node = triangles.sum(axis=1) / 2

    def of_graphs(of_nodes: Counts) -> Counts:
        return np.add.reduceat(of_nodes, graphs.first_node[:-1])

    triangle = of_graphs(at_node) / 3
    wedges = of_graphs(_pairs(degrees))
    complete = _complete_fours(graphs, triangles)
    diamond = of_graphs(_pairs_in_rows(triangles)) / 2 - 6 * complete
    cycle = (of_graphs(_pairs_in_rows(common)) - wedges) / 4 - diamond - 3 * complete
    paw = of_graphs(at_node * (degrees - 2)) - 4 * diamond - 12 * complete
    star = of_graphs(degrees * (degrees - 1) * (degrees - 2)) / 6 - paw - 2 * diamond - 4 * complete
    beside = of_graphs((degrees - 1) * (edges @ (degrees - 1))) / 2
    path = beside - 3 * triangle - 2 * paw - 4 * cycle - 6 * diamond - 12 * complete
    return np.stack([wedges - 3 * triangle, triangle, star, path, paw, cycle, diamond, complete], axis=1)


def _pairs(numbers: Counts) -> Counts:
    return numbers * (numbers - 1) / 2


def _pairs_in_rows(matrix: csr_array) -> Counts:
    return np.asarray(csr_array((_pairs(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape).sum(axis=1))


def _complete_fours(graphs: Dataset, triangles: csr_array) -> Counts:
    """``(G,)``: of every edge, the edges among the common neighbours of its ends; each graphlet is met at six edges.

    Only edges on two triangles or more can be in one, and of a sparse graph these are few; so adjacency can be dense.
    """
    found = np.zeros(len(graphs))
    able = triangles.tocoo()
    keep = able.data >= 2
    source, target = able.row[keep], able.col[keep]
    starts = np.searchsorted(source, graphs.first_node)
    for graph in np.flatnonzero(np.diff(starts) >= 12):
        own = slice(starts[graph], starts[graph + 1])
        nodes, ends = np.unique(np.stack([source[own], target[own]]), return_inverse=True)
        matrix = np.zeros((len(nodes), len(nodes)), dtype=np.float32)
        ends = ends.reshape(2, -1)
        matrix[ends[0], ends[1]] = 1
        ends = ends[:, ends[0] < ends[1]]
        step = max(1, _ENTRIES_AT_ONCE // len(nodes))
        for first in range(0, ends.shape[1], step):
            common = matrix[ends[0, first : first + step]] * matrix[ends[1, first : first + step]]
            found[graph] += np.einsum("en,en->", common @ matrix, common, dtype=np.float64) / 12
    return found


@final
class GL(Baseline):
    """The graphlet kernel (Shervashidze et al., 2009): how often each small connected graph is part of a graph.

    The row of a graph counts the connected graphs of three and four nodes among its induced subgraphs, see
    :func:`joao.baselines.graphlets.graphlet_counts`. Counts are exact; published figures are of samples, of other
    sizes too. Neither labels nor attributes of nodes and edges are read.
    """

    title: ClassVar[str] = "GL (graphlet kernel)"
    kernel: ClassVar[bool] = True

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        """Nothing is to be learned."""
        return self

    def transform(self, graphs: Dataset) -> NDArray[np.float64]:
        return graphlet_counts(graphs)
