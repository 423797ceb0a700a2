"""Scores of runs (the records of ``joao evaluate``), and the history of their epochs for the page."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.config.methods import titles
from joao.core.errors import user_error_on_failure
from joao.core.files import parse_json, read_regular, user_error_on_os_error
from joao.core.pair_table import augmentation_name
from joao.core.registry import check_value, make_record
from joao.evaluation.statistics import Gain, paired_gain
from joao.runs.folder import Run
from joao.runs.scoring import REFERENCES
from joao.training.metrics import EpochMetrics

CHANCE = "chance (largest class)"
OURS = "this run"
PAPER = "published in the paper"
# Older versions scored these references alone.
_REQUIRED = ("histogram", "untrained_initial", "untrained")
# The data sets of the paper's unsupervised table, with their names there.
PAPER_COLUMNS = {
    **{name: name for name in ("NCI1", "PROTEINS", "DD", "MUTAG", "COLLAB")},
    "REDDIT-BINARY": "RDT-B",
    "REDDIT-MULTI-5K": "RDT-M5K",
    "IMDB-BINARY": "IMDB-B",
    "github_stargazers": "GITHUB",
}


class Bar(NamedTuple):
    """An accuracy in percent, with its standard deviation if known."""

    name: str
    mean: float
    std: float | None = None


class Difference(NamedTuple):
    """The difference in accuracy between two runs, in points; if ``gain`` is None, ``why_not`` has the reason."""

    one: str
    other: str
    gain: Gain | None
    why_not: str = ""


def find_score(run: Run) -> dict[str, Any] | None:
    """The latest record of ``joao evaluate`` for a run, without shuffled labels; the run's own graphs are preferred."""
    folder = run.folder if run.folder.is_dir() else run.folder.parent
    stem = "evaluation" if run.folder.is_dir() else f"{run.folder.stem}-evaluation"
    pattern = re.compile(rf"{re.escape(stem)}(-\d+)?\.json")
    paths = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    records = [_read_record(path) for path in sorted(paths, key=lambda path: (len(path.name), path.name))]
    true = [record for record in records if record["protocol"]["labels"] == "true"]
    own = [record for record in true if record["data"]["fingerprint"] == run.info.fingerprint]
    return next(reversed(own or true), None)


@dataclass(frozen=True)
class _Scores:
    """What the page needs of the scores of an encoder or baseline; their ``partitions`` are :class:`_Partition`."""

    mean: float
    std: float | None
    partitions: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class _Partition:
    fold_hash: str
    accuracies: tuple[float, ...]


def _read_record(path: Path) -> dict[str, Any]:
    place = f"{path}: is not a record of 'joao evaluate'"
    with (
        user_error_on_os_error(path, "cannot be read"),
        user_error_on_failure(place, "Remove it or run joao evaluate again."),
    ):
        record: dict[str, Any] = parse_json(read_regular(path))
        num_folds = len(record["run"]["partitions"][0]["accuracies"])
        for key in ("run", *_REQUIRED, *(name for name in REFERENCES if name in record)):
            scores = make_record(_Scores, record[key], f"{place}: {key}", allow_unknown=True)
            shares = [scores.mean, scores.std or 0.0]
            for part in scores.partitions:
                partition = make_record(_Partition, part, f"{place}: {key}: partitions", allow_unknown=True)
                shares += partition.accuracies
                if len(partition.accuracies) != num_folds or num_folds < 2:
                    raise ValueError(f"{key}: partitions must have the same number of folds, at least two")
            if not all(0 <= share <= 1 for share in shares):
                raise ValueError(f"{key}: accuracies must be between 0 and 1")
        check_value(record["chance"], float, f"{place}: chance")
        for text in (record["protocol"]["labels"], record["data"]["fingerprint"], record["data"]["name"]):
            check_value(text, str, f"{place}: protocol and data")
        for name in _REQUIRED:
            for key in ("mean", "low", "high"):
                check_value(record[f"gain over {name}"][key], float, f"{place}: gain over {name}: {key}")
        return record


def bars(record: Mapping[str, Any], method: str, dataset: str) -> list[Bar]:
    """The accuracies of chance, the baselines, the run and, if the paper has one for its method, the published one."""
    lines = [Bar(CHANCE, 100 * record["chance"])]
    for name in (*(name for name in REFERENCES if name in record), "run"):
        std = record[name]["std"]
        lines.append(Bar(titles().get(name, OURS), 100 * record[name]["mean"], None if std is None else 100 * std))
    # The paper's MVGRL uses NT-Xent, unlike the method mvgrl.
    table = {name.lower(): cells for name, cells in published_results()["unsupervised"].items() if name != "MVGRL"}
    published = table.get(method, {}).get(PAPER_COLUMNS.get(dataset, ""))
    return lines if published is None else [*lines, Bar(PAPER, **published)]


@cache
def published_results() -> dict[str, Any]:
    """The paper's tables, as stored in ``paper_results.toml``."""
    return tomllib.loads((files("joao.report") / "paper_results.toml").read_text(encoding="utf-8"))


def gain_over_untrained(record: Mapping[str, Any]) -> Gain:
    """The gain over the same encoder untrained and calibrated, in points."""
    gain = record["gain over untrained"]
    return Gain(*(100 * float(gain[key]) for key in ("mean", "low", "high")))


def differences(records: Mapping[str, Mapping[str, Any] | None]) -> list[Difference]:
    """The difference between every two runs that have a record."""
    scored = {name: record for name, record in records.items() if record is not None}
    return [_difference(one, scored[one], other, scored[other]) for one, other in combinations(scored, 2)]


def _difference(one: str, record: Mapping[str, Any], other: str, baseline: Mapping[str, Any]) -> Difference:
    if record["data"]["fingerprint"] != baseline["data"]["fingerprint"]:
        return Difference(one, other, None, "scored on different graphs")
    ours, theirs = record["run"]["partitions"], baseline["run"]["partitions"]
    folds, others = ([(part["fold_hash"], len(part["accuracies"])) for part in parts] for parts in (ours, theirs))
    if folds != others:
        return Difference(one, other, None, "scored on different folds")
    percent, reference = ([[100 * share for share in part["accuracies"]] for part in parts] for parts in (ours, theirs))
    return Difference(one, other, paired_gain(percent, reference))


# Probabilities and losses are stored as integers, multiplied by this.
SCALE = 1000
MOST_POINTS = 500


def history(metrics: Sequence[EpochMetrics], pool: Sequence[str], most_numbers: int) -> dict[str, Any]:
    """Curves and pair tables by epoch, for a pool of K augmentations.

    All tables together have at most ``most_numbers`` entries; beyond it, only some epochs have tables.

    Returns:
        ``epochs``, ``loss``, ``pairs`` (see :func:`effective_pairs`) for at most :data:`MOST_POINTS` epochs and
        ``seconds``; ``tables`` with its own ``epochs`` and, for each, flat lists of K x K integers: ``probabilities``,
        ``losses`` (None if the policy does not learn) and ``drawn``, counted since the previous table.
    """
    curve = _spread(len(metrics), MOST_POINTS)
    members = len(pool) ** 2
    shown = _spread(len(metrics), max(2, most_numbers // (3 * members)))
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
            "probabilities": [_to_integers(metrics[i].probabilities) for i in shown],
            "losses": [_to_integers(metrics[i].pair_losses) for i in shown] if learns else None,
            "drawn": counts.astype(np.int64).tolist(),
        },
    }


def effective_pairs(probabilities: ArrayLike) -> float:
    r"""The effective number of pairs of a distribution: :math:`\exp(-\sum_{ij} p_{ij} \log p_{ij})`.

    >>> effective_pairs([[0.5, 0.5], [0.0, 0.0]])
    2.0
    """
    p = np.asarray(probabilities, dtype=np.float64).ravel()
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def _spread(total: int, most: int) -> list[int]:
    """At most ``most`` evenly spaced indices below ``total``, including the first and the last."""
    indices: NDArray[np.int64] = np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(np.int64))
    return [int(index) for index in indices]


def _to_integers(table: ArrayLike | None) -> list[int]:
    numbers: list[int] = np.round(np.ravel(np.asarray(table, dtype=np.float64)) * SCALE).astype(np.int64).tolist()
    return numbers
