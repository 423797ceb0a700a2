"""Random graphs for tests and benchmarks."""

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
