"""Paragraph vectors: a graph is a document."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from joao.baselines.base import Baseline, check_minimum
from joao.baselines.walks import NO_NODE, find_neighbours, random_walks
from joao.baselines.word2vec import MAX_WORDS, gensim_seed, reading_order, require_gensim, to_words
from joao.core.errors import UserError, suggest
from joao.core.randomness import numpy_generator
from joao.data.dataset import Dataset
from joao.data.refinement import refine_labels

Document = Sequence[str]


class ParagraphOptions(NamedTuple):
    """Of paragraph vectors (Le and Mikolov, 2014).

    Attributes:
        bag: PV-DBOW: a document's vector foretells its words. Else PV-DM: with the vectors of the words around, it
            foretells the one between.
        window: how far around.
        min_count: words that are rarer than this in all documents are left out.
        sample: of words that are a larger share of all, some occurrences are left out at random; 0: of none.
    """

    dimensions: int
    epochs: int
    bag: bool
    window: int = 1
    min_count: int = 1
    sample: float = 0.0


class ParagraphVectors(Baseline):
    """The row of a graph is the vector of a document that is made of it.

    Of the graphs it was fitted on, :meth:`transform` gives the vectors learned then. Those of others are inferred:
    learned from zero, each document alone, while the rest of the model stays as it is; unknown words are skipped.

    Attributes:
        options, seed: of the model; a method sets them.
    """

    needs: ClassVar[str | None] = "gensim"
    options: ParagraphOptions
    seed: int

    @abstractmethod
    def documents(self, graphs: Dataset) -> Sequence[Document]:
        """The words of each graph."""

    def fit(self, graphs: Dataset, y: Any = None) -> Self:
        require_gensim()
        from gensim.models.doc2vec import Doc2Vec, TaggedDocument

        dimensions, epochs, bag, window, min_count, sample = self.options
        model = Doc2Vec(
            dm=0 if bag else 1,
            vector_size=dimensions,
            epochs=epochs,
            window=window,
            min_count=min_count,
            sample=sample,
            workers=1,
            seed=gensim_seed(self.seed, "documents"),
        )
        documents = self.documents(graphs)
        tagged = [
            TaggedDocument(piece, [number])
            for number in reading_order(len(documents), self.seed)
            for piece in _split_document(documents[number])
        ]
        model.build_vocab(tagged)
        if not len(model.wv):
            raise UserError(f"{graphs.name}: no word is in its graphs {min_count} times. Take a smaller min_count.")
        model.train(tagged, total_examples=model.corpus_count, epochs=epochs)
        self._model, self._fitted_on = model, graphs.fingerprint
        return self

    def transform(self, graphs: Dataset) -> NDArray[np.float64]:
        if graphs.fingerprint == self._fitted_on:
            learned: NDArray[np.float64] = self._model.dv.vectors.astype(np.float64)
            return learned
        rows = np.zeros((len(graphs), self.options.dimensions), dtype=np.float32)
        for row, document in zip(rows, self.documents(graphs), strict=True):
            self._infer(row, _split_document(document))
        return rows.astype(np.float64)

    def _infer(self, row: NDArray[np.float32], pieces: Sequence[Document]) -> None:
        """What gensim's ``infer_vector`` does, which starts from the hash of a text: another one in another process."""
        from gensim.models.doc2vec import train_document_dbow, train_document_dm

        learn = train_document_dbow if self.options.bag else train_document_dm
        model, everywhere = self._model, np.ones(1, dtype=np.float32)
        model.random.seed(gensim_seed(self.seed, "inference"))
        for rate in np.linspace(model.alpha, model.min_alpha, model.epochs).tolist():
            for piece in pieces:
                learn(
                    model,
                    piece,
                    [0],
                    rate,
                    learn_words=False,
                    learn_hidden=False,
                    doctag_vectors=row[None],
                    doctags_lockf=everywhere,
                )


def _split_document(document: Document) -> list[Document]:
    return [document[first : first + MAX_WORDS] for first in range(0, len(document), MAX_WORDS)]


@final
class Graph2vec(ParagraphVectors):
    """Paragraph vectors of rooted subtrees (Narayanan et al., 2017).

    A graph is a document whose words are the Weisfeiler-Lehman labels of its nodes before and after each refinement:
    the subtrees of depth 0, 1, ... around each node. PV-DBOW learns the vector that foretells them. Node labels are
    read; where there are none, a node's degree is its label. Attributes are not read.

    Rows of graphs that it was not fitted on are inferred, from the subtrees that it knows.

    Args:
        dimensions: of the rows.
        iterations: refinements.
        epochs: how often the graphs are gone through.
        min_count: subtrees that are rarer than this in all graphs are left out.
        seed: of the order of words and of the model.
    """

    title: ClassVar[str] = "graph2vec"

    def __init__(
        self, *, dimensions: int = 128, iterations: int = 2, epochs: int = 50, min_count: int = 5, seed: int = 0
    ) -> None:
        check_minimum("Graph2vec", 1, dimensions=dimensions, epochs=epochs, min_count=min_count)
        check_minimum("Graph2vec", 0, iterations=iterations)
        self.iterations, self.seed = iterations, seed
        self.options = ParagraphOptions(dimensions, epochs, bag=True, min_count=min_count)

    def documents(self, graphs: Dataset) -> list[list[str]]:
        if graphs.node_labels is None:  # all nodes start alike, and the first refinement tells their degrees
            labels = list(refine_labels(graphs, self.iterations + 1))[1:]
        else:
            labels = list(refine_labels(graphs, self.iterations))
        words = to_words(np.stack([label[:, 0] for label in labels], axis=1))
        return [self._shuffle(rows.ravel()) for rows in np.split(words, graphs.first_node[1:-1])]

    def _shuffle(self, words: NDArray[np.object_]) -> list[str]:
        """In a random order, as a bag has none and gensim best remembers what it reads last."""
        mixed: list[str] = numpy_generator(self.seed, "words").permutation(words).tolist()
        return mixed


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

    title: ClassVar[str] = "sub2vec"

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
        check_minimum("Sub2vec", 1, dimensions=dimensions, window=window, epochs=epochs)
        if not 1 <= walk_length <= MAX_WORDS:
            raise UserError(f"Sub2vec: walk_length must be from 1 to {MAX_WORDS}, got {walk_length}.")
        self.property, self.walk_length, self.seed = property, walk_length, seed
        self.options = ParagraphOptions(dimensions, epochs, bag=False, window=window, sample=1e-3)

    def documents(self, graphs: Dataset) -> list[list[str]]:
        random = numpy_generator(self.seed, "walks")
        sizes = np.diff(graphs.first_node)
        starts = graphs.first_node[:-1] + (random.random(len(graphs)) * sizes).astype(np.int64)
        walks = random_walks(find_neighbours(graphs), starts, self.walk_length, random)
        if self.property == "structural":
            words = np.searchsorted(DEGREE_SHARES, graphs.degrees / sizes[graphs.graph_of_node])
        else:
            words = np.arange(graphs.num_nodes) - graphs.first_node[graphs.graph_of_node]
        texts = to_words(words)
        return [texts[walk[walk != NO_NODE]].tolist() for walk in walks]
