"""Objectives of two views, each without JOAO and with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from joao.evaluation.tables import OBJECTIVES
from joao.reporting.unsupervised import over, rows

HEADER = ["data", "objective", "uniform, accuracy %", "JOAO, accuracy %", "gain by JOAO (95 %)", "seeds"]


def objective_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A line for each data set and objective that has records without and with JOAO, under :data:`HEADER`."""
    found = {(row.dataset, row.method): row for row in rows(records)}
    lines = []
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        for objective, name in OBJECTIVES.items():
            methods = ["uniform", "joao"] if objective == "nt_xent" else [f"{objective}_uniform", f"{objective}_joao"]
            without, learned = (found.get((dataset, method)) for method in methods)
            if without is not None and learned is not None:
                lines.append([dataset, name, *over(records, without, learned)])
    return lines
