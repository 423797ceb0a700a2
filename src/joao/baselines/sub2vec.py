from __future__ import annotations

from typing import final

import numpy as np

from joao.baselines.base import check_least
from joao.baselines.paragraphs import LONGEST_DOCUMENT, ParagraphOptions, ParagraphVectors, as_words
from joao.baselines.walks import NOWHERE, neighbours_in, random_walks
from joao.core.errors import UserError, suggest
from joao.core.randomness import numpy_generator
from joao.data.dataset import Dataset

PROPERTIES = ("structural", "neighbourhood")
DEGREE_SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75)


@final
class Sub2vec(ParagraphVectors):
    """Paragraph vectors of random walks (Adhikari, Zhang, Ramakrishnan and Prakash, 2018), whole graphs as subgraphs.

    One long uniform walk through each graph, from a node drawn uniformly, is a document; PV-DM learns a vector of it.
    Node labels and attributes are not read. Words of the walk are

    - ``structural``: for each node its degree divided by the number of nodes, in eight intervals (as published, up to
      0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75 and 1). Graphs without common nodes can only be compared by it.
    - ``neighbourhood``: the number of the node in its graph.

    Rows of graphs that it was not fitted on are inferred.

    Args:
        property: which.
        dimensions: of the rows.
        walk_length: in nodes.
        window: how far a foretold word's neighbours reach.
        epochs: how often the walks are gone through.
        seed: of walks and model.
    """

    def __init__(
        self,
        *,
        property: str = "structural",
        dimensions: int = 128,
        walk_length: int = 1000,
        window: int = 2,
        epochs: int = 20,
        seed: int = 0,
    ) -> None:
        if property not in PROPERTIES:
            raise UserError(f"Sub2vec: unknown property '{property}'. {suggest(property, PROPERTIES)}")
        check_least("Sub2vec", 1, dimensions=dimensions, window=window, epochs=epochs)
        if not 1 <= walk_length <= LONGEST_DOCUMENT:
            raise UserError(f"Sub2vec: walk_length must be from 1 to {LONGEST_DOCUMENT}, got {walk_length}.")
        self.property, self.walk_length, self.seed = property, walk_length, seed
        self.options = ParagraphOptions(dimensions, epochs, bag=False, window=window, sample=1e-3)

    def documents(self, graphs: Dataset) -> list[list[str]]:
        random = numpy_generator(self.seed, "walks")
        sizes = np.diff(graphs.first_node)
        starts = graphs.first_node[:-1] + (random.random(len(graphs)) * sizes).astype(np.int64)
        walks = random_walks(neighbours_in(graphs), starts, self.walk_length, random)
        if self.property == "structural":
            words = np.searchsorted(DEGREE_SHARES, graphs.degrees / sizes[graphs.graph_of_node])
        else:
            words = np.arange(graphs.num_nodes) - graphs.first_node[graphs.graph_of_node]
        texts = as_words(words)
        return [texts[walk[walk != NOWHERE]].tolist() for walk in walks]
