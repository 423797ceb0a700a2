"""A folder of records to the documents beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joao.files import write_file
from joao.reporting import ogb as of_ogb
from joao.reporting import pairs
from joao.reporting import semi_supervised as few_labels
from joao.reporting import transfer as of_transfer
from joao.reporting.costs import HEADER as COST_HEADER
from joao.reporting.costs import cost_lines
from joao.reporting.learned import learned_markdown
from joao.reporting.objectives import HEADER as OBJECTIVE_HEADER
from joao.reporting.objectives import objective_lines
from joao.reporting.strengths import HEADER as STRENGTH_HEADER
from joao.reporting.strengths import strength_lines
from joao.reporting.tables import HEADER, NAMES, OBJECTIVES, cells_of, markdown, overview, rows
from joao.reproduce import ogb, semi_supervised, transfer
from joao.reproduce.unsupervised import grid, read_record, rows_of, why_not
from joao.scoring import REFERENCES

SEMI_SUPERVISED = {
    "semi_supervised": "Semi-supervised: accuracy after fine-tuning with few labels",
    "strength": "Ablation of strength: JOAO and JOAOv2 at 0.2 and 0.25",
    "prior": "Ablation of the prior: JOAO with gamma = 0",
    "pairs": "Every pair of augmentations by itself",
}


RANKS = (
    "In brackets: the paper's. Average rank: of the places among the rows that the paper's table has, by our figures, "
    "over the data sets that the row has a figure on; equal figures share places.\n\n"
)
COSTS = (
    "Seconds and memory of making the embeddings, pre-training included, without reading and scoring: the median and "
    "the largest of the seeds. Records made before memory was measured have none. Other work ran beside.\n\n"
)
CORPUS = (
    "The paper pre-trained on two million molecules of ZINC15 for 100 epochs; that corpus cannot be had any more, and "
    "the last column says what stands in for it. Epochs are chosen by the validation molecules; the paper's figures "
    "are probably those of the last epoch, which stands beside.\n\n"
)
OGB = (
    "The paper has ogbg-ppa and ogbg-code; its figures are in brackets. OGB put ogbg-code2 in the place of ogbg-code, "
    "whose figures it stands beside. Molecules are not in the paper; the encoder and the epochs of their rows are "
    "smaller than its own, as the recipe says. Seeds share one pre-training and differ in the labelled graphs; those "
    "of all methods are the same.\n\n"
)


def write_results(records: Path) -> Path:
    """Makes ``table.md``, ``overview.md``, ``costs.md``, ``strengths.md`` and so on from all records in the folder.

    It is the only way in which they come about. Returns the first.
    """
    found = [read_record(path) for path in sorted(records.glob("*/*.json"))]
    order = {name: number for number, name in enumerate([*grid()["datasets"], *REFERENCES, *grid()["methods"]])}
    last = len(order)  # for what this version's recipe no longer has
    found.sort(key=lambda record: [order.get(record["cell"][key], last) for key in ("dataset", "method")])
    table = rows(found)
    of_paper = [row for row in table if row.method not in set(rows_of("objectives")) - set(rows_of("unsupervised"))]
    path = records / "table.md"
    heading = _heading("Unsupervised: accuracy of an SVM on frozen embeddings", "unsupervised")
    write_file(path, heading + markdown(HEADER, [cells_of(row) for row in table]) + "\n")
    write_file(records / "overview.md", heading + RANKS + overview(of_paper) + "\n" + _open_cells())
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
    return path


def write_semi_supervised(records: Path) -> Path:
    """Makes ``semi-supervised.md``, ``overview.md``, ``learned.md`` and the ablations' from all records in the folder.

    It is the only way in which they come about.
    """
    found = [semi_supervised.read_record(path) for path in sorted(records.glob("*/*.json"))]
    methods = list(semi_supervised.grid()["methods"])
    sets = list(semi_supervised.grid()["datasets"])
    by_order = {(each, "dataset"): number for number, each in enumerate(sets)}
    by_order |= {(each, "method"): number for number, each in enumerate([*methods, *semi_supervised.PAIRS])}
    last = len(by_order)  # for what this version's recipe no longer has

    def place(record: Mapping[str, Any]) -> list[int]:
        cell = record["cell"]
        names = [by_order.get((cell[key], key), last) for key in ("dataset", "method")]
        return [cell["label_rate"], *names, cell["seed"]]

    found.sort(key=place)
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
                write_file(records / "overview.md", heading + few_labels.overview(made) + "\n")
    learned = learned_markdown([record for record in found if record["cell"]["label_rate"] == 10])
    if learned:
        heading = _heading("Augmentation pairs drawn in training", "semi-supervised")
        write_file(records / "learned.md", heading + learned)
    return records


def write_transfer(records: Path) -> Path:
    """Makes ``table.md`` and ``overview.md`` from all records in the folder, and returns the first.

    It is the only way in which they come about.
    """
    found = [transfer.read_record(path) for path in sorted(records.glob("*/*.json"))]
    order = {name: number for number, name in enumerate([*transfer.grid()["datasets"], *transfer.grid()["methods"]])}
    found.sort(key=lambda record: [order.get(record["cell"][key], len(order)) for key in ("dataset", "method")])
    table = of_transfer.rows(found)
    path = records / "table.md"
    heading = _heading("Transfer: ROC-AUC on MoleculeNet after fine-tuning on a scaffold split", "transfer") + CORPUS
    write_file(path, heading + markdown(of_transfer.HEADER, [of_transfer.cells_of(row) for row in table]) + "\n")
    write_file(records / "overview.md", heading + of_transfer.overview(table) + "\n")
    return path


def write_ogb(records: Path) -> Path:
    """Makes ``table.md`` and ``overview.md`` from all records in the folder, and returns the first.

    It is the only way in which they come about.
    """
    found = [ogb.read_record(path) for path in sorted(records.glob("*/*.json"))]
    order = {name: number for number, name in enumerate([*ogb.grid()["datasets"], *ogb.grid()["methods"]])}

    def place(record: Mapping[str, Any]) -> list[int]:
        cell = record["cell"]
        names = [order.get(cell[key], len(order)) for key in ("dataset", "method")]
        return [names[0], cell["label_rate"], names[1]]

    table = of_ogb.rows(sorted(found, key=place))
    path = records / "table.md"
    heading = _heading("OGB: few labels of the official training part", "ogb") + OGB
    write_file(path, heading + markdown(of_ogb.HEADER, [of_ogb.cells_of(row) for row in table]) + "\n")
    in_paper = [(name, rate) for name in ("ogbg-ppa", "ogbg-code2") for rate in ogb.grid()["label_rates"]]
    write_file(records / "overview.md", heading + of_ogb.overview(table, in_paper, list(ogb.grid()["methods"])) + "\n")
    return path


def _open_cells() -> str:
    """Why cells of the unsupervised table are empty."""
    reasons = [
        f"- {NAMES[method]} on {dataset}: {reason}"
        for method in grid()["methods"]
        for dataset in grid()["datasets"]
        if (reason := why_not(dataset, method))
    ]
    return "\n".join(["", "Left open:", "", *reasons, ""]) if reasons else ""


def _own_methods(table: str) -> set[str]:
    """The methods that make a table one: those that no table before it has."""
    names = list(SEMI_SUPERVISED)
    before = {method for each in names[: names.index(table)] for method in semi_supervised.methods_of(each)}
    return set(semi_supervised.methods_of(table)) - before


def _command(table: str) -> str:
    return table.replace("_", "-")


def _heading(title: str, command: str) -> str:
    return f"# {title}\n\nMade from the records in this folder by `joao reproduce {command}`; not to be edited.\n\n"
