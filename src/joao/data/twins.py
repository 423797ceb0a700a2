"""Graphs of a data set that are the same graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset
from joao.data.refinement import Labels, different, mixed, numbered, refined_labels


def twins(graphs: Dataset) -> NDArray[np.int64]:
    """``(G,)`` of each graph, the number of the first one that it cannot be told from; its own where that is itself.

    Graphs are told apart by refining the labels of their nodes as Weisfeiler and Lehman do, until no refinement tells
    more nodes apart. Isomorphic graphs never are, so all of them are found. Others nearly always are; a cycle of six
    nodes and two cycles of three are not, one of four such pairs among the 208 graphs of up to six nodes.

    Nodes start with their labels, where they have some. Attributes of nodes and edges are not read, as in the paper's
    unsupervised table: graphs that differ in nothing else are twins. So a group may be larger than the methods that
    read attributes need it, and never smaller.
    """
    first_alike = np.arange(len(graphs))
    *_, labels = refined_labels(graphs, iterations=1)
    numbers = _same_counts(graphs, labels)
    alike = np.flatnonzero(np.bincount(numbers)[numbers] > 1)  # a first look; most data have few left after it
    if len(alike):
        some = graphs.subset(alike)
        numbers = _same_counts(some, _refined_to_the_end(some))
        first_alike[alike] = alike[np.unique(numbers, return_index=True)[1][numbers]]
    return first_alike


def _refined_to_the_end(graphs: Dataset) -> Labels:
    num_different = 0
    for labels in refined_labels(graphs, iterations=graphs.num_nodes):
        before, num_different = num_different, len(different(labels))
        if num_different == before:
            break
    return labels


def _same_counts(graphs: Dataset, labels: Labels) -> NDArray[np.int64]:
    """``(G,)`` a number for each graph, the same for those in which each label is as often: their sums are equal."""
    sums = np.zeros((graphs.num_nodes + 1, 2), dtype=np.uint64)
    np.cumsum(mixed(labels), axis=0, out=sums[1:])  # what overflows cancels out in the difference
    return numbered(sums[graphs.first_node[1:]] - sums[graphs.first_node[:-1]])[0]


class TwinCounts(NamedTuple):
    """How many graphs have a twin, and how many have one of another class."""

    with_twin: int
    with_twin_of_another_class: int


def count_twins(first_alike: NDArray[np.int64], classes: NDArray[np.int64] | None) -> TwinCounts:
    """Counts what :func:`twins` found; graphs without a label, -1, are of no class.

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
