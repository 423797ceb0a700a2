"""Scores of runs: read from the records of ``joao evaluate``, beside what they must beat, and against one another.

What the epochs of a run showed, in as few characters as a slider and curves need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.config.titles import TITLES
from joao.core.errors import UserError
from joao.core.pair_table import augmentation_name
from joao.evaluation.statistics import Gain, paired_gain
from joao.report import paper
from joao.runs.folder import Run
from joao.runs.scoring import REFERENCES
from joao.training.metrics import EpochMetrics

CHANCE = "chance (largest class)"
OURS = "this run"
PAPER = "the paper's figure"


@dataclass(frozen=True)
class Bar:
    """An accuracy in percent, with its deviation if that is known."""

    name: str
    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Difference:
    """How much more accurate one run is than another, in points; without ``gain``, why that cannot be said."""

    one: str
    other: str
    gain: Gain | None
    why_not: str = ""


def find_score(run: Run) -> dict[str, Any] | None:
    """The last record of ``joao evaluate`` beside a run, with true labels; one on the run's own graphs comes first."""
    folder = run.folder if run.folder.is_dir() else run.folder.parent
    stem = "evaluation" if run.folder.is_dir() else f"{run.folder.stem}-evaluation"
    pattern = re.compile(rf"{re.escape(stem)}(-\d+)?\.json")
    paths = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    found = [_read(path) for path in sorted(paths, key=lambda path: (len(path.name), path.name))]
    true = [record for record in found if record["protocol"]["labels"] == "true"]
    own = [record for record in true if record["data"]["fingerprint"] == run.info.fingerprint]
    best = own or true
    return best[-1] if best else None


def _read(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in ("run", *REFERENCES):
            _refuse_text(record[key]["mean"], record[key]["std"] or 0)
            for part in record[key]["partitions"]:
                _ = part["fold_hash"]
                _refuse_text(*part["accuracies"])
        _refuse_text(record["chance"])
        _ = record["protocol"]["labels"], record["data"]["fingerprint"]
        for name in REFERENCES:
            _refuse_text(*(record[f"gain over {name}"][key] for key in ("mean", "low", "high")))
        return record
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path}: is not a record of 'joao evaluate' ({error}). Remove it or score again.") from error


def _refuse_text(*numbers: Any) -> None:
    """A TypeError for what cannot be calculated with: ``float`` would take "0.5", too."""
    for number in numbers:
        _ = number + 0.0


def bars(record: Mapping[str, Any], method: str, dataset: str) -> list[Bar]:
    """What a run scored, after what it must beat; at the end the paper's figure for its method, where there is one."""
    lines = [Bar(CHANCE, 100 * record["chance"])]
    for name in (*REFERENCES, "run"):
        std = record[name]["std"]
        lines.append(Bar(TITLES.get(name, OURS), 100 * record[name]["mean"], None if std is None else 100 * std))
    published = paper.unsupervised(method, dataset)
    if published:
        lines.append(Bar(PAPER, published.mean, published.std))
    return lines


def gain_over_untrained(record: Mapping[str, Any]) -> Gain:
    """Over the same encoder untrained and calibrated, in points."""
    gain = record["gain over untrained"]
    return Gain(*(100 * float(gain[key]) for key in ("mean", "low", "high")))


def differences(records: Mapping[str, Mapping[str, Any] | None]) -> list[Difference]:
    """Of every two runs that have a record, by name."""
    scored = {name: record for name, record in records.items() if record is not None}
    return [_difference(one, scored[one], other, scored[other]) for one, other in combinations(scored, 2)]


def _difference(one: str, record: Mapping[str, Any], other: str, baseline: Mapping[str, Any]) -> Difference:
    if record["data"]["fingerprint"] != baseline["data"]["fingerprint"]:
        return Difference(one, other, None, "scored on other graphs")
    ours, theirs = record["run"]["partitions"], baseline["run"]["partitions"]
    if [part["fold_hash"] for part in ours] != [part["fold_hash"] for part in theirs]:
        return Difference(one, other, None, "scored on other folds")
    num_folds = len(ours[0]["accuracies"])
    gain = paired_gain(_percent(ours), _percent(theirs), num_train_per_test=num_folds - 1)
    return Difference(one, other, gain)


def _percent(partitions: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    return [[100 * share for share in part["accuracies"]] for part in partitions]


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
    groups = list(dict.fromkeys(map(augmentation_name, pool)))
    return {
        "pool": list(pool),
        "groups": groups,
        "group": [groups.index(augmentation_name(name)) for name in pool],
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
