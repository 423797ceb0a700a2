"""Nearest neighbours of graphs: by the cosine of their embeddings, or of molecules by their fingerprints.

The library is read in blocks, and only the best rows so far are kept, so that a search takes the same memory for any
number of rows. Without a query, every row is compared with every other: exactly up to :data:`MOST_EXACT_ROWS`, and by
an approximate index beyond.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.baselines.forests import molecule_columns
from joao.core.errors import UserError, quantity, suggest
from joao.data.dataset import Dataset, Failure, add_counts
from joao.data.formats.smiles import Columns
from joao.data.shards.writer import block_graphs
from joao.data.sources import csv_header, warn_user
from joao.runs.parts import open_sources
from joao.runs.trained import TrainedEncoder, load_run, model_path

SIMILARITIES = {"encoder": "cosine of the embeddings", "ecfp": "Tanimoto of ECFP4, 2,048 bits"}
BLOCK_ROWS = 1 << 14
MOST_EXACT_ROWS = 1_000_000
_QUERIES_AT_ONCE = 256

Rows = NDArray[Any]  # (rows, d): embeddings of length 1, or packed bits


class Named(NamedTuple):
    """Graphs by row of their source: name (the row if there is none) and SMILES (empty for other graphs)."""

    row: int
    name: str
    smiles: str


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The most similar rows of a library for each query, the most similar first.

    Attributes:
        queries: the ``Q`` queries that could be parsed.
        rows: ``(Q, k)`` rows of the library, counted from 0; fewer columns if the library is smaller.
        similarities: ``(Q, k)`` from -1 to 1, or from 0 to 1 for fingerprints.
        found: all graphs in ``rows``, by row.
        by: key of :data:`SIMILARITIES`.
        exact: False if an index has found them, which may miss some.
        num_graphs: number of graphs in the library.
    """

    queries: tuple[Named, ...]
    rows: NDArray[np.int64]
    similarities: NDArray[np.float32]
    found: dict[int, Named]
    by: str
    exact: bool
    num_graphs: int

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield one line for each query and neighbour."""
        for query, rows, similarities in zip(self.queries, self.rows, self.similarities, strict=True):
            for rank, (row, similarity) in enumerate(zip(rows.tolist(), similarities.tolist(), strict=True), 1):
                other = self.found[row]
                yield {
                    "query": query.name,
                    **({"query_smiles": query.smiles} if query.smiles else {}),
                    "rank": rank,
                    "neighbor": other.name,
                    **({"smiles": other.smiles} if other.smiles else {}),
                    "similarity": round(similarity, 6),
                }

    def outliers(self) -> Iterator[dict[str, Any]]:
        """Yield one line for each query, the least similar to its k-th neighbour first."""
        for number in np.argsort(self.similarities[:, -1], kind="stable").tolist():
            query = self.queries[number]
            yield {
                "query": query.name,
                **({"query_smiles": query.smiles} if query.smiles else {}),
                "similarity": round(float(self.similarities[number, -1]), 6),
            }

    def to_pandas(self) -> Any:
        """The :meth:`lines` as a data frame."""
        import pandas

        return pandas.DataFrame(self.lines())


def neighbors(
    library: Any,
    query: Any = None,
    model: str | Path | TrainedEncoder = "molecules",
    *,
    k: int = 10,
    by: str = "encoder",
    smiles: str | None = None,
    identifiers: str | None = None,
    standardise: bool | None = None,
    root: str | os.PathLike[str] | None = None,
    device: str = "auto",
    on_rows: Callable[[int], None] = lambda rows: None,
    on_notice: Callable[[str], None] = warn_user,
) -> Neighbors:
    """Find the graphs of a library that are most similar to each query.

    Args:
        library: anything that :func:`joao.read` takes, a list of paths, or a folder of tables.
        query: the same; None: every graph of the library, without itself.
        model: a run, a file of ``joao export``, or the name of a bundled model.
        k: number of neighbours.
        by: ``encoder`` (cosine of the embeddings) or, for molecules, ``ecfp`` (Tanimoto of fingerprints).
        smiles, identifiers: columns of a table (detected if not given); also of a query in CSV that has them.
        standardise: see :func:`joao.read`; None: as the molecules that the model learned from, not for ``ecfp``.
        root: folder of data sets.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        on_rows: called with the number of rows of the library that were read, after each block.
        on_notice: called with sentences about rows that are left out.

    >>> import joao
    >>> found = joao.neighbors(["CCO", "CCCO", "c1ccccc1"], ["CCCCO"], k=2, by="ecfp")
    >>> [found.found[row].smiles for row in found.rows[0]], found.similarities.round(2)
    (['CCCO', 'CCO'], array([[0.58, 0.42]], dtype=float32))
    """
    if by not in SIMILARITIES:
        raise UserError(f"neighbors: unknown similarity '{by}'. {suggest(by, SIMILARITIES)}")
    if type(k) is not int or k < 1:
        raise UserError(f"neighbors: k must be a positive integer, got {k!r}.")
    space = _Space(by, None if by == "ecfp" else _load(model, device))
    if standardise is None:
        standardise = space.trained is not None and space.trained.info.standardised
    blocks = _Blocks(library, Columns(smiles, identifiers, ()), root, standardise, on_rows)
    sources = [blocks]
    if query is None:
        queries, row_numbers, rows = _collect(blocks, space)
        if len(queries) < 2:
            raise UserError("neighbors: the library has one graph only, which has no neighbours. Give a query.")
        exact = len(rows) <= MOST_EXACT_ROWS
        starts = range(0, len(rows), BLOCK_ROWS)
        parts = ((row_numbers[start : start + BLOCK_ROWS], rows[start : start + BLOCK_ROWS]) for start in starts)
        found = _search(rows, parts, k + 1, space) if exact else _search_index(rows, row_numbers, k + 1, space)
        found = _without_self(row_numbers, *found)
        about = {each.row: each for each in queries}
    else:
        header = csv_header(query, root) if isinstance(query, str) else []
        columns = Columns(smiles if smiles in header else None, identifiers if identifiers in header else None, ())
        sources.append(_Blocks(query, columns, root, standardise))
        queries, _, rows = _collect(sources[1], space)
        about, exact = {}, True

        def parts_of_library() -> Iterator[tuple[NDArray[np.int64], Rows]]:
            for first_row, dataset in blocks:
                named = _names(dataset, first_row)
                about.update((each.row, each) for each in named)
                yield np.array([each.row for each in named], dtype=np.int64), space.rows(dataset)

        def forget(best: NDArray[np.int64]) -> None:
            rows_in_results = {*best.ravel().tolist()}
            for row in about.keys() - rows_in_results:
                del about[row]

        found = _search(rows, parts_of_library(), k, space, forget)
    for each in sources:
        if each.standardised is not None:
            on_notice(f"{each.name}: {each.standardised}.")
        if each.num_failures:
            left_out = f"{each.num_failures} of {quantity(each.num_rows, 'rows')}"
            on_notice(f"{each.name}: {left_out} cannot be parsed and are left out. The first: {each.first_failure}")
    if space.num_unknown:
        on_notice(f"{quantity(space.num_unknown, 'node labels')} did not occur in training.")
    if not exact:
        on_notice("the neighbours come from an approximate index, which may miss some.")
    return Neighbors(tuple(queries), *found, about, by, exact, blocks.num_rows - blocks.num_failures)


def _load(model: str | Path | TrainedEncoder, device: str) -> TrainedEncoder:
    return model if isinstance(model, TrainedEncoder) else load_run(model_path(model), device=device)


class _Blocks:
    """Reads a source in blocks, and counts rows and failures; at least one row must be a graph."""

    def __init__(
        self,
        source: Any,
        columns: Columns,
        root: str | os.PathLike[str] | None,
        standardise: bool,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self.sources = open_sources(source, columns, root, standardise=standardise)
        self.name = str(self.sources[0].path) if len(self.sources) == 1 else str(source)
        self.num_rows = self.num_failures = 0
        self.first_failure: Failure | None = None
        self.standardised = add_counts(each.whole.standardised for each in self.sources if each.whole is not None)
        self.on_rows = on_rows

    def __iter__(self) -> Iterator[tuple[int, Dataset]]:
        """Yield the number of the first row and the graphs of each block."""
        for source in self.sources:
            for block in source.blocks(0, BLOCK_ROWS):
                dataset = block_graphs(block, source.columns, source.options)
                self.standardised = add_counts([self.standardised, dataset.standardised])
                first_row, self.num_rows = self.num_rows, self.num_rows + dataset.num_rows
                self.num_failures += len(dataset.failures)
                if dataset.failures and self.first_failure is None:
                    first = dataset.failures[0]
                    self.first_failure = first._replace(row=first_row + first.row)
                if len(dataset):
                    yield first_row, dataset
                self.on_rows(self.num_rows)
        if self.num_rows == self.num_failures:
            raise UserError(
                f"{self.name}: no valid molecule in {quantity(self.num_rows, 'rows')}. The first: {self.first_failure}"
            )


def _names(dataset: Dataset, first_row: int) -> list[Named]:
    rows = (dataset.rows + first_row).tolist()
    names = dataset.graph_names or map(str, rows)
    return [Named(*each) for each in zip(rows, names, dataset.smiles or ("",) * len(rows), strict=True)]


def _collect(blocks: Iterable[tuple[int, Dataset]], space: _Space) -> tuple[list[Named], NDArray[np.int64], Rows]:
    """All graphs with their rows of the source ``(G,)`` and in space ``(G, d)``."""
    named, rows = list[Named](), []
    for first_row, dataset in blocks:
        named += _names(dataset, first_row)
        rows.append(space.rows(dataset))
    return named, np.array([each.row for each in named], dtype=np.int64), np.concatenate(rows)


class _Space:
    """Where graphs are compared: ``trained`` embeds them; None: fingerprints."""

    def __init__(self, by: str, trained: TrainedEncoder | None) -> None:
        self.by, self.trained, self.num_unknown = by, trained, 0

    def rows(self, dataset: Dataset) -> Rows:
        """Compute ``(G, d)`` embeddings of length 1, or fingerprints of 8 bits per column."""
        if self.trained is None:
            if not dataset.smiles:
                raise UserError(f"{dataset.name}: fingerprints need molecules with SMILES. Leave out --by ecfp.")
            return np.packbits(molecule_columns(dataset.smiles, ["ecfp"])["ecfp"] > 0, axis=1)
        self.num_unknown += self.trained.info.features.unknown_labels(dataset)
        embeddings = self.trained.embed(dataset).numpy()
        lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
        rows: Rows = np.divide(embeddings, lengths, out=np.zeros_like(embeddings), where=lengths > 0)
        return rows

    def nearest(self, queries: Rows, rows: Rows, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Numbers of the ``k`` most similar ``rows`` for each query, in any order, and their similarities."""
        if self.trained is not None:
            from sklearn.neighbors import NearestNeighbors

            # Of vectors of length 1, |a - b|² = 2 - 2 cos(a, b), and Euclidean distance is the fast case of this class.
            search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows)
            distances, numbers = search.kneighbors(queries)
            return numbers, (1 - distances**2 / 2).clip(-1, 1).astype(np.float32)
        bits = _unpack(rows)
        parts = []
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            part = _unpack(queries[first : first + _QUERIES_AT_ONCE])
            common = part @ bits.T
            union = part.sum(axis=1, keepdims=True) + bits.sum(axis=1) - common
            values = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
            best = np.argpartition(-values, k - 1, axis=1)[:, :k]
            parts.append((best, np.take_along_axis(values, best, axis=1)))
        numbers, similarities = (np.concatenate(each) for each in zip(*parts, strict=True))
        return numbers, similarities


def _unpack(rows: Rows) -> NDArray[np.float32]:
    return np.unpackbits(rows, axis=1).astype(np.float32)


def _search(
    queries: Rows,
    parts: Iterable[tuple[NDArray[np.int64], Rows]],
    k: int,
    space: _Space,
    on_part: Callable[[NDArray[np.int64]], None] = lambda best: None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows and similarities ``(Q, k)`` of the most similar of all ``parts``; of equals, the first rows."""
    best, similarities = np.zeros((len(queries), 0), np.int64), np.zeros((len(queries), 0), np.float32)
    for row_numbers, rows in parts:
        numbers, values = space.nearest(queries, rows, min(k, len(rows)))
        best = np.concatenate([best, row_numbers[numbers]], axis=1)
        similarities = np.concatenate([similarities, values], axis=1)
        order = np.lexsort((best, -similarities), axis=1)[:, :k]
        best, similarities = np.take_along_axis(best, order, axis=1), np.take_along_axis(similarities, order, axis=1)
        on_part(best)
    return best, similarities


def _without_self(
    row_numbers: NDArray[np.int64], best: NDArray[np.int64], similarities: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Remove each query from its own neighbours; where it is not among them, the last one."""
    is_self = best == row_numbers[:, None]
    is_self[~is_self.any(axis=1), -1] = True
    shape = len(best), best.shape[1] - 1
    return best[~is_self].reshape(shape), similarities[~is_self].reshape(shape)


def _search_index(
    rows: Rows, row_numbers: NDArray[np.int64], k: int, space: _Space
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Search all rows among themselves with an approximate index."""
    try:
        from usearch.index import Index
    except ImportError as error:
        raise UserError(
            f"neighbors: {len(rows):,} graphs cannot be compared with each other exactly (at most "
            f"{MOST_EXACT_ROWS:,}). Run 'pip install usearch' for an approximate index, or give a query."
        ) from error
    kind = {"ndim": rows.shape[1], "metric": "cos"}
    index = Index(**kind) if space.trained is not None else Index(ndim=8 * rows.shape[1], metric="tanimoto", dtype="b1")
    index.add(np.arange(len(rows)), rows)
    matches = index.search(rows, k)
    return row_numbers[np.asarray(matches.keys, dtype=np.int64)], 1 - np.asarray(matches.distances, dtype=np.float32)
