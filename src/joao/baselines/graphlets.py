"""The graphlet kernel, with exact counts of graphlets of three and four nodes by formulas instead of enumeration."""

from collections.abc import Iterator
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from joao.baselines.base import Baseline
from joao.data.dataset import Dataset
from joao.data.refinement import adjacency

Counts = NDArray[np.float64]

_PATHS_AT_ONCE = 1 << 24  # paths of two edges per block, which bounds memory
_ENTRIES_AT_ONCE = 1 << 22


def graphlet_counts(graphs: Dataset) -> Counts:
    r"""Count the connected graphlets that are induced subgraphs of each graph, ``(G, 8)``.

    The columns are path and triangle (three nodes); star, path, paw (a triangle with a tail), cycle, diamond (a
    complete graph without one edge) and complete graph (four nodes).

    With the degrees :math:`d_i`, the numbers of common neighbours :math:`s_{ij} = (A^2)_{ij}`, which for an edge is its
    number of triangles, and the triangles :math:`t_i` at a node, subgraphs that need not be induced are counted by
    sums:

    .. math::
        \text{stars} = \sum_i \tbinom{d_i}{3}, \quad
        \text{paths} = \sum_{ij \in E} (d_i - 1)(d_j - 1) - \sum_i t_i, \quad
        \text{paws} = \sum_i t_i (d_i - 2), \quad
        \text{cycles} = \tfrac{1}{2} \sum_{i < j} \tbinom{s_{ij}}{2}, \quad
        \text{diamonds} = \sum_{ij \in E} \tbinom{s_{ij}}{2}

    Those inside larger graphlets are then subtracted. Only complete graphs of four nodes must be searched for.
    """
    return np.concatenate([_counts_in(block) for block in _blocks(graphs)])


def _blocks(graphs: Dataset) -> Iterator[Dataset]:
    """Split the graphs into blocks with a limited number of paths of two edges, which bounds memory."""
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
    walks = of_graphs((degrees - 1) * (edges @ (degrees - 1))) / 2
    path = walks - 3 * triangle - 2 * paw - 4 * cycle - 6 * diamond - 12 * complete
    return np.stack([wedges - 3 * triangle, triangle, star, path, paw, cycle, diamond, complete], axis=1)


def _pairs(numbers: Counts) -> Counts:
    return numbers * (numbers - 1) / 2


def _pairs_in_rows(matrix: csr_array) -> Counts:
    return np.asarray(csr_array((_pairs(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape).sum(axis=1))


def _complete_fours(graphs: Dataset, triangles: csr_array) -> Counts:
    """Count complete graphs of four nodes, ``(G,)``: edges among the common neighbours of the ends of every edge.

    Each one is found at six edges. It needs edges on at least two triangles, of which sparse graphs have few, so a
    dense adjacency matrix of their ends is small.
    """
    counts = np.zeros(len(graphs))
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
            counts[graph] += np.einsum("en,en->", common @ matrix, common, dtype=np.float64) / 12
    return counts


@final
class GL(Baseline):
    """The graphlet kernel (Shervashidze et al., 2009): counts of small connected induced subgraphs.

    Counts of graphlets of three and four nodes are exact, see :func:`joao.baselines.graphlets.graphlet_counts`.
    Published results use samples, also of other sizes. Labels and attributes of nodes and edges are ignored.

    >>> import networkx
    >>> GL().fit_transform([networkx.path_graph(4), networkx.complete_graph(4)])[:, :2]  # paths and triangles
    array([[2., 0.],
           [0., 4.]])
    """

    title: ClassVar[str] = "GL (graphlet kernel)"
    kernel: ClassVar[bool] = True

    def rows(self, graphs: Dataset) -> NDArray[np.float64]:
        return graphlet_counts(graphs)
