"""The generated pages of the four tables, and the sections that combine them: findings and times."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from joao.core.errors import UserError, user_error_on_failure
from joao.core.files import make_folder, write_file
from joao.evaluation.tables import markdown
from repro.findings.evidence import read_evidence
from repro.findings.findings import findings_of
from repro.protocols.check import PROTOCOLS
from repro.protocols.ogb import run as ogb
from repro.protocols.ogb import table as ogb_table
from repro.protocols.semi_supervised import pairs
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.semi_supervised import table as few_labels
from repro.protocols.transfer import overlap, repeats
from repro.protocols.transfer import run as transfer
from repro.protocols.transfer import table as transfer_table
from repro.protocols.unsupervised.run import REFERENCES, Cell, grid, rows_of, why_not
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
from repro.tables.rows import ScoredRow

Record = Mapping[str, Any]
INTERVALS = "[How intervals are computed](../../protocols.md#confidence-intervals)."
GENERATED = "Generated from `repro/records` by `python -m repro docs`. Do not edit."


@dataclass(frozen=True)
class Times:
    """One line per table and kind of device; a section of a page (:mod:`repro.tables.markup`)."""

    records: Mapping[str, Sequence[Record]]
    title: str = "Computing times"
    empty_cells: Sequence[str] = ()
    paragraphs: Sequence[str] = field(default=())

    def about(self) -> str:
        """Return how to read the table."""
        return (
            "Hours summed over all records, on a GPU or on one CPU thread, including scoring. A pre-training that "
            "several records share is counted once. Most jobs ran in parallel on one GPU or on the cores of one "
            "machine, so the elapsed time was shorter, and each job took longer than it would alone."
        )

    def header(self) -> list[str]:
        return ["table", "device", "records", "hours"]

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
    """Yield kind of device, an identifier of work that records share (or None), and seconds."""
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


SEMI_SUPERVISED = {
    "semi_supervised": "Semi-supervised: accuracy after fine-tuning with few labels",
    "strength": "Ablation of strength: JOAO and JOAOv2 at 0.2 and 0.25",
    "prior": "Ablation of the prior: JOAO with gamma = 0",
    "pairs": "Single pairs of augmentations",
    "last_epoch": "Fine-tuning on all labelled graphs to the last epoch",
}
DRAWN = "Augmentation pairs drawn in training"
COSTS = (
    "Time and memory for computing the embeddings, including pre-training but not reading and scoring: median time and "
    "largest memory over seeds. Other jobs ran at the same time.\n\n"
)


@dataclass
class Pages:
    """The pages of one protocol.

    Attributes:
        texts: Markdown by file name.
        pictures: by file name, a function that draws the picture to a path.
        summary: the overview; None if there are only records of ablations.
    """

    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    summary: Overview | None = None

    def add(self, name: str, title: str, command: str, text: str) -> None:
        """Add a page, unless its text is empty."""
        if text:
            intervals = f" {INTERVALS}" if "95 % CI" in text else ""
            self.texts[name] = f"# {title}\n\n{GENERATED}\nCompute: `python -m repro {command}`.{intervals}\n\n{text}"

    def add_table(self, protocol: str, summary: Overview, table: str) -> None:
        """Add the overview and the full table."""
        self.summary = summary
        self.add("table.md", summary.title, protocol, f"{table}\n")
        self.add("overview.md", summary.title, protocol, body(summary))


def unsupervised_pages(records: Path) -> Pages:
    """Return the pages of the unsupervised table; variants of the protocol have their own page."""
    pages = Pages()
    names = [*grid()["datasets"], *REFERENCES, *grid()["methods"]]
    found = _in_order("unsupervised", records, names, ("dataset", "method"))
    title = "Unsupervised table under stricter protocols"
    pages.add("variants.md", title, "unsupervised", variants_markdown(found))
    found = [record for record in found if not Cell(**record["cell"]).variant]
    table = rows(found)
    of_paper = [row for row in table if row.method not in set(rows_of("objectives")) - set(rows_of("unsupervised"))]
    summary = overview(of_paper, _empty_cells(of_paper))
    pages.add_table("unsupervised", summary, markdown(HEADER, [cells_of(row) for row in table]))
    text = COSTS + markdown(COSTS_HEADER, cost_lines(found)) + "\n"
    pages.add("costs.md", "Time and memory of the unsupervised table", "unsupervised", text)
    compared = objective_lines(found)
    if any(line[1] != OBJECTIVE_NAMES["nt_xent"] for line in compared):
        text = markdown(OBJECTIVES_HEADER, compared) + "\n"
        pages.add("objectives.md", "Contrastive losses with uniform pairs and with JOAO", "objectives", text)
    if learned := strength_lines(found):
        text = markdown(STRENGTHS_HEADER, learned) + "\n"
        pages.add("strengths.md", "Learned strengths compared with 0.2", "unsupervised", text)
    pages.add("learned.md", DRAWN, "unsupervised", learned_markdown(found))
    return pages


def semi_supervised_pages(records: Path) -> Pages:
    """Return the pages of the semi-supervised table and of the ablations that share its cells."""
    pages = Pages()
    names = [*semi_supervised.grid()["datasets"], *semi_supervised.grid()["methods"], *semi_supervised.PAIRS]
    found = _in_order("semi-supervised", records, names, ("label_rate", "dataset", "method", "seed"))
    for table, title in SEMI_SUPERVISED.items():
        wanted = set(semi_supervised.cells(table))
        own = [record for record in found if semi_supervised.Cell(**record["cell"]) in wanted]
        command = table.replace("_", "-")
        if table == "pairs":
            agreements = pairs.agreements(own)
            for dataset, agreement in agreements.items():
                pages.pictures[f"pairs-{dataset}.png"] = partial(pairs.draw_agreement, dataset, agreement)
            if agreements:
                columns = semi_supervised.grid()["tables"]["pairs"]["columns"]["10"]
                absent = [name for name in columns if name not in agreements]
                pages.add("pairs.md", title, command, pairs.pairs_markdown(agreements, absent))
        elif any(record["cell"]["method"] in _own_methods(table) for record in own):
            made = few_labels.rows(own, of_strength=table == "strength")
            text = markdown(few_labels.HEADER, [few_labels.cells_of(row) for row in made])
            pages.add(f"{command}.md", title, command, text + "\n")
            if table == "last_epoch":
                lines = markdown(few_labels.LAST_EPOCH_HEADER, few_labels.last_epoch_lines(own))
                pages.texts[f"{command}.md"] += f"\n{few_labels.LAST_EPOCH}\n{lines}\n"
                if means := few_labels.last_epoch_mean_lines(own):
                    lines = markdown(few_labels.LAST_EPOCH_MEANS_HEADER, means)
                    pages.texts[f"{command}.md"] += f"\n{few_labels.LAST_EPOCH_MEANS}\n{lines}\n"
            if table == "semi_supervised":
                first = semi_supervised.record_file(records, "no-pretraining-first").read()
                if redefined := few_labels.redefined_lines(own, first):
                    lines = markdown(few_labels.REDEFINED_HEADER, redefined)
                    pages.texts[f"{command}.md"] += f"\n{few_labels.REDEFINED}\n{lines}\n"
                pages.summary = few_labels.overview(made)
                pages.add("overview.md", title, command, body(pages.summary))
    learned = learned_markdown([record for record in found if record["cell"]["label_rate"] == 10])
    pages.add("learned.md", DRAWN, "semi-supervised", learned)
    return pages


def transfer_pages(records: Path) -> Pages:
    """Return the pages of the transfer table."""
    pages, grid = Pages(), transfer.grid()
    names = [*grid["datasets"], *grid["methods"]]
    found, shared = _in_order("transfer", records, names, ("dataset", "method")), overlap.read_count(records)
    table = transfer_table.rows(found, shared)
    summary, lines = transfer_table.overview(table, shared), [transfer_table.cells_of(row) for row in table]
    text = "\n\n".join([summary.notes, markdown(transfer_table.HEADER, lines), *summary.paragraphs])
    pages.add_table("transfer", summary, text)
    if text := repeats.repeats_markdown(repeats.record_file(records).read(), found):
        title = "Transfer: three pre-trainings per method, without test molecules"
        command = "python -m repro.studies.transfer_repeats run"
        pages.texts["repeats.md"] = f"# {title}\n\n{GENERATED}\nCompute: `{command}`.\n\n{text}"
    return pages


def ogb_pages(records: Path) -> Pages:
    """Return the pages of the OGB table."""
    pages, grid = Pages(), ogb.grid()
    names = [*grid["datasets"], *grid["methods"]]
    table = ogb_table.rows(_in_order("ogb", records, names, ("dataset", "label_rate", "method")))
    in_paper = [(name, rate) for name in ("ogbg-ppa", "ogbg-code2") for rate in grid["label_rates"]]
    summary = ogb_table.overview(table, in_paper, list(grid["methods"]))
    lines = [ogb_table.cells_of(row) for row in table]
    pages.add_table("ogb", summary, f"{summary.notes}\n\n{markdown(ogb_table.HEADER, lines)}")
    return pages


_MAKERS = {
    "unsupervised": unsupervised_pages,
    "semi-supervised": semi_supervised_pages,
    "transfer": transfer_pages,
    "ogb": ogb_pages,
}


def _make_pages(protocol: str, records: Path) -> Pages:
    """Make the pages of a protocol. Cells have many forms; whatever does not fit a page is a damaged record."""
    with user_error_on_failure(f"{records}: a record of the {protocol} table is damaged", "Remove it."):
        return _MAKERS[protocol](records)


PAGES = {protocol: partial(_make_pages, protocol) for protocol in _MAKERS}
FORMATS = {".md": as_markdown, ".tex": as_latex, ".html": as_html}


def write_pages(protocol: str, records: Path, folder: Path) -> Overview | None:
    """Write the pages of a protocol to ``folder/protocol``, and return its overview."""
    pages = PAGES[protocol](records)
    if pages.texts:
        make_folder(folder / protocol)
    for name, text in pages.texts.items():
        write_file(folder / protocol / name, text)
    for name, draw in pages.pictures.items():
        draw(folder / protocol / name)
    return pages.summary


def combined_sections(records: Path) -> dict[str, Section]:
    """Return the sections that combine the records of all protocols, by file name."""
    found = {name: protocol.record_file(records).read() for name, protocol in PROTOCOLS.items()}
    return {"findings.md": findings_of(read_evidence(records)), "times.md": Times(found)}


def combined_page(section: Section) -> str:
    """Return a section as a page."""
    return f"# {section.title}\n\n{GENERATED}\n\n{body(section)}"


def write_all(records: Path, folder: Path, page: Path | None = None) -> list[Section]:
    """Write the pages of all protocols that have records, and optionally one page with all sections.

    Args:
        records: folder of the records.
        folder: of the pages.
        page: a file whose suffix is one of :data:`FORMATS`.
    """
    there = [name for name, protocol in PROTOCOLS.items() if protocol.record_file(records).path.exists()]
    made = [write_pages(name, records, folder) for name in there]
    summaries = [summary for summary in made if summary is not None]
    if not summaries:
        raise UserError(f"{records}: no records, such as {records / 'transfer.jsonl'}. See 'python -m repro --help'.")
    combined = combined_sections(records)
    for name, section in combined.items():
        write_file(folder / name, combined_page(section))
    sections = [combined["findings.md"], *summaries, combined["times.md"]]
    if page is not None:
        if page.suffix not in FORMATS:
            raise UserError(f"{page}: unknown file type. Known: {', '.join(FORMATS)}.")
        write_file(page, FORMATS[page.suffix](sections))
    return sections


def _in_order(protocol: str, records: Path, names: Sequence[str], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return all records, sorted by ``keys`` of their cells: by number, or by position in ``names``."""
    position = {name: number for number, name in enumerate(names)}

    def positions(record: Mapping[str, Any]) -> list[int]:
        values = [record["cell"][key] for key in keys]  # names that the grid no longer has come last
        return [value if isinstance(value, int) else position.get(value, len(position)) for value in values]

    return sorted(PROTOCOLS[protocol].record_file(records).read(), key=positions)


def _empty_cells(table: Sequence[ScoredRow]) -> list[str]:
    """Return the reasons why cells of the unsupervised table are empty; not of rows without any score."""
    there = {(row.method, row.dataset) for row in table}
    methods = {method for method, _ in there}
    return [
        f"{NAMES[method]} on {dataset}: {why_not(dataset, method) or 'not run yet'}"
        for method in grid()["methods"]
        for dataset in grid()["datasets"]
        if why_not(dataset, method) or (method in methods and (method, dataset) not in there)
    ]


def _own_methods(table: str) -> set[str]:
    """Return the methods of a table that no earlier table has."""
    names = list(SEMI_SUPERVISED)
    before = {method for each in names[: names.index(table)] for method in semi_supervised.methods_of(each)}
    return set(semi_supervised.methods_of(table)) - before
