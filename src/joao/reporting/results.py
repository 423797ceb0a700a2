"""A folder of records to the documents beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from joao.errors import UserError
from joao.files import write_file
from joao.reporting import ogb as of_ogb
from joao.reporting import pairs
from joao.reporting import semi_supervised as few_labels
from joao.reporting import transfer as of_transfer
from joao.reporting.costs import HEADER as COST_HEADER
from joao.reporting.costs import cost_lines
from joao.reporting.evidence import read_evidence
from joao.reporting.findings import Findings, findings_of
from joao.reporting.learned import learned_markdown
from joao.reporting.markup import Section, as_html, as_latex, as_markdown, body
from joao.reporting.objectives import HEADER as OBJECTIVE_HEADER
from joao.reporting.objectives import objective_lines
from joao.reporting.overview import Overview
from joao.reporting.strengths import HEADER as STRENGTH_HEADER
from joao.reporting.strengths import strength_lines
from joao.reporting.tables import HEADER, NAMES, OBJECTIVES, cells_of, markdown, overview, rows
from joao.reporting.times import Times
from joao.reporting.variants import variants_markdown
from joao.reproduce import ogb, semi_supervised, transfer
from joao.reproduce.unsupervised import Cell, grid, read_record, rows_of, why_not
from joao.scoring import REFERENCES

AnySection = TypeVar("AnySection", bound=Section)

SEMI_SUPERVISED = {
    "semi_supervised": "Semi-supervised: accuracy after fine-tuning with few labels",
    "strength": "Ablation of strength: JOAO and JOAOv2 at 0.2 and 0.25",
    "prior": "Ablation of the prior: JOAO with gamma = 0",
    "pairs": "Every pair of augmentations by itself",
}


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
    variants = variants_markdown(found)
    if variants:
        heading = _heading("The unsupervised table under stricter protocols", "unsupervised")
        write_file(records / "variants.md", heading + variants)
    found = [record for record in found if not Cell(**record["cell"]).variant]
    table = rows(found)
    of_paper = [row for row in table if row.method not in set(rows_of("objectives")) - set(rows_of("unsupervised"))]
    summary = overview(of_paper, _left_open())
    heading = _heading(summary.title, "unsupervised")
    write_file(records / "table.md", heading + markdown(HEADER, [cells_of(row) for row in table]) + "\n")
    write_file(records / "overview.md", heading + body(summary))
    costs = _heading("What the rows of the unsupervised table cost", "unsupervised")
    write_file(records / "costs.md", costs + COSTS + markdown(COST_HEADER, cost_lines(found)) + "\n")
    compared = objective_lines(found)
    if any(line[1] != OBJECTIVES["nt_xent"] for line in compared):
        heading = _heading("Objectives of two views, without and with JOAO", "objectives")
        write_file(records / "objectives.md", heading + markdown(OBJECTIVE_HEADER, compared) + "\n")
    strengths = strength_lines(found)
    if strengths:
        heading = _heading("Strengths that are learned, beside 0.2", "unsupervised")
        write_file(records / "strengths.md", heading + markdown(STRENGTH_HEADER, strengths) + "\n")
    learned = learned_markdown(found)
    if learned:
        write_file(records / "learned.md", _heading("Augmentation pairs drawn in training", "unsupervised") + learned)
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
        heading = _heading(title, _command(table))
        if table == "pairs":
            agreements = pairs.agreements(own)
            for dataset, agreement in agreements.items():
                pairs.draw_agreement(dataset, agreement, records / f"pairs-{dataset}.png")
            if agreements:
                write_file(records / "pairs.md", heading + pairs.pairs_markdown(agreements))
        elif any(record["cell"]["method"] in _own_methods(table) for record in own):
            made = few_labels.rows(own, of_strength=table == "strength")
            text = markdown(few_labels.HEADER, [few_labels.cells_of(row) for row in made])
            write_file(records / f"{_command(table)}.md", heading + text + "\n")
            if table == "semi_supervised":
                summary = few_labels.overview(made)
                write_file(records / "overview.md", heading + body(summary))
    learned = learned_markdown([record for record in found if record["cell"]["label_rate"] == 10])
    if learned:
        heading = _heading("Augmentation pairs drawn in training", "semi-supervised")
        write_file(records / "learned.md", heading + learned)
    return summary


def write_transfer(records: Path) -> Overview:
    """Makes ``table.md`` and ``overview.md`` from all records in the folder, and returns the overview.

    It is the only way in which they come about.
    """
    names = [*transfer.grid()["datasets"], *transfer.grid()["methods"]]
    table = of_transfer.rows(_in_order("transfer", records, names, ("dataset", "method")))
    text = markdown(of_transfer.HEADER, [of_transfer.cells_of(row) for row in table])
    return _table_and_overview("transfer", records, text, of_transfer.overview(table))


def write_ogb(records: Path) -> Overview:
    """Makes ``table.md`` and ``overview.md`` from all records in the folder, and returns the overview.

    It is the only way in which they come about.
    """
    names = [*ogb.grid()["datasets"], *ogb.grid()["methods"]]
    table = of_ogb.rows(_in_order("ogb", records, names, ("dataset", "label_rate", "method")))
    in_paper = [(name, rate) for name in ("ogbg-ppa", "ogbg-code2") for rate in ogb.grid()["label_rates"]]
    text = markdown(of_ogb.HEADER, [of_ogb.cells_of(row) for row in table])
    return _table_and_overview("ogb", records, text, of_ogb.overview(table, in_paper, list(ogb.grid()["methods"])))


WRITERS = {
    "unsupervised": write_results,
    "semi-supervised": write_semi_supervised,
    "transfer": write_transfer,
    "ogb": write_ogb,
}
READERS = {
    "unsupervised": read_record,
    "semi-supervised": semi_supervised.read_record,
    "transfer": transfer.read_record,
    "ogb": ogb.read_record,
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
    found = {name: [read(path) for path in sorted(results.glob(f"{name}/*/*.json"))] for name, read in READERS.items()}
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

    return sorted((READERS[protocol](path) for path in sorted(records.glob("*/*.json"))), key=place_of)


def _table_and_overview(protocol: str, records: Path, table: str, summary: Overview) -> Overview:
    heading = _heading(summary.title, protocol)
    write_file(records / "table.md", f"{heading}{summary.notes}\n\n{table}\n")
    write_file(records / "overview.md", heading + body(summary))
    return summary


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


def _command(table: str) -> str:
    return table.replace("_", "-")


def _heading(title: str, command: str) -> str:
    return f"# {title}\n\nMade from the records in this folder by `joao reproduce {command}`; not to be edited.\n\n"
