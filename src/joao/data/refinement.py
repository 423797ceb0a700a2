"""The labels of Weisfeiler and Lehman, for all graphs at once.

Graphs of a data set that are the same graph."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from joao.data.dataset import Dataset, sizes_to_offsets

Labels = NDArray[np.uint64]


def refine_labels(graphs: Dataset, iterations: int) -> Iterator[Labels]:
    r"""Labels of all nodes, ``(N, 2)``, before and after each of so many refinements.

    A refined label says which label a node had and how often its neighbours had which,

    .. math::
        l_{t+1}(v) = \operatorname{hash}\Bigl(l_t(v) + \sum_{u \in N(v)} \operatorname{hash}(l_t(u))\Bigr)

    A label is a number of 128 bits, kept as two that are added and hashed apart. It depends on nothing but what it
    stands for, so that graphs seen later get the labels of those seen before. Two things that differ get the same label
    with a probability of about :math:`2^{-128}`: among ten million different ones, once in :math:`10^{24}` data sets.

    The first labels are the node labels. Where there are none, all nodes start alike, and the first refinement tells
    their degrees apart.
    """
    labels = initial_labels(graphs)
    yield labels
    adjacent = adjacency(graphs, np.uint64)
    for _ in range(iterations):
        labels = mix_bits(labels * _OWN + adjacent @ mix_bits(labels))
        yield labels


def unique_labels(labels: Labels) -> Labels:
    """``(V, 2)`` the labels that occur, each once."""
    return number_labels(labels)[1]


def label_indices(labels: Labels, known: Labels) -> NDArray[np.int64]:
    """``(N,)`` the place of each label among the known ones, ``(V, 2)`` different; -1 for one that is not there."""
    numbers, occurring = number_labels(np.concatenate([known, labels]))
    place_of = np.full(len(occurring), -1)
    place_of[numbers[: len(known)]] = np.arange(len(known))
    return place_of[numbers[len(known) :]]


def number_labels(labels: Labels) -> tuple[NDArray[np.int64], Labels]:
    """``(N,)`` the number of each label among the different ones, and these, ``(V, 2)``."""
    order = np.argsort(labels[:, 0])
    ordered = labels[order]
    differs = ordered[1:] != ordered[:-1]
    if (differs[:, 1] & ~differs[:, 0]).any():  # different ones have the same first half: sorting by it is not enough
        order = np.lexsort(labels.T)
        ordered = labels[order]
        differs = ordered[1:] != ordered[:-1]
    is_new = np.concatenate([[True], differs.any(axis=1)])
    numbers = np.empty(len(labels), dtype=np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers, ordered[is_new]


def initial_labels(graphs: Dataset) -> Labels:
    """``(N, 2)`` a number for the values that a node has in all columns of node labels."""
    labels = np.zeros((graphs.num_nodes, 2), dtype=np.uint64)
    if graphs.node_labels is not None:
        for number, column in enumerate(graphs.node_labels.T):
            values, codes = np.unique(column, return_inverse=True)
            labels += np.array([_digest(f"{number}/{value}") for value in values.tolist()])[codes]
    return labels


def adjacency(graphs: Dataset, dtype: type[np.generic]) -> csr_array:
    """``(N, N)`` ones for the edges of all graphs, numbered through."""
    first = np.repeat(graphs.first_node[:-1], np.diff(graphs.first_edge)).astype(np.int32)
    ones = np.ones(len(graphs.source), dtype=dtype)
    shape = (graphs.num_nodes, graphs.num_nodes)
    return csr_array((ones, graphs.source + first, sizes_to_offsets(graphs.degrees).astype(np.int32)), shape=shape)


# The constants of splitmix64, a well-known mixer of bits, a start for each half, and any odd number.
_STARTS = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_OWN = np.uint64(0xA0761D6478BD642F)


def mix_bits(labels: Labels) -> Labels:
    """Every number becomes another, of which no bit is like any of the first; not two become one."""
    bits = labels + _STARTS
    bits = (bits ^ (bits >> np.uint64(30))) * _FACTORS[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _FACTORS[1]
    return bits ^ (bits >> np.uint64(31))


def _digest(text: str) -> Labels:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), dtype=np.uint64)


def find_twins(graphs: Dataset) -> NDArray[np.int64]:
    """``(G,)`` of each graph, the number of the first one that it cannot be told from; its own where that is itself.

    Graphs are told apart by refining the labels of their nodes as Weisfeiler and Lehman do, until no refinement tells
    more nodes apart. Isomorphic graphs never are, so all of them are found. Others nearly always are; a cycle of six
    nodes and two cycles of three are not, one of four such pairs among the 208 graphs of up to six nodes.

    Nodes start with their labels, where they have some. Attributes of nodes and edges are not read, as in the paper's
    unsupervised table: graphs that differ in nothing else are twins. So a group may be larger than the methods that
    read attributes need it, and never smaller.
    """
    first_alike = np.arange(len(graphs))
    *_, labels = refine_labels(graphs, iterations=1)
    numbers = _group_by_label_counts(graphs, labels)
    alike = np.flatnonzero(np.bincount(numbers)[numbers] > 1)  # a first look; most data have few left after it
    if len(alike):
        some = graphs.subset(alike)
        numbers = _group_by_label_counts(some, _refine_until_stable(some))
        first_alike[alike] = alike[np.unique(numbers, return_index=True)[1][numbers]]
    return first_alike


def _refine_until_stable(graphs: Dataset) -> Labels:
    num_different = 0
    for labels in refine_labels(graphs, iterations=graphs.num_nodes):
        before, num_different = num_different, len(unique_labels(labels))
        if num_different == before:
            break
    return labels


def _group_by_label_counts(graphs: Dataset, labels: Labels) -> NDArray[np.int64]:
    """``(G,)`` a number for each graph, the same for those in which each label is as often: their sums are equal."""
    sums = np.zeros((graphs.num_nodes + 1, 2), dtype=np.uint64)
    np.cumsum(mix_bits(labels), axis=0, out=sums[1:])  # what overflows cancels out in the difference
    return number_labels(sums[graphs.first_node[1:]] - sums[graphs.first_node[:-1]])[0]


class TwinCounts(NamedTuple):
    """How many graphs have a twin, and how many have one of another class."""

    with_twin: int
    with_twin_of_another_class: int


def count_twins(first_alike: NDArray[np.int64], classes: NDArray[np.int64] | None) -> TwinCounts:
    """Counts what :func:`find_twins` found; graphs without a label, -1, are of no class.

    >>> count_twins(np.array([0, 1, 0, 3, 3]), np.array([0, 0, 1, 1, 1]))
    TwinCounts(with_twin=4, with_twin_of_another_class=2)
    """
    with_twin = int((np.bincount(first_alike)[first_alike] > 1).sum())
    if classes is None:
        return TwinCounts(with_twin, 0)
    group, own = first_alike[classes >= 0], classes[classes >= 0]
    group_and_class = group * (own.max(initial=0) + 1) + own
    others = np.bincount(group)[group] - np.bincount(group_and_class)[group_and_class]
    return TwinCounts(with_twin, int((others > 0).sum()))
