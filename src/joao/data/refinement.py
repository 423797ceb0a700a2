"""Weisfeiler-Lehman labels of all graphs at once, and twins: graphs that these labels cannot distinguish."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from joao.core.randomness import splitmix64
from joao.data.dataset import Dataset, number_values, sizes_to_offsets

Labels = NDArray[np.uint64]


def refine_labels(graphs: Dataset, iterations: int) -> Iterator[Labels]:
    r"""Yield the labels of all nodes, ``(N, 2)``, before and after each of ``iterations`` refinements.

    A refined label encodes the label of a node and the multiset of its neighbours' labels,

    .. math::
        l_{t+1}(v) = \operatorname{hash}\Bigl(l_t(v) + \sum_{u \in N(v)} \operatorname{hash}(l_t(u))\Bigr)

    A label is a 128-bit number, stored as two 64-bit numbers that are added and hashed separately. It depends only on
    what it encodes, so that labels of different data sets are comparable. Two different multisets collide with a
    probability of about :math:`2^{-128}`.

    The first labels are the node labels, or the same for all nodes if there are none.
    """
    labels = initial_labels(graphs)
    yield labels
    adjacent = adjacency(graphs, np.uint64)
    for _ in range(iterations):
        labels = mix_bits(labels * _OWN + adjacent @ mix_bits(labels))
        yield labels


def label_indices(labels: Labels, known: Labels) -> NDArray[np.int64]:
    """Index of each label among the distinct ``known`` labels ``(V, 2)``; -1 for an unknown label. ``(N,)``"""
    numbers, occurring = number_labels(np.concatenate([known, labels]))
    place_of = np.full(len(occurring), -1)
    place_of[numbers[: len(known)]] = np.arange(len(known))
    return place_of[numbers[len(known) :]]


def number_labels(labels: Labels) -> tuple[NDArray[np.int64], Labels]:
    """Return the number of each label among the distinct labels, ``(N,)``, and the distinct labels, ``(V, 2)``."""
    order = np.argsort(labels[:, 0])
    ordered = labels[order]
    differs = ordered[1:] != ordered[:-1]
    if (differs[:, 1] & ~differs[:, 0]).any():  # labels share their first half: sort by both
        order = np.lexsort(labels.T)
        ordered = labels[order]
        differs = ordered[1:] != ordered[:-1]
    is_new = np.concatenate([[True], differs.any(axis=1)])
    numbers = np.empty(len(labels), dtype=np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers, ordered[is_new]


def initial_labels(graphs: Dataset) -> Labels:
    """Hash the node labels of all columns, ``(N, 2)``."""
    labels = np.zeros((graphs.num_nodes, 2), dtype=np.uint64)
    if graphs.node_labels is not None:
        for number, column in enumerate(graphs.node_labels.T):
            values, codes = number_values(column)
            labels += np.array([_digest(f"{number}/{value}") for value in values.tolist()])[codes]
    return labels


def adjacency(graphs: Dataset, dtype: type[np.generic]) -> csr_array:
    """Adjacency matrix of all graphs, ``(N, N)``."""
    first = np.repeat(graphs.first_node[:-1], np.diff(graphs.first_edge)).astype(np.int32)
    ones = np.ones(len(graphs.source), dtype=dtype)
    shape = (graphs.num_nodes, graphs.num_nodes)
    return csr_array((ones, graphs.source + first, sizes_to_offsets(graphs.degrees).astype(np.int32)), shape=shape)


# Arbitrary constants: a different start for each half of a label, and an odd factor for a node's own label.
_STARTS = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)
_OWN = np.uint64(0xA0761D6478BD642F)


def mix_bits(labels: Labels) -> Labels:
    """Scramble the bits of every number, differently in each column. The mapping is one-to-one."""
    return splitmix64(labels + _STARTS)


def _digest(text: str) -> Labels:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), dtype=np.uint64)


def find_twins(graphs: Dataset) -> NDArray[np.int64]:
    """Number of the first graph that is indistinguishable from each graph, possibly itself, ``(G,)``.

    Labels are refined until no refinement distinguishes more nodes. All isomorphic graphs are found, and a few others:
    a hexagon and two triangles, for example, one of four such pairs among the 208 graphs of up to six nodes.

    Node and edge attributes are ignored, as in the paper's unsupervised table: graphs that differ only in attributes
    are twins.
    """
    first_alike = np.arange(len(graphs))
    *_, labels = refine_labels(graphs, iterations=1)
    numbers = _group_by_label_counts(graphs, labels)
    candidates = np.flatnonzero(
        np.bincount(numbers)[numbers] > 1
    )  # one refinement leaves few candidates in most data sets
    if len(candidates):
        some, num_different = graphs.subset(candidates), 0
        for labels in refine_labels(some, iterations=some.num_nodes):
            before, num_different = num_different, len(number_labels(labels)[1])
            if num_different == before:
                break
        numbers = _group_by_label_counts(some, labels)
        first_alike[candidates] = candidates[np.unique(numbers, return_index=True)[1][numbers]]
    return first_alike


def _group_by_label_counts(graphs: Dataset, labels: Labels) -> NDArray[np.int64]:
    """Number the graphs, ``(G,)``, with the same number for equal label counts, which have equal sums of hashes."""
    sums = np.zeros((graphs.num_nodes + 1, 2), dtype=np.uint64)
    np.cumsum(mix_bits(labels), axis=0, out=sums[1:])  # overflow cancels in the differences
    return number_labels(sums[graphs.first_node[1:]] - sums[graphs.first_node[:-1]])[0]


class TwinCounts(NamedTuple):
    """Numbers of graphs with a twin, and with a twin of another class."""

    with_twin: int
    with_twin_of_another_class: int


def count_twins(first_alike: NDArray[np.int64], classes: NDArray[np.int64] | None) -> TwinCounts:
    """Count the graphs with twins; graphs without a label (-1) have no class."""
    with_twin = int((np.bincount(first_alike)[first_alike] > 1).sum())
    if classes is None:
        return TwinCounts(with_twin, 0)
    group, own = first_alike[classes >= 0], classes[classes >= 0]
    group_and_class = group * (own.max(initial=0) + 1) + own
    others = np.bincount(group)[group] - np.bincount(group_and_class)[group_and_class]
    return TwinCounts(with_twin, int((others > 0).sum()))
