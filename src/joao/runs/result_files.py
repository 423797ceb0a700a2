"""Embeddings, predictions and failed rows as NPZ, CSV or Parquet, with one row per row of the source.

Rows that could not be parsed are empty in CSV, null in Parquet and NaN in NPZ, whose ``row`` ``(G,)`` then has the
numbers of the other rows, from 0. ``graph_names`` are written if they are known.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from joao.core.errors import UserError
from joao.core.files import import_parquet
from joao.core.tables import format_csv
from joao.data.dataset import Dataset

Arrays = dict[str, NDArray[np.generic]]
Rows = NDArray[np.float32]
_ROWS_AT_ONCE = 1024
MOST_COLUMNS = 10_000  # of a baseline in CSV and Parquet


def source_rows(dataset: Dataset, cells: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield one line per row of the source, in order: name of the graph or number of the row, then its ``cells``.

    ``cells`` has the same number of cells for each graph and is read lazily.
    """
    failures = {failure.row: failure.name for failure in dataset.failures}
    names, remaining = iter(dataset.graph_names), iter(cells)
    first = next(remaining, ())
    remaining = chain([first], remaining)
    for row in range(len(dataset) + len(failures)):
        name = (failures[row] if row in failures else next(names)) if dataset.graph_names else str(row)
        yield [name, *([""] * len(first) if row in failures else next(remaining))]


def to_npz(arrays: Arrays, dataset: Dataset) -> bytes:
    if dataset.graph_names:
        arrays["graph_names"] = np.array(dataset.row_names)
    if dataset.failures and dataset.row_of_graph is not None:
        arrays["row"] = dataset.row_of_graph
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def to_parquet(
    columns: Mapping[str, NDArray[Any]],
    dataset: Dataset,
    first_row: int = 0,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> memoryview:
    """Format a Parquet file with the columns ``row``, ``id`` and ``columns`` ``(G,)`` or ``(G, d)``, null for failures.

    Args:
        columns: numbers or texts by name; those with two axes become lists of ``d`` numbers.
        dataset: the graphs, with their names and failures.
        first_row: number of the first row.
        metadata: texts by key.
    """
    arrow = import_parquet()
    failed = np.ones(dataset.num_rows, dtype=bool)
    failed[dataset.rows] = False
    names = dataset.row_names or (None,) * dataset.num_rows
    table = {"row": arrow.array(np.arange(first_row, first_row + dataset.num_rows)), "id": arrow.array(names, "string")}
    for name, values in columns.items():
        rows = np.zeros((dataset.num_rows, *values.shape[1:]), dtype=values.dtype)
        rows[dataset.rows] = values
        if values.ndim == 2:
            flat, missing = arrow.array(rows.ravel()), arrow.array(failed) if failed.any() else None
            table[name] = arrow.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=missing)
        else:
            table[name] = arrow.array(rows.tolist() if rows.dtype.kind in "UO" else rows, mask=failed)
    sink = arrow.BufferOutputStream()
    content = arrow.table(table).replace_schema_metadata(dict(metadata))
    # Embeddings do not repeat, so a dictionary would only cost time.
    arrow.parquet.write_table(content, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    return memoryview(sink.getvalue())


def embeddings_npz(embeddings: Rows, dataset: Dataset, added: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """Write ``embeddings`` ``(G, d)`` and, if known, ``classes`` and ``class_names``.

    ``added`` are further rows by name. A sparse array is written as the three arrays of its CSR form and its shape;
    its rows of failures are empty.
    """
    arrays: Arrays = {"embeddings": dataset.in_rows(embeddings)}
    for name, rows in added.items():
        if issparse(rows):
            per_row = np.zeros(dataset.num_rows, dtype=np.int64)
            per_row[dataset.rows] = np.diff(rows.indptr)
            pointers = np.concatenate([[0], np.cumsum(per_row)])
            parts = {"data": rows.data.astype(np.float32), "indices": rows.indices, "indptr": pointers}
            parts["shape"] = np.array([dataset.num_rows, rows.shape[1]])
            arrays |= {f"{name}_{part}": values for part, values in parts.items()}
        else:
            arrays[name] = dataset.in_rows(rows.astype(np.float32))
    if dataset.classes is not None:
        arrays |= {"classes": dataset.classes, "class_names": np.array(dataset.class_names)}
    return to_npz(arrays, dataset)


def embeddings_csv(
    embeddings: Rows, dataset: Dataset, added: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[bytes]:
    """Yield CSV: a header, then one line per row of the source: name or number, class, embedding, ``added``."""
    texts = {} if dataset.classes is None else {"class": dataset.labels}
    columns, parts = [f"e{i}" for i in range(embeddings.shape[1])], [embeddings]
    for name, rows in added.items():
        parts.append(_dense(rows))
        columns += [f"{name}{i}" for i in range(rows.shape[1])]
    return _csv(texts, columns, np.concatenate(parts, axis=1), dataset)


def check_width(name: str, rows: Any) -> None:
    """Raise an error if the rows of baseline ``name`` are too wide for CSV and Parquet, which write them densely."""
    if rows.shape[1] > MOST_COLUMNS:
        fix = f"Expected at most {MOST_COLUMNS:,} in CSV and Parquet. Write .npz."
        raise UserError(f"--with {name}: {rows.shape[1]:,} columns are too many. {fix}")


def _dense(rows: Any) -> Rows:
    dense: Rows = (rows.toarray() if issparse(rows) else rows).astype(np.float32)
    return dense


def embeddings_parquet(
    embeddings: Rows, dataset: Dataset, added: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[memoryview]:
    """Yield Parquet: number and name of the row, class if known, and lists of numbers: embedding, ``added``."""
    columns: dict[str, Any] = {} if dataset.classes is None else {"class": dataset.labels}
    columns |= {"embedding": embeddings, **{name: _dense(rows) for name, rows in added.items()}}
    yield to_parquet(columns, dataset)


def classes_npz(probabilities: Rows, class_names: Sequence[str], dataset: Dataset) -> bytes:
    """Write names ``predicted`` ``(G,)``, ``probabilities`` ``(G, C)``, ``class_names`` and, if known, ``labels``."""
    names = np.array(class_names)
    rows = dataset.in_rows(probabilities)
    arrays: Arrays = {
        "predicted": np.where(np.isnan(rows[:, 0]), "", names[rows.argmax(axis=1)]),
        "probabilities": rows,
        "class_names": names,
    }
    if dataset.classes is not None:
        arrays["labels"] = dataset.labels
    return to_npz(arrays, dataset)


def classes_csv(probabilities: Rows, class_names: Sequence[str], dataset: Dataset) -> Iterator[bytes]:
    """Yield CSV: a header, then one line per row: name or number, class if known, predicted class, probabilities."""
    predicted = np.array(class_names)[probabilities.argmax(axis=1)]
    texts = ({} if dataset.classes is None else {"class": dataset.labels}) | {"predicted": predicted}
    return _csv(texts, [f"p_{name}" for name in class_names], probabilities, dataset)


def tasks_npz(predicted: Rows, columns: Sequence[str], dataset: Dataset) -> bytes:
    """Write ``predicted`` ``(G, T)`` and ``columns`` ``(T,)``."""
    return to_npz({"predicted": dataset.in_rows(predicted), "columns": np.array(columns)}, dataset)


def tasks_csv(predicted: Rows, columns: Sequence[str], dataset: Dataset) -> Iterator[bytes]:
    """Yield CSV: a header, then one line per row of the source: name or number, and the prediction for each task."""
    return _csv({}, columns, predicted, dataset)


def _csv(texts: Mapping[str, Any], columns: Sequence[str], rows: Rows, dataset: Dataset) -> Iterator[bytes]:
    """Yield pieces of CSV with columns of text and numbers: all of it may take ten times the memory of ``rows``."""

    def cells() -> Iterator[list[str]]:
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            for graph, row in enumerate(rows[first : first + _ROWS_AT_ONCE].tolist(), first):
                yield [*(str(text[graph]) for text in texts.values()), *(f"{value:.9g}" for value in row)]

    lines = chain([["graph", *texts, *columns]], source_rows(dataset, cells()))
    while piece := list(islice(lines, _ROWS_AT_ONCE)):
        yield format_csv(piece).encode()


def failures_csv(dataset: Dataset) -> str:
    """Write a header, then one line per failed row: line of the file (or row), name, SMILES and reason."""
    header = ["line" if any(each.line for each in dataset.failures) else "row", "name", "smiles", "reason"]
    return format_csv([header, *(each.cells() for each in dataset.failures)])
