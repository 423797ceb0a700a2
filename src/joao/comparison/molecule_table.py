"""The table of a comparison on molecules: rows, differences and a verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from joao.core.errors import escape_control, quantity
from joao.core.tables import Tabular
from joao.evaluation.statistics import INCONCLUSIVE, NO, YES, Gain, best_over_best, mean, paired_gain, sample_std
from joao.evaluation.tables import with_interval

# Every method, in the order of the table, and what it does.
METHODS = {
    "mean": "always predicts the mean label",
    "ecfp": "random forest on ECFP counts",
    "descriptors": "random forest on RDKit's 2D descriptors",
    "tanimoto": "kernel ridge regression on ECFP counts",
    "frozen_forest": "random forest on embeddings of the encoder",
    "frozen_linear": "ridge regression on embeddings of the encoder",
    "frozen_kernel": "kernel ridge regression on embeddings of the encoder",
    "both_kernels": "kernel ridge regression on embeddings and ECFP counts",
    "finetuned": "fine-tuned encoder",
    "ensemble": "mean of ecfp, descriptors and both_kernels, as in joao finetune --ensemble",
}
KERNELS = {"tanimoto": ("ecfp",), "frozen_kernel": ("encoder",), "both_kernels": ("encoder", "ecfp")}
MEMBERS = ("ecfp", "descriptors", "both_kernels")
CHEAP = ("ecfp", "descriptors", "tanimoto")
WITH_ENCODER = ("frozen_forest", "frozen_linear", "frozen_kernel", "both_kernels", "finetuned", "ensemble")
REFERENCE = "ecfp"
# The first metric of a kind of label decides; whether a larger value is better.
METRICS = {"binary": {"roc_auc": True}, "numbers": {"rmse": False, "mae": False, "spearman": True}}
TITLES = {"roc_auc": "ROC-AUC", "rmse": "RMSE", "mae": "MAE", "spearman": "Spearman"}


@final
@dataclass(frozen=True)
class TableRow:
    """The result of a method.

    Attributes:
        metrics: mean over folds and partitions of each metric; None if it is undefined.
        deviation: standard deviation of the first metric over folds, or over seeds of a given split.
        difference: difference of the first metric to that of :data:`REFERENCE` on the same molecules.
        seconds: seconds of one fit with its predictions, mean over folds; columns and embeddings are computed before.
            Those of the ensemble are the sum over its members.
    """

    method: str
    what: str
    metrics: Mapping[str, float | None]
    deviation: float | None
    difference: Gain | None
    seconds: float


@final
class TableComparison(Tabular):
    """The result of comparing methods on a table of molecules. It prints as a table with a verdict.

    Attributes:
        record: all results, as written by ``joao compare --out``.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.metric, self.is_score = next(iter(METRICS[record["kind"]].items()))

    @property
    def rows(self) -> list[TableRow]:
        table_rows = []
        for name, entry in self.record["methods"].items():
            known = {
                metric: [each for row in rows for each in row if each is not None]
                for metric, rows in entry["metrics"].items()
            }
            metrics = {metric: mean(values) if values else None for metric, values in known.items()}
            values = self._values(name)
            difference = None if name == REFERENCE else paired_gain(values, self._values(REFERENCE))
            deviation = sample_std(values.ravel().tolist())
            seconds = float(np.mean(entry["seconds"]))
            table_rows.append(TableRow(name, entry["what"], metrics, deviation, difference, seconds))
        return table_rows

    @property
    def verdict(self) -> tuple[str, str]:
        """``yes``, ``no`` or ``cannot be told`` (inconclusive): whether an encoder helps; and a sentence."""
        sign = 1 if self.is_score else -1
        cheap, others = ({name: sign * self._values(name) for name in group} for group in (CHEAP, WITH_ENCODER))
        best, strongest = self.best_with_encoder, max(cheap, key=lambda name: float(cheap[name].mean()))
        gain = best_over_best(list(others.values()), list(cheap.values()))
        helps = YES if gain.low > 0 else NO if gain.high < 0 else INCONCLUSIVE
        words = {
            YES: f"use {best}. It is better than {strongest}, the best method without an encoder,",
            NO: f"use {strongest}. It is better than {best}, the best method with an encoder,",
            INCONCLUSIVE: f"inconclusive; {strongest} is cheaper. The best method with an encoder, {best}, differs "
            f"from {strongest}",
        }[helps]
        low, high = sorted((sign * gain.low, sign * gain.high))
        difference = f"{sign * gain.mean:+.3f} {TITLES[self.metric]} (95 % CI {low:+.3f} to {high:+.3f}"
        name = self.record["data"]["name"]
        return helps, f"Verdict on {name}: {words} by {difference}, corrected for choosing the best methods)."

    @property
    def best_with_encoder(self) -> str:
        """The method with an encoder that has the best score."""
        sign = 1 if self.is_score else -1
        return max(WITH_ENCODER, key=lambda name: sign * float(self._values(name).mean()))

    def _values(self, name: str) -> NDArray[np.float64]:
        """``(partitions, folds)`` of the first metric."""
        return np.array(self.record["methods"][name]["metrics"][self.metric], dtype=np.float64)

    def to_json(self) -> Mapping[str, Any]:
        """Return the record, which has JSON types only."""
        return self.record

    def plot(self) -> Any:
        """Draw the differences to the forest on ECFP; returns a matplotlib figure."""
        from joao.core.plots import COLOURS, new_figure

        shown = [row for row in self.rows if row.difference is not None and row.method != "mean"]
        with new_figure(6.4, 1.2 + 0.32 * len(shown)) as figure:
            axes = figure.subplots()
            axes.axvline(0, color="#999999", linestyle=":")
            for number, row in enumerate(shown):
                assert row.difference is not None
                gain = row.difference
                ends = [[gain.mean - gain.low], [gain.high - gain.mean]]
                colour = COLOURS[int(row.method in WITH_ENCODER)]
                axes.errorbar(gain.mean, number, xerr=ends, color=colour, fmt="o", capsize=2)
            axes.set_yticks(range(len(shown)), [row.method for row in shown])
            axes.invert_yaxis()
            better = "larger" if self.is_score else "smaller"
            axes.set_xlabel(f"{TITLES[self.metric]} - that of {REFERENCE} (95 % CI); {better} is better")
            axes.set_title(escape_control(self.record["data"]["name"]), parse_math=False, fontsize=10)
            figure.draw_without_rendering()  # inside the style
        return figure

    def cells(self) -> tuple[list[str], list[list[str]]]:
        first, *others = (TITLES[metric] for metric in METRICS[self.record["kind"]])
        lines = []
        for row in self.rows:
            score, *further = ("" if value is None else f"{value:.3f}" for value in row.metrics.values())
            deviation = "" if row.deviation is None else f" ± {row.deviation:.3f}"
            difference = with_interval(row.difference, digits=3)
            lines.append([row.method, f"{score}{deviation}", difference, *further, f"{row.seconds:.1f}"])
        return ["method", first, f"{first} - {REFERENCE} (95 % CI)", *others, "seconds"], lines

    def _numbers(self) -> tuple[list[str], list[list[Any]]]:
        header = ["method", *METRICS[self.record["kind"]], "deviation", "difference", "low", "high", "seconds"]
        lines: list[list[Any]] = []
        for row in self.rows:
            gain = (
                [None] * 3 if row.difference is None else [row.difference.mean, row.difference.low, row.difference.high]
            )
            lines.append([row.method, *row.metrics.values(), row.deviation, *gain, row.seconds])
        return header, lines

    def _text(self) -> tuple[str, list[str]]:
        return self.heading, self.closing_lines

    @property
    def heading(self) -> str:
        """Describe data and protocol in one line."""
        record = self.record
        sizes = [fold for partition in record["sizes"] for fold in partition]
        tasks, test = record["tasks"], quantity(round(sum(size[2] for size in sizes) / len(sizes)), "molecules")
        if record["protocol"]["split"] == "given":
            seeds = quantity(len(sizes), "seeds")
            protocol = f"the given split ({test} for testing), {seeds}; intervals are about other seeds only"
        else:
            protocol = f"{record['plan']['folds']} {record['protocol']['split']} folds of {test}"
            protocol += f", {record['plan']['partitions']} times" if record["plan"]["partitions"] > 1 else ""
        left_out = record["unlabelled"]
        unlabelled = f" {quantity(left_out, 'molecules')} without a label: left out." if left_out else ""
        what = f"task {tasks[0]}" if len(tasks) == 1 else f"{len(tasks)} tasks (mean)"
        data = f"{record['data']['name']}: {quantity(record['data']['molecules'], 'molecules')}"
        return f"{data}, {what}. All methods on {protocol}.{unlabelled}"

    @property
    def closing_lines(self) -> list[str]:
        """What the methods are, the units, and the verdict."""
        record = self.record
        units = "" if self.is_score or len(record["tasks"]) == 1 else " Errors are in standard deviations of each task."
        better = "A larger ROC-AUC is better" if self.is_score else "A smaller RMSE is better"
        return [
            f"{better}.{units} Encoder: {record['plan']['model']}. Seconds are for one fit.",
            *(f"{name}: {what}." for name, what in METHODS.items()),
            self.verdict[1],
        ]

    def __repr__(self) -> str:
        return self.to_markdown()
