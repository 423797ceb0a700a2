"""All generated pages and blocks of the documentation.

A block is the text between ``<!-- generated: NAME -->`` and ``<!-- end generated -->``. :mod:`repro.documents.blocks`
has one function per block.
"""

import re
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from joao.core.errors import UserError
from joao.core.files import make_folder, write_file
from repro.documents import what_changed
from repro.documents.blocks import BLOCKS
from repro.protocols import gamma
from repro.protocols.check import read_remade
from repro.record_files import RECORDS, Record
from repro.studies import (
    benchmark_tables,
    cluster,
    combinations,
    compiled_core,
    controls,
    coverage,
    criteria,
    defaults,
    embedding,
    epochs,
    evaluation_share,
    factors,
    fast_path,
    faults,
    few_labels,
    frozen_few_labels,
    fuzzing,
    headroom,
    hostile_files,
    kernels,
    kills,
    learned_table,
    linear_scorer,
    molecule_cpu,
    molecule_pairs,
    molecule_pretraining,
    molecule_rivals,
    molecule_speed,
    molecule_tables,
    mutants,
    pair_losses,
    preset_large,
    processes,
    reading_order,
    remade,
    report_page,
    scorers,
    shards,
    strengths,
    sweep,
)
from repro.studies.common import read_record
from repro.tables.pages import PAGES, combined_page, combined_sections

ROOT = RECORDS.parents[1]
RESULTS = ROOT / "docs/results"
SUMMARIES: dict[str, str] = tomllib.loads(Path(__file__).with_name("summaries.toml").read_text(encoding="utf-8"))
_BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end generated -->)", re.DOTALL)


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2].replace("_", "-")


# Pages of studies with one record, which page functions take, and of studies with tables of records.
_ONE_RECORD: dict[str, Callable[..., str]] = {
    **{
        _name(module): module.page
        for module in (
            *(cluster, compiled_core, evaluation_share, fast_path, faults, fuzzing, hostile_files, kernels, kills),
            *(molecule_cpu, molecule_speed, mutants, pair_losses, processes, reading_order, report_page, shards),
            strengths,
        )
    },
    "coverage": partial(coverage.page, name="coverage.json"),
    "epoch-choice": epochs.choice_page,
    "published-epoch": epochs.rule_page,
}


def _records_of(*modules: ModuleType) -> list[list[Record]]:
    """The records of studies, one file each."""
    return [sweep.record_file(RECORDS / f"{_name(module)}.jsonl").read() for module in modules]


def headroom_page() -> str:
    records, judged = _records_of(headroom, criteria)
    return f"{headroom.page(records)}\n{criteria.section(judged, records)}"


def _page_of_lines(module: ModuleType) -> str:
    return str(module.page(*_records_of(module)))


_TABLES: dict[str, Callable[[], str]] = {
    **{
        _name(module): partial(_page_of_lines, module)
        for module in (
            *(combinations, few_labels, embedding, molecule_pretraining, molecule_rivals, molecule_tables),
            molecule_pairs,
        )
    },
    "benchmarks/tables": benchmark_tables.page,
    "controls": lambda: controls.page(controls.read_all()),
    "defaults": partial(defaults.table_page, "defaults"),
    "defaults-cpu": partial(defaults.table_page, "defaults-cpu"),
    "preset-large": lambda: preset_large.page(*_records_of(preset_large, combinations)),
    "frozen-few-labels": lambda: frozen_few_labels.page(*_records_of(frozen_few_labels, few_labels)),
    "factors": lambda: factors.page(factors.read_all()),
    "gamma/table": lambda: gamma.page([gamma.record_file(RECORDS)[cell.key] for cell in gamma.cells()]),
    "headroom": headroom_page,
    "learned-table": learned_table.page,
    "remade": lambda: remade.page(read_remade(RECORDS)),
    "what-changed": what_changed.page,
    "scorers": lambda: scorers.page(scorers.record_file(RECORDS).read()),
    "linear-scorer": lambda: linear_scorer.page(linear_scorer.record_file(RECORDS).read()),
}


def result_pages() -> dict[Path, str]:
    """Return the texts of all pages in ``docs/results`` that are generated from records."""
    texts = {f"{name}.md": page(read_record(name)) for name, page in _ONE_RECORD.items()}
    texts |= {f"{name}.md": page() for name, page in _TABLES.items()}
    for protocol, pages in PAGES.items():
        texts |= {f"{protocol}/{name}": text for name, text in pages(RECORDS).texts.items()}
    texts |= {name: combined_page(section) for name, section in combined_sections(RECORDS).items()}
    return {RESULTS / name: with_summary(name.removesuffix(".md"), text) for name, text in texts.items()}


def with_summary(name: str, page: str) -> str:
    """Insert what was asked, the answer and what it does not show below the title of a page."""
    if name not in SUMMARIES:
        raise UserError(f"repro/documents/summaries.toml: no paragraph for the page '{name}'. Write one.")
    title, rest = page.split("\n", 1)
    return f"{title}\n\n{SUMMARIES[name]}\n{rest}"


def pages_with_blocks() -> dict[Path, str]:
    """Return the texts of all hand-written pages, with their blocks up to date."""
    texts = {}
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        if RESULTS not in path.parents:
            text = path.read_text(encoding="utf-8")
            if _BLOCK.search(text):
                texts[path] = _BLOCK.sub(partial(_fill, path), text)
    return texts


def _fill(path: Path, found: re.Match[str]) -> str:
    start, name, _, end = found.groups()
    if name not in BLOCKS:
        raise UserError(f"{path}: unknown block '{name}'. Known: {', '.join(BLOCKS)}.")
    return f"{start}{BLOCKS[name]()}\n{end}"


def outdated() -> dict[Path, str]:
    """Return the new texts of all pages that are not up to date."""
    texts = {**result_pages(), **pages_with_blocks()}
    return {path: text for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def write_documents() -> list[Path]:
    """Write all pages that are not up to date, and the pictures of the tables; return the paths of the pages."""
    changed = outdated()
    for path, text in changed.items():
        make_folder(path.parent)
        write_file(path, text)
    for protocol, pages in PAGES.items():
        for name, draw in pages(RECORDS).pictures.items():
            draw(RESULTS / protocol / name)
    return [path.relative_to(ROOT) for path in changed]
