from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
from scipy.sparse import csr_array, hstack

from joao.baselines.base import Baseline
from joao.core.errors import UserError
from joao.data.dataset import Dataset
from joao.data.refinement import Labels, label_indices, refine_labels, unique_labels


@final
class WL(Baseline):
    r"""The subtree kernel of Weisfeiler and Lehman (Shervashidze et al., 2011).

    A node's label says how the graph looks from it, a step further after each refinement. The row of a graph counts, of
    every label :math:`\sigma` of every refinement :math:`t = 0, \dots, h`, the nodes that have it,

    .. math:: \phi_{t \sigma}(G) = | \{ v \in G : l_t(v) = \sigma \} |

    Nodes start with their labels; where data have none, all alike (then :math:`t = 1` counts degrees). Attributes of
    nodes and edges are not read. Labels that were in no graph at :meth:`fit` have no column later.

    Args:
        iterations: the :math:`h` of refinements.
    """

    kernel: ClassVar[bool] = True

    def __init__(self, *, iterations: int = 3) -> None:
        if iterations < 0:
            raise UserError(f"WL: iterations must not be negative, got {iterations}.")
        self.iterations = iterations

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        self.labels: list[Labels] = [unique_labels(labels) for labels in refine_labels(graphs, self.iterations)]
        return self

    def transform(self, graphs: Dataset) -> csr_array:
        """``(G, V)`` sparse counts."""
        refinements = zip(refine_labels(graphs, self.iterations), self.labels, strict=True)
        return hstack([label_counts(graphs, labels, known) for labels, known in refinements], format="csr")


def label_counts(graphs: Dataset, labels: Labels, known: Labels) -> csr_array:
    """``(G, V)`` how many nodes of each graph have each of the known labels ``(V, 2)``."""
    columns = label_indices(labels, known)
    seen = columns >= 0
    cells = graphs.graph_of_node[seen], columns[seen]
    return csr_array((np.ones(len(cells[0])), cells), shape=(len(graphs), len(known)))
