"""The figures of the paper's tables."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

# How the paper's tables call data sets and methods.
COLUMNS = {
    "NCI1": "NCI1",
    "PROTEINS": "PROTEINS",
    "DD": "DD",
    "MUTAG": "MUTAG",
    "COLLAB": "COLLAB",
    "REDDIT-BINARY": "RDT-B",
    "REDDIT-MULTI-5K": "RDT-M5K",
    "IMDB-BINARY": "IMDB-B",
}
ROWS = {"graphcl": "GraphCL", "joao": "JOAO", "joaov2": "JOAOv2"}


@dataclass(frozen=True)
class Published:
    """Mean and standard deviation in percent."""

    mean: float
    std: float


@cache
def _results() -> dict[str, Any]:
    return tomllib.loads((files("joao.reporting") / "paper_results.toml").read_text(encoding="utf-8"))


def unsupervised(method: str, dataset: str) -> Published | None:
    """The cell of the unsupervised table, or None where the paper has none.

    >>> unsupervised("joao", "NCI1")
    Published(mean=78.07, std=0.47)
    """
    row = _results()["unsupervised"].get(ROWS.get(method, ""), {})
    cell = row.get(COLUMNS.get(dataset, ""))
    return None if cell is None else Published(**cell)
