from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from joao.data.base import Dataset


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
