"""What the epochs of a run showed, in as few characters as a slider and curves need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.pair_table import augmentation_of
from joao.training.pretrain import EpochMetrics

# Numbers in tables are whole: probabilities and losses times this.
SCALE = 1000
MOST_POINTS = 500


def history(metrics: Sequence[EpochMetrics], pool: Sequence[str], most_numbers: int) -> dict[str, Any]:
    """Curves and tables by epoch.

    Args:
        metrics: of the epochs.
        pool: the names of the augmentations.
        most_numbers: that the tables may have together; if there are more, only some epochs have tables.

    Returns:
        ``epochs``, ``loss``, ``pairs`` (see :func:`effective_pairs`) and ``seconds``, of every epoch or, of very many,
        of some; ``tables`` with its own ``epochs``, and ``probabilities``, ``losses`` (None for a policy that does not
        learn) and ``drawn``, a flat list of K x K whole numbers for each; ``drawn`` counts from the epoch of the table
        before.
    """
    curve = _some(len(metrics), MOST_POINTS)
    members = len(pool) ** 2
    shown = _some(len(metrics), max(2, most_numbers // (3 * members)))
    learns = bool(metrics) and all(each.pair_losses is not None for each in metrics)
    total = np.cumsum([np.ravel(each.drawn) for each in metrics], axis=0) if metrics else np.zeros((0, members))
    counts = np.diff(total[shown], axis=0, prepend=np.zeros((1, members))) if len(shown) else total
    groups = list(dict.fromkeys(map(augmentation_of, pool)))
    return {
        "pool": list(pool),
        "groups": groups,
        "group": [groups.index(augmentation_of(name)) for name in pool],
        "epochs": [metrics[i].epoch for i in curve],
        "loss": [float(f"{metrics[i].loss:.5g}") for i in curve],
        "pairs": [round(effective_pairs(metrics[i].probabilities), 2) for i in curve],
        "seconds": round(sum(each.seconds for each in metrics), 2),
        "tables": {
            "epochs": [metrics[i].epoch for i in shown],
            "probabilities": [_whole(metrics[i].probabilities) for i in shown],
            "losses": [_whole(metrics[i].pair_losses) for i in shown] if learns else None,
            "drawn": counts.astype(np.int64).tolist(),
        },
    }


def effective_pairs(probabilities: ArrayLike) -> float:
    r"""How many pairs a law has in effect: :math:`\exp(-\sum_{ij} p_{ij} \log p_{ij})`.

    >>> effective_pairs([[0.5, 0.5], [0.0, 0.0]])
    2.0
    """
    p = np.asarray(probabilities, dtype=np.float64).ravel()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def _some(total: int, most: int) -> list[int]:
    """At most ``most`` places among ``total``, evenly, with the first and the last."""
    places: NDArray[np.int64] = np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(np.int64))
    return [int(place) for place in places]


def _whole(table: ArrayLike | None) -> list[int]:
    numbers: list[int] = np.round(np.ravel(np.asarray(table, dtype=np.float64)) * SCALE).astype(np.int64).tolist()
    return numbers
