"""Learned policies: the share of training draws of each augmentation pair, averaged over seeds (Figure 3)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.core.pair_table import PairTable
from joao.core.plots import draw_panels, new_figure, pairs_panel, write_picture
from joao.evaluation.tables import markdown
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.unsupervised import run as unsupervised
from repro.tables.names import NAMES

# The data sets of the paper's figure.
FIGURE_3 = ("NCI1", "PROTEINS", "COLLAB", "REDDIT-BINARY")
LEARNING = ("joao", "joaov2", "joaov2_joao_budget", "joao_strengths")


def learned_tables(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], PairTable]:
    """Return by data set and method the share of draws of each pair, as mean over seeds."""
    shares: dict[tuple[str, str], list[Any]] = {}
    names: dict[tuple[str, str], list[str]] = {}
    for record in records:
        cell = record["cell"]
        if cell["method"] not in LEARNING or "policy" not in record:
            continue
        drawn = np.array(record["policy"]["drawn"], dtype=np.float64)
        shares.setdefault((cell["dataset"], cell["method"]), []).append(drawn / drawn.sum())
        names[cell["dataset"], cell["method"]] = record["policy"]["augmentations"]
    return {key: PairTable.of(names[key], np.mean(values, axis=0)) for key, values in shares.items()}


def learned_markdown(records: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown tables: the share of views of each augmentation, of each strength, and of every pair.

    Pairs are summed over strengths.
    """
    members = learned_tables(records)
    if not members:
        return ""
    tables = {key: table.over_strengths() for key, table in members.items()}
    pool = next(iter(tables.values())).names
    summary = [
        [dataset, NAMES[method], *(f"{share:.2f}" for share in table.by_augmentation().values()), f"{_same(table):.2f}"]
        for (dataset, method), table in tables.items()
    ]
    parts = [
        "## Share of views made by each augmentation",
        markdown(["data", "method", *pool, "same augmentation twice"], summary),
    ]
    parts += _strengths({key: table for key, table in members.items() if table.has_strengths})
    for (dataset, method), table in tables.items():
        parts += [f"## {dataset}, {NAMES[method]}", pairs_table(table, ".3f")]
    return "\n\n".join(parts) + "\n"


def pairs_table(table: PairTable, form: str) -> str:
    """Return a table over pairs as Markdown, with numbers in the given format."""
    rows = [
        [f"**{name}**", *(format(value, form) for value in row)]
        for name, row in zip(table.names, table.values, strict=True)
    ]
    return markdown(["first \\ second", *table.names], rows)


def _strengths(tables: Mapping[tuple[str, str], PairTable]) -> list[str]:
    """Return the share of views of each augmentation at each strength; nothing for pools without strengths."""
    if not tables:
        return []
    shares = {key: table.by_strength() for key, table in tables.items()}
    columns = sorted({strength for each in shares.values() for row in each.values() for strength in row})
    lines = [
        [dataset, NAMES[method], name, *(f"{row[each]:.3f}" if each in row else "" for each in columns)]
        for (dataset, method), rows in shares.items()
        for name, row in rows.items()
    ]
    heading = ["data", "method", "augmentation", *(f"at {each}" if each != "-" else "no strength" for each in columns)]
    return ["## Share of views at each strength", markdown(heading, lines)]


def _same(table: PairTable) -> float:
    """Return the share of pairs with the same augmentation twice; 1/K for the uniform distribution."""
    return float(np.trace(table.values))


def draw_figure_3(records: Sequence[Mapping[str, Any]], method: str, stem: Path) -> list[Path]:
    """Draw the share of draws of each pair over the whole training, one panel per data set, as means over seeds.

    Args:
        records: semi-supervised or unsupervised records.
        method: ``joao``, or ``joaov2`` for the paper's Figure S1.
        stem: path of the files to write, without suffix.
    """
    tables = {dataset: table for (dataset, name), table in learned_tables(records).items() if name == method}
    in_figure = [name for name in FIGURE_3 if name in tables]
    tables = {name: tables[name] for name in (*in_figure, *sorted(tables.keys() - {*FIGURE_3}))}
    if not tables:
        raise UserError(f"figure 3: no record of {method} contains the pairs that were drawn.")
    with new_figure(1 + 3.3 * len(tables), 3.5) as figure:
        panels = [pairs_panel(dataset, table.over_strengths()) for dataset, table in tables.items()]
        draw_panels(figure, panels, same_rows=True)
        return write_picture(figure, stem)


def read_policies(folder: Path, datasets: Sequence[str], method: str) -> list[dict[str, Any]]:
    """Return the records of a method on the named data sets; each data set must have some.

    Semi-supervised records with 10 % of the labels are preferred (those with 1 % have the same pre-training), then
    records of the unsupervised table.
    """
    tables = [semi_supervised.record_file(folder).read(), unsupervised.record_file(folder).read()]
    usual = {"label_rate": 10, "inductive": False, "twins_together": False}
    found = []
    for dataset in datasets:
        wanted = {"dataset": dataset, "method": method, **usual}
        own = [
            [
                record
                for record in table
                if all(wanted.get(key, value) == value for key, value in record["cell"].items())
            ]
            for table in tables
        ]
        if not any(own):
            raise UserError(f"{folder}: no record of {method} on {dataset}. Compute it: python -m repro unsupervised.")
        found += own[0] or own[1]
    return found
