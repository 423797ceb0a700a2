"""The results published in the paper's tables."""

from __future__ import annotations

from typing import Any

from joao.report.paper import COLUMNS as COLUMNS
from joao.report.paper import ROWS as ROWS
from joao.report.paper import Published as Published
from joao.report.paper import find_cell, published_results
from joao.report.paper import unsupervised as unsupervised


def unsupervised_rank(method: str) -> float | None:
    """The average rank of a method in the unsupervised table, or None if it has none.

    >>> unsupervised_rank("infograph")
    3.0
    """
    return _rank(published_results()["unsupervised"], method)


def semi_supervised(method: str, dataset: str, label_rate: int) -> Published | None:
    """A result of the semi-supervised table, or None if it has none.

    >>> semi_supervised("joaov2", "COLLAB", 10)
    Published(mean=75.53, std=0.18)
    """
    return find_cell(published_results()["semi_supervised"].get(str(label_rate), {}), method, dataset)


def semi_supervised_rank(method: str, label_rate: int) -> float | None:
    """The average rank of a method in the semi-supervised table, or None if it has none.

    >>> semi_supervised_rank("joaov2", 10)
    1.8
    """
    return _rank(published_results()["semi_supervised"].get(str(label_rate), {}), method)


def transfer(method: str, dataset: str) -> Published | None:
    """A result of the transfer table, or None if it has none.

    >>> transfer("joao", "bbbp")
    Published(mean=70.22, std=0.98)
    """
    return find_cell(published_results()["transfer"], method, dataset)


def ogb(method: str, dataset: str, label_rate: int) -> Published | None:
    """A result of the large-scale table, or None if it has none; ogbg-code2 uses that of ogbg-code.

    >>> ogb("joaov2", "ogbg-ppa", 10)
    Published(mean=59.32, std=1.11)
    """
    return find_cell(published_results()["ogb"].get(str(label_rate), {}), method, dataset)


def strength(method: str, dataset: str, strength: float) -> Published | None:
    """A result of the ablation of augmentation strength, or None if it has none.

    >>> strength("joao", "NCI1", 0.25)
    Published(mean=60.95, std=0.55)
    """
    cell = published_results()["strength"].get(dataset, {}).get(str(strength), {}).get(ROWS.get(method, ""))
    return None if cell is None else Published(**cell)


def _rank(table: dict[str, Any], method: str) -> float | None:
    rank: float | None = table.get(ROWS.get(method, ""), {}).get("rank")
    return rank
