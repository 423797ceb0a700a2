"""Rows and figures of the records that the blocks of the documentation quote."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from joao.core.errors import UserError
from repro.findings.evidence import read_evidence
from repro.findings.findings import Findings, findings_of
from repro.protocols.ogb import run as ogb
from repro.protocols.ogb import table as ogb_table
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.semi_supervised import table as few_labels
from repro.protocols.transfer import run as transfer
from repro.protocols.transfer import table as transfer_table
from repro.protocols.unsupervised import run as unsupervised
from repro.protocols.unsupervised import table as unsupervised_table
from repro.record_files import RECORDS
from repro.tables.rows import ScoredRow


@cache
def unsupervised_rows() -> dict[tuple[str, str], unsupervised_table.Row]:
    """By method (with its variant, such as ``joao-twins``) and data set."""
    found = unsupervised_table.rows(unsupervised.record_file(RECORDS).read())
    return {(row.method, row.dataset): row for row in found}


@cache
def few_label_rows() -> dict[tuple[str, int, str], few_labels.Row]:
    """By method, label rate and data set, in the order of the grid."""
    order = list(semi_supervised.grid()["datasets"])
    records = semi_supervised.record_file(RECORDS).read()
    records = sorted(records, key=lambda record: order.index(record["cell"]["dataset"]))
    return {(row.method, row.label_rate or 0, row.dataset): row for row in few_labels.rows(records)}


@cache
def redefined() -> list[list[str]]:
    """Gains over no pre-training by its first definition and now."""
    files = (semi_supervised.record_file(RECORDS), semi_supervised.record_file(RECORDS, "no-pretraining-first"))
    return few_labels.redefined_lines(*(each.read() for each in files))


@cache
def transfer_rows() -> dict[tuple[str, str], transfer_table.Row]:
    """By method and data set."""
    found = transfer_table.rows(transfer.record_file(RECORDS).read())
    return {(row.method, row.dataset): row for row in found}


@cache
def ogb_rows() -> list[ogb_table.Row]:
    return ogb_table.rows(ogb.record_file(RECORDS).read())


@cache
def findings() -> Findings:
    return findings_of(read_evidence(RECORDS))


@cache
def benchmark(name: str) -> dict[str, Any]:
    """The only setting of a benchmark record."""
    record = json.loads((RECORDS / f"benchmarks/{name}.json").read_text(encoding="utf-8"))
    (setting,) = record["settings"]
    result: dict[str, Any] = setting
    return result


def unsupervised_sets() -> list[str]:
    return list(unsupervised.grid()["datasets"])


def transfer_sets() -> list[str]:
    return list(transfer.grid()["datasets"])


def mean(rows: Iterable[ScoredRow]) -> float:
    return float(np.mean([row.mean for row in rows]))


def paper_mean(rows: Iterable[ScoredRow]) -> float | None:
    """None unless the paper has a figure for all of them."""
    papers = [None if row.paper is None else row.paper.mean for row in rows]
    return None if None in papers else float(np.mean([each for each in papers if each is not None]))


def listed(names: Sequence[str]) -> str:
    """``A, B and C``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def count_word(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[number] if number < len(words) else str(number)


def require(condition: bool, sentence: str) -> None:
    """Raise an error if a sentence of a block no longer agrees with the records."""
    if not condition:
        raise UserError(f"documentation: no longer true, change the text in repro/documents: {sentence}")
