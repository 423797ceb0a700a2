"""How long the tables took, by the seconds in their records."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Times:
    """A line for each table and kind of machine; a section of a page (:mod:`joao.reporting.markup`)."""

    records: Mapping[str, Sequence[Record]]
    title: str = "What the tables took"
    left_open: Sequence[str] = ()
    paragraphs: Sequence[str] = field(default=())

    def about(self) -> str:
        """How to read it."""
        return (
            "Hours of all records added up, on a GPU or on one thread of a CPU, scoring included. A pre-training that "
            "several records share counts once. Most ran side by side with others, on one card or on the cores of one "
            "machine: less time than this went by, and each took longer than it would alone."
        )

    def header(self) -> list[str]:
        return ["table", "on", "records", "hours"]

    def cells(self) -> list[list[str]]:
        lines = []
        for table, records in self.records.items():
            seconds: dict[str, float] = {}
            numbers: dict[str, int] = {}
            seen: set[Hashable] = set()
            for record in records:
                own = _kind(record)
                numbers[own] = numbers.get(own, 0) + 1
                for kind, shared, took in _parts(record):
                    if shared is None or shared not in seen:
                        seconds[kind] = seconds.get(kind, 0.0) + took
                        seen.add(shared)
            lines += [
                [table, kind, str(numbers.get(kind, 0)), f"{seconds[kind] / 3600:.1f}"] for kind in sorted(seconds)
            ]
        return lines


def _parts(record: Record) -> Iterator[tuple[str, Hashable, float]]:
    """Kind of machine, a name for what other records have part in, and seconds."""
    kind, cell = _kind(record), record["cell"]
    if "seconds" in record:
        yield kind, None, record["seconds"]
    if "seconds of fine-tuning" in record:
        yield kind, None, record["seconds of fine-tuning"]
        pretraining = record.get("pre-training") or {"seconds": record.get("seconds of pre-training", 0.0)}
        yield kind, (cell["dataset"], cell["method"], cell.get("seed")), pretraining["seconds"]
    if record.get("corpus"):
        corpus = record["corpus"]
        yield _kind(corpus), corpus["weights"], corpus["seconds"]


def _kind(record: Record) -> str:
    return str(record.get("machine", {}).get("gpu") or "CPU")
