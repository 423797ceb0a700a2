"""The Weisfeiler-Lehman subtree kernel."""

from typing import ClassVar, final

import numpy as np
from scipy.sparse import csr_array, hstack

from joao.baselines.base import Baseline
from joao.core.registry import check_minimum
from joao.data.dataset import Dataset
from joao.data.refinement import Labels, label_indices, number_labels, refine_labels


@final
class WL(Baseline):
    r"""The Weisfeiler-Lehman subtree kernel (Shervashidze et al., 2011).

    The label of a node describes its surroundings, one step further after each refinement. The row of a graph counts
    the nodes with each label :math:`\sigma` after each refinement :math:`t = 0, \dots, h`:

    .. math:: \phi_{t \sigma}(G) = | \{ v \in G : l_t(v) = \sigma \} |

    Initial labels are the node labels or, without any, all equal (then :math:`t = 1` counts degrees). Attributes of
    nodes and edges are ignored. Labels that did not occur in :meth:`fit` have no column.

    Args:
        iterations: number of refinements :math:`h`.

    >>> import networkx
    >>> WL(iterations=1).fit_transform([networkx.path_graph(3), networkx.cycle_graph(3)]).toarray()  # nodes; degrees
    array([[3., 1., 2.],
           [3., 3., 0.]])
    """

    title: ClassVar[str] = "WL (subtree kernel)"
    kernel: ClassVar[bool] = True
    uses_labels: ClassVar[bool] = True

    def __init__(self, *, iterations: int = 3) -> None:
        check_minimum("WL", 0, iterations=iterations)
        self.iterations = iterations

    def learn(self, graphs: Dataset) -> None:
        self.labels: list[Labels] = [number_labels(labels)[1] for labels in refine_labels(graphs, self.iterations)]

    def rows(self, graphs: Dataset) -> csr_array:
        refinements = zip(refine_labels(graphs, self.iterations), self.labels, strict=True)
        return hstack([label_counts(graphs, labels, known) for labels, known in refinements], format="csr")


def label_counts(graphs: Dataset, labels: Labels, known: Labels) -> csr_array:
    """Count the nodes of each graph that have each of the known labels ``(V, 2)``: ``(G, V)``."""
    columns = label_indices(labels, known)
    seen = columns >= 0
    # scikit-learn takes 32-bit indices only
    cells = graphs.graph_of_node[seen].astype(np.int32), columns[seen].astype(np.int32)
    return csr_array((np.ones(len(cells[0])), cells), shape=(len(graphs), len(known)))
