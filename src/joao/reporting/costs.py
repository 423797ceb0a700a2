"""What the rows of the unsupervised table cost: seconds and memory, beside their accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from joao.reporting.tables import name_of

HEADER = ["data", "method", "accuracy %", "seconds", "peak memory, MB", "machine"]


def cost_lines(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A line for each method on each data set and each machine, under :data:`HEADER`.

    Seconds are those of making the embeddings, pre-training included, the median over seeds; memory is the largest.
    Neither has the scoring in it.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        cell = record["cell"]
        if "seconds of pre-training" in record:
            groups.setdefault((cell["dataset"], cell["method"], _machine(record["machine"])), []).append(record)
    return [
        [dataset, name_of(method), f"{_accuracy(found):.1f}", _seconds(found), _memory(found), machine]
        for (dataset, method, machine), found in groups.items()
    ]


def _machine(machine: Mapping[str, Any]) -> str:
    return str(machine.get("gpu") or f"{machine['processor']}, one thread")


def _accuracy(records: Sequence[Mapping[str, Any]]) -> float:
    return 100 * float(np.mean([record["scores"]["mean"] for record in records]))


def _seconds(records: Sequence[Mapping[str, Any]]) -> str:
    return f"{np.median([record['seconds of pre-training'] for record in records]):.1f}"


def _memory(records: Sequence[Mapping[str, Any]]) -> str:
    peaks = [record["peak bytes"] for record in records if record.get("peak bytes") is not None]
    return f"{max(peaks) / 1e6:.0f}" if peaks else ""
