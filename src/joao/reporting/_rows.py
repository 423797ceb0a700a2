from __future__ import annotations

from collections.abc import Sequence

from joao.data.base import Dataset


def rows_of_source(dataset: Dataset, cells: Sequence[Sequence[str]]) -> list[list[str]]:
    """A line for each row of the source, in its order: the graph's name or else the row's number, and its ``cells``.

    A row that gave no graph keeps its name or number, and its cells are empty.

    Args:
        dataset: whole, as it was read.
        cells: of each graph, equally many.
    """
    rows = range(len(dataset)) if dataset.row_of_graph is None else dataset.row_of_graph.tolist()
    names = dataset.graph_names or tuple(map(str, rows))
    lines = {row: [name, *own] for row, name, own in zip(rows, names, cells, strict=True)}
    width = len(cells[0]) if cells else 0
    for failure in dataset.failures:
        lines[failure.row] = [failure.name if dataset.graph_names else str(failure.row), *[""] * width]
    return [lines[row] for row in sorted(lines)]
