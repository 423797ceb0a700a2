"""Scores and shares from the records of all protocols, in the form in which the claims use them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import UserError
from joao.core.pair_table import PairTable
from joao.evaluation.statistics import Estimate
from repro.intervals import estimate_mean
from repro.protocols.check import PROTOCOLS
from repro.protocols.semi_supervised import pairs
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.semi_supervised.table import at_strength
from repro.protocols.transfer import repeats
from repro.protocols.unsupervised import run as unsupervised
from repro.tables import paper

Scores = dict[str, dict[str, dict[int, list[float]]]]
Signs = Mapping[str, int]


@dataclass(frozen=True)
class Table:
    """Our scores and the paper's for one of its tables, in percent.

    Attributes:
        scores: by column, method and seed, one for each fold or run of fine-tuning. Columns are data sets, or
            "data set, label rate %".
        paper: by column and method.
        paired: whether equal seeds of two methods were scored on the same parts.
    """

    scores: Scores = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    paired: bool = True

    def differences(self, column: str, signs: Signs) -> NDArray[np.float64] | None:
        """Return the signed sum of the scores of methods: a row for each seed that all have. None without any."""
        groups = [self.scores.get(column, {}).get(method, {}) for method in signs]
        seeds = sorted(set.intersection(*map(set, groups)))
        if not seeds or not self.paired:
            return None
        signed = [
            sign * np.array([group[seed] for seed in seeds]) for sign, group in zip(signs.values(), groups, strict=True)
        ]
        total: NDArray[np.float64] = np.sum(signed, axis=0)
        return total

    def estimate(self, column: str, signs: Signs) -> Estimate | None:
        """Return the signed sum on one column with its variance (:mod:`repro.intervals`); None below two seeds."""
        found = self.differences(column, signs)
        return None if found is None or len(found) < 2 else estimate_mean(found)

    def by_set(self, signs: Signs) -> dict[str, float]:
        """Return the mean signed sum by data set. Label rates of a set are averaged."""
        found: dict[str, list[float]] = {}
        for column in self.scores:
            if (value := self._mean(column, signs)) is not None:
                found.setdefault(set_of(column), []).append(value)
        return {name: float(np.mean(values)) for name, values in found.items()}

    def paper_mean(self, signs: Signs) -> float | None:
        """Return the paper's figure for :meth:`by_set`, averaged over the sets for which it has all methods."""
        found: dict[str, list[float]] = {}
        for column in self.scores:
            of_paper = self.paper.get(column, {})
            if self._mean(column, signs) is not None and set(signs) <= set(of_paper):
                total = sum(sign * of_paper[method] for method, sign in signs.items())
                found.setdefault(set_of(column), []).append(total)
        return float(np.mean([np.mean(values) for values in found.values()])) if found else None

    def _mean(self, column: str, signs: Signs) -> float | None:
        if self.paired:
            found = self.differences(column, signs)
            return None if found is None else float(found.mean())
        groups = self.scores[column]
        if not set(signs) <= set(groups):
            return None
        # One pre-training counts as much as another, however many runs of fine-tuning it has.
        means = {method: np.mean([np.mean(runs) for runs in groups[method].values()]) for method in signs}
        return float(sum(sign * means[method] for method, sign in signs.items()))


def set_of(column: str) -> str:
    """
    >>> set_of("NCI1, 10 %")
    'NCI1'
    """
    return column.partition(",")[0]


@dataclass(frozen=True)
class Evidence:
    """All figures that the claims need.

    Attributes:
        unsupervised, semi_supervised: the paper's Tables 5 and 4.
        strength: Table 2.
        transfer: Table 6, by the rule for the epoch (:data:`EPOCHS`), and again for repeated pre-trainings if there are
            any; scores of a method are by its pre-training.
        drawn: by protocol, method and data set, for each seed the share of all draws of each pair.
        alignments: by method and data set, the gain of each pair by itself and its share of the method's draws, both
            on the same seeds.
    """

    unsupervised: Table = field(default_factory=Table)
    semi_supervised: Table = field(default_factory=Table)
    strength: Table = field(default_factory=Table)
    transfer: Mapping[str, Table] = field(default_factory=dict)
    drawn: Mapping[str, Mapping[str, Mapping[str, Sequence[PairTable]]]] = field(default_factory=dict)
    alignments: Mapping[str, Mapping[str, pairs.Agreement]] = field(default_factory=dict)

    def alignment_of(self, method: str, names: Sequence[str]) -> dict[str, float]:
        """Return by data set, of those named, the rank correlation of a pair's gain and its share of the draws."""
        found = self.alignments.get(method, {})
        return {name: each.correlation.value for name, each in found.items() if name in names}


EPOCHS = {"last_test": "last epoch", "test": "epoch chosen by validation"}
DRAWING = ("joao", "joaov2", "joao_without_prior")


def read_evidence(results: Path) -> Evidence:
    """Read the records of a folder. Tables without records are empty."""
    found = {name: protocol.record_file(results).read() for name, protocol in PROTOCOLS.items()}
    frozen = [record for record in found["unsupervised"] if not unsupervised.Cell(**record["cell"]).variant]
    few = found["semi-supervised"]
    ten = [record for record in few if record["cell"]["label_rate"] == 10]  # the pre-training is that of 1 %, too
    in_table = set(semi_supervised.cells("strength"))
    ablation = [record for record in few if semi_supervised.Cell(**record["cell"]) in in_table]
    papers = {
        f"{dataset}, {rate} %": figures
        for rate in (1, 10)
        for dataset, figures in _papers(partial(paper.semi_supervised, label_rate=rate)).items()
    }
    return Evidence(
        unsupervised=Table(_scores(frozen, itemgetter("dataset")), _papers(paper.unsupervised)),
        semi_supervised=Table(_scores(few, rate_column), papers),
        strength=Table(_scores(ablation, rate_column), _paper_of_strength()),
        transfer=_transfer(found["transfer"], repeats.record_file(results).read()),
        drawn={"semi-supervised": _drawn(ten), "unsupervised": _drawn(frozen)},
        alignments={method: pairs.agreements(few, method) for method in ("joao", "joaov2")},
    )


def rate_column(cell: Mapping[str, Any]) -> str:
    """Return the column of a cell: its data set and label rate."""
    return f"{cell['dataset']}, {cell['label_rate']} %"


def _scores(records: Iterable[Mapping[str, Any]], column: Callable[[Mapping[str, Any]], str]) -> Scores:
    """Return scores by column, method and seed, in percent. All methods must use the same split for a seed."""
    scores: Scores = {}
    splits: dict[tuple[str, int], str] = {}
    for record in records:
        cell = record["cell"]
        name, method, seed = column(cell), cell["method"], cell["seed"]
        if "partitions" in record["scores"]:
            (part,) = record["scores"]["partitions"]
            accuracies, split = part["accuracies"], part["fold_hash"]
        else:
            accuracies, split = record["scores"]["accuracy"], record["split_hash"]
        if splits.setdefault((name, seed), split) != split:
            raise UserError(
                f"records: {method} on {name}, seed {seed}: the split differs from that of other methods. "
                "Remove the older record and compute it again."
            )
        scores.setdefault(name, {}).setdefault(method, {})[seed] = [100 * share for share in accuracies]
    return scores


def _transfer(single: Sequence[Mapping[str, Any]], repeated: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """Return the table by rule for the epoch, of one pre-training per method, and of several if there are records."""
    tables = {}
    for name, records in (("", single), ("repeated pre-trainings, ", repeated)):
        for key, words in EPOCHS.items():
            scores: Scores = {}
            for record in records:
                cell = record["cell"]
                if key in record["scores"] and cell["method"] != "none":
                    # Without repeats the runs of fine-tuning have one pre-training, number 0.
                    runs = record["scores"].get("pretraining", [0] * len(record["scores"][key]))
                    group = scores.setdefault(cell["dataset"], {}).setdefault(cell["method"], {})
                    for number, score in zip(runs, record["scores"][key], strict=True):
                        group.setdefault(number, []).append(100 * score)
            if scores or not name:
                tables[name + words] = Table(scores, _papers(paper.transfer), paired=False)
    return tables


def _papers(cell: Callable[[str, str], paper.Published | None]) -> dict[str, dict[str, float]]:
    """Return the paper's figures by data set and method."""
    found = {
        dataset: {method: figure.mean for method in paper.ROWS if (figure := cell(method, dataset))}
        for dataset in paper.COLUMNS
    }
    return {dataset: figures for dataset, figures in found.items() if figures}


def _paper_of_strength() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for cell in semi_supervised.cells("strength"):
        if figure := at_strength(cell.method, cell.dataset):
            found.setdefault(rate_column(vars(cell)), {})[cell.method] = figure.mean
    return found


def _drawn(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[PairTable]]]:
    found: dict[str, dict[str, list[PairTable]]] = {}
    for record in records:
        method, dataset = record["cell"]["method"], record["cell"]["dataset"]
        if method in DRAWING and "policy" in record:
            drawn = np.array(record["policy"]["drawn"], dtype=np.float64)
            table = PairTable.of(record["policy"]["augmentations"], drawn / drawn.sum())
            found.setdefault(method, {}).setdefault(dataset, []).append(table)
    return found
