"""The accuracies published in the paper, for the report. ``repro.tables.paper`` has the other tables."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

# The names of data sets and methods in the paper's tables.
COLUMNS = {
    **{name: name for name in ("NCI1", "PROTEINS", "DD", "MUTAG", "COLLAB")},
    "REDDIT-BINARY": "RDT-B",
    "REDDIT-MULTI-5K": "RDT-M5K",
    "IMDB-BINARY": "IMDB-B",
    "github_stargazers": "GITHUB",
    **{name.lower(): name for name in ("BBBP", "Tox21", "ToxCast", "SIDER", "ClinTox", "MUV", "HIV", "BACE")},
    "ogbg-ppa": "ogbg-ppa",
    "ogbg-code2": "ogbg-code",
}
ROWS = {
    "none": "No pre-train.",
    **{name.lower(): name for name in ("Augmentations", "GAE", "Infomax")},
    "context_pred": "ContextPred",
    "edge_pred": "EdgePred",
    "attr_masking": "AttrMasking",
    **{name.lower(): name for name in ("GL", "WL", "DGK", "node2vec", "sub2vec", "graph2vec", "InfoGraph")},
    "mvgrl_nt_xent": "MVGRL",  # the paper's figures are those with NT-Xent, not those of joao's method "mvgrl"
    **{name.lower(): name for name in ("GraphCL", "JOAO", "JOAOv2")},
}


@dataclass(frozen=True)
class Published:
    """Mean and standard deviation in percent."""

    mean: float
    std: float


@cache
def published_results() -> dict[str, Any]:
    """All tables, as stored in ``paper_results.toml``."""
    return tomllib.loads((files("joao.report") / "paper_results.toml").read_text(encoding="utf-8"))


def unsupervised(method: str, dataset: str) -> Published | None:
    """A result of the unsupervised table, or None if it has none.

    >>> unsupervised("joao", "NCI1")
    Published(mean=78.07, std=0.47)
    """
    return find_cell(published_results()["unsupervised"], method, dataset)


def find_cell(table: dict[str, Any], method: str, dataset: str) -> Published | None:
    """The cell of a table, or None if the paper has none."""
    cell = table.get(ROWS.get(method, ""), {}).get(COLUMNS.get(dataset, ""))
    return None if cell is None else Published(**cell)
