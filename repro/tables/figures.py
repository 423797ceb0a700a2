"""The paper's Figures 2 and 3, from this project's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.evaluation.tables import markdown
from joao.report.plots import COLOURS, DASHES, draw_panels, new_figure, pairs_panel, write_picture
from joao.report.scores import effective_pairs
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.unsupervised import run as unsupervised
from repro.tables.learned import learned_tables

# Where the paper drew its tables.
FIGURE_3 = ("NCI1", "PROTEINS", "COLLAB", "REDDIT-BINARY")


def draw_figure_2(records: Sequence[Mapping[str, Any]], stem: Path) -> list[Path]:
    """Loss by epoch for several gamma, a panel a data set: means over seeds, with the least and the most.

    Args:
        records: of :mod:`repro.protocols.gamma`.
        stem: of the files to write.
    """
    losses: dict[str, dict[float, list[list[float]]]] = {}
    for record in records:
        cell = record["cell"]
        losses.setdefault(cell["dataset"], {}).setdefault(cell["gamma"], []).append(record["losses"])
    with new_figure(3.6 * len(losses), 2.8) as figure:
        for axes, (dataset, by_gamma) in zip(
            figure.subplots(1, len(losses), squeeze=False)[0], losses.items(), strict=True
        ):
            for number, (gamma, curves) in enumerate(sorted(by_gamma.items())):
                values = np.array(curves)
                epochs = np.arange(1, values.shape[1] + 1)
                look = {"color": COLOURS[number % len(COLOURS)]}
                axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), alpha=0.15, lw=0, **look)
                axes.plot(epochs, values.mean(axis=0), DASHES[number % len(DASHES)], label=f"γ = {gamma:g}", **look)
            axes.set_title(dataset)
            axes.set_xlabel("epoch")
            axes.set_ylabel("contrastive loss")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend()
        return write_picture(figure, stem)


def gamma_markdown(records: Sequence[Mapping[str, Any]]) -> str:
    """What the curves end in and how far the table moves, as Markdown: means over seeds.

    A table moves by half the sum of the differences of its probabilities: 0 is not at all, 1 is to other pairs.
    """
    groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["cell"]["dataset"], record["cell"]["gamma"]), []).append(record)
    lines = []
    for (dataset, gamma), own in groups.items():
        tables = [np.array(record["probabilities"]) for record in own]
        figures = [
            [record["losses"][-1] for record in own],
            [effective_pairs(table[-1]) for table in tables],
            *([np.abs(table[lag:] - table[:-lag]).sum((1, 2)).mean() / 2 for table in tables] for lag in (1, 2)),
        ]
        loss, pairs, one, two = (float(np.mean(values)) for values in figures)
        lines.append([dataset, f"{gamma:g}", str(len(own)), f"{loss:.3f}", f"{pairs:.1f}", f"{one:.2f}", f"{two:.2f}"])
    header = ["data", "gamma", "seeds", "last loss", "pairs in effect at the end", "moved in an epoch", "in two epochs"]
    return markdown(header, lines) + "\n"


def draw_figure_3(records: Sequence[Mapping[str, Any]], method: str, stem: Path) -> list[Path]:
    """The share of graphs shown under each pair in the whole training, a panel a data set: means over seeds.

    Args:
        records: of ``joao reproduce``, semi-supervised or unsupervised.
        method: ``joao``; for the paper's Figure S1, ``joaov2``.
        stem: of the files to write.
    """
    tables = {dataset: table for (dataset, name), table in learned_tables(records).items() if name == method}
    tables = {name: tables[name] for name in sorted(tables, key=_place)}
    if not tables:
        raise UserError(f"figure 3: no record of {method} says which pairs were drawn.")
    with new_figure(1 + 3.3 * len(tables), 3.5) as figure:
        panels = [pairs_panel(dataset, table.over_strengths()) for dataset, table in tables.items()]
        draw_panels(figure, panels, same_rows=True)
        return write_picture(figure, stem)


def _place(dataset: str) -> tuple[int, str]:
    return (FIGURE_3.index(dataset) if dataset in FIGURE_3 else len(FIGURE_3)), dataset


def read_policies(folder: Path, datasets: Sequence[str], method: str) -> list[dict[str, Any]]:
    """The records of a method in a folder of ``joao reproduce``, of the named data sets; each must have some.

    Of the semi-supervised protocol those of 10 % of the labels: the pre-training is that of 1 %, too.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder of records. Make some with 'joao reproduce'.")
    found = []
    for dataset in datasets:
        few = [semi_supervised.read_record(path) for path in sorted((folder / dataset).glob(f"{method}-10-?.json"))]
        all_labels = sorted((folder / dataset).glob(f"{method}-?.json"))
        own = few or [unsupervised.read_record(path) for path in all_labels]
        if not own:
            raise UserError(f"{folder / dataset}: has no record of {method}. Make some with 'joao reproduce'.")
        found += own
    return found
