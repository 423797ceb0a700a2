"""Random walks on all graphs of a data set at once: all walkers step in the same numpy call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.data.dataset import Dataset, sizes_to_offsets

NO_NODE = -1


class Neighbours(NamedTuple):
    """The neighbours of every node; nodes are numbered through all graphs.

    Attributes:
        first: ``(N + 1,)`` offsets of the nodes in ``nodes``.
        nodes: ``(E,)`` neighbours, ascending for each node.
    """

    first: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @property
    def degrees(self) -> NDArray[np.int64]:
        return np.diff(self.first)

    def edges(self) -> NDArray[np.int64]:
        """A number for every edge, ascending, ``(E,)``; see :meth:`number`."""
        return self.number(np.repeat(np.arange(len(self.first) - 1), self.degrees), self.nodes)

    def number(self, node: NDArray[np.int64], neighbour: NDArray[np.int64]) -> NDArray[np.int64]:
        return node * (len(self.first) - 1) + neighbour


def find_neighbours(dataset: Dataset) -> Neighbours:
    shift = np.repeat(dataset.first_node[:-1], np.diff(dataset.first_edge))
    return Neighbours(sizes_to_offsets(dataset.degrees), dataset.source + shift)


def random_walks(
    neighbours: Neighbours,
    starts: NDArray[np.int64],
    length: int,
    random: np.random.Generator,
    *,
    p: float = 1.0,
    q: float = 1.0,
) -> NDArray[np.int64]:
    """Draw node2vec walks (Grover and Leskovec, 2016), whose next step depends on the last two nodes.

    From :math:`v`, coming from :math:`t`, the next node is a neighbour :math:`x` of :math:`v` with a probability
    proportional to :math:`1/p` if :math:`x = t`, to 1 if :math:`x` is a neighbour of :math:`t`, and to :math:`1/q`
    otherwise. The first step, and every step if :math:`p = q = 1`, is uniform.

    Returns:
        ``(W, length)`` nodes, starting with ``starts``; :data:`NO_NODE` after a node without neighbours.
    """
    walks = np.full((len(starts), length), NO_NODE)
    walks[:, 0] = starts
    moving = np.flatnonzero(neighbours.degrees[starts])  # edges go both ways, so a walk that can start never gets stuck
    edges = neighbours.edges() if (p, q) != (1, 1) else None
    before = at = starts[moving]  # previous = current makes all neighbours equally near: the first step is uniform
    for step in range(1, length):
        if edges is None:
            at = _uniform_step(neighbours, at, random)
        else:
            before, at = at, _biased_step(neighbours, edges, before, at, (1 / p, 1.0, 1 / q), random)
        walks[moving, step] = at
    return walks


def _uniform_step(neighbours: Neighbours, at: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    first = neighbours.first[at]
    return neighbours.nodes[first + (random.random(len(at)) * (neighbours.first[at + 1] - first)).astype(np.int64)]


def _biased_step(
    neighbours: Neighbours,
    edges: NDArray[np.int64],
    before: NDArray[np.int64],
    at: NDArray[np.int64],
    weights: tuple[float, float, float],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Rejection sampling: propose uniform steps and accept each with its weight relative to the largest one."""
    back, near, far = weights
    largest = max(weights)
    to = np.empty_like(at)
    waiting = np.arange(len(at))
    while len(waiting):
        here, there = at[waiting], before[waiting]
        proposed = _uniform_step(neighbours, here, random)
        wanted = neighbours.number(there, proposed)
        place = np.minimum(np.searchsorted(edges, wanted), len(edges) - 1)
        weight = np.where(proposed == there, back, np.where(edges[place] == wanted, near, far))
        accepted = random.random(len(waiting)) * largest < weight
        to[waiting[accepted]] = proposed[accepted]
        waiting = waiting[~accepted]
    return to
