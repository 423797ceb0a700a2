"""What files of embeddings and of predictions share: a row for each row of the source."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from joao.data.base import Dataset

Arrays = dict[str, NDArray[np.generic]]


def rows_of_source(dataset: Dataset, cells: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """A line for each row of the source, in its order: the graph's name or else the row's number, and its ``cells``.

    A row that gave no graph keeps its name or number, and its cells are empty.

    Args:
        dataset: whole, as it was read.
        cells: of each graph, equally many; taken when their line is.
    """
    failures = {failure.row: failure.name for failure in dataset.failures}
    names, remaining = iter(dataset.graph_names), iter(cells)
    first = next(remaining, ())
    remaining = chain([first], remaining)
    for row in range(len(dataset) + len(failures)):
        name = (failures[row] if row in failures else next(names)) if dataset.graph_names else str(row)
        yield [name, *([""] * len(first) if row in failures else next(remaining))]


def npz_of(arrays: Arrays, dataset: Dataset) -> bytes:
    """The arrays and, where the data has them, ``graph_names`` and ``row``, the rows of the source that gave graphs."""
    if dataset.graph_names:
        arrays["graph_names"] = np.array(dataset.row_names)
    if dataset.failures and dataset.row_of_graph is not None:
        arrays["row"] = dataset.row_of_graph
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def csv_of(lines: Iterable[Iterable[object]]) -> str:
    """Lines of a table."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
