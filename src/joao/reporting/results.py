"""A folder of records to the documents beside them."""

from __future__ import annotations

from pathlib import Path

from joao.files import write_file
from joao.reporting.learned import learned_markdown
from joao.reporting.tables import HEADER, cells_of, markdown, overview, rows
from joao.reproduce import grid, read_record
from joao.scoring import BASELINES

ORIGIN = "Made from the records in this folder by `joao reproduce unsupervised`; not to be edited.\n\n"


def write_results(records: Path) -> Path:
    """Makes ``table.md``, ``overview.md`` and ``learned.md`` from all records in the folder, and returns the first.

    It is the only way in which they come about.
    """
    found = [read_record(path) for path in sorted(records.glob("*/*.json"))]
    order = {name: number for number, name in enumerate([*grid()["datasets"], *BASELINES, *grid()["methods"]])}
    last = len(order)  # for what this version's recipe no longer has
    found.sort(key=lambda record: [order.get(record["cell"][key], last) for key in ("dataset", "method")])
    table = rows(found)
    path = records / "table.md"
    title = "# Unsupervised: accuracy of an SVM on frozen embeddings\n\n"
    write_file(path, title + ORIGIN + markdown(HEADER, [cells_of(row) for row in table]) + "\n")
    write_file(records / "overview.md", title + ORIGIN + overview(table) + "\n")
    learned = learned_markdown(found)
    if learned:
        write_file(records / "learned.md", "# Augmentation pairs drawn in training\n\n" + ORIGIN + learned)
    return path
