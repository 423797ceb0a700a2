"""The results published in the paper's tables."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

# The names of data sets and methods in the paper's tables.
COLUMNS = {
    "NCI1": "NCI1",
    "PROTEINS": "PROTEINS",
    "DD": "DD",
    "MUTAG": "MUTAG",
    "COLLAB": "COLLAB",
    "REDDIT-BINARY": "RDT-B",
    "REDDIT-MULTI-5K": "RDT-M5K",
    "IMDB-BINARY": "IMDB-B",
    "github_stargazers": "GITHUB",
    "bbbp": "BBBP",
    "tox21": "Tox21",
    "toxcast": "ToxCast",
    "sider": "SIDER",
    "clintox": "ClinTox",
    "muv": "MUV",
    "hiv": "HIV",
    "bace": "BACE",
    "ogbg-ppa": "ogbg-ppa",
    "ogbg-code2": "ogbg-code",
}
ROWS = {
    "none": "No pre-train.",
    "augmentations": "Augmentations",
    "gae": "GAE",
    "infomax": "Infomax",
    "context_pred": "ContextPred",
    "edge_pred": "EdgePred",
    "attr_masking": "AttrMasking",
    "gl": "GL",
    "wl": "WL",
    "dgk": "DGK",
    "node2vec": "node2vec",
    "sub2vec": "sub2vec",
    "graph2vec": "graph2vec",
    "mvgrl": "MVGRL",
    "infograph": "InfoGraph",
    "graphcl": "GraphCL",
    "joao": "JOAO",
    "joaov2": "JOAOv2",
}


@dataclass(frozen=True)
class Published:
    """Mean and standard deviation in percent."""

    mean: float
    std: float


@cache
def _results() -> dict[str, Any]:
    return tomllib.loads((files("joao.report") / "paper_results.toml").read_text(encoding="utf-8"))


def unsupervised(method: str, dataset: str) -> Published | None:
    """A result of the unsupervised table, or None if it has none.

    >>> unsupervised("joao", "NCI1")
    Published(mean=78.07, std=0.47)
    """
    return _cell(_results()["unsupervised"], method, dataset)


def unsupervised_rank(method: str) -> float | None:
    """The average rank of a method in the unsupervised table, or None if it has none.

    >>> unsupervised_rank("infograph")
    3.0
    """
    return _rank(_results()["unsupervised"], method)


def semi_supervised(method: str, dataset: str, label_rate: int) -> Published | None:
    """A result of the semi-supervised table, or None if it has none.

    >>> semi_supervised("joaov2", "COLLAB", 10)
    Published(mean=75.53, std=0.18)
    """
    return _cell(_results()["semi_supervised"].get(str(label_rate), {}), method, dataset)


def semi_supervised_rank(method: str, label_rate: int) -> float | None:
    """The average rank of a method in the semi-supervised table, or None if it has none.

    >>> semi_supervised_rank("joaov2", 10)
    1.8
    """
    return _rank(_results()["semi_supervised"].get(str(label_rate), {}), method)


def transfer(method: str, dataset: str) -> Published | None:
    """A result of the transfer table, or None if it has none.

    >>> transfer("joao", "bbbp")
    Published(mean=70.22, std=0.98)
    """
    return _cell(_results()["transfer"], method, dataset)


def ogb(method: str, dataset: str, label_rate: int) -> Published | None:
    """A result of the large-scale table, or None if it has none; ogbg-code2 uses that of ogbg-code.

    >>> ogb("joaov2", "ogbg-ppa", 10)
    Published(mean=59.32, std=1.11)
    """
    return _cell(_results()["ogb"].get(str(label_rate), {}), method, dataset)


def strength(method: str, dataset: str, strength: float) -> Published | None:
    """A result of the ablation of augmentation strength, or None if it has none.

    >>> strength("joao", "NCI1", 0.25)
    Published(mean=60.95, std=0.55)
    """
    cell = _results()["strength"].get(dataset, {}).get(str(strength), {}).get(ROWS.get(method, ""))
    return None if cell is None else Published(**cell)


def _rank(table: dict[str, Any], method: str) -> float | None:
    rank: float | None = table.get(ROWS.get(method, ""), {}).get("rank")
    return rank


def _cell(table: dict[str, Any], method: str, dataset: str) -> Published | None:
    cell = table.get(ROWS.get(method, ""), {}).get(COLUMNS.get(dataset, ""))
    return None if cell is None else Published(**cell)
