"""What the policies learned: shares of augmentation pairs drawn in training, averaged over seeds (Figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from joao.pair_table import PairTable
from joao.reporting.tables import NAMES, markdown

LEARNING = ("joao", "joaov2", "joaov2_joao_budget")


def learned_tables(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], PairTable]:
    """By data set and method, the mean over seeds of the share of graphs shown under each pair."""
    shares: dict[tuple[str, str], list[Any]] = {}
    names: dict[tuple[str, str], list[str]] = {}
    for record in records:
        cell = record["cell"]
        if cell["method"] not in LEARNING or "policy" not in record:
            continue
        drawn = np.array(record["policy"]["drawn"], dtype=np.float64)
        shares.setdefault((cell["dataset"], cell["method"]), []).append(drawn / drawn.sum())
        names[cell["dataset"], cell["method"]] = record["policy"]["augmentations"]
    return {key: PairTable.of(names[key], np.mean(values, axis=0)) for key, values in shares.items()}


def learned_markdown(records: Sequence[Mapping[str, Any]]) -> str:
    """The tables as Markdown: first each augmentation's share of all views, then every pair."""
    tables = learned_tables(records)
    if not tables:
        return ""
    pool = next(iter(tables.values())).names
    summary = [
        [dataset, NAMES[method], *(f"{share:.2f}" for share in table.by_augmentation().values()), f"{_same(table):.2f}"]
        for (dataset, method), table in tables.items()
    ]
    parts = ["## Share of views made by each augmentation", markdown(["data", "method", *pool, "same twice"], summary)]
    for (dataset, method), table in tables.items():
        rows = [
            [f"**{name}**", *(f"{value:.3f}" for value in row)]
            for name, row in zip(table.names, table.values, strict=True)
        ]
        parts += [f"## {dataset}, {NAMES[method]}", markdown(["first \\ second", *table.names], rows)]
    return "\n\n".join(parts) + "\n"


def _same(table: PairTable) -> float:
    """The share of pairs that are the same augmentation twice; 1/K under the uniform law."""
    return float(np.trace(table.values))
