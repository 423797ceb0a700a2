"""The transfer table: records to rows, next to the paper's figures, by two rules for the epoch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from joao.core.errors import UserError
from joao.evaluation.statistics import Gain, sample_std
from joao.evaluation.tables import with_deviation
from repro.tables.overview import Figure, Overview, average
from repro.tables.paper import transfer
from repro.tables.rows import ScoredRow, gain_on_one_split, gain_text, overview_lines, row_name

HEADER = [
    *("data", "method", "last epoch, ROC-AUC %", "gain over no pre-training (95 % CI)"),
    *("epoch by validation, ROC-AUC %", "gain over no pre-training (95 % CI)", "seeds"),
    *("paper", "difference (last epoch - paper)", "corpus", "test molecules in the corpus"),
]
# What a row is called in the overview for each rule.
LAST, CHOSEN = "last epoch", "epoch by validation"


@dataclass(frozen=True, kw_only=True)
class Row(ScoredRow):
    """ROC-AUC of a method on a data set at the epoch that the validation molecules selected.

    Attributes:
        last: scores at the last epoch, as probably in the paper; empty for a forest, which has no epochs.
        gain: over no pre-training, at the selected epoch of both.
        last_gain: the same at the last epoch of both; of a forest, over the last epoch of no pre-training.
        corpus: what the encoder was pre-trained on.
        shared: how many test molecules are in the corpus; empty if that is not known.
    """

    last: Sequence[float]
    gain: Gain | None
    last_gain: Gain | None
    corpus: str
    shared: str = ""

    @property
    def last_mean(self) -> float | None:
        return float(np.mean(self.last)) if self.last else None

    @property
    def by_last_epoch(self) -> Row:
        """The same row with the last epoch as its score; a forest is returned as it is."""
        return dataclasses.replace(self, scores=self.last, gain=self.last_gain) if self.last else self


def rows(records: Sequence[Mapping[str, Any]], overlap: Mapping[str, Any] | None = None) -> list[Row]:
    """Summarise records. All encoders must have been pre-trained on the same molecules.

    Args:
        records: of the table.
        overlap: how many test molecules the corpus has (:func:`repro.protocols.transfer.overlap.count`).
    """
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
            gain=None if method == "none" else gain_on_one_split(record, by_cell.get((dataset, "none"))),
            last_gain=None if method == "none" else _last_gain(record, by_cell.get((dataset, "none"))),
            paper=transfer(method, dataset),
            corpus=_corpus(record),
            shared=_shared(record, overlap),
        )
        for (dataset, method), record in by_cell.items()
    ]


def _last_gain(record: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> Gain | None:
    if baseline is None or "last_test" not in baseline["scores"]:
        return None
    kind = "last_test" if "last_test" in record["scores"] else "test"
    return gain_on_one_split(record, baseline, kind, "last_test")


def _corpus(record: Mapping[str, Any]) -> str:
    facts = record["corpus"]
    if facts is None:
        return ""
    epochs = record["recipe"]["training"]["epochs"]
    return f"{facts['molecules']:,} molecules of {facts['data']}, {epochs} epoch{'s' if epochs > 1 else ''}"


def _shared(record: Mapping[str, Any], overlap: Mapping[str, Any] | None) -> str:
    if record["corpus"] is None or overlap is None or record["corpus"]["molecules"] != overlap["corpus"]:
        return ""
    return shared_text(overlap["sets"][record["cell"]["dataset"]])


def shared_text(found: Mapping[str, int]) -> str:
    """
    >>> shared_text({"test": 204, "with stereochemistry": 13, "without stereochemistry": 15})
    '15 of 204 (13 with the same stereochemistry)'
    """
    stereo = found["with stereochemistry"]
    return f"{found['without stereochemistry']} of {found['test']} ({stereo} with the same stereochemistry)"


def cells_of(row: Row) -> list[str]:
    """Return the cells of a row (:data:`HEADER`)."""
    last = "" if row.last_mean is None else with_deviation(row.last_mean, sample_std(row.last))
    paper = f"{row.paper.mean:.1f} ± {row.paper.std:.1f}" if row.paper else ""
    difference = f"{row.last_mean - row.paper.mean:+.2f}" if row.paper and row.last_mean is not None else ""
    scores = [last, gain_text(row.last_gain), row.score, gain_text(row.gain), str(row.num_seeds)]
    return [row.dataset, row.name, *scores, paper, difference, row.corpus, row.shared]


SETTING = (
    "The paper pre-trained on two million molecules of ZINC15 for 100 epochs. These data were not available here; "
    "table.md names the molecules that replace them. Every row is shown by two rules: at the last epoch, which the "
    "paper's figures probably use, and at the epoch that the validation molecules select. Random forests have no "
    "epochs. MUV and HIV: 30 epochs with batch size 256 instead of 100 with batch size 32. Every row has one "
    "pre-training on a corpus with test molecules; its seeds say how fine-tuning varies and nothing about another "
    "pre-training, so that its gains have no interval. Random forests have one."
)


def overlap_note(overlap: Mapping[str, Any]) -> str:
    """How many test molecules of each set the corpus has."""
    sets = ", ".join(
        f"{name} {found['without stereochemistry']} ({found['with stereochemistry']}) of {found['test']}"
        for name, found in overlap["sets"].items()
    )
    return (
        "Test molecules in the corpus of these rows, without labels, by canonical SMILES without stereochemistry (in "
        f"brackets: with it): {sets}. Molecules of the corpus that this concerns: {overlap['left out']:,} of "
        f"{overlap['corpus']:,}. They are left out of every corpus that is used from now on."
    )


def overview(table: Sequence[Row], overlap: Mapping[str, Any] | None = None) -> Overview:
    """Return two lines per method, one for each rule, one column per data set, and the average of complete lines."""
    datasets = list(dict.fromkeys(row.dataset for row in table))
    methods = list(dict.fromkeys(row.method for row in table))
    chosen = overview_lines(table, methods, datasets)
    last = overview_lines([row.by_last_epoch for row in table], methods, datasets)
    lines: dict[str, Sequence[Figure | None]] = {}
    for method in methods:
        name = row_name(method)
        if any(row.method == method and row.last for row in table):
            lines |= {f"{name}, {LAST}": last[name], f"{name}, {CHOSEN}": chosen[name]}
        else:
            lines[name] = chosen[name]
    return Overview(
        title="Transfer: ROC-AUC on MoleculeNet after fine-tuning on a scaffold split",
        unit="ROC-AUC %",
        columns=datasets,
        lines=lines,
        usual_seeds=10,
        groups={name: rule for name in lines for rule in (LAST, CHOSEN) if name.endswith(f", {rule}")},
        last={"average": {name: average(line) for name, line in lines.items()}},
        notes=SETTING,
        empty_cells=[
            f"{name} on {dataset}: not computed."
            for name, line in lines.items()
            for dataset, figure in zip(datasets, line, strict=True)
            if figure is None
        ],
        paragraphs=() if overlap is None else (overlap_note(overlap),),
    )
