"""What the policies learned: shares of augmentation pairs drawn in training, averaged over seeds (Figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from joao.core.pair_table import PairTable
from joao.evaluation.tables import markdown
from repro.tables.names import NAMES

LEARNING = ("joao", "joaov2", "joaov2_joao_budget", "joao_strengths")


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
    """The tables as Markdown: first each augmentation's share of all views, then strengths, then every pair.

    Pairs are summed over strengths, where a pool has them.
    """
    members = learned_tables(records)
    if not members:
        return ""
    tables = {key: table.over_strengths() for key, table in members.items()}
    pool = next(iter(tables.values())).names
    summary = [
        [dataset, NAMES[method], *(f"{share:.2f}" for share in table.by_augmentation().values()), f"{_same(table):.2f}"]
        for (dataset, method), table in tables.items()
    ]
    parts = ["## Share of views made by each augmentation", markdown(["data", "method", *pool, "same twice"], summary)]
    parts += _strengths({key: table for key, table in members.items() if table.has_strengths})
    for (dataset, method), table in tables.items():
        parts += [f"## {dataset}, {NAMES[method]}", pairs_table(table, ".3f")]
    return "\n\n".join(parts) + "\n"


def pairs_table(table: PairTable, form: str) -> str:
    """A table over pairs as Markdown, its numbers in the given form."""
    rows = [
        [f"**{name}**", *(format(value, form) for value in row)]
        for name, row in zip(table.names, table.values, strict=True)
    ]
    return markdown(["first \\ second", *table.names], rows)


def _strengths(tables: Mapping[tuple[str, str], PairTable]) -> list[str]:
    """The share of views by each augmentation at each strength; nothing for pools without."""
    if not tables:
        return []
    shares = {key: table.by_strength() for key, table in tables.items()}
    columns = sorted({strength for each in shares.values() for row in each.values() for strength in row})
    lines = [
        [dataset, NAMES[method], name, *(f"{row[each]:.3f}" if each in row else "" for each in columns)]
        for (dataset, method), rows in shares.items()
        for name, row in rows.items()
    ]
    heading = ["data", "method", "augmentation", *(f"at {each}" if each != "-" else "no strength" for each in columns)]
    return ["## Share of views at each strength", markdown(heading, lines)]


def _same(table: PairTable) -> float:
    """The share of pairs that are the same augmentation twice; 1/K under the uniform law."""
    return float(np.trace(table.values))
