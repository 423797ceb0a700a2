"""Random walks on all graphs of a data set at once: every walker takes its step in the same numpy call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.data.dataset import Dataset, sizes_to_offsets

NO_NODE = -1


class Neighbours(NamedTuple):
    """Who is next to whom; nodes are numbered through all graphs.

    Attributes:
        first: ``(N + 1,)`` where the neighbours of each node begin.
        nodes: ``(E,)`` neighbours, ascending within each node.
    """

    first: NDArray[np.int64]
    nodes: NDArray[np.int64]

    @property
    def degrees(self) -> NDArray[np.int64]:
        return np.diff(self.first)

    def edges(self) -> NDArray[np.int64]:
        """``(E,)`` a number for every edge, ascending; :meth:`number` says which."""
        return self.number(np.repeat(np.arange(len(self.first) - 1), self.degrees), self.nodes)

    def number(self, node: NDArray[np.int64], neighbour: NDArray[np.int64]) -> NDArray[np.int64]:
        return node * (len(self.first) - 1) + neighbour


def find_neighbours(dataset: Dataset) -> Neighbours:
    """The neighbours of every node."""
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
    r"""Walks of node2vec (Grover and Leskovec, 2016): where to go depends on where one is and was.

    From :math:`v`, having come from :math:`t`, a neighbour :math:`x` of :math:`v` is next with a probability
    proportional to :math:`1/p` for :math:`x = t`, to 1 for a neighbour of :math:`t`, and to :math:`1/q` for any other.
    A first step, and every step if :math:`p = q = 1`, is uniform.

    Returns:
        ``(W, length)`` nodes, the first of each row its start; :data:`NO_NODE` after a node without neighbours.
    """
    walks = np.full((len(starts), length), NO_NODE)
    walks[:, 0] = starts
    moving = np.flatnonzero(neighbours.degrees[starts])  # edges lead back, so that who can start can go on
    edges = neighbours.edges() if (p, q) != (1, 1) else None
    before = at = starts[moving]  # seen from where one is, every next node is a neighbour: the first step is uniform
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
    """Proposes uniform steps, accepts each with its weight over the largest, and asks those who are left again."""
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
