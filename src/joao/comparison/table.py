""":func:`joao.compare`, and its result as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from joao.comparison.methods import choose_methods
from joao.comparison.record import Plan, compute
from joao.comparison.summary import Row, record_verdict, rows
from joao.data.sources import read_graphs, warn_user
from joao.evaluation.statistics import Verdict
from joao.evaluation.tables import with_deviation, with_interval
from joao.runs.scoring import require_classes

HEADER = ["method", "accuracy %", "gain over untrained (95 % CI)", "seconds", "MB"]


@final
class Comparison:
    """The result of :func:`joao.compare`. It prints as a table with a verdict.

    Attributes:
        record: all results, as written by ``joao compare --out``.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record

    @property
    def rows(self) -> list[Row]:
        """One row per method, including methods that failed."""
        return rows(self.record)

    @property
    def verdict(self) -> Verdict | None:
        """Whether pre-training helps; ``str()`` gives a sentence. None if no pre-trained method was compared."""
        return record_verdict(self.record)

    def to_json(self) -> Mapping[str, Any]:
        """Return the record, which has JSON types only."""
        return self.record

    def __repr__(self) -> str:
        lines = [HEADER, *table_lines(self)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
        table = []
        for line in lines:
            first, *others = zip(line, widths, strict=True)
            cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
            table.append("  ".join(cells).rstrip())
        return "\n".join([heading(self), "", *table, "", *closing_lines(self)])


def compare(
    data: Any,
    methods: str | Sequence[str] | None = None,
    *,
    partitions: int = 5,
    folds: int = 10,
    epochs: int | None = None,
    device: str = "auto",
    jobs: int | None = None,
    twins_together: bool = False,
    out: str | Path | None = None,
) -> Comparison:
    """Score methods on the same folds of labelled graphs and decide whether pre-training helps.

    Args:
        data: anything that :func:`joao.read` accepts. Every graph needs a class.
        methods: pre-training methods such as ``joao``, baselines such as ``wl``, ``untrained``, and combinations such
            as ``joao+wl``, which are scored with the mean of their kernels; None: default. The baselines in
            :data:`joao.config.methods.CHEAP_BASELINES` are always added.
        partitions: number of partitions into folds; seed s of a method is scored on partition s.
        folds: folds per partition.
        epochs: epochs of pre-training; None: default.
        device: device of pre-training: ``auto``, ``cpu``, ``cuda`` or one GPU such as ``cuda:1``.
        jobs: cores to use, with one process per method; None: compute everything in this process. A script that sets it
            must guard its code by ``if __name__ == "__main__":``.
        twins_together: whether indistinguishable graphs stay in the same fold, see
            :func:`joao.data.refinement.find_twins`.
        out: file of the record, written after every seed. Seeds that it already contains are skipped.

    >>> import joao
    >>> comparison = joao.compare("MUTAG", ["untrained", "wl", "ldp", "histogram"], partitions=1, folds=2)
    >>> print(comparison.verdict)  # no pre-trained method was compared
    None
    >>> max(row.accuracy for row in comparison.rows) > comparison.record["chance"]
    True
    """
    dataset = read_graphs(data)
    require_classes(dataset)
    choice = choose_methods(dataset, methods)
    for notice in choice.notices:
        warn_user(notice)
    plan = Plan(choice.names, partitions, folds, epochs, device, jobs, twins_together)
    return Comparison(compute(dataset, plan, None if out is None else Path(out)))


def heading(comparison: Comparison) -> str:
    """Describe the data and the protocol in one line."""
    record, data, number = comparison.record, comparison.record["data"], comparison.record["partitions"]
    return (
        f"{data['name']}: {data['graphs']} graphs, {data['classes']} classes. SVM on "
        f"{number} shared partition{'s' if number > 1 else ''} into {record['folds']} folds, one seed per partition. "
        "Pre-training uses all graphs without labels."
        + (" Twins stay in the same fold." if "folds" in record["protocol"] else "")
    )


def table_lines(comparison: Comparison) -> list[list[str]]:
    """Format the rows of the table under :data:`HEADER`, and chance level."""
    chance = ["chance", f"{100 * comparison.record['chance']:.2f}", "", "", ""]
    return [*(_cells(row) for row in comparison.rows), chance]


def closing_lines(comparison: Comparison) -> list[str]:
    """Format failures, the meaning of the columns, the gains of the best pre-trained method, and the verdict."""
    lines = [f"{row.method} failed: {row.failure}" for row in comparison.rows if row.failure]
    on_gpu = comparison.record["machine"]["device"] == "cuda"
    memory = "peak memory (of the GPU for encoders)" if on_gpu else "peak memory"
    lines.append(f"Seconds and {memory} are for the embeddings of one seed, with training and without scoring.")
    verdict = comparison.verdict
    if verdict is None:
        return [*lines, "Verdict: none, because no pre-trained method was compared with a cheap baseline."]
    lines.append(f"Gain of {verdict.method} in points (95 % CI) over:")
    width = max(map(len, verdict.over))
    lines += [f"  {name:{width}}  {with_interval(gain, times=100)}" for name, gain in verdict.over.items()]
    sentence = str(verdict)
    lines.append(f"Verdict: {sentence[0].lower()}{sentence[1:]}")
    if verdict.tried != (1, 1):
        lines.append("The interval of the verdict is corrected for choosing the best methods; those above are not.")
    return lines


def _cells(row: Row) -> list[str]:
    if row.accuracy is None or row.seconds is None:
        return [row.method, "failed", "", "", ""]
    accuracy = with_deviation(100 * row.accuracy, None if row.deviation is None else 100 * row.deviation)
    memory = "" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:,.0f}"
    return [row.method, accuracy, with_interval(row.gain, times=100), _seconds(row.seconds), memory]


def _seconds(value: float) -> str:
    """
    >>> [_seconds(value) for value in (0.003, 0.25, 4.56, 1234.5)]
    ['<0.01', '0.25', '4.6', '1,234']
    """
    if value < 1:
        return f"{value:.2f}" if value >= 0.01 else "<0.01"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
