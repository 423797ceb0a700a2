"""Rows that gave no graph, as a table."""

from __future__ import annotations

import csv
import io

from joao.data.base import Dataset


def failures_csv(dataset: Dataset) -> str:
    """A header, then a line a failure: line of the file (or row, where there is no file), name, SMILES and reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["line" if any(each.line for each in dataset.failures) else "row", "name", "smiles", "reason"])
    writer.writerows([each.line or each.row, each.name, each.text, each.reason] for each in dataset.failures)
    return text.getvalue()
