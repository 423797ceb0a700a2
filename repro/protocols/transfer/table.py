"""The transfer table: records to rows, next to the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.evaluation.statistics import Gain, sample_std
from joao.evaluation.tables import with_deviation
from repro.tables.overview import Overview, average
from repro.tables.paper import transfer
from repro.tables.rows import ScoredRow, gain_on_one_split, gain_text, overview_lines

HEADER = [
    *("data", "method", "ROC-AUC %", "last epoch", "seeds", "gain over no pre-training (95 % CI)"),
    *("paper", "difference (last epoch - paper)", "corpus"),
]


@dataclass(frozen=True, kw_only=True)
class Row(ScoredRow):
    """ROC-AUC of a method on a data set at the epoch that the validation molecules selected.

    Attributes:
        last: scores at the last epoch, as in the paper; empty for a forest.
        corpus: what the encoder was pre-trained on.
    """

    last: Sequence[float]
    gain: Gain | None
    corpus: str

    @property
    def last_mean(self) -> float | None:
        return float(np.mean(self.last)) if self.last else None


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Summarise records. All encoders must have been pre-trained on the same molecules."""
    corpora = {record["corpus"]["fingerprint"]: record["corpus"]["data"] for record in records if record["corpus"]}
    if len(corpora) > 1:
        raise UserError(
            f"records: the encoders were pre-trained on different molecules: {', '.join(corpora.values())}."
        )
    by_cell = {(record["cell"]["dataset"], record["cell"]["method"]): record for record in records}
    return [
        Row(
            dataset=dataset,
            method=method,
            scores=[100 * score for score in record["scores"]["test"]],
            last=[100 * score for score in record["scores"].get("last_test", ())],
            gain=None if method == "none" else gain_on_one_split([record], by_cell.get((dataset, "none"))),
            paper=transfer(method, dataset),
            corpus=_corpus(record),
        )
        for (dataset, method), record in by_cell.items()
    ]


def _corpus(record: Mapping[str, Any]) -> str:
    facts = record["corpus"]
    if facts is None:
        return ""
    epochs = record["recipe"]["training"]["epochs"]
    return f"{facts['molecules']:,} molecules of {facts['data']}, {epochs} epoch{'s' if epochs > 1 else ''}"


def cells_of(row: Row) -> list[str]:
    """Return the cells of a row (:data:`HEADER`)."""
    last = "" if row.last_mean is None else with_deviation(row.last_mean, sample_std(row.last))
    paper = f"{row.paper.mean:.1f} ± {row.paper.std:.1f}" if row.paper else ""
    difference = f"{row.last_mean - row.paper.mean:+.2f}" if row.paper and row.last_mean is not None else ""
    scores = [row.score, last, str(row.num_seeds)]
    return [row.dataset, row.name, *scores, gain_text(row.gain), paper, difference, row.corpus]


SETTING = (
    "The paper pre-trained on two million molecules of ZINC15 for 100 epochs. These data are no longer available; "
    "table.md names the molecules that replace them. The validation molecules select the epoch; the paper's figures "
    "are probably those of the last epoch. MUV and HIV: 30 epochs with batch size 256 instead of 100 with batch size "
    "32."
)


def overview(table: Sequence[Row]) -> Overview:
    """Return one line per method, one column per data set, and the average of complete lines."""
    datasets = list(dict.fromkeys(row.dataset for row in table))
    lines = overview_lines(table, list(dict.fromkeys(row.method for row in table)), datasets)
    return Overview(
        title="Transfer: ROC-AUC on MoleculeNet after fine-tuning on a scaffold split",
        unit="ROC-AUC %",
        columns=datasets,
        lines=lines,
        usual_seeds=10,
        last={"average": {name: average(line) for name, line in lines.items()}},
        notes=SETTING,
    )
