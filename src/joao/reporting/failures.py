"""Rows that gave no graph, as a table."""

from __future__ import annotations

from joao.data.base import Dataset
from joao.reporting._rows import csv_of


def failures_csv(dataset: Dataset) -> str:
    """A header, then a line a failure: line of the file (or row, where there is no file), name, SMILES and reason."""
    header = ["line" if any(each.line for each in dataset.failures) else "row", "name", "smiles", "reason"]
    return csv_of([header, *([each.line or each.row, each.name, each.text, each.reason] for each in dataset.failures)])
