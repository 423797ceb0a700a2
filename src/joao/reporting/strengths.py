"""Learned strengths beside the fixed one, over the sets of the unsupervised table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from joao.reporting.unsupervised import over, rows

FIXED, LEARNED = "joao", "joao_strengths"
HEADER = ["data", "JOAO at 0.2, accuracy %", "JOAO, strengths learned, accuracy %", "gain (95 %)", "seeds"]


def strength_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A line for each data set that has records of both, and their averages over these sets, under :data:`HEADER`."""
    found = {(row.dataset, row.method): row for row in rows(records)}
    sets = [dataset for dataset, method in found if method == FIXED and (dataset, LEARNED) in found]
    lines = []
    for dataset in sets:
        lines.append([dataset, *over(records, found[dataset, FIXED], found[dataset, LEARNED])])
    if lines:
        means = [float(np.mean([found[dataset, method].mean for dataset in sets])) for method in (FIXED, LEARNED)]
        lines.append([f"average of {len(sets)}", *(f"{each:.2f}" for each in means), f"{means[1] - means[0]:+.2f}", ""])
    return lines
