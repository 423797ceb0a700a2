"""Random graphs for tests and benchmarks."""

from __future__ import annotations

import numpy as np

from joao.core.errors import UserError
from joao.core.randomness import numpy_generator
from joao.data.dataset import Dataset
from joao.data.validation import make_dataset


def random_graphs(
    num_graphs: int = 64,
    mean_nodes: float = 20.0,
    mean_degree: float = 3.0,
    seed: int = 0,
    *,
    num_node_labels: int = 4,
    num_attributes: int = 0,
    num_edge_attributes: int = 0,
    num_classes: int = 2,
) -> Dataset:
    """Draw graphs with uniform edges, whose classes are visible in their node labels and attributes.

    The first graph is a single node and the second has no edges. All others have two nodes plus a Poisson number, and a
    Poisson number of edges before loops and duplicates are removed. A node has the label of its graph's class with
    probability 1/2, otherwise any label; attributes are normal around the class number. A number of 0 leaves out
    labels, attributes or classes.
    """
    if num_graphs < 1 or mean_nodes < 2:
        raise UserError(f"random_graphs: {num_graphs=} must be at least 1 and {mean_nodes=} at least 2.")
    random = numpy_generator(seed, "synthetic graphs")
    sizes = 2 + random.poisson(mean_nodes - 2, num_graphs)
    sizes[0] = 1
    draws = random.poisson(sizes * mean_degree / 2)
    draws[:2] = 0
    first = np.repeat(np.cumsum(sizes) - sizes, draws)
    ends = first + (random.random((2, draws.sum())) * np.repeat(sizes, draws)).astype(np.int64)
    classes = np.arange(num_graphs) % max(num_classes, 1)
    class_of_node = np.repeat(classes, sizes)
    num_nodes = int(sizes.sum())
    labels = random.integers(max(num_node_labels, 1), size=num_nodes)
    labels = np.where(random.random(num_nodes) < 0.5, class_of_node % max(num_node_labels, 1), labels)
    attributes = class_of_node[:, None] + random.standard_normal((num_nodes, num_attributes))
    edge_attributes = random.standard_normal((len(first), num_edge_attributes))
    return make_dataset(
        "synthetic",
        sizes,
        (ends[0], ends[1]),
        node_labels=labels if num_node_labels else None,
        node_attributes=attributes if num_attributes else None,
        edge_attr=edge_attributes if num_edge_attributes else None,
        graph_labels=classes.tolist() if num_classes else None,
        report_directed=False,
    )


def molecule_like_graphs(
    num_graphs: int = 1000, mean_nodes: float = 23.0, seed: int = 0, *, num_node_labels: int = 9
) -> Dataset:
    """Draw graphs as large and sparse as drug-like molecules: trees with a few rings, without classes.

    A graph has eight nodes plus a Poisson number. Each node after the first is connected to one of the three before it,
    and a Poisson number of nodes to the fifth before it. Label k has a probability proportional to :math:`3^{-k}`.
    """
    if num_graphs < 1 or mean_nodes < 8:
        raise UserError(f"molecule_like_graphs: {num_graphs=} must be at least 1 and {mean_nodes=} at least 8.")
    random = numpy_generator(seed, "molecule-like graphs")
    sizes = 8 + random.poisson(mean_nodes - 8, num_graphs)
    num_nodes, first = int(sizes.sum()), np.cumsum(sizes) - sizes
    position = np.arange(num_nodes) - np.repeat(first, sizes)
    back = 1 + (random.random(num_nodes) * np.minimum(position, 3)).astype(np.int64)
    child = np.flatnonzero(position)
    draws = random.poisson(3.0, num_graphs)
    ring_end = np.repeat(first, draws) + 5 + (random.random(draws.sum()) * np.repeat(sizes - 5, draws)).astype(np.int64)
    weights = 3.0 ** -np.arange(num_node_labels)
    return make_dataset(
        "molecules",
        sizes,
        (np.concatenate([child, ring_end]), np.concatenate([child - back[child], ring_end - 5])),
        node_labels=random.choice(num_node_labels, size=num_nodes, p=weights / weights.sum()),
        report_directed=False,
    )
