"""Scores of runs (the records of ``joao evaluate``), and the history of their epochs for the page."""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joao.config.methods import CHEAP_BASELINES, UNTRAINED, titles
from joao.core.errors import user_error_on_failure
from joao.core.files import parse_json, read_regular, user_error_on_os_error
from joao.core.pair_table import augmentation_name
from joao.core.registry import check_value, make_record
from joao.evaluation.statistics import Gain, Scores, Verdict, make_verdict, paired_gain
from joao.runs.folder import Run
from joao.runs.scoring import REFERENCES
from joao.training.metrics import EpochMetrics

CHANCE = "chance (largest class)"
OURS = "this run"
PAPER = "published in the paper"
_SHORT = {UNTRAINED: "untrained encoder"}  # in a sentence
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


Record = Mapping[str, Any]


class Bar(NamedTuple):
    """An accuracy in percent, with its standard deviation over partitions if known.

    ``run`` is the number of a run among those of a chart, None for other bars.
    """

    name: str
    mean: float
    std: float | None = None
    run: int | None = None


class Difference(NamedTuple):
    """The difference in accuracy between two runs, in points; if ``gain`` is None, ``why_not`` has the reason."""

    one: str
    other: str
    gain: Gain | None
    why_not: str = ""


def find_score(run: Run, shown: Collection[str] = ()) -> dict[str, Any] | None:
    """The latest record of ``joao evaluate`` for a run, without shuffled labels.

    Records on the graphs with a fingerprint in ``shown`` are preferred, then those on the graphs of the training.
    """
    folder = run.folder if run.folder.is_dir() else run.folder.parent
    stem = "evaluation" if run.folder.is_dir() else f"{run.folder.stem}-evaluation"
    pattern = re.compile(rf"{re.escape(stem)}(-\d+)?\.json")
    paths = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    records = [_read_record(path) for path in sorted(paths, key=lambda path: (len(path.name), path.name))]
    true = [record for record in records if record["protocol"]["labels"] == "true"]
    on = [[each for each in true if each["data"]["fingerprint"] in some] for some in (shown, {run.info.fingerprint})]
    return next(reversed(on[0] or on[1] or true), None)


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
            if len(scores.partitions) != len(record["run"]["partitions"]):
                raise ValueError(f"{key}: expected as many partitions as the run has")
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
    return chart({OURS: record}, {OURS: method}, dataset)


def chart(records: Mapping[str, Record], methods: Mapping[str, str], dataset: str) -> list[Bar]:
    """One chart of runs that were scored on the same folds; each has its record and its method by name.

    Chance, the baselines (once if they are equal for all runs), the runs, and the published accuracy of each method.
    """
    lines = [Bar(CHANCE, 100 * next(iter(records.values()))["chance"])]
    lines += [_bar(name, scores) for reference in REFERENCES for name, scores in _variants(records, reference)]
    lines += [_bar(name, record["run"], number) for number, (name, record) in enumerate(records.items())]
    # The paper's MVGRL uses NT-Xent, unlike the method mvgrl.
    table = {name.lower(): cells for name, cells in published_results()["unsupervised"].items() if name != "MVGRL"}
    column = PAPER_COLUMNS.get(dataset, "")
    known = {method: table[method][column] for method in methods.values() if column in table.get(method, {})}
    return lines + [Bar(PAPER if len(known) == 1 else f"{PAPER}: {titles()[name]}", **known[name]) for name in known]


def _bar(name: str, scores: Mapping[str, Any], run: int | None = None) -> Bar:
    return Bar(name, 100 * scores["mean"], None if scores["std"] is None else 100 * scores["std"], run)


def _variants(
    records: Mapping[str, Record], reference: str, title: str | None = None
) -> list[tuple[str, Mapping[str, Any]]]:
    """The different scores of a baseline in several records, each with its title and, if they differ, its runs."""
    variants: list[tuple[list[str], Mapping[str, Any]]] = []
    for run, record in records.items():
        if reference not in record:
            continue
        same = [runs for runs, scores in variants if accuracies(scores) == accuracies(record[reference])]
        if same:
            same[0].append(run)
        else:
            variants.append(([run], record[reference]))
    title = title or titles()[reference]
    return [(title if len(variants) == 1 else f"{title} ({', '.join(runs)})", scores) for runs, scores in variants]


def accuracies(scores: Mapping[str, Any]) -> list[list[float]]:
    """``(partitions, folds)`` accuracies between 0 and 1."""
    return [list(part["accuracies"]) for part in scores["partitions"]]


def same_folds(records: Mapping[str, Record | None]) -> list[dict[str, Record]]:
    """Group runs that have a record by graphs and folds: only their scores can be compared."""
    groups: dict[Any, dict[str, Record]] = {}
    for name, record in records.items():
        if record is not None:
            groups.setdefault((record["data"]["fingerprint"], *_folds(record)), {})[name] = record
    return list(groups.values())


def _folds(record: Record) -> list[tuple[str, int]]:
    return [(part["fold_hash"], len(part["accuracies"])) for part in record["run"]["partitions"]]


def verdict(records: Mapping[str, Record], pretrained: Mapping[str, str]) -> Verdict | None:
    """Whether pre-training helps, by the rule of ``joao compare``: the best run against the best cheap baseline.

    Args:
        records: records of runs that were scored on the same folds; those of older versions have fewer baselines.
        pretrained: the names of the pre-trained runs, and what the verdict calls them.
    """

    def arrays(scores: Mapping[str, Record]) -> dict[str, Scores]:
        return {name: np.array(accuracies(each)) for name, each in scores.items()}

    data = next(iter(records.values()))["data"]["name"]
    ours = {title: records[name]["run"] for name, title in pretrained.items()}
    cheap = {name: scores for each in CHEAP_BASELINES for name, scores in _variants(records, each, _SHORT.get(each))}
    return make_verdict(data, arrays(ours), arrays(cheap))


def missing_baselines(record: Record) -> list[str]:
    """The titles of the baselines that a record of an older version lacks."""
    return [titles()[name] for name in REFERENCES if name not in record]


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


def _difference(one: str, record: Record, other: str, baseline: Record) -> Difference:
    if record["data"]["fingerprint"] != baseline["data"]["fingerprint"]:
        return Difference(one, other, None, "scored on different graphs")
    if _folds(record) != _folds(baseline):
        return Difference(one, other, None, "scored on different folds")
    return Difference(
        one, other, paired_gain(*(100 * np.array(accuracies(each["run"])) for each in (record, baseline)))
    )


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
