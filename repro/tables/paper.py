"""The results published in the paper's tables."""

from dataclasses import dataclass
from typing import Any

from joao.report.scores import PAPER_COLUMNS, published_results

# The names of data sets and methods in the paper's tables.
COLUMNS = {
    **PAPER_COLUMNS,
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


def unsupervised(method: str, dataset: str) -> Published | None:
    """A result of the unsupervised table, or None if it has none.

    >>> unsupervised("joao", "NCI1")
    Published(mean=78.07, std=0.47)
    """
    return find_cell(published_results()["unsupervised"], method, dataset)


def unsupervised_rank(method: str) -> float | None:
    """The average rank of a method in the unsupervised table, or None if it has none.

    >>> unsupervised_rank("infograph")
    3.0
    """
    rank: float | None = published_results()["unsupervised"].get(ROWS.get(method, ""), {}).get("rank")
    return rank


def semi_supervised(method: str, dataset: str, label_rate: int) -> Published | None:
    """A result of the semi-supervised table, or None if it has none.

    >>> semi_supervised("joaov2", "COLLAB", 10)
    Published(mean=75.53, std=0.18)
    """
    return find_cell(published_results()["semi_supervised"].get(str(label_rate), {}), method, dataset)


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


def find_cell(table: dict[str, Any], method: str, dataset: str) -> Published | None:
    """The cell of a table, or None if the paper has none."""
    cell = table.get(ROWS.get(method, ""), {}).get(COLUMNS.get(dataset, ""))
    return None if cell is None else Published(**cell)
