from __future__ import annotations

from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines._graphlets import graphlet_counts
from joao.baselines.base import Baseline
from joao.data.base import Dataset


@final
class GL(Baseline):
    """The graphlet kernel (Shervashidze et al., 2009): how often each small connected graph is part of a graph.

    The row of a graph counts the connected graphs of three and four nodes among its induced subgraphs, see
    :func:`joao.baselines._graphlets.graphlet_counts`. Counts are exact; published figures are of samples, of other
    sizes too. Neither labels nor attributes of nodes and edges are read.
    """

    kernel: ClassVar[bool] = True

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        """Nothing is to be learned."""
        return self

    def transform(self, graphs: Dataset) -> NDArray[np.float64]:
        return graphlet_counts(graphs)
