"""The records that a page is made of.

How long the tables took, by the seconds in their records.

A folder of records to the documents beside them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from joao.core.errors import UserError
from joao.core.files import write_file
from joao.evaluation.tables import markdown
from joao.runs.scoring import REFERENCES
from repro.findings.evidence import read_evidence
from repro.findings.findings import Findings, findings_of
from repro.protocols.ogb import run as ogb
from repro.protocols.ogb import table as of_ogb
from repro.protocols.semi_supervised import pairs
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.semi_supervised import table as few_labels
from repro.protocols.transfer import run as transfer
from repro.protocols.transfer import table as of_transfer
from repro.protocols.unsupervised.run import Cell, grid, rows_of, why_not
from repro.protocols.unsupervised.table import HEADER, cells_of, overview, rows
from repro.protocols.unsupervised.variants import (
    COSTS_HEADER,
    OBJECTIVES_HEADER,
    STRENGTHS_HEADER,
    cost_lines,
    objective_lines,
    strength_lines,
    variants_markdown,
)
from repro.tables.learned import learned_markdown
from repro.tables.markup import Section, as_html, as_latex, as_markdown, body
from repro.tables.names import NAMES, OBJECTIVE_NAMES
from repro.tables.overview import Overview
from repro.tables.records import READERS, read_records

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Times:
    """A line for each table and kind of machine; a section of a page (:mod:`repro.tables.markup`)."""

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


AnySection = TypeVar("AnySection", bound=Section)

SEMI_SUPERVISED = {
    "semi_supervised": "Semi-supervised: accuracy after fine-tuning with few labels",
    "strength": "Ablation of strength: JOAO and JOAOv2 at 0.2 and 0.25",
    "prior": "Ablation of the prior: JOAO with gamma = 0",
    "pairs": "Every pair of augmentations by itself",
}
DRAWN = "Augmentation pairs drawn in training"
COSTS = (
    "Seconds and memory of making the embeddings, pre-training included, without reading and scoring: the median and "
    "the largest of the seeds. Other work ran beside.\n\n"
)


def write_results(records: Path) -> Overview:
    """Makes ``table.md``, ``overview.md``, ``costs.md``, ``strengths.md`` and so on from all records in the folder.

    It is the only way in which they come about. Variants of the protocol have a page of their own, ``variants.md``.
    Returns the overview.
    """
    names = [*grid()["datasets"], *REFERENCES, *grid()["methods"]]
    found = _in_order("unsupervised", records, names, ("dataset", "method"))
    title = "The unsupervised table under stricter protocols"
    _write_unless_empty(records / "variants.md", title, "unsupervised", variants_markdown(found))
    found = [record for record in found if not Cell(**record["cell"]).variant]
    table = rows(found)
    of_paper = [row for row in table if row.method not in set(rows_of("objectives")) - set(rows_of("unsupervised"))]
    summary = overview(of_paper, _left_open())
    _write_table(records, "unsupervised", summary, markdown(HEADER, [cells_of(row) for row in table]))
    text = COSTS + markdown(COSTS_HEADER, cost_lines(found)) + "\n"
    _write(records / "costs.md", "What the rows of the unsupervised table cost", "unsupervised", text)
    compared = objective_lines(found)
    if any(line[1] != OBJECTIVE_NAMES["nt_xent"] for line in compared):
        text = markdown(OBJECTIVES_HEADER, compared) + "\n"
        _write(records / "objectives.md", "Objectives of two views, without and with JOAO", "objectives", text)
    if learned := strength_lines(found):
        text = markdown(STRENGTHS_HEADER, learned) + "\n"
        _write(records / "strengths.md", "Strengths that are learned, beside 0.2", "unsupervised", text)
    _write_unless_empty(records / "learned.md", DRAWN, "unsupervised", learned_markdown(found))
    return summary


def write_semi_supervised(records: Path) -> Overview | None:
    """Makes ``semi-supervised.md``, ``overview.md``, ``learned.md`` and the ablations' from all records in the folder.

    It is the only way in which they come about. Returns the overview; None where there are records of ablations only.
    """
    summary = None
    names = [*semi_supervised.grid()["datasets"], *semi_supervised.grid()["methods"], *semi_supervised.PAIRS]
    found = _in_order("semi-supervised", records, names, ("label_rate", "dataset", "method", "seed"))
    for table, title in SEMI_SUPERVISED.items():
        wanted = set(semi_supervised.cells(table))
        own = [record for record in found if semi_supervised.Cell(**record["cell"]) in wanted]
        command = table.replace("_", "-")
        if table == "pairs":
            agreements = pairs.agreements(own)
            for dataset, agreement in agreements.items():
                pairs.draw_agreement(dataset, agreement, records / f"pairs-{dataset}.png")
            if agreements:
                _write(records / "pairs.md", title, command, pairs.pairs_markdown(agreements))
        elif any(record["cell"]["method"] in _own_methods(table) for record in own):
            made = few_labels.rows(own, of_strength=table == "strength")
            text = markdown(few_labels.HEADER, [few_labels.cells_of(row) for row in made])
            _write(records / f"{command}.md", title, command, text + "\n")
            if table == "semi_supervised":
                summary = few_labels.overview(made)
                _write(records / "overview.md", title, command, body(summary))
    learned = learned_markdown([record for record in found if record["cell"]["label_rate"] == 10])
    _write_unless_empty(records / "learned.md", DRAWN, "semi-supervised", learned)
    return summary


def write_transfer(records: Path) -> Overview:
    """Makes ``table.md`` and ``overview.md`` from all records in the folder, and returns the overview.

    It is the only way in which they come about.
    """
    names = [*transfer.grid()["datasets"], *transfer.grid()["methods"]]
    table = of_transfer.rows(_in_order("transfer", records, names, ("dataset", "method")))
    summary, lines = of_transfer.overview(table), [of_transfer.cells_of(row) for row in table]
    _write_table(records, "transfer", summary, f"{summary.notes}\n\n{markdown(of_transfer.HEADER, lines)}")
    return summary


def write_ogb(records: Path) -> Overview:
    """Makes ``table.md`` and ``overview.md`` from all records in the folder, and returns the overview.

    It is the only way in which they come about.
    """
    names = [*ogb.grid()["datasets"], *ogb.grid()["methods"]]
    table = of_ogb.rows(_in_order("ogb", records, names, ("dataset", "label_rate", "method")))
    in_paper = [(name, rate) for name in ("ogbg-ppa", "ogbg-code2") for rate in ogb.grid()["label_rates"]]
    summary = of_ogb.overview(table, in_paper, list(ogb.grid()["methods"]))
    lines = [of_ogb.cells_of(row) for row in table]
    _write_table(records, "ogb", summary, f"{summary.notes}\n\n{markdown(of_ogb.HEADER, lines)}")
    return summary


WRITERS = {
    "unsupervised": write_results,
    "semi-supervised": write_semi_supervised,
    "transfer": write_transfer,
    "ogb": write_ogb,
}
FORMATS = {".md": as_markdown, ".tex": as_latex, ".html": as_html}


def write_tables(protocol: str, records: Path) -> None:
    """Makes the documents of one folder of records again.

    A folder that has its protocol's name is one of a folder of results: what is made of all is made again, too.
    """
    WRITERS[protocol](records)
    if records.resolve().name == protocol:
        write_findings(records.resolve().parent)
        write_times(records.resolve().parent)


def write_findings(results: Path) -> Findings:
    """Makes ``findings.md`` from the records in all folders of ``results``, and returns the findings."""
    return _written(findings_of(read_evidence(results)), results / "findings.md")


def write_times(results: Path) -> Times:
    """Makes ``times.md`` likewise."""
    found = {protocol: read_records(protocol, results / protocol) for protocol in READERS}
    return _written(Times(found), results / "times.md")


def _written(section: AnySection, path: Path) -> AnySection:
    made = "Made from the records in the folders beside it by `joao results`; not to be edited."
    write_file(path, f"# {section.title}\n\n{made}\n\n{body(section)}")
    return section


def write_all(results: Path, page: Path | None = None) -> list[Section]:
    """Makes the documents of all folders of records in ``results`` again, and one page of findings, tables and times.

    Args:
        results: the folder of the folders.
        page: of this suffix's format, one of :data:`FORMATS`; none where it is None.
    """
    made = [write(results / name) for name, write in WRITERS.items() if any((results / name).glob("*/*.json"))]
    summaries = [summary for summary in made if summary is not None]
    if not summaries:
        raise UserError(f"{results}: no records of 'joao reproduce' there, in folders such as {results / 'transfer'}.")
    sections: list[Section] = [write_findings(results), *summaries, write_times(results)]
    if page is not None:
        if page.suffix not in FORMATS:
            raise UserError(f"{page}: unknown kind of page. Known: {', '.join(FORMATS)}.")
        write_file(page, FORMATS[page.suffix](sections))
    return sections


def _in_order(protocol: str, records: Path, names: Sequence[str], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The records in a folder, sorted by ``keys`` of their cells: numbers, and ``names`` as they come there."""
    place = {name: number for number, name in enumerate(names)}

    def place_of(record: Mapping[str, Any]) -> list[int]:
        values = [record["cell"][key] for key in keys]  # the last place is for what the recipe no longer has
        return [value if isinstance(value, int) else place.get(value, len(place)) for value in values]

    return sorted(read_records(protocol, records), key=place_of)


def _write_table(records: Path, protocol: str, summary: Overview, table: str) -> None:
    _write(records / "table.md", summary.title, protocol, f"{table}\n")
    _write(records / "overview.md", summary.title, protocol, body(summary))


def _left_open() -> list[str]:
    """Why cells of the unsupervised table are empty."""
    return [
        f"{NAMES[method]} on {dataset}: {reason}"
        for method in grid()["methods"]
        for dataset in grid()["datasets"]
        if (reason := why_not(dataset, method))
    ]


def _own_methods(table: str) -> set[str]:
    """The methods that make a table one: those that no table before it has."""
    names = list(SEMI_SUPERVISED)
    before = {method for each in names[: names.index(table)] for method in semi_supervised.methods_of(each)}
    return set(semi_supervised.methods_of(table)) - before


def _write_unless_empty(path: Path, title: str, command: str, text: str) -> None:
    if text:
        _write(path, title, command, text)


def _write(path: Path, title: str, command: str, text: str) -> None:
    made = f"Made from the records in this folder by `joao reproduce {command}`; not to be edited."
    write_file(path, f"# {title}\n\n{made}\n\n{text}")
