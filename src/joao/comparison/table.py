"""A comparison as a table, a verdict and the words around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from joao.comparison.methods import choose_methods
from joao.comparison.record import Plan, compute
from joao.comparison.summary import Row, Verdict, record_verdict, rows
from joao.data.sources import read_graphs, warn_user
from joao.evaluation.tables import with_deviation, with_interval
from joao.runs.scoring import require_classes

HEADER = ["", "accuracy %", "over untrained (95 %)", "seconds", "MB"]


@final
class Comparison:
    """Methods on the same folds of the same graphs; prints as a table with its verdict.

    Attributes:
        record: everything, as ``joao compare --out`` writes it.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record

    @property
    def rows(self) -> list[Row]:
        """One for each method, those that failed included."""
        return rows(self.record)

    @property
    def verdict(self) -> Verdict | None:
        """Whether pre-training helps; its text is a sentence. None where no pre-trained method was compared."""
        return record_verdict(self.record)

    def to_json(self) -> Mapping[str, Any]:
        """The record, in types that JSON has."""
        return self.record

    def __repr__(self) -> str:
        lines = [HEADER, *table_lines(self)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
        table = [
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
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
    """Scores methods on the same folds of labelled graphs, and says whether pre-training helps.

    Args:
        data: anything that :func:`joao.read` takes, with a class for every graph.
        methods: pre-training methods such as ``joao``, baselines such as ``wl``, and ``untrained``; None chooses. What
            pre-training must beat is always among them: ``untrained``, ``wl``, ``ldp`` and ``histogram``.
        partitions: of the graphs into folds; seed s of a method is scored on partition s.
        folds: of each partition.
        epochs: of pre-training; None is the usual number.
        device: of pre-training: ``auto``, ``cpu`` or ``cuda``.
        jobs: cores to use, with a process of its own for every method; a script must then keep its own calls under
            ``if __name__ == "__main__":``. None does everything in this process.
        twins_together: whether graphs that cannot be told apart are in the same fold (:func:`joao.data.refinement.find_twins`).
        out: file of the record, written as methods are done; what it has already is not done again.

    >>> import joao
    >>> comparison = joao.compare("MUTAG", ["untrained", "wl", "ldp", "histogram"], partitions=1, folds=2)
    >>> print(comparison.verdict)  # no pre-trained method was asked for
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
    """What was done, in a sentence."""
    record = comparison.record
    number = record["partitions"]
    return (
        f"{record['data']['name']}: {record['data']['graphs']} graphs, {record['data']['classes']} classes. An SVM on "
        f"{number} shared partition{'s' if number > 1 else ''} into {record['folds']} folds, a seed for each; "
        "pre-training on all graphs, without labels."
        + (" Twins are in the same fold." if "folds" in record["protocol"] else "")
    )


def table_lines(comparison: Comparison) -> list[list[str]]:
    """The rows of the table under :data:`HEADER`, and chance."""
    chance = ["chance", f"{100 * comparison.record['chance']:.2f}", "", "", ""]
    return [*(_cells(row) for row in comparison.rows), chance]


def closing_lines(comparison: Comparison) -> list[str]:
    """What failed, what the columns are, the gains of the best pre-trained method, and the verdict."""
    lines = [f"{row.method} failed: {row.failure}" for row in comparison.rows if row.failure]
    on_gpu = comparison.record["machine"]["device"] == "cuda"
    of_gpu = ", of the GPU where an encoder is used" if on_gpu else ""
    lines.append(f"Seconds and peak memory{of_gpu}: of one seed's embeddings, training included, scoring not.")
    verdict = comparison.verdict
    if verdict is None:
        return [*lines, "Verdict: none, for no pre-trained method was compared with a cheap baseline."]
    lines.append(f"{verdict.method}, in points over (95 % interval):")
    width = max(map(len, verdict.over))
    lines += [f"  {name:{width}}  {with_interval(gain, times=100)}" for name, gain in verdict.over.items()]
    sentence = str(verdict)
    lines.append(f"Verdict: {sentence[0].lower()}{sentence[1:]}")
    if verdict.tried != (1, 1):
        lines.append("Its interval allows for these scores having said which are best; those above it do not.")
    return lines


def _cells(row: Row) -> list[str]:
    if row.accuracy is None or row.seconds is None:
        return [row.method, "failed", "", "", ""]
    deviation = None if row.deviation is None else 100 * row.deviation
    return [
        row.method,
        with_deviation(100 * row.accuracy, deviation),
        with_interval(row.gain, times=100),
        _seconds(row.seconds),
        "" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:,.0f}",
    ]


def _seconds(value: float) -> str:
    """
    >>> [_seconds(value) for value in (0.003, 0.25, 4.56, 1234.5)]
    ['<0.01', '0.25', '4.6', '1,234']
    """
    if value < 1:
        return f"{value:.2f}" if value >= 0.01 else "<0.01"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
